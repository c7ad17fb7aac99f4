"""Advice in words: what to take, what the rest costs, where it flips, what is not decided."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from collbench.analysis.advise import Advice, AtSize, Range
from collbench.analysis.compare import Comparison
from collbench.analysis.crossover import Crossover, crossover
from collbench.analysis.options import Option, Question
from collbench.analysis.recovery import Recovery, recoveries
from collbench.report.cells import digits, times
from collbench.report.headings import operation, variant
from collbench.units import counted, format_size

#: What a step adds, in words.
_STEPS = {"limits": "with larger limits", "ipc": "with ipc and pid shared (ipc)",
          "net": "with the network shared too (net)", "visible": "with all GPUs visible too (visible)"}  # fmt: skip


@dataclass(frozen=True)
class Advised:
    """Advice for one operation with all that belongs to it."""

    advice: Advice
    crossovers: tuple[Crossover, ...]
    recoveries: tuple[Recovery, ...]

    @property
    def title(self) -> str:
        """`allreduce sum float32, 2 ranks`."""
        case = self.advice.question.case
        return ", ".join(filter(None, (operation(case), variant(case), counted(case.where.ranks, "rank"))))


def complete(advices: Iterable[Advice], in_blocks: bool) -> list[Advised]:
    """Each advice with its crossings and with what the steps of the ladder give back at the largest size."""
    found = []
    for advice in advices:
        flips = [
            crossover(advice.question, lower.option, upper.option, in_blocks)
            for lower, upper in pairwise(advice.ranges)
        ]
        largest = advice.sizes[-1].bytes if advice.sizes else None
        back = recoveries(advice.question, largest, in_blocks) if largest is not None else []
        found.append(Advised(advice, tuple(flip for flip in flips if flip is not None), tuple(back)))
    return found


def sentences(advised: Advised) -> list[str]:
    """The answer in words, the most important first."""
    advice = advised.advice
    if not advice.sizes:
        return ["Nothing was measured."]
    if len(advice.question.options) == 1:
        return [f"There is one option only: {advice.question.name(advice.question.options[0])}. Nothing to choose."]
    lines = [_take(advice, found) for found in advice.ranges]
    lines += [_isolated(advice, found) for found in advice.ranges if _most_isolated(found) is not None]
    lines += [_given_back(list(same)) for _, same in groupby(advised.recoveries, key=lambda one: one.isolated)]
    lines += [_flips(advice.question, one) for one in advised.crossovers]
    return [*lines, *_failing(advice), *_slow_at_times(advice), *_lacking(advice), *_not_compared(advice)]


def _span(found: Range) -> str:
    first, last = (format_size(size.bytes) for size in (found.sizes[0], found.sizes[-1]))
    return first if first == last else f"{first} to {last}"


def headline(advised: Advised) -> str:
    """What to take at the largest sizes, and what the most isolated place costs there, in one sentence."""
    advice = advised.advice
    if not advice.ranges or len(advice.question.options) < 2:
        return f"{advised.title}: {sentences(advised)[0]}"
    last = advice.ranges[-1]
    many = len(last.rivals)
    also = f"; {many} other{'s' if many > 1 else ''} may be as good" if many else ""
    text = f"{advised.title}, {_span(last)}: take {advice.question.name(last.option)}{also}"
    option = _most_isolated(last)
    price = None if option is None else _price(last.sizes[-1], option)
    return f"{text}." if option is None or price is None else f"{text}. The most isolated ({_where(option)}) {price}."


def _take(advice: Advice, found: Range) -> str:
    question = advice.question
    last = found.sizes[-1]
    chosen = question.name(found.option)
    rivals = sorted(question.name(option) for option in found.rivals)
    if found.sure == "sure":
        costs = {option: cost for option in last.others if (cost := last.cost(option)) is not None}
        after = min(costs, key=lambda option: costs[option], default=None)
        rest = "" if after is None else f" Next best: {_costs(question.name(after), last, after)}."
        return f"{_span(found)}: take {chosen}.{rest}"
    if found.sure == "alone":
        return f"{_span(found)}: {chosen} has nothing to be compared with."
    if not rivals:
        return f"{_span(found)}: take {chosen}; {_open(found)}."
    as_good = "as good" if found.sure == "tied" else "not told apart from it by this evidence"
    return f"{_span(found)}: take {chosen}; {as_good}: {_some(rivals)}."


def _open(found: Range) -> str:
    """At which sizes of a range the option is not the only one to take, and why."""
    said: dict[str, list[str]] = {}
    for size in found.open:
        if found.option in size.missed:
            why = "not measured"
        elif found.option in size.failing:
            why = "it failed in some launches"
        else:
            why = "others are as good" if size.sure(found.option) == "tied" else "not decided"
        said.setdefault(why, []).append(format_size(size.bytes))
    return "; ".join(f"{why} at {', '.join(sizes)}" for why, sizes in said.items())


def _failing(advice: Advice) -> list[str]:
    """Options that failed, or were wrong, in some launches, at which sizes."""
    found: dict[str, list[str]] = {}
    for size in advice.sizes:
        for option, (failed, launches) in size.failing.items():
            said = f"{advice.question.name(option)} in {failed} of {launches} launches"
            found.setdefault(said, []).append(format_size(size.bytes))
    lines = [f"{said} at {', '.join(sizes)}" for said, sizes in found.items()]
    return [f"Failed: {_some(lines)}."] if lines else []


def _some(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(names[:most]) + more


def _costs(name: str, size: AtSize, option: Option) -> str:
    found = size.others.get(option)
    ratio = None if found is None else found.ratio
    cost = "the best" if ratio is None else f"{times(ratio)} the time"
    return f"{name}, {cost} at {format_size(size.bytes)}"


def _most_isolated(found: Range) -> Option | None:
    """The most isolated option at the last size of the range, the quickest library of it; None if all are alike."""
    last = found.sizes[-1]
    options = [last.best, *last.others]
    measured = [option for option in options if last.cost(option) is not None]
    orders = {option.isolation_order for option in measured}
    if len(orders) < 2:
        return None
    return min((one for one in measured if one.isolation_order == max(orders)), key=lambda one: last.cost(one) or 0.0)


def _isolated(advice: Advice, found: Range) -> str:
    option = _most_isolated(found)
    assert option is not None
    last = found.sizes[-1]
    name, price = _where(option), _price(last, option)
    if price is None:
        return f"{_span(found)}: the most isolated ({name}) is the quickest at {format_size(last.bytes)}."
    return f"{_span(found)}: the most isolated ({name}, {option['library']}) {price}."


def _price(size: AtSize, option: Option) -> str | None:
    """`costs 2.0x (1.9 .. 2.1) the time of the best at 1M`, and whether that is decided; None for the best itself."""
    one = size.others.get(option)
    if one is None or one.ratio is None:
        return None
    open_ = ", which is not decided" if one.verdict == "inconclusive" else ""
    return f"costs {times(one.ratio)} the time of the best at {format_size(size.bytes)}{open_}"


def _given_back(steps: Sequence[Recovery]) -> str:
    """`mpich: single strict costs 2.0x (..) the time of host at 1M. Of that come back: with larger limits 8 %`."""
    one = steps[0]
    cost = f"{digits(one.cost)}x"
    if one.cost_interval is not None:
        cost += f" ({digits(one.cost_interval[0])} .. {digits(one.cost_interval[1])})"
    start = f"{one.isolated['library']}: {_where(one.isolated)} costs {cost} the time of {_where(one.free)}"
    ordered = sorted(steps, key=lambda step: step.step.isolation_order, reverse=True)
    back = ", ".join(f"{_STEPS.get(step.step['isolation'], step.step['isolation'])} {_share(step)}" for step in ordered)
    sure = one.cost_interval is not None and one.cost_interval[0] > 1
    rest = f"Of that come back: {back}" if sure else "That is not sure, and so is what steps give back"
    return f"{start} at {format_size(one.bytes)}. {rest}."


def _where(option: Option) -> str:
    return " ".join(word for word in (option["policy"], option["isolation"]) if word)


def _share(one: Recovery) -> str:
    between = ""
    if one.share_interval is not None:
        between = f" ({one.share_interval[0] * 100:.0f} .. {one.share_interval[1] * 100:.0f})"
    return f"{one.share * 100:.0f} %{between}"


def _flips(question: Question, one: Crossover) -> str:
    sides = f"below {question.name(one.below)}, above {question.name(one.above)}"
    on_lines = f"at about {_rounded(one.bytes)} on straight lines between measured sizes"
    if one.interval is None:
        return f"It flips {on_lines}, with too few launches for an interval: {sides}."
    return f"It flips {_between(*one.interval)}, {on_lines}: {sides}."


def _between(low: float, high: float) -> str:
    """Measured sizes; 0 and infinity are no sizes."""
    if low == 0.0 and high == math.inf:
        return "at a size that is not decided"
    if low == 0.0:
        return f"below {format_size(int(high))}"
    if high == math.inf:
        return f"above {format_size(int(low))}"
    return f"between {format_size(int(low))} and {format_size(int(high))}"


def _rounded(size: float) -> str:
    """Two significant digits, in binary units: a crossing is no exact number of bytes."""
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= unit:
            return f"{size / unit:.2g}{name}" if size < 99.5 * unit else f"{size / unit:.0f}{name}"
    return f"{size:.0f}"


def _lacking(advice: Advice) -> list[str]:
    """Which sizes do not decide, and how many launches more would."""
    lines = []
    for size in advice.sizes:
        counts = [one.launches_more for one in size.undecided.values()]
        known = sorted(count for count in counts if count is not None)
        reasons = {one.why for one in size.undecided.values() if one.launches_more is None}
        said = [_from_to(known)] if known else []
        said += [reason.removeprefix("needs ") for reason in sorted(reasons)]
        if said:
            options = "1 option" if len(counts) == 1 else f"{len(counts)} options"
            lines.append(f"{format_size(size.bytes)}: {options} ({'; '.join(said)})")
    return [f"Not decided: {'; '.join(lines)}."] if lines else []


def _from_to(counts: Sequence[int]) -> str:
    """`3 to 40 launches more`, of counts in order."""
    few = "" if counts[0] == counts[-1] else f"{counts[0]} to "
    return f"{few}{counts[-1]} launch{'es' if counts[-1] > 1 else ''} more, 4 in 5"


def _slow_at_times(advice: Advice) -> list[str]:
    """Options that are as good in the median and now and then far slower."""
    name = advice.question.name
    return [
        f"{format_size(size.bytes)}: {name(option)} is as fast in the median, but launches differ in kind "
        f"({name(size.best)} against {name(_other(size, one))}): {one.slow.text}."
        for size in advice.sizes for option, one in size.slow_at_times.items() if one.slow is not None
    ]  # fmt: skip


def _other(size: AtSize, one: Comparison) -> Option:
    return next(option for option, other in size.others.items() if other is one)


def _not_compared(advice: Advice) -> list[str]:
    """At which sizes something is not known, by reason."""
    found: dict[str, list[str]] = {}
    for size in advice.sizes:
        for option, why in size.unknown.items():
            if option in size.others or option in size.missed:
                name = advice.question.name(option)
                said = f"{name} ({why.removeprefix(f'{name}: ')})"
                found.setdefault(said, []).append(format_size(size.bytes))
    lines = [f"{option} at {', '.join(sizes)}" for option, sizes in found.items()]
    return [f"Not compared: {_some(lines)}."] if lines else []
