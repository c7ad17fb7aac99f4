"""Rates: the amount of work over the time that it takes, in its usual unit."""

from __future__ import annotations

from collections.abc import Iterable

from collbench.report.style import format_rate
from collbench.schema.record import Unit, Work

#: Of each unit of work, the unit of its rate, and how many units a second are one of that.
RATES: dict[Unit, tuple[str, float]] = {
    "bytes": ("GB/s", 1e9), "flop": ("GFLOP/s", 1e9), "requests": ("IOPS", 1.0), "events": ("events/s", 1.0),
    "batches": ("batches/s", 1.0), "launches": ("launches/s", 1.0),
    "steps": ("steps/s", 1.0), "pixels": ("Gpixel/s", 1e9),
}  # fmt: skip


def rate(work: Work, seconds: float) -> float | None:
    """Amount over seconds, in the unit of the heading; None for a time of 0."""
    return None if seconds <= 0.0 else work.amount / seconds / RATES[work.unit][1]


def rate_text(work: Work, seconds: float) -> str:
    """`12.3`, with three significant digits; `-` where there is none."""
    value = rate(work, seconds)
    return f"{value:.0f}" if value is not None and value >= 1000 else format_rate(value)


def rate_heading(work: Work) -> str:
    return RATES[work.unit][0]


def rate_unit(works: Iterable[Work]) -> str:
    """The unit of these, which are of one measure; empty where it is shown as a time."""
    return next((rate_heading(work) for work in works if work.shown == "rate"), "")
