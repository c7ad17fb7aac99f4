"""Advice as text: which option to take and what it may lose, what matters, and the evidence; as tables and as JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from statistics import median
from typing import Any

from msgspec import to_builtins

from collbench.analysis.advise import (
    Advice,
    Apart,
    AtSize,
    Crossover,
    GuidelineResult,
    Range,
    Recovery,
    crossover,
    factor_effects,
    pair_of,
    recoveries,
)
from collbench.analysis.compare import Comparison
from collbench.analysis.estimate import FEWEST
from collbench.analysis.options import Option, Question, choices_in
from collbench.analysis.pairs import Pair
from collbench.analysis.results import Cell, grouped
from collbench.analysis.runs import Observed
from collbench.report.caveats import dependent, misleading
from collbench.report.headings import apart, in_place_order, is_program, operation, variant
from collbench.report.numbers import change, digits, extent, format_rate, interval, times
from collbench.report.tables import Table, in_columns_of, more, without_empty
from collbench.report.verdict import reason, ways_to_tell
from collbench.schema.axes import AXES
from collbench.schema.manifest import Chosen
from collbench.schema.store import YardstickReading, read_readings
from collbench.units import counted, format_duration, format_size

#: The most sizes in a grid, which has a column for each; rows of options of one grid, and of each of two; rows of a
#: grid of more operations; and lines of what could mislead.
MOST_SIZES, MOST_OPTIONS, MOST_ROWS, MOST_MISLEADING = 6, {1: 8, 2: 3}, 16, 2

#: Ranges of sizes that a sentence names, and options that are out.
_MOST_RANGES, _MOST_OUT = 2, 3

#: An option that may lose more than this is the safest, but no clear choice; more launches are suggested above the
#: other.
UNCLEAR, ENOUGH = 1.25, 1.05

#: A share that may be above this has no number: some blocks had almost nothing to recover.
MOST_SHARE = 2.0

_LEGEND = "at most: slower than the best of these, with 95 % confidence; slower: than the fastest, as measured"
_FACTORS = "slowest: the value of a factor, and its time over the fastest value, in options alike in all else"

_UNBOUNDED = {"few launches": "too few launches", "drift": "times drift", "dependent": "dependent launches"}

_APART = {"contended": "tasks waited for a CPU in every launch", "few launches": f"fewer than {FEWEST} launches"}


@dataclass(frozen=True)
class Advised:
    """Advice for one operation with all that belongs to it."""

    advice: Advice
    crossovers: tuple[Crossover, ...]
    recoveries: tuple[Recovery, ...]

    @property
    def title(self) -> str:
        """`allreduce sum float32, 2 ranks`; `4 ranks on 8 GPUs` where that is a choice."""
        question, case = self.advice.question, self.advice.question.case
        of = [f" on {counted(choice.of, 'GPU' if choice.axis == 'gpus' else 'core')}"
              for option in question.options if (choice := question.chosen(option))]  # fmt: skip
        ranks = counted(case.where.ranks, "rank") + "".join(of[:1])
        return ", ".join(filter(None, (operation(case), variant(case), ranks)))


def complete(advices: Iterable[Advice], in_blocks: bool) -> list[Advised]:
    """Each advice with its crossovers and with what each step recovers at the largest size."""
    completed = []
    for advice in advices:
        crossings = [crossover(advice.question, lower.option, upper.option, in_blocks)
                     for lower, upper in pairwise(advice.ranges)]  # fmt: skip
        recovered = recoveries(advice.question, advice.sizes[-1].size, in_blocks) if advice.sizes else []
        completed.append(Advised(advice, tuple(filter(None, crossings)), tuple(recovered)))
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


def sentence(advised: Advised) -> str:
    """`take mpich, host at 8 (at most 9 % slower than the best), openmpi, host at 1M (at most 4 %)`."""
    advice, question = advised.advice, advised.advice.question
    if not advice.sizes:
        cells = (cell for of_size in question.cells.values() for cell in of_size.values())
        contended = any(cell.medians and cell.disturbed for cell in cells)
        return "no advice, tasks waited for a CPU in every launch" if contended else "nothing was measured"
    if len(question.options) == 1:
        return _alone(question)
    known = [sizes for sizes in advice.ranges if sizes.known]
    if not known:
        return _unknown(advice)
    others = [size.size for sizes in known[_MOST_RANGES:] for size in sizes.sizes]
    texts = [_range(question, sizes, len(known) == 1) for sizes in known[:_MOST_RANGES]]
    texts += [f"see the grid{at(question, *others)}"] * bool(others)
    texts += _costs(question, known)
    unclear = any(sizes.bound > UNCLEAR for sizes in known[:_MOST_RANGES])
    return f"{'no clear choice yet; safest is' if unclear else 'take'} {'; '.join(texts)}"


def _taken(question: Question, option: Option) -> str:
    """The option's name; of GPUs or cores, where they vary, `0, 1, 2, 3 (close; pairs: 2 NV4, 4 NODE)`."""
    choice = question.chosen(option)
    if choice is None:
        return question.name(option)
    rest = replace(question, varying=tuple(factor for factor in question.varying if factor != choice.axis))
    word = choice.choice * choice.choice.isalpha()  # else its numbers
    inside = "; ".join(filter(None, (word, f"pairs: {_pairs(choice)}" * bool(choice.pairs))))
    members = ", ".join(map(str, choice.members)) + f" ({inside})" * bool(inside)
    return ", ".join((members, *[rest.name(option)] * bool(rest.varying)))


def _costs(question: Question, ranges: Iterable[Range]) -> list[str]:
    """`spread takes 1.31 to 2.10 times as long at 64K`: of choices of GPUs or cores those that are out, and rivals.

    The ratio of a choice at a size is that of its fastest option.
    """
    known = [of for of in ranges if of.known]
    sizes = [size for of in known for size in of.sizes]
    of_choice = grouped((choice.choice, option) for option in question.options if (choice := question.chosen(option)))
    texts = []
    for name, options in sorted(of_choice.items(), key=lambda item: AXES["gpus"].order(item[0])):
        by_size = {size.size: [result for option in options if (result := size.options.get(option))] for size in sizes}
        ratios = {size: min(result.ratio for result in results) for size, results in by_size.items()
                  if results and all(result.out for result in results)}  # fmt: skip
        if ratios:
            ends = " to ".join(dict.fromkeys(digits(end) for end in (min(ratios.values()), max(ratios.values()))))
            texts.append(f"{name} takes {ends} times as long{at(question, *ratios) * (len(ratios) < len(sizes))}")
        elif any(by_size.values()) and not any(of.option in options for of in known):
            texts.append(f"{name} may be as good")
    return texts


def _range(question: Question, size_range: Range, alone: bool) -> str:
    """`openmpi, host at 8 to 64K, at most 9 % slower than the best, though it failed in some launches`."""
    sizes = [size.size for size in size_range.sizes]
    named = f"{_taken(question, size_range.option)}{at(question, *sizes) if set(question.sizes) - set(sizes) else ''}"
    though = ""
    if any(size_range.option in size.failing for size in size_range.sizes):
        though = ", though it failed in some launches"
    elif any(size.options[size_range.option].slow_at_times for size in size_range.sizes):
        though = ", though some of its launches are far slower"
    if not any(len(size.possible) > 1 for size in size_range.sizes):
        said_of_each = question.varying in (("gpus",), ("cores",)) and all(map(question.chosen, question.options))
        return f"{named}{', all others are slower' * (not said_of_each)}{though}"
    of = f" of {min(len(size.options) for size in size_range.sizes)}" if alone else ""
    than = "the time of" if size_range.bound >= 2 else "slower than"
    return f"{named}, at most {slowdown(size_range.bound)} {than} the best{of}{though}"


def _unknown(advice: Advice) -> str:
    question = advice.question
    fastest = grouped((_taken(question, size.take), size.size) for size in advice.sizes)
    if all(len(size.options) == 1 for size in advice.sizes):
        why = next((_why(apart) for size in advice.sizes for apart in size.apart.values()), "")
        return f"nothing could be compared with {next(iter(fastest))}{why and f': {why}'}"
    named = "; ".join(f"{name}{at(question, *sizes) * (len(fastest) > 1)}" for name, sizes in fastest.items())
    why = next(_lost(of) for of in advice.ranges if any(len(size.options) > 1 for size in of.sizes))
    return f"no choice: {why}; fastest measured: {named if len(fastest) <= _MOST_RANGES else 'see --why'}"


def _lost(size_range: Range) -> str:
    """What the option of a range may lose, or why that is not known."""
    if size_range.known:
        return slowdown(size_range.bound)
    if all(len(size.options) < 2 for size in size_range.sizes):
        return "nothing to compare"
    bounds = (size.options[size_range.option].at_most for size in size_range.sizes)
    return next(_UNBOUNDED[bound] for bound in bounds if isinstance(bound, str))


def _alone(question: Question) -> str:
    """`only one option was measured: Open MPI 5.0.11 (2.9 us at 8, 96.8 us at 512K; 1 launch)`; no program's times."""
    [option] = question.options
    cells = {size: cell for size in question.sizes if (cell := question.cells[size][option]).medians}
    ends = [] if any(is_program(cell.case) for cell in cells.values()) else dict.fromkeys([*cells][:1] + [*cells][-1:])
    shown = [f"{format_duration(median(cells[size].medians))}{at(question, size)}" for size in ends]
    launches = max((len(cell.medians) for cell in cells.values()), default=0)
    of = f" ({', '.join(shown)}; {counted(launches, 'launch', 'launches')})" if shown else ""
    return f"only one option was measured: {_taken(question, option)}{of}"


# The first screen.


def chosen(runs: Sequence[Observed], cells: Collection[Cell]) -> list[str]:
    """`gpus close, 4 ranks: 0, 1, 2, 3 (pairs: 2 NV4, 4 NODE); ...`: what GPUs or cores of these cells came to.

    Beside what a GPU can send, or a rank copy, stands the largest bus bandwidth that was measured.
    """
    every = choices_in(manifest for run in runs for manifest in run.manifests)
    choices = [choice for choice in every if any(_is_of(choice, cell) for cell in cells)]
    of_cores = any(choice.axis == "cores" for choice in choices)
    folders = [folder for run in runs for _, folder in run.folders if of_cores]
    readings = [reading for folder in folders for reading in read_readings(folder)]
    return [f"{_chosen(choice)}{_bound(choice, readings)}{_reached(choice, cells)}" for choice in choices]


def _is_of(choice: Chosen, cell: Cell) -> bool:
    return (cell.case[choice.axis], cell.case.where.ranks) == (choice.choice, choice.ranks)


def _chosen(choice: Chosen) -> str:
    pairs, members = f" (pairs: {_pairs(choice)})" if choice.pairs else "", ", ".join(map(str, choice.members))
    return f"{choice.axis} {choice.choice}, {counted(choice.ranks, 'rank')}: {members}{pairs}"


def _pairs(choice: Chosen) -> str:
    """`2 NV4, 4 NODE`; of cores `1 sharing a memory node, 5 sharing no socket`."""
    article = {"gpus": "", "cores": "sharing a "}[choice.axis]
    return ", ".join(f"{n} {article}{name}" for name, n in choice.pairs.items()).replace(" a no ", " no ")


def _bound(choice: Chosen, readings: Iterable[YardstickReading]) -> str:
    """With the source of the rates. What a rank copies is half of what its cores read and write."""
    if choice.limit is not None:
        ways = [f"{counted(choice.nvlinks, 'NVLink')} at NVML's rate"] * bool(choice.nvlinks)
        ways += ["PCIe at NVML's generation and width"] * choice.pcie
        return f": a GPU can send {format_rate(choice.limit / 1e9)} GB/s ({', '.join(ways)})"
    copied = [copy for reading in readings if reading.moment == "before" and (copy := reading.values.get("copy"))
              and choice.axis == "cores" and all((where.cores, where.ranks) == (choice.choice, choice.ranks)
                                                 for where in reading.cells)]  # fmt: skip
    if not copied:
        return ""
    rate = format_rate(median(copied) / 2 / choice.ranks)
    return f": a rank can copy {rate} GB/s while all do (yardstick copy, median of {counted(len(copied), 'reading')})"


def _reached(choice: Chosen, cells: Iterable[Cell]) -> str:
    rates = [(cell.work.amount * cell.work.bus_factor / median(cell.medians) / 1e9, cell.case["size"])
             for cell in cells if min(cell.medians, default=0.0) > 0 and cell.work.bus_factor
             and _is_of(choice, cell)]  # fmt: skip
    if not rates:
        return ""
    rate, size = max(rates)
    return f"; largest bus bandwidth measured {format_rate(rate)} GB/s, at {format_size(size)}"


def doubtful(advices: Iterable[Advised]) -> list[tuple[Question, AtSize]]:
    """Sizes at which what is taken may lose more than `ENOUGH`."""
    return [(advised.advice.question, size) for advised in advices for size in advised.advice.sizes
            if len(size.options) > 1 and size.bound > ENOUGH]  # fmt: skip


def rivals(advices: Iterable[Advised]) -> list[Pair]:
    """What is taken there, against every other option."""
    return [pair_of(question, size.size, size.take, rival)
            for question, size in doubtful(advices) for rival in size.options if rival != size.take]  # fmt: skip


def brief(
    advices: Sequence[Advised], known: Sequence[str], comparisons: Sequence[Comparison], whole: bool = False,
    choices: Sequence[str] = (),
) -> list[Table]:  # fmt: skip
    """Of each operation the sentence with a grid, of many a row in one grid; below, what could mislead and what to do.

    Of what could mislead the gravest lines, all with `whole`. `comparisons` of `rivals` say what would tell more.
    `choices` are the lines of `chosen`.
    """
    room = MOST_OPTIONS.get(len(advices), 0)
    shown = [_grid(advice, room) for advice in advices] if room else [_summary(advices, whole)]
    first = len(known) if whole else MOST_MISLEADING
    unsure = [cell for question, size in doubtful(advices) for cell in question.cells[size.size].values()]
    notes = (
        *[_LEGEND] * (room > 0 and any(table.rows for table in shown)),
        *[_FACTORS] * any(row[0].startswith("slowest ") for table in shown for row in table.rows),
        *choices, *known[:first], *more(len(known) - first, "more, and all options: --why"),
        *(ways_to_tell(comparisons, unsure) if unsure else ()),
    )  # fmt: skip
    return [*shown[:-1], replace(shown[-1], notes=(*shown[-1].notes, *notes))]


def _grid(advised: Advised, room: int) -> Table:
    """Rows are factors, as far as they matter, then options that may be the best, of which there is `room` for some."""
    advice, question = advised.advice, advised.advice.question
    headline = f"{advised.title}: {sentence(advised)}."
    if len(question.options) < 2 or not any(size.known for size in _shown(advice.sizes)):
        return Table(headline, (), ())
    ranked, possible = _ranked(advice), {option for size in advice.sizes for option in size.possible}
    out = {option for size in advice.sizes for option in size.options} - possible
    slower = "; ".join(sorted(map(question.name, out)))
    if len(out) > _MOST_OUT:
        common = [f"{factor} {question.value(next(iter(out)), factor)}" for factor in question.varying
                  if len({option[factor] for option in out}) == 1]  # fmt: skip
        slower = f"{len(out)} options{', all with ' * bool(common)}{', '.join(common)}"
    missing = [*dict.fromkeys(question.name(option) for size in advice.sizes for option in size.apart)]
    left_out = [
        *more(len(ranked) - room, "more may be the best"), *[f"slower at every size: {slower}"] * bool(out),
        *[f"not compared at every size: {'; '.join(missing[:2])}{' and others' * (len(missing) > 2)}"] * bool(missing),
    ]  # fmt: skip
    return _by_size(advised, headline, "", ranked[:room], True, filter(None, ["; ".join(left_out)]))


def _by_size(
    advised: Advised, title: str, first: str, options: Sequence[Option], factors: bool, notes: Iterable[str]
) -> Table:
    """A column for each size; rows are how much factors matter, where options differ in several, and options."""
    question, sizes = advised.advice.question, _shown(advised.advice.sizes)
    effects = [factor_effects(question, size) for size in sizes] if factors else []
    matter = [factor for factor in question.varying if any(factor in effect for effect in effects)]
    matter = matter if len(matter) > 1 else []
    names = [f"slowest {factor}" for factor in matter] + list(map(question.name, options))
    columns = {first: names} if names else {}
    for index, size in enumerate(sizes if names else ()):
        known = [effects[index].get(factor) for factor in matter]  # `single 2 to 46 %`: the slowest over the fastest
        cells = [f"{effect.slowest} {extent(effect.least, effect.largest)}" if effect else "-" for effect in known]
        heading = format_size(size.size) if sized(question) else "time"
        columns[heading] = cells + [_cell(size, option) for option in options]
    return Table.of(title, columns, notes)


def _ranked(advice: Advice) -> list[Option]:
    """Options that may be the best at any size: those taken first, then by the most that they may lose at any size."""
    options = dict.fromkeys(size_range.option for size_range in advice.ranges)
    possible = {option for size in advice.sizes for option in size.possible}

    def worst(option: Option) -> tuple[bool, float, Option]:
        results = [size.options.get(option) for size in advice.sizes]
        out = any(result is None or result.out for result in results)
        return out, max(result.bound if result else math.inf for result in results), option

    return [*options, *sorted(possible - set(options), key=worst)]


def _cell(size: AtSize, option: Option) -> str:
    """`at most 9 %` of what may be the best, `slower, 4.20x` of what is out; behind it how its launches went."""
    result = size.options.get(option)
    if result is None:
        return "failed" if option in size.failing else "-"
    failed, of = size.failing.get(option, (0, 0))
    behind = f", failed {failed} of {of}" if failed else ", slow at times" if result.slow_at_times else ""
    if result.out:
        return f"slower, {change(result.ratio)}{behind}"
    most = _UNBOUNDED[result.at_most] if isinstance(result.at_most, str) else f"at most {slowdown(result.at_most)}"
    return f"{most}{behind}"


def _summary(advices: Sequence[Advised], whole: bool) -> Table:
    titles, shared = apart([advised.title.split(", ") for advised in advices])
    every = [(advised, of) for advised in advices for of in advised.advice.ranges or (None,)]
    operations = {id(advised): ", ".join(title) for title, advised in zip(titles, advices, strict=True)}
    rows = [(operations[id(advised)], *_summed(advised, of)) for advised, of in every]
    shown = rows if whole else rows[:MOST_ROWS]
    taken = sum(of.bound <= ENOUGH for _, of in every if of and of.known)
    title = f"{taken or 'none'} of {len(every)} choices decided to within {slowdown(ENOUGH)} of the best"
    title += f"; in all: {', '.join(shared)}" if shared else ""
    heads = ("operation", "size (B)", "take", "at most slower than the best", "may be the best too", "other choices")
    return without_empty(Table(title, heads, tuple(shown), tuple(more(len(rows) - len(shown), "more rows: --why"))))


def _summed(advised: Advised, of: Range | None) -> tuple[str, str, str, str, str]:
    """Sizes, what to take, what it may lose, what may be the best too, and what other choices cost."""
    if of is None:
        return "", "-", sentence(advised), "", ""
    question = advised.advice.question
    rivals = list(map(question.name, of.rivals)) if of.known else []
    return (at(question, *(size.size for size in of.sizes)).removeprefix(" at "),
            _taken(question, of.option) + " (safest)" * (of.known and of.bound > UNCLEAR), _lost(of),
            "; ".join((*rivals[:1], *more(len(rivals) - 1, "more"))), "; ".join(_costs(question, [of])))  # fmt: skip


def cautions(
    advices: Sequence[Advised], observed: Observed, comparisons: Sequence[Comparison], also: Sequence[str] = ()
) -> list[str]:
    """What could mislead in any of the answers, the gravest first: of what was asked, and what is `also` known."""
    by_size = [cells for advised in advices for cells in advised.advice.question.cells.values()]
    cells = {cell.case: cell for of_size in by_size for cell in of_size.values()}
    lines = (*also, *(dependent(comparisons) if comparisons else ()))
    return list(misleading(replace(observed, cells=cells), lines, whole=False))


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
    advice, options = advised.advice, advised.advice.question.options
    left = [format_size(size.size) for size in advice.sizes if size not in _shown(advice.sizes)]
    notes = [f"measured too: {', '.join(left)} (--style json has all sizes)"] * bool(left)
    shown = in_place_order(options) if len(options) > 1 and advice.sizes else []
    return _by_size(advised, advised.title, "option", shown, False, notes)


def sentences(advised: Advised) -> list[str]:
    """What the grid does not show: where the best option changes, what steps recover, and what was not compared."""
    question, answer = advised.advice.question, sentence(advised)
    by_library = grouped((recovery.isolated, recovery) for recovery in advised.recoveries)
    remarks = [(f"{question.name(option)} is not compared{{}}: {_why(why)}.", size.size)
               for size in advised.advice.sizes for option, why in size.apart.items()]  # fmt: skip
    remarks += [(f"{question.name(option)} failed in some launches{{}}.", size.size)
                for size in advised.advice.sizes for option in size.failing]  # fmt: skip
    crossings = []
    for crossing in advised.crossovers:
        sides = f"below {question.name(crossing.below)}, above {question.name(crossing.above)}"
        how = "too few launches for an interval" if crossing.interval is None else _between(*crossing.interval)
        at_about = f"at about {_rounded(crossing.size)} (interpolated; {how})"
        crossings.append(f"The choice changes {at_about}: {sides}.")
    return [f"{answer[:1].upper()}{answer[1:]}.", *crossings,
            *filter(None, (_recovered(question, steps) for steps in by_library.values())),
            *(line.replace("{}", at(question, *sizes), 1) for line, sizes in grouped(remarks).items())]  # fmt: skip


def _between(low: float, high: float) -> str:
    """In words, from measured sizes; an end of 0 or infinity lies beyond them."""
    if high == math.inf:
        return f"above {format_size(int(low))}" if low else "possibly beyond the sizes measured, either way"
    if low == 0.0:
        return f"below {format_size(int(high))}"
    return f"between {format_size(int(low))} and {format_size(int(high))}"


def _rounded(size: float) -> str:
    """Two significant digits, in binary units: a crossing is not an exact number of bytes."""
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= unit:
            return f"{size / unit:.2g}{name}" if size < 99.5 * unit else f"{size / unit:.0f}{name}"
    return f"{size:.0f}"


def _recovered(question: Question, steps: Sequence[Recovery]) -> str:
    """`mpich: single strict takes 2.00x the time of host at 1M. Recovered by: ipc 97 %; unclear: limits.`."""
    first = steps[0]
    if first.cost_interval is None or first.cost_interval[0] <= 1:
        return ""
    library = f"{first.isolated['library']}: " if first.isolated["library"] else ""
    cost = f"{digits(first.cost)}x{interval(first.cost_interval, digits)}"
    text = f"{library}{question.place(first.isolated)} takes {cost} the time of {question.place(first.free)}"
    ordered = sorted(steps, key=lambda recovery: recovery.step.isolation_order, reverse=True)
    known = [f"{recovery.step['isolation']} {_share(recovery)}" for recovery in ordered if recovery.decided]
    unknown = [recovery.step["isolation"] for recovery in ordered if not recovery.decided]
    texts = [f"recovered by {', '.join(known)}"] * bool(known) + [f"unclear: {', '.join(unknown)}"] * bool(unknown)
    return f"{text}{at(question, first.size)}; {'; '.join(texts)}."


def _share(recovery: Recovery) -> str:
    """`97 % (94 .. 99)`; of more than twice the cost only that it is at least so much."""
    low, high = recovery.share_interval or (recovery.share, recovery.share)
    if high > MOST_SHARE:
        return "all of it" if low >= 1 else f"at least {low * 100:.0f} %" if low > 0 else "something"
    return f"{recovery.share * 100:.0f} %{interval(recovery.share_interval, lambda end: f'{end * 100:.0f}')}"


def _why(apart: Apart) -> str:
    if apart.why is not None:
        return reason(apart.why)
    return ": ".join(filter(None, (_APART.get(apart.kind, apart.kind), "; ".join(apart.reasons))))


def guideline_tables(results: Sequence[GuidelineResult]) -> list[Table]:
    """One table of the guidelines that are violated, and how many were checked."""
    if not results:
        return []
    states = Counter(result.state for result in results)
    note = (f"{len(results)} checked: {states['held']} hold, {states['violated']} violated, "
            f"{states['undecided']} undecided")  # fmt: skip
    columns = in_columns_of([result for result in results if result.state == "violated"], {
        "guideline": lambda result: result.rule, "image": lambda result: result.case.where.image or "",
        "place": lambda result: f"{result.case.workload} {result.case.where.text}",
        "ranks": lambda result: str(result.case.where.ranks),
        "size (B)": lambda result: format_size(result.case["size"]),
        "against": lambda result: result.against, "times as long": lambda result: times(result.ratio),
    })  # fmt: skip
    return [Table.of("performance guidelines", columns, (note,))]


def document(
    advices: Sequence[Advised], results: Sequence[GuidelineResult], cautions: Sequence[str] = ()
) -> dict[str, Any]:
    guidelines = [{"rule": result.rule, "case": to_builtins(result.case), "against": result.against,
                   "state": result.state, "times": result.ratio.value, "interval": result.ratio.interval}
                  for result in results]  # fmt: skip
    return {"advice": list(map(_entry, advices)), "guidelines": guidelines, "cautions": list(cautions)}


def _entry(advised: Advised) -> dict[str, Any]:
    advice, question = advised.advice, advised.advice.question
    return {
        "operation": advised.title, "workload": question.case.workload, "ranks": question.case.where.ranks,
        "answer": sentence(advised), "why": sentences(advised),
        "ranges": [
            {"from": of.sizes[0].size, "to": of.sizes[-1].size, "take": question.name(of.option) if of.known else None,
             "at_most": of.bound if of.known else None, "may_be_best_too": sorted(map(question.name, of.rivals))}
            for of in advice.ranges
        ],
        "sizes": [_size(question, size) for size in advice.sizes],
        "chosen": {question.name(option): to_builtins(choice)
                   for option in question.options if (choice := question.chosen(option))},
        "crossovers": [_named(question, crossing) for crossing in advised.crossovers],
        "recovered": [_named(question, recovery) | {"step": recovery.step["isolation"]}
                      for recovery in advised.recoveries],
    }  # fmt: skip


def _named(question: Question, item: Crossover | Recovery) -> dict[str, Any]:
    return {key: question.name(value) if isinstance(value, Option) else value for key, value in vars(item).items()}


def _size(question: Question, size: AtSize) -> dict[str, Any]:
    return {
        "size": size.size, "take": question.name(size.take) if size.known else None,
        "at_most": size.bound if size.known else None,
        "seconds": median(question.cells[size.size][size.take].medians),
        "options": {
            question.name(option): {
                "ratio": result.ratio, "at_most": None if isinstance(result.at_most, str) else result.at_most,
                "unbounded": result.at_most if isinstance(result.at_most, str) else None, "may_be_best": not result.out,
                "slow_at_times": result.slow_at_times,
            }
            for option, result in size.options.items()
        },
        "matters": {factor: result._asdict() for factor, result in factor_effects(question, size).items()},
        "failed": {question.name(option): count for option, (count, _) in size.failing.items()},
        "not_compared": {question.name(option): _why(why) for option, why in size.apart.items()},
    }  # fmt: skip
