"""Advice in sentences: what to take, what isolation and other options cost, and what the evidence does not tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median

from collbench.analysis.advise import ESTABLISHED, Advice, AtSize, Crossover, Range, crossover, slower_alone
from collbench.analysis.compare import Comparison
from collbench.analysis.launches import SLOW
from collbench.analysis.options import Option, Question
from collbench.analysis.recovery import Recovery, recoveries
from collbench.report.advice.sizes import Chosen, at, crossing_at, led, p_adjusted, some
from collbench.report.cells import digits, interval, times
from collbench.report.headings import operation, variant
from collbench.report.parameters import is_program
from collbench.report.verdict import tells_in_brief, what_tells
from collbench.units import counted, format_duration, format_size

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


#: At more undecided sizes than this, options are not named or counted for each.
_MOST_SIZES = 3

#: A bound above this ratio is not said: it says little more than that nothing is known.
MOST_SLOWER = 2.0

#: More options that may be as fast are counted.
_MOST_NAMED = 2


def undecided(question: Question, still: Sequence[Chosen]) -> str:
    """`undecided at 1M: openmpi, host was the fastest measured; mpich, host may be as fast`.

    Where it is not the same everywhere, the fastest of each size; or that nothing was compared.
    """
    where = at(question, *(one.at.size for one in still))
    fastest = _fastest(question, [one for one in still if one.sure != "alone"])
    alone = [one for one in still if one.sure == "alone"]
    names = list(dict.fromkeys(question.name(one.option) for one in alone))
    lone = f"nothing could be compared with {some(names, 2)}{_at(question, still, [one.at.size for one in alone])}"
    if len(fastest) == 1:
        parts = [f"{next(iter(fastest))} was the fastest measured"]
    else:
        parts = []
        where += f" (fastest measured: {_by_size(question, fastest)})" if fastest else ""
    said = "; ".join([*parts, *_possible(question, still), *([lone] if alone else [])])
    return f"undecided{where}{f': {said}' if said else ''}"


def _fastest(question: Question, compared: Sequence[Chosen]) -> dict[str, list[int]]:
    """The sizes at which each option was the fastest measured."""
    listed: dict[str, list[int]] = {}
    for one in compared:
        listed.setdefault(question.name(one.option), []).append(one.at.size)
    return listed


def _by_size(question: Question, fastest: Mapping[str, Sequence[int]]) -> str:
    if sum(map(len, fastest.values())) > _MOST_SIZES:
        return "not the same at every size"
    return "; ".join(f"{name}{at(question, *sizes)}" for name, sizes in fastest.items())


def _possible(question: Question, still: Sequence[Chosen]) -> list[str]:
    """Launches in which the fastest failed, and options that may be as fast."""
    failed = [one.at.size for one in still if one.option in one.at.failing]
    parts = [f"it failed in some launches{_at(question, still, failed)}"] if failed else []
    rivals = [(one, [option for option in one.at.undecided if option not in one.at.slower_alone]) for one in still]
    rivals = [(one, several) for one, several in rivals if several]
    if rivals:
        where = _at(question, still, [one.at.size for one, _ in rivals])
        named = _named(question, rivals, where) if len({one.option for one in still}) == 1 else ""
        bound = at_most([one.at.undecided[option] for one, several in rivals for option in several])
        parts.append(f"{named or _counted(question, rivals, where)}{bound}")
    return parts


def at_most(possible: Sequence[Comparison]) -> str:
    """`, at most 10.1 % slower`: what the intervals of all leave possible; empty where that is unknown or very much."""
    intervals = [one.ratio.interval if one.ratio else None for one in possible]
    largest = max((high for _, high in filter(None, intervals)), default=0.0)
    if None in intervals or not 1 < largest <= MOST_SLOWER:
        return ""
    return f", at most {(largest - 1) * 100:.1f} % slower"


def unestablished(question: Question, still: Sequence[Chosen]) -> list[str]:
    """Options that are slower by their own intervals, but not by the test of all comparisons together."""
    found = [(option, comparison, one.at.size) for one in still for option, comparison in one.at.slower_alone.items()]
    if not found:
        return []
    names = list(dict.fromkeys(question.name(option) for option, *_ in found))
    where = _at(question, still, [size for *_, size in found])
    who = " and ".join(names) if len(names) <= _MOST_NAMED else f"{len(names)} options"
    own = "its own interval" if len(names) == 1 else "their own intervals"
    return [f"slower by {own}, but not established: {who}{where}{at_most([one for _, one, _ in found])}"]


def what_decides(question: Question, still: Sequence[Chosen]) -> list[str]:
    comparisons = [comparison for one in still for comparison in one.at.undecided.values()]
    return [tells_in_brief(comparisons)] if comparisons else []


def in_numbers(advice: Advice) -> list[str]:
    """How many comparisons are undecided, how close those are that are slower by themselves, and what would tell.

    Nothing where the answer has said it all.
    """
    found = [comparison for one in advice.sizes for comparison in one.undecided.values()]
    alone = [comparison for one in advice.sizes for comparison in one.slower_alone.values()]
    if not found or (not alone and what_tells(found) == tells_in_brief(found)):
        return []
    number = counted(len(found), "comparison with the fastest is", "comparisons with the fastest are")
    which = "slower by its own interval" if len(alone) == 1 else "slower by their own intervals"
    own = f"; {which}: {len(alone)}, {p_adjusted(alone)}" if alone else ""
    tells = what_tells(found)
    return [f"{number} undecided{own}. {tells[:1].upper()}{tells[1:]}."]


def gaps(question: Question, still: Sequence[Chosen]) -> list[str]:
    """Options that nothing says are worse, and that were not compared."""
    listed: dict[str, list[int]] = {}
    for one in still:
        for other, gap in one.at.unknown.items():
            if gap.open and other not in one.at.undecided and one.sure != "alone":
                listed.setdefault(question.name(other), []).append(one.at.size)
    names = [f"{name}{at(question, *sizes)}" for name, sizes in listed.items()]
    return [f"not compared: {some(names, 2)}"] if names else []


def _named(question: Question, rivals: Sequence[tuple[Chosen, list[Option]]], where: str) -> str:
    """`host and mpich may be as fast at 8`, where these are few; empty where they are many."""
    names = sorted({question.name(option) for _, several in rivals for option in several})
    if len(names) > _MOST_NAMED:
        return ""
    return f"{' and '.join(names)} may be as fast{where}"


def _counted(question: Question, rivals: Sequence[tuple[Chosen, list[Option]]], where: str) -> str:
    """`7 of 17 others at 8, 9 at 64K may be as fast`; of many sizes the most."""
    counts = {one.at.size: len(several) for one, several in rivals}
    of = max(len(one.at.others) for one, _ in rivals)
    most = max(counts.values())
    if len(rivals) > _MOST_SIZES or len(set(counts.values())) == 1:
        upto = "up to " if len(set(counts.values())) > 1 else ""
        return f"{upto}{most} of {counted(of, 'other')} may be as fast{where}"
    listed = [f"{count} of {counted(of, 'other')}{at(question, size)}" if not number else
              f"{count} at {format_size(size)}" for number, (size, count) in enumerate(counts.items())]  # fmt: skip
    return f"{', '.join(listed)} may be as fast"


def _at(question: Question, still: Sequence[Chosen], sizes: Sequence[int]) -> str:
    """The sizes, or nothing where they are all that is undecided, which is said before."""
    return at(question, *sizes) if {one.at.size for one in still} - set(sizes) else ""


@dataclass(frozen=True)
class Advised:
    """Advice for one operation with all that belongs to it."""

    advice: Advice
    crossovers: tuple[Crossover, ...]
    recoveries: tuple[Recovery, ...]

    @property
    def title(self) -> str:
        """`allreduce sum float32, 2 ranks`, with the side of a plan: `..., 2 ranks, side base`."""
        case = self.advice.question.case
        side = f"side {case.where.side}" if case.where.side else ""
        return ", ".join(filter(None, (operation(case), variant(case), counted(case.where.ranks, "rank"), side)))


def complete(advices: Iterable[Advice], in_blocks: bool) -> list[Advised]:
    """Each advice with its crossovers and with what each step recovers at the largest size."""
    completed = []
    for advice in advices:
        crossings = [
            crossover(advice.question, lower.option, upper.option, in_blocks)
            for lower, upper in pairwise(advice.ranges)
        ]
        recovered = recoveries(advice.question, advice.sizes[-1].size, in_blocks) if advice.sizes else []
        completed.append(Advised(advice, tuple(crossing for crossing in crossings if crossing), tuple(recovered)))
    return completed


def sentences(advised: Advised) -> list[str]:
    """The evidence in words, range by range: what `answer` sums up, and what it has no room for."""
    advice = advised.advice
    nothing = without_answer(advice)
    if nothing:
        return [nothing]
    lines = [_take(advice, sizes) for sizes in advice.ranges]
    lines += [isolated(advice, sizes) for sizes in advice.ranges if most_isolated(sizes) is not None]
    by_place = groupby(advised.recoveries, key=lambda recovery: recovery.isolated)
    lines += [recovered(advice, list(same)) for _, same in by_place]
    lines += [crossing_at(advice.question, crossing) for crossing in advised.crossovers]
    lines += in_numbers(advice)
    return [*lines, *_failing(advice), *_slow_at_times(advice), *_not_compared(advice)]


def without_answer(advice: Advice) -> str:
    """Why there is nothing to choose; empty where there is."""
    if not advice.sizes:
        cells = (cell for of_size in advice.question.cells.values() for cell in of_size.values())
        contended = any(cell.medians and cell.disturbed for cell in cells)
        return "No advice: tasks waited for a CPU in every launch." if contended else "Nothing was measured."
    return "" if len(advice.question.options) > 1 else _alone(advice.question)


def _alone(question: Question) -> str:
    """Say `Only one option was measured: Open MPI 5.0.11 (2.9 us at 8, 96.8 us at 512K; 1 launch)`.

    Without times of programs, whose results may be other figures.
    """
    [option] = question.options
    cells = {size: cell for size in question.sizes if (cell := question.cells[size][option]).medians}
    ends = [] if any(is_program(cell.case) for cell in cells.values()) else [*list(cells)[:1], *list(cells)[1:][-1:]]
    times = [f"{format_duration(median(cells[size].medians))}{at(question, size)}" for size in ends]
    launches = max((len(cell.medians) for cell in cells.values()), default=0)
    of = f" ({', '.join(times)}; {counted(launches, 'launch', 'launches')})" if times else ""
    return f"Only one option was measured: {question.name(option)}{of}."


def _led(advice: Advice, sizes: Range, text: str) -> str:
    said = led(advice.question, (one.size for one in sizes.sizes), text)
    return said[:1].upper() + said[1:]


def _take(advice: Advice, sizes: Range) -> str:
    name = advice.question.name
    if not any(one.sure(sizes.option) in (*ESTABLISHED, "alone") for one in sizes.sizes):
        return _undecided(advice, sizes)
    take = _led(advice, sizes, f"take {name(sizes.option)}")
    rivals = sorted(map(name, sizes.rivals))
    if sizes.sure == "sure":
        return f"{take}.{_next_best(advice.question, sizes.sizes[-1])}"
    if sizes.sure == "alone":
        could = "could be" if any(one.unknown.keys() & one.others.keys() for one in sizes.sizes) else "was"
        return _led(advice, sizes, f"nothing {could} compared with {name(sizes.option)}.")
    if not rivals or sizes.sure == "undecided":
        return f"{take}; {_open(advice.question, sizes)}."
    return f"{take}; as fast: {some(rivals)}."


def _undecided(advice: Advice, sizes: Range) -> str:
    """Of a range in which nothing is established: the fastest, with what may be as fast, and what is so less likely."""
    name = advice.question.name
    bests = dict.fromkeys(one.best for one in sizes.sizes)
    fastest = {best: [one.size for one in sizes.sizes if one.best == best] for best in bests}
    if len(bests) == 1:
        told = [f"{name(next(iter(bests)))} was the fastest measured"]
    else:
        where = [f"{name(best)}{at(advice.question, *own)}" for best, own in fastest.items()]
        told = [f"fastest measured: {some(where)}"]
    failed = [one.size for one in sizes.sizes if one.best in one.failing]
    told += [f"it failed in some launches{at(advice.question, *failed)}"] if failed else []
    known = [(option, one) for size in sizes.sizes for option, one in size.undecided.items() if option not in bests]
    possible = sorted({name(option) for option, one in known if not slower_alone(one)})
    alone = sorted({name(option) for option, one in known} - set(possible))
    told += [f"possibly as fast: {some(possible)}"] if possible else []
    told += [f"slower by their own intervals, but not established: {some(alone)}"] if alone else []
    return _led(advice, sizes, f"undecided; {'; '.join(told)}.")


def _next_best(question: Question, best: AtSize) -> str:
    ratios = {option: other.ratio for option, other in best.others.items() if other.ratio is not None}
    if not ratios:
        return ""
    option = min(ratios, key=lambda option: ratios[option].value)
    return f" Next best: {question.name(option)}, {times(ratios[option])} the time{at(question, best.size)}."


def _open(question: Question, sizes: Range) -> str:
    """At which sizes of a range the option is not the only one to take, and why."""
    listed: dict[str, list[int]] = {}
    for one in sizes.open:
        if sizes.option in one.missed:
            why = "not measured"
        elif sizes.option in one.failing:
            why = "it failed in some launches"
        else:
            why = "others are as fast" if one.sure(sizes.option) == "tied" else "undecided"
        listed.setdefault(why, []).append(one.size)
    return "; ".join(f"{why}{at(question, *where)}" for why, where in listed.items())


def _failing(advice: Advice) -> list[str]:
    """Options that failed, or were wrong, in some launches, at which sizes."""
    listed: dict[str, list[int]] = {}
    for one in advice.sizes:
        for option, (failed, launches) in one.failing.items():
            text = f"{advice.question.name(option)} in {failed} of {launches} launches"
            listed.setdefault(text, []).append(one.size)
    lines = [f"{text}{at(advice.question, *sizes)}" for text, sizes in listed.items()]
    return [f"Failed: {some(lines)}."] if lines else []


def _slow_at_times(advice: Advice) -> list[str]:
    """Options that are as fast in the median and occasionally far slower."""
    return [
        led(
            advice.question,
            (one.size,),
            f"{advice.question.name(option)} is as fast in the median, but "
            f"{_slow_launches(advice.question, one, option, comparison)}.",
        )
        for one in advice.sizes
        for option, comparison in one.slow_at_times.items()
    ]


def _slow_launches(question: Question, one: AtSize, option: Option, comparison: Comparison) -> str:
    """`11 of 25 launches take over 1.25 times the median, 1 of 25 of openmpi, host`; the base is always the best."""
    slow = comparison.slow
    assert slow is not None
    own, reference = (slow.other, slow.launches[1]), (slow.base, slow.launches[0])
    steadier = one.best
    if option == one.best:
        own, reference = reference, own
        steadier = next(other for other in one.others if one.others[other] is comparison)
    return (
        f"{own[0]} of {own[1]} launches take over {SLOW} times the median, {reference[0]} of {reference[1]} of "
        f"{question.name(steadier)}"
    )


def _not_compared(advice: Advice) -> list[str]:
    """What could not be compared at which sizes, and why."""
    listed: dict[str, list[int]] = {}
    for one in advice.sizes:
        for option, gap in one.unknown.items():
            name = advice.question.name(option)
            listed.setdefault(f"{name} ({gap.why.removeprefix(f'{name}: ')})", []).append(one.size)
    lines = [f"{option}{at(advice.question, *sizes)}" for option, sizes in listed.items()]
    return [f"Not compared: {some(lines)}."] if lines else []
