"""Both sides of the comparisons of a program, each as people know it: its rate, and its time with an interval."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.analysis.compare import Comparison
from collbench.analysis.estimate import Estimate
from collbench.report.scales import RateScale, Scale, each_of, rate_scale, time_each, time_scale
from collbench.report.tables import INTERVAL
from collbench.schema.record import Work

#: What one side took, where it was measured, and for which work.
Side = tuple[Work, Estimate | None]


def both_sides(rows: Sequence[Comparison], names: tuple[str, str] | None = None) -> dict[str, Sequence[str]]:
    """Entries by heading, in the same units for both sides. These have the `names`, or their own of the first row."""
    base = [(comparison.pair.base.work, comparison.base) for comparison in rows]
    other = [(comparison.pair.other.work, comparison.other) for comparison in rows]
    both = [(work, time.value) for work, time in (*base, *other) if time is not None]
    rates = rate_scale([one for one in both if one[0].shown == "rate"])
    times = time_scale([time_each(*one) for one in both])
    each = times._replace(unit=times.unit and times.unit + each_of([work for work, _ in both]))
    chosen = names or (rows[0].pair.base_name, rows[0].pair.other_name)
    return _side(chosen[0], base, rates, each) | _side(chosen[1], other, rates, each)


def _side(name: str, sides: Sequence[Side], rates: RateScale, times: Scale) -> dict[str, Sequence[str]]:
    rate = [rates.text(work, time.value) if time is not None and work.shown == "rate" else "" for work, time in sides]
    value = ["" if time is None else times.text(time_each(work, time.value)) for work, time in sides]
    spans = [_span(work, time, times) for work, time in sides]
    of_rate = {rates.heading(name) if rates.unit else f"{name} rate": rate} if any(rate) else {}
    head = times.heading(name) if times.unit else f"{name} time"
    return {**of_rate, head: value, f"{name}{INTERVAL}": spans}


def _span(work: Work, time: Estimate | None, times: Scale) -> str:
    if time is None or time.interval is None:
        return ""
    low, high = time.interval
    return times.span((time_each(work, low), time_each(work, high)))
