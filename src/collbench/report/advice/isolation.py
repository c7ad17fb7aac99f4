"""What isolation costs in sentences, and what each less isolated step recovers of it."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.analysis.advise import Advice, AtSize, Range, slower_alone
from collbench.analysis.options import Option, Question
from collbench.analysis.recovery import Recovery
from collbench.report.advice.phrases import p_adjusted
from collbench.report.advice.sizes import at
from collbench.report.cells import digits, interval, times

#: A share that may be above this has no number: some blocks had almost nothing to recover.
MOST_SHARE = 2.0


def most_isolated(sizes: Range) -> Option | None:
    """The most isolated option at the last size of a range, the fastest library of it; None if all are alike."""
    last = sizes.sizes[-1]
    costs = {option: cost for option in (last.best, *last.others) if (cost := last.cost(option)) is not None}
    orders = {option.isolation_order for option in costs}
    if len(orders) < 2:
        return None
    return min((option for option in costs if option.isolation_order == max(orders)), key=lambda option: costs[option])


def isolated(advice: Advice, sizes: Range) -> str:
    """What the most isolated option of the last size costs there, and where in the range it costs most."""
    option, last = most_isolated(sizes), sizes.sizes[-1]
    assert option is not None
    named = f"the most isolated option ({_with_library(advice.question, option)})"
    cost = _cost(advice.question, last, option)
    worst = max(sizes.sizes, key=lambda one: one.cost(option) or 0.0)
    dearest = (
        _cost(advice.question, worst, option) if (worst.cost(option) or 0.0) > (last.cost(option) or 0.0) else None
    )
    if cost is None:
        fastest = "is the fastest" if last.sure(option) == "sure" else "may be the fastest"
        cost = f"{fastest}{at(advice.question, last.size)}"
    more = f", and {dearest.removeprefix('takes ')}" if dearest else ""
    return f"{named[:1].upper()}{named[1:]} {cost}{more}."


def _with_library(question: Question, option: Option) -> str:
    """`mpich, single strict`."""
    return ", ".join(filter(None, (option["library"], question.place(option))))


def _cost(question: Question, where: AtSize, option: Option) -> str | None:
    """`takes 2.0x (1.9 .. 2.1) the time of the fastest at 1M`, or that this is undecided; None for the latter."""
    comparison = where.others.get(option)
    if comparison is None or comparison.ratio is None:
        return None
    if comparison.verdict in ("same", "negligible"):
        return f"is as fast as the fastest{at(question, where.size)}"
    if slower_alone(comparison):
        own = f"is slower than the fastest{at(question, where.size)} by its own interval"
        return f"{own}, {p_adjusted([comparison])}"
    if comparison.verdict == "inconclusive":
        ends = interval(comparison.ratio.interval, lambda end: f"{digits(end)}x")
        return f"may be as fast as the fastest{at(question, where.size)}: undecided{ends}"
    return f"takes {times(comparison.ratio)} the time of the fastest{at(question, where.size)}"


def recovered(advice: Advice, steps: Sequence[Recovery]) -> str:
    """`mpich: single strict takes 2.0x (..) the time of host at 1M. Recovered by: ipc 97 %; undecided: limits`."""
    first, question = steps[0], advice.question
    isolated, free = question.place(first.isolated), question.place(first.free)
    library = f"{first.isolated['library']}: " if first.isolated["library"] else ""
    where = at(question, first.size)
    cost = advice.isolation.get((first.free, first.isolated))
    if cost is None or cost.verdict != "slower":
        why = f": by its own interval it is slower, {p_adjusted([cost])}" if cost and slower_alone(cost) else ""
        return f"{library}what {isolated} costs over {free}{where} is undecided{why}."
    assert cost.ratio is not None
    text = f"{library}{isolated} takes {times(cost.ratio)} the time of {free}{where}"
    ordered = sorted(steps, key=lambda recovery: recovery.step.isolation_order, reverse=True)
    known = [f"{one.step['isolation']} {_share(one)}" for one in ordered if one.decided]
    unknown = [one.step["isolation"] for one in ordered if not one.decided]
    said = [f"Recovered by: {', '.join(known)}"] if known else []
    said += [f"{'what' if known else 'What'} {', '.join(unknown)} recovers is undecided"] if unknown else []
    return f"{text}. {'; '.join(said)}."


def _share(recovery: Recovery) -> str:
    """`97 % (94 .. 99)`; of more than twice the cost only that it is at least so much."""
    low, high = recovery.share_interval or (recovery.share, recovery.share)
    if high > MOST_SHARE:
        return "all of it" if low >= 1 else f"at least {low * 100:.0f} %" if low > 0 else "something"
    return f"{recovery.share * 100:.0f} %{interval(recovery.share_interval, lambda end: f'{end * 100:.0f}')}"
