"""The unit of a column, and rates as an amount of work over the time that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from collbench.report.style import format_rate, four_digits
from collbench.schema.record import Unit, Work
from collbench.units import format_duration

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


#: From so many of one unit on, the largest of a column is hard to read in the unit of the smallest.
MANY = 1e6

_TIMES = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))

#: Units of work that are told one by one where their time is shown: `us a request`.
_ONE: dict[Unit, str] = {"requests": "request", "events": "event", "batches": "batch", "launches": "launch",
                          "steps": "step"}  # fmt: skip


class Scale(NamedTuple):
    """`text` prints a number without its unit, which stands in the heading; with it where `unit` is empty."""

    unit: str
    text: Callable[[float], str]

    def heading(self, name: str) -> str:
        return f"{name} ({self.unit})" if self.unit else name

    def span(self, ends: tuple[float, float]) -> str:
        return " .. ".join(map(self.text, ends))


class RateScale(NamedTuple):
    """As a `Scale`, of work and the seconds that it takes; `-` where they make no rate."""

    unit: str
    text: Callable[[Work, float], str]

    def heading(self, name: str) -> str:
        return f"{name} ({self.unit})" if self.unit else name


def time_each(work: Work, seconds: float) -> float:
    """What is shown as the time: of a number of requests, known by their time, that of one."""
    return seconds / work.amount if work.shown == "time" and work.unit in _ONE and work.amount > 0 else seconds


def each_of(works: Iterable[Work]) -> str:
    """` a request` where `time_each` gives the time of one request, of all these works; else empty."""
    told = {_ONE.get(work.unit, "") if work.shown == "time" else "" for work in works}
    one = told.pop() if len(told) == 1 else ""
    return f" a {one}" if one else ""


def time_scale(seconds: Iterable[float]) -> Scale:
    positive = [value for value in seconds if value > 0.0]
    least, most = min(positive, default=1e-6), max(positive, default=1e-6)
    unit, one = next(((unit, one) for unit, one in _TIMES if least >= one), _TIMES[-1])
    if most >= MANY * one:
        return Scale("", format_duration)
    return Scale(unit, lambda value: four_digits(value / one))


def rate_scale(shown: Sequence[tuple[Work, float]]) -> RateScale:
    """For these works and their seconds; bytes are MB where the slowest of them are less than a GB in a second."""
    units = {work.unit for work, _ in shown}
    if len(units) != 1:
        return RateScale("", lambda work, seconds: f"{rate_text(work, seconds)} {RATES[work.unit][0]}")
    name, one = RATES[units.pop()]
    if name == "GB/s" and any(seconds > 0.0 and work.amount / seconds < one for work, seconds in shown):
        name, one = "MB/s", 1e6
    return RateScale(name, lambda work, seconds: _digits(work.amount / seconds / one if seconds > 0.0 else None))


def _digits(value: float | None) -> str:
    return f"{value:.0f}" if value is not None and value >= 1000 else format_rate(value)
