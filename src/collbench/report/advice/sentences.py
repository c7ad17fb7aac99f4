"""Advice in sentences: what to take, what other options cost, where the best changes, what is undecided."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median

from collbench.analysis.advise import ESTABLISHED, Advice, AtSize, Range, slower_alone
from collbench.analysis.compare import Comparison
from collbench.analysis.crossover import Crossover, crossover
from collbench.analysis.launches import SLOW
from collbench.analysis.options import Option, Question
from collbench.analysis.recovery import Recovery, recoveries
from collbench.report.advice.crossings import crossing_at
from collbench.report.advice.evidence import in_numbers
from collbench.report.advice.isolation import isolated, most_isolated, recovered
from collbench.report.advice.phrases import some
from collbench.report.advice.sizes import at, led
from collbench.report.cells import times
from collbench.report.headings import operation, variant
from collbench.report.parameters import is_program
from collbench.units import counted, format_duration


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
