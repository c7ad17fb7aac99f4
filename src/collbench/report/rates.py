"""Rates: the amount of work over the time that it takes, in the unit that people know it by."""

from __future__ import annotations

from collections.abc import Iterable

from collbench.report.style import format_rate
from collbench.schema.record import Unit, Work

#: Heading of a unit, and how much of the unit a second is one of it.
RATES: dict[Unit, tuple[str, float]] = {
    "bytes": ("GB/s", 1e9), "flop": ("GFLOP/s", 1e9), "requests": ("IOPS", 1.0), "events": ("events/s", 1.0),
    "batches": ("batches/s", 1.0), "launches": ("launches/s", 1.0),
}  # fmt: skip


def rate(work: Work, seconds: float) -> float | None:
    """Amount over seconds, in the unit of the heading; None where there is none."""
    return None if seconds <= 0.0 else work.amount / seconds / RATES[work.unit][1]


def rate_text(work: Work, seconds: float) -> str:
    """`12.3`, with three significant digits; `-` where there is none."""
    found = rate(work, seconds)
    return f"{found:.0f}" if found is not None and found >= 1000 else format_rate(found)


def rate_heading(work: Work) -> str:
    """`GB/s`."""
    return RATES[work.unit][0]


def rate_unit(works: Iterable[Work]) -> str:
    """The heading of these, which are of one measure; empty where people know it as a time."""
    return next((rate_heading(work) for work in works if work.shown == "rate"), "")
