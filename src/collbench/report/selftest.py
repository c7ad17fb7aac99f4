"""The result of a self-test: verdicts where nothing differs, and the smallest difference that is detected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from collbench.analysis.compare import Comparison
from collbench.report.comparison import difference, verdict
from collbench.report.headings import operation
from collbench.report.style import format_us
from collbench.report.tables import Table
from collbench.units import format_size


def tables(
    comparisons: Sequence[Comparison], rate: float, smallest: Sequence[float | None], launches: int
) -> list[Table]:
    """One table, rows by operation and size; the share of false positives below it."""
    rows = tuple(_row(comparison, least) for comparison, least in zip(comparisons, smallest, strict=True))
    columns = ("operation", "size (B)", "base (us)", "other (us)", "difference (%)", "difference 95 %", "verdict",
               "smallest difference seen")  # fmt: skip
    verdicts = Counter(comparison.verdict for comparison in comparisons)
    notes = (
        f"{verdicts['slower'] + verdicts['faster']} of {len(comparisons)} cells are called different, "
        "although both sides are the same",
        f"false positives: {rate * 100:.1f} % of swaps of names have any cell that is called different "
        "(expected: at most 5 %)",
        "all cells are tested together, as compare does, by exchanging names in whole blocks",
        f"smallest difference seen: added to one cell alone, what {launches} launches a side call slower in 80 % of "
        "swaps",
    )
    return [Table(f"self-test: the same under two names, {launches} launches a side", columns, rows, notes)]


def _row(comparison: Comparison, least: float | None) -> tuple[str, ...]:
    case = comparison.pair.base.case
    sides = ["" if side is None else format_us(side.value) for side in (comparison.base, comparison.other)]
    seen = "none up to 200 %" if least is None else f"{least * 100:.0f} %"
    return (operation(case), format_size(case["size"]), *sides, *difference(comparison), verdict(comparison), seen)


def document(
    comparisons: Sequence[Comparison], rate: float, smallest: Sequence[float | None], launches: int
) -> dict[str, Any]:
    """The same for programs; differences as shares."""
    entries = [_entry(comparison, least) for comparison, least in zip(comparisons, smallest, strict=True)]
    return {"launches": launches, "false_positive_rate": rate, "cells": entries}


def _entry(comparison: Comparison, least: float | None) -> dict[str, Any]:
    case, ratio = comparison.pair.base.case, comparison.ratio
    return {
        "operation": operation(case), "size": case["size"], "verdict": comparison.verdict, "why": comparison.why,
        "ratio": None if ratio is None else ratio.value, "interval": None if ratio is None else ratio.interval,
        "smallest": least,
    }  # fmt: skip
