"""How numbers are printed: times, rates, differences with their intervals, and the unit that a column shares."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from collbench.schema.record import Unit, Work
from collbench.units import format_duration

if TYPE_CHECKING:
    from collbench.analysis.estimate import Estimate


def format_us(seconds: float) -> str:
    """Microseconds with four significant digits where they matter, at most nanoseconds: `0.412`, `12.35`, `1234`."""
    return four_digits(seconds * 1e6)


def four_digits(value: float) -> str:
    """At most three decimals: `0.412`, `12.35`, `1234`."""
    return f"{value:.{(value < 10) + (value < 100) + (value < 1000)}f}"


def format_rate(gigabytes: float | None) -> str:
    """GB/s with three significant digits; `-` where there is no bandwidth."""
    if gigabytes is None or gigabytes == 0:
        return "-"
    digits = 4 if gigabytes < 0.1 else 1 + sum(gigabytes < bound for bound in (10, 100))
    return f"{gigabytes:.{digits}f}"


_NUMBERED = re.compile(r"(.+ (?:of \w+|at step)) \d+")


def is_numbered(name: str) -> bool:
    """Whether a figure is of one of several ranks or steps: `steps of worker 0`, `accuracy at step 100`."""
    return _NUMBERED.fullmatch(name) is not None


def numbered(by_row: Sequence[Mapping[str, float]]) -> dict[str, list[str]]:
    """By heading, such as `steps of workers`, an entry for each row: from the least to the largest of its ranks."""
    columns: dict[str, list[list[float]]] = {}
    for number, figures in enumerate(by_row):
        for name, value in figures.items():
            if match := _NUMBERED.fullmatch(name):
                columns.setdefault(f"{match[1]}s", [[] for _ in by_row])[number].append(value)
    return {name: [between(dict.fromkeys((min(values), max(values)) if values else ()), "{:g}".format)
                   for values in rows] for name, rows in columns.items()}  # fmt: skip


# Ratios and differences.


def digits(value: float) -> str:
    """A ratio with three significant digits, at most two decimals."""
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def change(ratio: float) -> str:
    """`+9 %`, `-0.4 %`, from twice the time on `2.10x`."""
    if ratio >= 2:
        return f"{digits(ratio)}x"
    percent = (ratio - 1) * 100
    return f"{percent:+.1f} %" if abs(percent) < 2 else f"{percent:+.0f} %"


def span(low: float, high: float) -> str:
    """`-9 to +7 %`, `5.20 to 6.60x`, `+62 % to 2.75x`."""
    ends = [change(low), change(high)]
    unit = next((unit for unit in (" %", "x") if all(end.endswith(unit) for end in ends)), "")
    return f"{ends[0].removesuffix(unit)} to {ends[1]}"


def extent(low: float, high: float) -> str:
    """`9 %`, `2 to 46 %`, `1.60 to 8.00x`: of ratios from 1 on, without signs."""
    return (change(high) if change(low) == change(high) else span(low, high)).replace("+", "")


def difference_text(ratio: Estimate) -> str:
    """`+12 % (+9 to +15 %)`; without its interval where there are too few launches."""
    return change(ratio.value) + ("" if ratio.interval is None else f" ({span(*ratio.interval)})")


def interval(ends: tuple[float, float] | None, form: Callable[[float], str]) -> str:
    """` (1.65 .. 1.80)`; empty without one."""
    return "" if ends is None else f" ({between(ends, form)})"


def between(ends: Iterable[float], form: Callable[[float], str]) -> str:
    """`1.65 .. 1.80`; empty without ends."""
    return " .. ".join(map(form, ends))


def times(ratio: Estimate) -> str:
    """`3.10x (2.90 .. 3.30)`; without interval where there are too few launches."""
    return f"{digits(ratio.value)}x{interval(ratio.interval, digits)}"


def percents(value: float) -> str:
    """`+3.1`, of a ratio, for a column in per cent."""
    return f"{(value - 1) * 100:+.1f}"


# The unit of a column, and rates as an amount of work over the time that it takes.

#: Of each unit of work, the unit of its rate, and how many units a second are one of that.
RATES: dict[Unit, tuple[str, float]] = {
    "bytes": ("GB/s", 1e9), "flop": ("GFLOP/s", 1e9), "requests": ("IOPS", 1.0), "events": ("events/s", 1.0),
    "batches": ("batches/s", 1.0), "launches": ("launches/s", 1.0),
    "steps": ("steps/s", 1.0), "tokens": ("tokens/s", 1.0), "pixels": ("Gpixel/s", 1e9),
}  # fmt: skip


def _unit_of_rate(work: Work) -> tuple[str, float]:
    """See `RATES`; another unit of work is that of the rate itself: `images/s`."""
    return RATES.get(work.unit, (work.unit, 1.0))


#: Units of work that are told one by one where their time is shown: `us a request`.
_ONE: dict[Unit, str] = {"requests": "request", "events": "event", "batches": "batch", "launches": "launch",
                         "steps": "step", "accesses": "access"}  # fmt: skip

#: From so many of one unit on, the largest of a column is hard to read in the unit of the smallest.
MANY = 1e6

#: Units of times, their seconds, and those from which on they are used: in us shorter ones would have a digit or two.
_TIMES = (("s", 1.0, 1.0), ("ms", 1e-3, 1e-3), ("us", 1e-6, 1e-8), ("ns", 1e-9, 0.0))


def rate(work: Work, seconds: float) -> float | None:
    """Amount over seconds, in the unit of the heading; None for a time of 0."""
    return None if seconds <= 0.0 else work.amount / seconds / _unit_of_rate(work)[1]


def rate_unit(works: Iterable[Work]) -> str:
    """The unit of these, which are of one measure; empty where it is shown as a time."""
    return next((_unit_of_rate(work)[0] for work in works if work.shown in ("rate", "score")), "")


def printed_value(work: Work, seconds: float) -> float | None:
    """What a program printed, in its unit; None: the seconds are a time."""
    if work.shown == "score":
        return rate(work, seconds)
    return seconds * work.amount if work.shown == "number" else None


def time_each(work: Work, seconds: float) -> float:
    """What is shown as the time: of a number of requests, known by their time, that of one."""
    return seconds / work.amount if work.shown == "time" and work.unit in _ONE and work.amount > 0 else seconds


def each_of(works: Iterable[Work]) -> str:
    """` a request` where `time_each` gives the time of one request, of all these works; else empty.

    The time of tokens is that of the batch or step to which they belong, as that of the works beside them.
    """
    units = {_ONE.get(work.unit, "") if work.shown == "time" else "" for work in works if work.unit != "tokens"}
    unit = units.pop() if len(units) == 1 else ""
    return f" {'an' if unit[0] in 'aeiou' else 'a'} {unit}" if unit else ""


class Scale(NamedTuple):
    """`text` prints a number without its unit, which stands in the heading; with it where `unit` is empty.

    Of times it takes seconds, of rates the work and its seconds, and gives `-` where they make no rate.
    """

    unit: str
    text: Callable[..., str]

    def heading(self, name: str, without: str = "") -> str:
        """`name (us)`; if cells have their own units, the name `without` one."""
        return f"{name} ({self.unit})" if self.unit else without or name


def time_scale(seconds: Iterable[float]) -> Scale:
    """Of times in seconds."""
    positive = [value for value in seconds if value > 0.0]
    if not positive:
        return Scale("us", format_us)
    least, most = min(positive), max(positive)
    unit, factor = next((unit, factor) for unit, factor, start in _TIMES if least >= start)
    if most >= MANY * factor:
        return Scale("", format_duration)
    return Scale(unit, lambda value: four_digits(value / factor))


def rate_scale(shown: Sequence[tuple[Work, float]]) -> Scale:
    """For these works and their seconds; bytes are MB where the slowest of them are less than a GB in a second."""
    units = {_unit_of_rate(work) for work, _ in shown}
    if len(units) != 1:
        return Scale("", lambda work, seconds: f"{_rounded(rate(work, seconds))} {_unit_of_rate(work)[0]}")
    name, factor = units.pop()
    if name == "GB/s" and any(seconds > 0.0 and work.amount / seconds < factor for work, seconds in shown):
        name, factor = "MB/s", 1e6
    return Scale(name, lambda work, seconds: _rounded(work.amount / seconds / factor if seconds > 0.0 else None))


def _rounded(value: float | None) -> str:
    return f"{value:.0f}" if value is not None and value >= 1000 else format_rate(value)


#: Of a row what was done and its seconds, or the ends of an interval of these; None of a row without.
MeasuredWork = tuple[Work, float] | None
Ends = tuple[Work, tuple[float, float]] | None


class Units:
    """Columns of rates and times, by heading, in the units that suit all rows; `shown` are the values of all."""

    def __init__(self, shown: Sequence[tuple[Work, float]]) -> None:
        printed = {_unit_of_rate(work)[0] for work, _ in shown if work.shown in ("score", "number")}
        timed = [entry for entry in shown if entry[0].shown in ("time", "rate")]
        self._rates = rate_scale([entry for entry in timed if entry[0].shown == "rate"])
        self._times = time_scale(time_each(*entry) for entry in timed)
        if printed:  # one unit for all, or each cell its own
            own = Scale("", format_duration)
            self._times = Scale(printed.pop(), format_duration) if len(printed) == 1 and not timed else own
        self._each = self._times._replace(unit=self._times.unit and self._times.unit + each_of(w for w, _ in shown))

    def _text(self, work: Work, seconds: float) -> str:
        value = printed_value(work, seconds)
        if value is None:
            return self._times.text(time_each(work, seconds))
        return f"{four_digits(value)}{'' if self._times.unit else f' {_unit_of_rate(work)[0]}'}"

    def rates(self, name: str, rows: Iterable[MeasuredWork], without: str = "") -> dict[str, list[str]]:
        """One column, or none where nothing is known by its rate."""
        cells = [self._rates.text(*row) if row and row[0].shown == "rate" else "" for row in rows]
        return {self._rates.heading(name, without): cells} if any(cells) else {}

    def times(
        self, name: str, rows: Iterable[MeasuredWork], without: str = "", each: bool = True
    ) -> dict[str, list[str]]:
        """One column; `each`: its heading says that the times are of one request."""
        scale = self._each if each else self._times
        return {scale.heading(name, without): [self._text(*row) if row else "" for row in rows]}

    def spans(self, rows: Iterable[Ends], missing: str = "") -> list[str]:
        """`1.65 .. 1.80` of each row."""
        return [self._span(*row) if row else missing for row in rows]

    def _span(self, work: Work, ends: tuple[float, float]) -> str:
        """Of a score the ends change places: the longest time is the lowest score."""
        return between(ends[::-1] if work.shown == "score" else ends, partial(self._text, work))

    def heading(self, name: str) -> str:
        """Of a column of spans."""
        return self._times.heading(name)
