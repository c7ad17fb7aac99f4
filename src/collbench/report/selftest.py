"""The result of a self-test: verdicts where nothing differs, and the smallest difference that is detected."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from collbench.analysis.compare import Comparison
from collbench.analysis.restlessness import Cost, Movement
from collbench.report.comparison import difference, verdict
from collbench.report.headings import operation
from collbench.report.style import format_us
from collbench.report.tables import Table
from collbench.units import counted, format_size


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
    """One table, rows by operation and size; the share of false positives below it."""
    comparisons, launches = found.comparisons, found.launches
    rows = tuple(_row(comparison, least) for comparison, least in zip(comparisons, found.smallest, strict=True))
    columns = ("operation", "size (B)", "base (us)", "other (us)", "difference (%)", "difference 95 %", "verdict",
               "smallest difference seen")  # fmt: skip
    verdicts = Counter(comparison.verdict for comparison in comparisons)
    notes = (
        f"{verdicts['slower'] + verdicts['faster']} of {len(comparisons)} cells are called different, "
        "although both sides are the same",
        f"false positives: at most {found.rate * 100:.1f} % of swaps of names call any size of an operation different "
        "(expected: about 5 %)",
        "all sizes of an operation are judged at once, as compare does, by exchanging names in whole blocks",
        f"smallest difference seen: added to one cell alone, what {launches} launches a side call slower in 80 % of "
        "swaps",
        restlessness(found.moved, found.cost),
    )
    return [Table(f"self-test: the same under two names, {launches} launches a side", columns, rows, notes)]


def restlessness(moved: tuple[Movement, ...], cost: Cost | None) -> str:
    """How far the machine moved, how far launches spread, and what a difference therefore takes."""
    shares = ", ".join(f"{one.name} by {one.share * 100:.0f} %" for one in moved)
    machine = f"the machine moved: {shares}" if moved else "no yardstick could be read"
    if cost is None:
        return machine
    launches, spread = counted(cost.launches, "launch", "launches"), f"launches spread by {cost.spread * 100:.1f} %"
    return f"{machine}; {spread}, so a difference of {cost.difference * 100:g} % takes about {launches} a side"


def _row(comparison: Comparison, least: float | None) -> tuple[str, ...]:
    case = comparison.pair.base.case
    sides = ["" if side is None else format_us(side.value) for side in (comparison.base, comparison.other)]
    seen = "none up to 200 %" if least is None else f"{least * 100:.0f} %"
    return (operation(case), format_size(case["size"]), *sides, *difference(comparison), verdict(comparison), seen)


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
        "operation": operation(case), "size": case["size"], "verdict": comparison.verdict, "why": comparison.why,
        "ratio": None if ratio is None else ratio.value, "interval": None if ratio is None else ratio.interval,
        "smallest": least,
    }  # fmt: skip
