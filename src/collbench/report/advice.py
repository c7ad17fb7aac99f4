"""Advice as text: which option to take and what it may lose, what matters, and the evidence; as tables and as JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from statistics import median
from typing import Any

from msgspec import to_builtins

from collbench.analysis.advise import Advice, Apart, AtSize, Crossover, Effect, Range, Standing, crossover, effects
from collbench.analysis.compare import Comparison
from collbench.analysis.estimate import FEWEST
from collbench.analysis.guidelines import GuidelineResult
from collbench.analysis.observations import Observed
from collbench.analysis.options import Option, Question
from collbench.analysis.recovery import Recovery, recoveries
from collbench.report.caveats import dependent, misleading
from collbench.report.headings import is_program, operation, variant
from collbench.report.numbers import change, digits, interval, times
from collbench.report.numbers import span as from_to
from collbench.report.tables import Table
from collbench.report.verdict import ways_to_tell
from collbench.units import counted, format_duration, format_size

#: The most sizes in a grid, which has a column for each; rows of options of one grid, and of each of two; rows of a
#: grid of more operations; and lines of what could mislead.
MOST_SIZES, MOST_OPTIONS, MOST_ROWS, MOST_MISLEADING = 6, {1: 8, 2: 3}, 16, 2

#: Ranges of sizes that a sentence names.
_MOST_RANGES = 2


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


# Numbers and sizes.


def slowdown(ratio: float) -> str:
    """`9 %`, from twice the time on `2.10x`; the next larger per cent, because it is a bound."""
    return f"{digits(ratio)}x" if ratio >= 2 else f"{math.ceil((ratio - 1) * 100 - 1e-6)} %"


def sized(question: Question) -> bool:
    return any("size" in cell.case.what for cells in question.cells.values() for cell in cells.values())


def at(question: Question, *sizes: int) -> str:
    """` at 64K, 1M`, or nothing; three neighbours of those measured as ` at 8 to 64K`."""
    if not sized(question):
        return ""
    listed: list[str] = []
    for chosen, group in groupby(question.sizes, key=set(sizes).__contains__):
        run = list(map(format_size, group)) if chosen else []
        listed += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else run
    return f" at {', '.join(listed)}"


def _shown(sizes: Sequence[AtSize]) -> list[AtSize]:
    """All sizes, or `MOST_SIZES` of them, evenly spread with both ends."""
    if len(sizes) <= MOST_SIZES:
        return list(sizes)
    step = (len(sizes) - 1) / (MOST_SIZES - 1)
    return [sizes[round(index * step)] for index in range(MOST_SIZES)]


def _headings(question: Question, sizes: Sequence[AtSize]) -> list[str]:
    return [format_size(one.size) if sized(question) else "time" for one in sizes]


# The sentence.


def sentence(advised: Advised) -> str:
    """`take mpich, host at 8 (at most 9 % slower than the best), openmpi, host at 1M (at most 4 %)`."""
    advice = advised.advice
    question = advice.question
    if not advice.sizes:
        cells = (cell for of_size in question.cells.values() for cell in of_size.values())
        contended = any(cell.medians and cell.disturbed for cell in cells)
        return "no advice, tasks waited for a CPU in every launch" if contended else "nothing was measured"
    if len(question.options) == 1:
        return _alone(question)
    known = [one for one in advice.ranges if one.known]
    if not known:
        return _unknown(advice)
    shown, rest = known[:_MOST_RANGES], known[_MOST_RANGES:]
    others = [size.size for one in rest for size in one.sizes]
    said = [_range(question, one, len(known) == 1) for one in shown]
    unclear = any(one.bound > UNCLEAR for one in shown)
    word = "no clear choice yet; safest is" if unclear else "take"
    return f"{word} {'; '.join((*said, *([f'see the grid{at(question, *others)}'] if others else [])))}"


#: An option that may lose more than this is the safest, but no clear choice.
UNCLEAR = 1.25


def _range(question: Question, one: Range, alone: bool) -> str:
    sizes = [size.size for size in one.sizes]
    named = f"{question.name(one.option)}{at(question, *sizes) if set(question.sizes) - set(sizes) else ''}"
    compared = min(len(size.options) for size in one.sizes)
    though = ""
    if any(one.option in size.failing for size in one.sizes):
        though = ", though it failed in some launches"
    elif any(size.options[one.option].slow_at_times for size in one.sizes):
        though = ", though some of its launches are far slower"
    if not any(len(size.possible) > 1 for size in one.sizes):
        return f"{named}, all others are slower{though}"
    return f"{named}, {_loss(one.bound)} the best{f' of {compared}' if alone else ''}{though}"


def _loss(ratio: float) -> str:
    """`at most 9 % slower than`, `at most 2.10x the time of`."""
    return f"at most {slowdown(ratio)} {'the time of' if ratio >= 2 else 'slower than'}"


def _unknown(advice: Advice) -> str:
    """Of ranges without bounds."""
    question = advice.question
    fastest: dict[str, list[int]] = {}
    for one in advice.sizes:
        fastest.setdefault(question.name(one.take), []).append(one.size)
    if all(len(one.options) == 1 for one in advice.sizes):
        return f"nothing could be compared with {next(iter(fastest))}"
    named = "; ".join(f"{name}{at(question, *own) if fastest.keys() - {name} else ''}" for name, own in fastest.items())
    why = next(_lost(one) for one in advice.ranges if any(len(size.options) > 1 for size in one.sizes))
    return f"no choice: {why}; fastest measured: {named if len(fastest) <= _MOST_RANGES else 'see --why'}"


def _alone(question: Question) -> str:
    """Say `only one option was measured: Open MPI 5.0.11 (2.9 us at 8, 96.8 us at 512K; 1 launch)`.

    Without times of programs, whose results may be other figures.
    """
    [option] = question.options
    cells = {size: cell for size in question.sizes if (cell := question.cells[size][option]).medians}
    ends = [] if any(is_program(cell.case) for cell in cells.values()) else [*list(cells)[:1], *list(cells)[1:][-1:]]
    shown = [f"{format_duration(median(cells[size].medians))}{at(question, size)}" for size in ends]
    launches = max((len(cell.medians) for cell in cells.values()), default=0)
    of = f" ({', '.join(shown)}; {counted(launches, 'launch', 'launches')})" if shown else ""
    return f"only one option was measured: {question.name(option)}{of}"


def headline(advised: Advised) -> str:
    """The answer in one line, behind the operation."""
    return f"{advised.title}: {sentence(advised)}."


# The first screen.


def brief(
    advices: Sequence[Advised], known: Sequence[str], comparisons: Sequence[Comparison], whole: bool = False
) -> list[Table]:
    """Of each operation the sentence with a grid, of many a row in one grid; below, what could mislead and what to do.

    Of what could mislead the gravest lines, all with `whole`. `comparisons` of the run say what would tell more.
    """
    room = MOST_OPTIONS.get(len(advices), 0)
    shown = [_grid(one, room) for one in advices] if room else [_summary(advices, whole)]
    left = 0 if whole else len(known[MOST_MISLEADING:])
    notes = [*known[: len(known) - left], *([f"{left} more, and all options: --why"] if left else [])]
    unsure = [one for advised in advices for one in advised.advice.sizes if len(one.options) > 1 and one.bound > ENOUGH]
    more = ways_to_tell(comparisons) if unsure else []
    legend = [_LEGEND] if any(table.rows for table in shown) and room else []
    legend += [_FACTORS] if any(row[0].startswith("slowest ") for table in shown for row in table.rows) else []
    last = shown[-1]
    return [*shown[:-1], replace(last, notes=(*last.notes, *legend, *notes, *more))]


_LEGEND = "at most: slower than the best of these, with 95 % confidence; slower: than the fastest, as measured"
_FACTORS = "slowest: the value of a factor, and its time over the fastest value, in options alike in all else"


#: More launches are suggested where the option to take may lose more than this.
ENOUGH = 1.05


def _grid(advised: Advised, room: int) -> Table:
    """Rows are factors, as far as they matter, then options that may be the best, of which there is `room` for some."""
    advice, question = advised.advice, advised.advice.question
    sizes = _shown(advice.sizes)
    if len(question.options) < 2 or not any(one.known for one in sizes):
        return Table(headline(advised), (), ())
    ranked = _ranked(advice)
    rows = [*_of_factors(question, sizes), *(_of_option(question, option, sizes) for option in ranked[:room])]
    columns = ("", *_headings(question, sizes))
    return Table(headline(advised), columns, tuple(rows), tuple(_more(advice, len(ranked[room:]))))


def _ranked(advice: Advice) -> list[Option]:
    """Options that may be the best at any size: those taken first, then by the most that they may lose at any size."""
    taken = dict.fromkeys(one.option for one in advice.ranges)
    possible = {option for one in advice.sizes for option in one.possible}

    def worst(option: Option) -> tuple[bool, float, Option]:
        found = [one.options.get(option) for one in advice.sizes]
        return (
            any(one is None or one.out for one in found),
            max(one.bound if one else math.inf for one in found),
            option,
        )

    return [*taken, *sorted(possible - set(taken), key=worst)]


def _of_option(question: Question, option: Option, sizes: Sequence[AtSize]) -> tuple[str, ...]:
    return (question.name(option), *(_cell(one, option) for one in sizes))


def _cell(one: AtSize, option: Option) -> str:
    """`at most 9 %` of what may be the best, `slower, 4.20x` of what is out; behind it how its launches went."""
    found = one.options.get(option)
    if found is None:
        return "failed" if option in one.failing else "-"
    failed, of = one.failing.get(option, (0, 0))
    behind = f", failed {failed} of {of}" if failed else ", slow at times" if found.slow_at_times else ""
    return f"{_state(found)}{behind}"


def _state(found: Standing) -> str:
    if found.out:
        return f"slower, {change(found.ratio)}"
    return _UNBOUNDED[found.at_most] if isinstance(found.at_most, str) else f"at most {slowdown(found.at_most)}"


_UNBOUNDED = {"few launches": "too few launches", "drift": "times drift", "dependent": "dependent launches"}


def _of_factors(question: Question, sizes: Sequence[AtSize]) -> list[tuple[str, ...]]:
    """How much each factor matters, where options differ in several."""
    found = [effects(question, one) for one in sizes]
    names = [factor for factor in question.varying if any(factor in one for one in found)]
    return [(f"slowest {factor}", *(_effect(one.get(factor)) for one in found)) for factor in names if len(names) > 1]


def _effect(found: Effect | None) -> str:
    """`single 2 to 46 %`, `mpich 1.60 to 8.00x`: the slowest value over the fastest."""
    if found is None:
        return "-"
    low, high = found.least, found.largest
    by = change(high).removeprefix("+") if change(low) == change(high) else from_to(low, high).replace("+", "")
    return f"{found.slowest} {by}"


#: So many options that are out are named.
_MOST_OUT = 3


def _lost(one: Range) -> str:
    """What the option of a range may lose, or why that is not known."""
    if one.known:
        return slowdown(one.bound)
    if all(len(size.options) < 2 for size in one.sizes):
        return "nothing to compare"
    return next(_UNBOUNDED[why] for size in one.sizes if isinstance(why := size.options[one.option].at_most, str))


def _more(advice: Advice, more: int) -> list[str]:
    """Options for which the grid has no room."""
    possible = {option for one in advice.sizes for option in one.possible}
    out = {option for one in advice.sizes for option in one.options} - possible
    named = "; ".join(sorted(map(advice.question.name, out))) if len(out) <= _MOST_OUT else f"{len(out)} options"
    counts = [f"{more} more may be the best"] * bool(more) + [f"slower at every size: {named}"] * bool(out)
    apart = dict.fromkeys(advice.question.name(option) for one in advice.sizes for option in one.apart)
    counts += [f"not compared at every size: {'; '.join([*apart][:2])}{' and others' * (len(apart) > 2)}"] * bool(apart)
    return ["; ".join(counts)] if counts else []


def _summary(advices: Sequence[Advised], whole: bool) -> Table:
    """One row for each operation and range of sizes."""
    parts = [advised.title.split(", ") for advised in advices]
    shared = [part for part in parts[0] if all(part in own for own in parts)]
    rows = []
    for advised, own in zip(advices, parts, strict=True):
        question, title = advised.advice.question, ", ".join(part for part in own if part not in shared)
        for one in advised.advice.ranges:
            where = at(question, *(size.size for size in one.sizes)).removeprefix(" at ")
            rivals = list(map(question.name, one.rivals)) if one.known else []
            safest = " (safest)" if one.known and one.bound > UNCLEAR else ""
            rows.append((title, where, f"{question.name(one.option)}{safest}", _lost(one),
                         "; ".join((*rivals[:1], *([f"{len(rivals) - 1} more"] if rivals[1:] else [])))))  # fmt: skip
        if not advised.advice.ranges:
            rows.append((title, "", "-", sentence(advised), ""))
    columns = ("operation", "size (B)", "take", "at most slower than the best", "may be the best too")
    shown = rows if whole else rows[:MOST_ROWS]
    kept = [index for index in range(len(columns)) if any(row[index] for row in shown)]
    left = [f"{len(rows) - len(shown)} more rows: --why"] if len(rows) > len(shown) else []
    taken = sum(one.bound <= ENOUGH for advised in advices for one in advised.advice.ranges if one.known)
    title = f"{taken or 'none'} of {len(rows)} choices decided to within {slowdown(ENOUGH)} of the best"
    title += f"; in all: {', '.join(shared)}" if shared else ""
    return Table(title, tuple(columns[index] for index in kept),
                 tuple(tuple(row[index] for index in kept) for row in shown), tuple(left))  # fmt: skip


def cautions(
    advices: Sequence[Advised], observed: Observed, comparisons: Sequence[Comparison], also: Sequence[str] = ()
) -> list[str]:
    """What could mislead in any of the answers, the gravest first: of what was asked, and what is `also` known."""
    questions = [advised.advice.question for advised in advices]
    cells = {cell.case: cell for one in questions for of_size in one.cells.values() for cell in of_size.values()}
    lines = (*also, *(dependent(comparisons) if comparisons else ()))
    return list(misleading(replace(observed, cells=cells), lines, whole=False))


# The evidence.


def evidence(advices: Sequence[Advised], results: Sequence[GuidelineResult]) -> list[Table]:
    """A table of all options for each operation, with what it shows as its notes; then violated guidelines."""
    tables = [replace(table, notes=(*sentences(advised), *table.notes))
              for advised, table in zip(advices, map(costs, advices), strict=True)]  # fmt: skip
    return [*tables, *guideline_tables(results)]


def with_answers(tables: Sequence[Table], brief: Sequence[Table]) -> list[Table]:
    """Tables of evidence for styles that have no place for sentences but below a table."""
    lines = [line for table in brief for line in (table.title, *table.notes)]
    return [replace(tables[0], notes=(*lines, *tables[0].notes)), *tables[1:]] if tables else list(brief)


def costs(advised: Advised) -> Table:
    """What is known of every option, by size."""
    advice, question = advised.advice, advised.advice.question
    sizes = _shown(advice.sizes)
    options = sorted(question.options, key=lambda option: (option["library"], option.isolation_order, option))
    rows = [_of_option(question, option, sizes) for option in options] if len(options) > 1 and sizes else []
    left = ", ".join(format_size(one.size) for one in advice.sizes if one not in sizes)
    notes = [f"measured too: {left} (--style json has all sizes)"] if left else []
    return Table(advised.title, ("option", *_headings(question, sizes)) if rows else (), tuple(rows), tuple(notes))


def sentences(advised: Advised) -> list[str]:
    """What the grid does not show: where the best option changes, what steps recover, and what was not compared."""
    question = advised.advice.question
    by_library: dict[str, list[Recovery]] = {}
    for one in advised.recoveries:
        by_library.setdefault(f"{one.isolated}", []).append(one)
    return [
        f"{sentence(advised)[:1].upper()}{sentence(advised)[1:]}.",
        *(_crossing(question, one) for one in advised.crossovers),
        *filter(None, (_recovered(question, steps) for steps in by_library.values())),
        *_apart(advised.advice),
    ]


def _crossing(question: Question, crossing: Crossover) -> str:
    sides = f"below {question.name(crossing.below)}, above {question.name(crossing.above)}"
    where = f"The choice changes at about {_rounded(crossing.size)} (interpolated"
    if crossing.interval is None:
        return f"{where}; too few launches for an interval): {sides}."
    return f"{where}; {_between(*crossing.interval)}): {sides}."


def _between(low: float, high: float) -> str:
    """In words, from measured sizes; an end of 0 or infinity lies beyond them."""
    if low == 0.0 and high == math.inf:
        return "possibly beyond the sizes measured, either way"
    if low == 0.0:
        return f"below {format_size(int(high))}"
    if high == math.inf:
        return f"above {format_size(int(low))}"
    return f"between {format_size(int(low))} and {format_size(int(high))}"


def _rounded(size: float) -> str:
    """Two significant digits, in binary units: a crossing is not an exact number of bytes."""
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= unit:
            return f"{size / unit:.2g}{name}" if size < 99.5 * unit else f"{size / unit:.0f}{name}"
    return f"{size:.0f}"


#: A share that may be above this has no number: some blocks had almost nothing to recover.
MOST_SHARE = 2.0


def _recovered(question: Question, steps: Sequence[Recovery]) -> str:
    """`mpich: single strict takes 2.00x the time of host at 1M. Recovered by: ipc 97 %; unclear: limits.`."""
    first = steps[0]
    if first.cost_interval is None or first.cost_interval[0] <= 1:
        return ""
    library = f"{first.isolated['library']}: " if first.isolated["library"] else ""
    cost = f"{digits(first.cost)}x{interval(first.cost_interval, digits)}"
    text = f"{library}{question.place(first.isolated)} takes {cost} the time of {question.place(first.free)}"
    ordered = sorted(steps, key=lambda recovery: recovery.step.isolation_order, reverse=True)
    known = [f"{one.step['isolation']} {_share(one)}" for one in ordered if one.decided]
    unknown = [one.step["isolation"] for one in ordered if not one.decided]
    said = [f"recovered by {', '.join(known)}"] * bool(known) + [f"unclear: {', '.join(unknown)}"] * bool(unknown)
    return f"{text}{at(question, first.size)}; {'; '.join(said)}."


def _share(recovery: Recovery) -> str:
    """`97 % (94 .. 99)`; of more than twice the cost only that it is at least so much."""
    low, high = recovery.share_interval or (recovery.share, recovery.share)
    if high > MOST_SHARE:
        return "all of it" if low >= 1 else f"at least {low * 100:.0f} %" if low > 0 else "something"
    return f"{recovery.share * 100:.0f} %{interval(recovery.share_interval, lambda end: f'{end * 100:.0f}')}"


def _apart(advice: Advice) -> list[str]:
    """Options that were not compared, at which sizes and why; and that failed at times."""
    question = advice.question
    listed: dict[tuple[str, str], list[int]] = {}
    for one in advice.sizes:
        for option, why in one.apart.items():
            listed.setdefault((question.name(option), _why(why)), []).append(one.size)
    lines = [f"{name} is not compared{at(question, *sizes)}: {why}." for (name, why), sizes in listed.items()]
    failing: dict[str, list[int]] = {}
    for one in advice.sizes:
        for option in one.failing:
            failing.setdefault(question.name(option), []).append(one.size)
    return [*lines, *(f"{name} failed in some launches{at(question, *sizes)}." for name, sizes in failing.items())]


def _why(apart: Apart) -> str:
    if apart.kind == "not comparable":
        return apart.detail
    said = {"contended": "tasks waited for a CPU in every launch", "few launches": f"fewer than {FEWEST} launches"}
    return ": ".join(filter(None, (said.get(apart.kind, apart.kind), apart.detail)))


def guideline_tables(results: Sequence[GuidelineResult]) -> list[Table]:
    """One table of the guidelines that are violated, and how many were checked."""
    if not results:
        return []
    rows = tuple(_violation(result) for result in results if result.state == "violated")
    states = Counter(result.state for result in results)
    note = (
        f"{len(results)} checked: {states['held']} hold, {states['violated']} violated, {states['undecided']} undecided"
    )
    columns = ("guideline", "image", "place", "ranks", "size (B)", "against", "times as long")
    return [Table("performance guidelines", columns if rows else (), rows, (note,))]


def _violation(result: GuidelineResult) -> tuple[str, ...]:
    case, where = result.case, result.case.where
    return (
        result.rule, where.image or "", f"{case.workload} {where.text}", str(where.ranks), format_size(case["size"]),
        result.against, times(result.ratio),
    )  # fmt: skip


# For programs.


def document(
    advices: Sequence[Advised], results: Sequence[GuidelineResult], cautions: Sequence[str] = ()
) -> dict[str, Any]:
    entries, guidelines = map(_entry, advices), map(_guideline, results)
    return {"advice": list(entries), "guidelines": list(guidelines), "cautions": list(cautions)}


def _entry(advised: Advised) -> dict[str, Any]:
    advice, question = advised.advice, advised.advice.question
    return {
        "operation": advised.title,
        "answer": sentence(advised),
        "why": sentences(advised),
        "ranges": [
            {"from": of.sizes[0].size, "to": of.sizes[-1].size, "take": _taken(question, of),
             "at_most": of.bound if of.known else None,
             "may_be_best_too": sorted(map(question.name, of.rivals))}
            for of in advice.ranges
        ],
        "sizes": [_size(question, one) for one in advice.sizes],
        "crossovers": [
            {"size": crossing.size, "interval": crossing.interval, "below": question.name(crossing.below),
             "above": question.name(crossing.above)} for crossing in advised.crossovers
        ],
        "recovered": [
            {"size": recovery.size, "isolated": question.name(recovery.isolated), "free": question.name(recovery.free),
             "step": recovery.step["isolation"], "cost": recovery.cost, "cost_interval": recovery.cost_interval,
             "share": recovery.share, "share_interval": recovery.share_interval} for recovery in advised.recoveries
        ],
    }  # fmt: skip


def _taken(question: Question, of: Range) -> str | None:
    """The option to take; None without bounds, and where nothing was compared with it."""
    return question.name(of.option) if of.known else None


def _size(question: Question, one: AtSize) -> dict[str, Any]:
    return {
        "size": one.size,
        "take": question.name(one.take) if one.known else None,
        "at_most": one.bound if one.known else None,
        "seconds": median(question.cells[one.size][one.take].medians),
        "options": {
            question.name(option): {
                "ratio": found.ratio, "at_most": None if isinstance(found.at_most, str) else found.at_most,
                "unbounded": found.at_most if isinstance(found.at_most, str) else None, "may_be_best": not found.out,
                "slow_at_times": found.slow_at_times,
            }
            for option, found in one.options.items()
        },
        "matters": {factor: found._asdict() for factor, found in effects(question, one).items()},
        "failed": {question.name(option): count for option, (count, _) in one.failing.items()},
        "not_compared": {question.name(option): _why(why) for option, why in one.apart.items()},
    }  # fmt: skip


def _guideline(result: GuidelineResult) -> dict[str, Any]:
    return {"rule": result.rule, "case": to_builtins(result.case), "against": result.against, "state": result.state,
            "times": result.ratio.value, "interval": result.ratio.interval}  # fmt: skip
