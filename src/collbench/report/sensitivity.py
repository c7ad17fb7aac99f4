"""What launches can show: the result of a self-test, in which nothing differs, and what numbers of launches decide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from collbench.analysis.compare import Comparison
from collbench.analysis.planning import STEPS, Cost, Movement, Power
from collbench.report.cells import verdict
from collbench.report.headings import operation, size_text
from collbench.report.numbers import change, difference_text
from collbench.report.tables import Table, in_columns_of
from collbench.report.verdict import whole_reason
from collbench.units import counted, format_long


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


def tables(test: SelfTest) -> list[Table]:
    """The answer in a sentence, and one table, rows by operation and size."""
    columns = in_columns_of([*zip(test.comparisons, test.smallest, strict=True)], {
        "operation": lambda row: operation(row[0].pair.base.case),
        "size (B)": lambda row: size_text(row[0].pair.base.case),
        "difference": lambda row: difference_text(row[0].ratio) if row[0].ratio else "",
        "verdict": lambda row: verdict(row[0]),
        "seen from": lambda row: _percent(row[1]) if row[1] is not None else f"none up to {_percent(STEPS[-1])}",
    })  # fmt: skip
    notes = (
        "both sides are the same: at most 1 question of 20 should call any size different; here "
        f"{test.rate * 100:.1f} % of random relabellings of the sides do",
        "seen from: the least loss, of one size alone, that 80 % of relabellings call slower",
        restlessness(test.moved, test.cost),
    )
    return [Table.of(_answer(test), columns, notes)]


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _answer(test: SelfTest) -> str:
    """`7 launches a side: none of 6 equal cells called different; a loss of 7 % is seen in half of them, ...`."""
    wrong = sum(comparison.verdict in ("slower", "faster") for comparison in test.comparisons)
    cells = counted(len(test.comparisons), "equal cell")
    start = f"{test.launches} launches a side: {wrong or 'none'} of {cells} called different"
    smallest = sorted(math.inf if least is None else least for least in test.smallest)
    middle, last = smallest[(len(smallest) - 1) // 2], smallest[-1]
    if math.isinf(middle):
        return f"{start}; differences of {_percent(STEPS[-1])} are not seen in most of them"
    in_all = "" if math.isinf(last) else f", of {_percent(last)} in every cell"
    where = "every cell" if middle == last else f"half of them{in_all}"
    return f"{start}; a loss of {_percent(middle)} is seen in {where}"


def restlessness(moved: tuple[Movement, ...], cost: Cost | None) -> str:
    """How far the machine moved, how far launches spread, and what a difference therefore takes."""
    shares = ", ".join(f"{reading.name} by {_percent(reading.share)}" for reading in moved)
    machine = f"the machine moved: {shares}" if moved else "no yardstick could be read"
    if cost is None:
        return machine
    launches, spread = counted(cost.launches, "launch", "launches"), f"launches spread by {cost.spread * 100:.1f} %"
    return f"{machine}; {spread}, so a difference of {cost.difference * 100:g} % takes about {launches} a side"


def power_table(numbers: Sequence[tuple[Power, float]], run: str, margin: float, in_turns: bool) -> Table:
    """What numbers of launches decide, each with how long they take (s), if they spread as in a run.

    `in_turns`: worlds of that run measured alternately, as duets.
    """
    cells = len(numbers[0][0].differences)
    middle, most = (cells - 1) // 2, max(math.ceil(0.9 * cells) - 1, 0)
    columns = in_columns_of(numbers, {
        "launches": lambda one: str(one[0].launches), "time": lambda one: format_long(one[1]),
        "seen in half": lambda one: change(1 + one[0].differences[middle]).removeprefix("+"),
        "seen in 90 %": lambda one: change(1 + one[0].differences[most]).removeprefix("+"),
        f"same within {margin * 100:g} %": lambda one: f"{one[0].same} of {cells}",
    })  # fmt: skip
    notes = (
        "seen: the least difference that 80 % of runs show, in half of the comparisons and in 90 % of them",
        f"same: comparisons that 80 % of runs call the same within {margin * 100:g} %, if nothing differs",
    )
    blocks = "" if in_turns else f"; {run} was in blocks, and duets spread less"
    title = f"what launches decide of {counted(cells, 'comparison')}, if they spread as in {run}{blocks}"
    return Table.of(title, columns, notes)


def document(test: SelfTest) -> dict[str, Any]:
    """The same for programs; differences as shares."""
    cells = [
        {"operation": operation(one.pair.base.case), "size": one.pair.base.case["size"], "verdict": one.verdict,
         "why": whole_reason(one), "ratio": one.ratio and one.ratio.value, "interval": one.ratio and one.ratio.interval,
         "smallest": least}
        for one, least in zip(test.comparisons, test.smallest, strict=True)
    ]  # fmt: skip
    moved = {
        reading.name: {"least": reading.least, "largest": reading.largest, "readings": reading.readings}
        for reading in test.moved
    }
    return {
        "launches": test.launches, "false_positive_rate": test.rate, "cells": cells, "yardsticks": moved,
        "cost": None if test.cost is None else asdict(test.cost),
    }  # fmt: skip
