"""What a self-test found: verdicts where there is no difference, and what so many launches can see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from collbench.analysis.compare import Comparison
from collbench.report.comparison import verdict
from collbench.report.headings import operation
from collbench.report.style import format_us
from collbench.report.tables import Table
from collbench.units import format_size


def tables(found: Sequence[Comparison], rate: float, smallest: Sequence[float | None], launches: int) -> list[Table]:
    """One table, rows by operation and size; the false-positive rate below it."""
    rows = tuple(_row(one, least) for one, least in zip(found, smallest, strict=True))
    columns = ("operation", "size (B)", "one (us)", "other (us)", "difference (%)", "difference 95 %", "verdict",
               "smallest difference seen")  # fmt: skip
    counted = Counter(one.verdict for one in found)
    wrong = counted["slower"] + counted["faster"]
    notes = (
        f"{wrong} of {len(found)} cells are called different, although both sides are the same",
        f"false-positive rate over swapped names: {rate:.1%} (at most 5 % is what the verdicts promise)",
        f"smallest difference seen: in one cell alone, what {launches} launches a side call slower in 80 % of swaps",
    )
    return [Table(f"self-test: the same under two names, {launches} launches a side", columns, rows, notes)]


def _row(one: Comparison, least: float | None) -> tuple[str, ...]:
    case = one.pair.base.case
    ends = "" if one.ratio is None or one.ratio.interval is None else " .. ".join(
        f"{(end - 1) * 100:+.1f}" for end in one.ratio.interval
    )  # fmt: skip
    sides = ["" if side is None else format_us(side.value) for side in (one.base, one.other)]
    percent = "" if one.percent is None else f"{one.percent:+.1f}"
    seen = "none up to 200 %" if least is None else f"{least:.0%}"
    return (operation(case), format_size(case["size"]), *sides, percent, ends, verdict(one), seen)


def document(
    found: Sequence[Comparison], rate: float, smallest: Sequence[float | None], launches: int
) -> dict[str, Any]:
    """The same for programs; differences as shares."""
    return {
        "launches": launches,
        "false_positive_rate": rate,
        "cells": [
            {"operation": operation(one.pair.base.case), "size": one.pair.base.case["size"], "verdict": one.verdict,
             "why": one.why,
             "ratio": None if one.ratio is None else one.ratio.value,
             "interval": None if one.ratio is None else one.ratio.interval, "smallest": least}
            for one, least in zip(found, smallest, strict=True)
        ],
    }  # fmt: skip
