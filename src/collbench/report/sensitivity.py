"""What launches can show: the result of a self-test, in which nothing differs, and what numbers of launches decide."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from collbench.analysis.compare import Comparison
from collbench.analysis.planning import STEPS, Cost, Movement, Power
from collbench.report.cells import verdict
from collbench.report.headings import operation
from collbench.report.numbers import change, difference_text
from collbench.report.tables import Table
from collbench.report.verdict import whole_reason
from collbench.units import counted, format_long, format_size


@dataclass(frozen=True)
class SelfTest:
    """What a self-test found: `rate` of false positives, by comparison the `smallest` difference seen, a share.

    `moved` are the yardsticks over its launches, `cost` what the spread of launches costs.
    """

    comparisons: tuple[Comparison, ...]
    rate: float
    smallest: tuple[float | None, ...]
    launches: int
    moved: tuple[Movement, ...]
    cost: Cost | None


def tables(found: SelfTest) -> list[Table]:
    """The answer in a sentence, and one table, rows by operation and size."""
    comparisons, launches = found.comparisons, found.launches
    rows = tuple(_row(comparison, least) for comparison, least in zip(comparisons, found.smallest, strict=True))
    columns = ("operation", "size (B)", "difference", "verdict", "seen from")
    notes = (
        "both sides are the same: at most 1 question of 20 should call any size different; here "
        f"{found.rate * 100:.1f} % of random relabellings of the sides do",
        "seen from: the least loss, of one size alone, that 80 % of relabellings call slower",
        restlessness(found.moved, found.cost),
    )
    return [Table(_answer(comparisons, found.smallest, launches), columns, rows, notes)]


def _answer(comparisons: Sequence[Comparison], smallest: Sequence[float | None], launches: int) -> str:
    """`7 launches a side: no equal cell of 6 called different; a loss of 7 % is seen in 3 of them, of 15 % in all`."""
    verdicts = Counter(comparison.verdict for comparison in comparisons)
    wrong = verdicts["slower"] + verdicts["faster"]
    cells = counted(len(comparisons), "equal cell")
    start = f"{launches} launches a side: {f'{wrong} of {cells}' if wrong else f'none of {cells}'} called different"
    seen = sorted(math.inf if least is None else least for least in smallest)
    middle, last = seen[(len(seen) - 1) // 2], seen[-1]
    if math.isinf(middle):
        return f"{start}; differences of {STEPS[-1] * 100:.0f} % are not seen in most of them"
    share = f"a loss of {middle * 100:.0f} % is seen"
    if middle == last:
        return f"{start}; {share} in all"
    all_of_them = "" if math.isinf(last) else f", of {last * 100:.0f} % in all"
    return f"{start}; {share} in half of them{all_of_them}"


def restlessness(moved: tuple[Movement, ...], cost: Cost | None) -> str:
    """How far the machine moved, how far launches spread, and what a difference therefore takes."""
    shares = ", ".join(f"{one.name} by {one.share * 100:.0f} %" for one in moved)
    machine = f"the machine moved: {shares}" if moved else "no yardstick could be read"
    if cost is None:
        return machine
    launches, spread = counted(cost.launches, "launch", "launches"), f"launches spread by {cost.spread * 100:.1f} %"
    return f"{machine}; {spread}, so a difference of {cost.difference * 100:g} % takes about {launches} a side"


def _row(comparison: Comparison, least: float | None) -> tuple[str, ...]:
    case, ratio = comparison.pair.base.case, comparison.ratio
    measured = "" if ratio is None else difference_text(ratio)
    seen = f"none up to {STEPS[-1] * 100:.0f} %" if least is None else f"{least * 100:.0f} %"
    return (operation(case), format_size(case["size"]), measured, verdict(comparison), seen)


def power_table(numbers: Sequence[tuple[Power, float]], run: str, margin: float, in_turns: bool) -> Table:
    """What numbers of launches decide, each with how long they take (s), if they spread as in a run.

    `in_turns`: worlds of that run measured alternately, as duets.
    """
    cells = len(numbers[0][0].differences)
    rows = tuple(
        (str(power.launches), format_long(seconds), *(_share(power.differences[place]) for place in _places(cells)),
         f"{power.same} of {cells}")
        for power, seconds in numbers
    )  # fmt: skip
    columns = ("launches", "time", "seen in half", "seen in 90 %", f"same within {margin * 100:g} %")
    notes = (
        "seen: the least difference that 80 % of runs show, in half of the comparisons and in 90 % of them",
        f"same: comparisons that 80 % of runs call the same within {margin * 100:g} %, if nothing differs",
    )
    blocks = "" if in_turns else f"; {run} was in blocks, and duets spread less"
    title = f"what launches decide of {counted(cells, 'comparison')}, if they spread as in {run}{blocks}"
    return Table(title, columns, rows, notes)


def _places(cells: int) -> tuple[int, int]:
    """Of so many in order the middle one, and the one that nine of ten do not exceed."""
    return (cells - 1) // 2, max(math.ceil(0.9 * cells) - 1, 0)


def _share(difference: float) -> str:
    return change(1 + difference).removeprefix("+")


def document(found: SelfTest) -> dict[str, Any]:
    """The same for programs; differences as shares."""
    entries = [_entry(comparison, least) for comparison, least in zip(found.comparisons, found.smallest, strict=True)]
    moved = {one.name: {"least": one.least, "largest": one.largest, "readings": one.readings} for one in found.moved}
    return {
        "launches": found.launches, "false_positive_rate": found.rate, "cells": entries, "yardsticks": moved,
        "cost": None if found.cost is None else asdict(found.cost),
    }  # fmt: skip


def _entry(comparison: Comparison, least: float | None) -> dict[str, Any]:
    case, ratio = comparison.pair.base.case, comparison.ratio
    return {
        "operation": operation(case), "size": case["size"], "verdict": comparison.verdict,
        "why": whole_reason(comparison),
        "ratio": None if ratio is None else ratio.value, "interval": None if ratio is None else ratio.interval,
        "smallest": least,
    }  # fmt: skip
