"""A comparison on one screen: a sentence, a grid of its cells, what could mislead, why, and what decides the rest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from shlex import quote
from typing import Any

from collbench.analysis.compare import MOST, Comparison, Reason
from collbench.analysis.estimate import FEWEST
from collbench.analysis.launches import SLOW, Slow
from collbench.analysis.planning import standing, standing_of_sides, still_open
from collbench.analysis.results import Cell, grouped
from collbench.report import caveats, headings
from collbench.report.numbers import change, extent, span
from collbench.report.tables import WIDTH, Table, more
from collbench.schema.plan import CLUSTERS, MOST_LAUNCHES
from collbench.schema.record import UNREAD
from collbench.schema.store import is_gate, read_gate_plan
from collbench.units import counted

#: The most rows of a grid, more sizes than these are rows, reasons that are named, and values of a column.
MOST_ROWS, MOST_SIZES, MOST_REASONS, _MOST_NAMED = 16, 4, 4, 2

#: Lines of what could mislead on the first screen.
MOST_LINES = 3

#: An end of an interval beyond this factor says nothing.
MOST_RATIO = 1e6

SIZE = "size (B)"

_NOT_ALTERNATELY = "the sides were not measured alternately"

# Why a comparison has its verdict.


def _more(launches: int) -> str:
    return counted(launches, "more launch", "more launches")


def sha256_text(sha256: str | None) -> str:
    return f"sha256 {'not known' if not sha256 or sha256 == UNREAD else sha256[:12]}"


#: By kind, from the values of a reason.
_WORDS: dict[str, Callable[..., str]] = {
    "not measured": lambda side, status, *reasons: f"{side}: {status}: {'; '.join(reasons) or 'not measured'}",
    "wrong results": lambda side, n: f"{side}: results were wrong in {counted(n, 'launch', 'launches')}",
    "not loaded": lambda side, path, wanted, loaded, sha256: (
        f"{side}: its ranks loaded {f'{loaded} ({sha256_text(sha256)})' if loaded else 'no such library'}, "
        f"not {path} ({sha256_text(wanted)})"),
    "measured differently": lambda *differences: "; ".join(
        f"{name} {base} against {other}" for name, base, other in differences),
    "other work": lambda base, other: " against ".join(f"{amount} {unit}" for amount, unit in (base, other)),
    "no common blocks": lambda: "the sides have no block of launches in common",
    "no launches": lambda: "not measured",
    "clock 0": lambda: "a median of 0: the clock does not resolve this operation",
    "few launches": lambda lacking: f"an interval needs at least {_more(lacking)}",
    "blocks": lambda n, most=None: f"not decided after {counted(n, 'block')}{f' of at most {most}' if most else ''}",
    "clock": lambda share: f"the clock resolves these times to {share * 100:.1f} % only",
    "launches": lambda more: f"needs {f'more than {MOST} more launches' if more is None else f'about {_more(more)}'}",
    "drift": lambda share: (f"times drift by {share * 100:.0f} % within a run, "
                            "and the runs were measured one after the other"),
    "dependent": lambda: "launches depend on those before them",
    "within margin": lambda: "the whole interval lies within the margin",
    "excludes equality": lambda: "the interval excludes equality",
}  # fmt: skip


def reason(why: Reason, in_blocks: bool = True) -> str:
    """`needs about 12 more launches`."""
    values: tuple[Any, ...] = why.values
    if not why.contended:
        return _WORDS[why.kind](*values)
    words = ("block", "blocks") if in_blocks else ("launch", "launches")
    text = "no others are left" if why.kind == "no launches" else _WORDS[why.kind](*values)
    return f"{text}: tasks waited for a CPU in {counted(why.contended, *words)}"


def remedy(why: Reason) -> str:
    """What would make a difference in how ranks line up go; empty for other reasons."""
    names = [name for name, *_ in why.values] if why.kind == "measured differently" else []
    return '; align = "barrier" in the plan (or --align barrier) measures both' * (names == ["align"])


def whole_reason(comparison: Comparison) -> str:
    """With its remedy, and the launches that are slow at times."""
    slow, why = comparison.slow, comparison.why
    text = reason(why, comparison.blocks) + remedy(why)
    return text + (f"; {slow_text(slow)}" if slow is not None else "")


def slow_text(slow: Slow) -> str:
    """`over 1.25 times the median: 0 of 60 launches of the base, 20 of 60 of the other`."""
    if slow.means is not None:
        return f"means of samples are {slow.means:.2f} times as long on the other side"
    of_base, of_other = slow.launches
    return (f"over {SLOW} times the median: {slow.base} of {of_base} launches of the base, {slow.other} of {of_other} "
            "of the other")  # fmt: skip


# What decides the rest.

#: What measures more of a run, and no longer what is decided; a gate needs its plan and flags again.
EXTEND = "next: collbench launch --resume {run}{site} --until decided --launches {most}"
EXTEND_GATE = (
    "next: collbench gate PLAN --resume {run} --until decided --launches {most}, with the gate's PLAN and flags"
)

#: Instead, of sides that were not measured by one launch plan.
ALTERNATELY = "next: measure both sides alternately, by one launch plan (collbench launch PLAN)"

#: Instead, where a run has decided all that it compares by itself.
ANEW = "next: measure again with more launches (collbench launch PLAN --launches {most})"

#: The fewest further launches that decide anything are suggested up to so many times those of the plan.
_MOST_TIMES = 4


def ways_to_tell(comparisons: Iterable[Comparison], unsure: Collection[Cell] = ()) -> list[str]:
    """What measures more of those that more launches may decide; none where no launch would be started.

    Twice the launches that a run was to have are suggested, or as many as decide any comparison, with how many they do;
    never more than a plan may have. If cells are `unsure`, there is a line whatever the comparisons say of
    them: a launch decides other comparisons of these cells too, and where it would start none, a new run has more.
    """
    every = list(comparisons)
    open_ = [
        # of bets it is not known how many launches would decide
        comparison for comparison in every if comparison.verdict == "unclear" and (
            comparison.launches_more is not None
            or (comparison.blocks and comparison.pair.base.until_decided and comparison.ratio is not None))
    ]  # fmt: skip
    lines = []
    wanted = every if unsure else open_
    for run in dict.fromkeys(comparison.pair.base.experiment for comparison in wanted if _in_one_run(comparison)):
        pairs = [comparison.pair for comparison in every]
        cells = {cell.case: cell for cell in (*unsure, *headings.cells_of_pairs(pairs)) if cell.experiment == run}
        planned = max(cell.planned for cell in cells.values())
        needs = [comparison.launches_more for comparison in open_
                 if comparison.pair.base.experiment == run and comparison.launches_more]  # fmt: skip
        first = planned + min(needs, default=0)
        enough = first if first <= _MOST_TIMES * planned else 0
        most = min(max(2 * planned, enough, FEWEST), MOST_LAUNCHES)
        if _starts_launches(run, list(cells.values()), most):
            command = EXTEND_GATE if is_gate(Path(run)) else EXTEND
            number = sum(need <= most - planned for need in needs)
            unclear = sum(comparison.verdict == "unclear" for comparison in every)
            decides = ""
            if needs:
                of = f"about {number} of the {unclear} unclear" if number else f"none, the nearest needs {min(needs)}"
                decides = f"  # {most - planned} more a side decide {of}"
            site = " --site FILE" if any(cell.case["engine"] in CLUSTERS for cell in cells.values()) else ""
            lines.append(f"{command.format(run=quote(run), most=most, site=site)}{decides}")
        elif unsure:
            lines.append(ANEW.format(most=most))
    return [*lines, *([] if all(map(_in_one_run, wanted)) else [ALTERNATELY])]


def _starts_launches(run: str, cells: Sequence[Cell], most: int) -> bool:
    """Whether a run that is resumed until decided has a comparison that launches up to so many may still decide.

    What `launch` and `gate` decide is asked of these cells, by bets, and with their margin, whatever the reader's is.
    """
    if most <= max(cell.planned for cell in cells):
        return False
    cells_of_origin = [cell.of_origin(until_decided=True) for cell in cells]
    first = min(min(cell.launches, default=0) for cell in cells)
    blocks = 1 + max(max(cell.launches, default=-1) for cell in cells) - first
    if is_gate(Path(run)):
        statuses = standing_of_sides(cells_of_origin, blocks, most, read_gate_plan(Path(run)).margins)
    else:
        statuses = standing(cells_of_origin, blocks, most)
    return any(True for _ in still_open(statuses))


def _in_one_run(comparison: Comparison) -> bool:
    base, other = comparison.pair.base.experiment, comparison.pair.other.experiment
    return bool(base) and base == other


def what_tells(comparisons: Sequence[Comparison]) -> str:
    """`22 to 841 more launches would decide (3 cells); needs more than 1000 more launches (1 cell)`, by reason."""
    by_kind = grouped(((comparison.why.kind, None in comparison.why.values), comparison) for comparison in comparisons)
    groups = sorted(by_kind.values(), key=len, reverse=True)
    texts = [_of_kind(alike) + f" ({counted(len(alike), 'cell')})" * (len(groups) > 1) for alike in groups]
    left = len(texts) - MOST_REASONS
    return "; ".join((*texts[:MOST_REASONS], *[counted(left, "other reason")] * (left > 0)))


def _of_kind(comparisons: Sequence[Comparison]) -> str:
    """From the least to the largest number; of other reasons the one with the largest value."""
    last = max(comparisons, key=lambda comparison: comparison.why.values)
    least, most = (choose(comparison.why.values for comparison in comparisons)[:1] for choose in (min, max))
    numbers = " to ".join(dict.fromkeys(map(str, (*least, *most))))
    if last.why.kind == "launches" and last.launches_more:
        return f"{numbers} more launch{'es' * (numbers != '1')} would decide"
    return f"not decided after {numbers} blocks" if last.why.kind == "blocks" else reason(last.why, last.blocks)


# The answer.


def tables(comparisons: Sequence[Comparison], margin: float, every: bool = False) -> list[Table]:
    """The answer in a sentence, a grid of all cells, what must be known of it; no grid if `every` cell follows.

    Of what could mislead the first lines, all of them with `every`.
    """
    cells = headings.cells_of_pairs(comparison.pair for comparison in comparisons)
    lines = [*caveats.failed(cells), *_refused(comparisons), *remarks(comparisons)]
    shown = len(lines) if every else MOST_LINES
    grid = Table("", (), ()) if every else _grid(comparisons)
    _, shared, of_benchmarks = _labels(comparisons)
    common = [_common(comparisons, shared), *([] if every else of_benchmarks)] if comparisons else []
    unclear = [comparison for comparison in comparisons if comparison.verdict == "unclear"]
    deciding = [f"{len(unclear)} unclear: {what_tells(unclear)}", *ways_to_tell(unclear)] if unclear else []
    notes = (*common, *grid.notes, *lines[:shown],
             *more(len(lines) - shown, "more, and every cell with its times: --all"), *deciding)  # fmt: skip
    return [Table(sentence(comparisons, margin), grid.columns, grid.rows, notes)]


def sentence(comparisons: Sequence[Comparison], margin: float) -> str:
    """`multi vs host: slower by 62 to 76 % for bcast, openmpi; 9 of 14 the same within 5 %; 3 of 14 unclear`."""
    slower, faster, unclear, same, refused = (
        [comparison for comparison in comparisons if comparison.verdict == name]
        for name in ("slower", "faster", "unclear", "same", "not comparable")
    )
    compared = [comparison for comparison in comparisons if comparison.verdict != "not comparable"]
    parts = [f"{some[0].verdict} {_by(some)}{_where(some, compared)}" for some in (slower, faster) if some]
    if parts and any(not comparison.blocks for comparison in (*slower, *faster)):
        parts[-1] += f", or the machine changed: {_NOT_ALTERNATELY}"
    elif not parts and same:
        where = _where(same, compared) if unclear else ""
        apart = f", but {_NOT_ALTERNATELY}" if any(not comparison.blocks for comparison in same) else ""
        parts, same = [f"no difference above {margin * 100:g} %{where}{_hidden(same)}{apart}"], []
    elif not parts and unclear:
        parts, unclear = [f"cannot tell yet{_between(unclear)}"], []
    rest = [(f"the same within {margin * 100:g} %{_hidden(same)}", same), ("unclear", unclear)]
    counts = [(len(cells), text) for text, cells in rest if cells]
    of = [""] * (len(counts) - 1) + [f" of {len(compared)}" * (len(compared) > 1)]
    parts += [f"{number}{total} {text}" for (number, text), total in zip(counts, of, strict=False)]
    parts += [f"{len(refused)} not compared"] if refused else []
    sides, _ = headings.side_column([comparison.pair for comparison in comparisons])
    names = {headings.versus(comparison.pair) for comparison in comparisons}
    sides = names.pop() if len(names) == 1 else sides  # of several with one base `vs host`
    return f"{f'{sides}: ' if sides != 'sides' else ''}{'; '.join(parts)}"


def _by(comparisons: Sequence[Comparison]) -> str:
    """`by 62 to 76 %`, `by a factor of 5.20 to 65.0`: of the measured differences."""
    sizes = [max(ratio, 2 - ratio) for ratio in map(_ratio, comparisons)]
    text = extent(min(sizes), max(sizes))
    return f"by {text}" if "%" in text else f"by a factor of {text.removesuffix('x')}"


def _between(comparisons: Sequence[Comparison]) -> str:
    """`, between -9 and +46 %`: what all intervals leave possible; empty where one has none."""
    ratios = (comparison.ratio for comparison in comparisons)
    intervals = [ratio.interval for ratio in ratios if ratio is not None and ratio.interval]
    if len(intervals) < len(comparisons):
        return ", too few launches"
    low, high = min(low for low, _ in intervals), max(high for _, high in intervals)
    return f", between {change(low)} and {change(high)}" if math.isfinite(high) and high < MOST_RATIO else ""


def _hidden(same: Sequence[Comparison]) -> str:
    number = sum(comparison.slow is not None for comparison in same)
    return f" in the median, {number} with more slow launches" if number else ""


def _ratio(comparison: Comparison) -> float:
    return comparison.ratio.value if comparison.ratio is not None else 1.0


# Where: the shortest words that describe some of all cells.


def _attributes(comparisons: Sequence[Comparison]) -> dict[str, dict[int, str]]:
    """By column what tells cells apart, as image, side of the plan, operation, size; of these what varies."""
    labels, *_ = _labels(comparisons)
    short = [label.partition(" ")[0] for label in labels]
    sides, names = headings.side_column([comparison.pair for comparison in comparisons])
    columns = {
        **{name: [headings.shared(comparison.pair, name) for comparison in comparisons] for name in ("image", "side")},
        "operation": short if len(set(short)) == len(set(labels)) else labels,
        sides: names, "place": [headings.shared_place(comparison.pair) for comparison in comparisons],
        SIZE: list(map(_size, comparisons)),
    }  # fmt: skip
    return {name: {id(comparison): value for comparison, value in zip(comparisons, values, strict=True)}
            for name, values in columns.items() if len(set(values)) > 1}  # fmt: skip


def _where(some: Sequence[Comparison], of: Sequence[Comparison]) -> str:
    """` for openmpi, bcast at 1M`, if these are all cells with such values; else ` in 7 of 16 cells`."""
    if len(some) == len(of):
        return "" if len(of) < 2 else " in both cells" if len(of) == 2 else f" in all {len(of)} cells"
    columns = _attributes(of)
    chosen = {id(comparison) for comparison in some}
    for number in range(1, len(columns) + 1):
        for names in combinations(columns, number):
            values = {name: dict.fromkeys(columns[name][id(comparison)] for comparison in some) for name in names}
            covered = {id(comparison) for comparison in of
                       if all(columns[name][id(comparison)] in values[name] for name in names)}  # fmt: skip
            texts = {name: _named(name, list(values[name]), list(dict.fromkeys(columns[name].values())))
                     for name in names}  # fmt: skip
            if covered == chosen and all(texts.values()):
                size = f" at {texts.pop(SIZE)}" if SIZE in texts else ""
                rest = ", ".join(texts.values())
                return f"{f' for {rest}' if rest else ''}{size}"
    return f" in {len(some)} of {len(of)} cells"


def _named(column: str, values: Sequence[str], known: Sequence[str]) -> str:
    """`mpich and openmpi`, `8 to 64K`; empty where too many would be named."""
    places = [known.index(value) for value in values]
    if column == SIZE and len(values) > _MOST_NAMED and max(places) - min(places) == len(values) - 1:
        return f"{known[min(places)]} to {known[max(places)]}"
    return "" if len(values) > _MOST_NAMED or "" in values else " and ".join(values)


def _grid(comparisons: Sequence[Comparison]) -> Table:
    """A row for each image, operation and pair of sides; sizes side by side where there is room, else down."""
    columns = _attributes(comparisons)
    sizes = list(dict.fromkeys(columns.pop(SIZE, {}).values()))
    if 1 < len(sizes) <= MOST_SIZES:
        across = _rows(comparisons, columns, sizes)
        if sum(max(map(len, cells)) + 2 for cells in zip(*(row for _, row in across), strict=True)) <= WIDTH:
            return _cut((*columns, *sizes), across)
    if sizes:
        columns[SIZE] = {id(comparison): _size(comparison) for comparison in comparisons}
    return _cut((*columns, "difference"), _rows(comparisons, columns, []))


SortedRow = tuple[float, tuple[str, ...]]


def _rows(
    comparisons: Sequence[Comparison], columns: Mapping[str, Mapping[int, str]], sizes: Sequence[str]
) -> list[SortedRow]:
    """Each with the largest difference that is known in it (the logarithm of a ratio; -1: none is)."""
    keyed = ((tuple(values[id(comparison)] for values in columns.values()), comparison) for comparison in comparisons)
    return [
        (max(abs(math.log(_ratio(comparison))) if comparison.verdict in ("slower", "faster")
             else 0.0 if comparison.verdict == "same" else -1.0 for comparison in alike),
         (*key, *("; ".join(cell_text(comparison) for comparison in alike if not sizes or _size(comparison) == size)
                  or "-" for size in (sizes or ("",)))))
        for key, alike in grouped(keyed).items()
    ]  # fmt: skip


def _cut(columns: tuple[str, ...], rows: Sequence[SortedRow]) -> Table:
    if len(rows) <= MOST_ROWS:
        return Table("", columns, tuple(row for _, row in rows))
    shown = sorted(rows, key=lambda row: -row[0])[:MOST_ROWS]
    note = f"the {MOST_ROWS} rows with the largest differences of {len(rows)}: --all has every cell"
    return Table("", columns, tuple(row for _, row in shown), (note,))


def cell_text(comparison: Comparison) -> str:
    """`slower +12 % (+9 to +15 %)`, `same (-1 to +2 %)`, `unclear +4 % (-4 to +12 %)`."""
    ratio, tails = comparison.ratio, "" if comparison.slow is None else ", slow at times"
    if comparison.verdict == "not comparable" or ratio is None:
        return "not compared"
    if ratio.interval is None:
        return f"too few launches ({change(ratio.value)})"
    value = f" {change(ratio.value)}" if comparison.verdict != "same" else ""
    return f"{comparison.verdict}{value} ({span(*ratio.interval)}){tails}"


def _common(comparisons: Sequence[Comparison], shared: str) -> str:
    """What is `shared` by all cells, and how many launches of each side are used."""
    used = sorted({number for comparison in comparisons for number in comparison.launches})
    launches = f"{used[0]} to {used[-1]} launches" if len(used) > 1 else counted(used[0], "launch", "launches")
    at_once = max(comparison.sizes for comparison in comparisons)
    held = f"; intervals: 95 %, of the {at_once} sizes of an operation at once" if at_once > 1 else "; intervals: 95 %"
    return f"{shared}{', ' if shared else ''}{launches} a side{held}"


def _labels(comparisons: Sequence[Comparison]) -> tuple[list[str], str, list[str]]:
    """What is measured in each cell; what is the same in all cells; and in all cells of one of several benchmarks.

    The latter are lines (`fio: bs 4096, depth 1`), and like what is the same in all in no name of a cell.
    """
    pairs = [comparison.pair for comparison in comparisons]
    texts = [headings.heading_of((pair.base, pair.other), headings.common_case(pair)) for pair in pairs]
    named, shared = headings.apart([text.split(", ") for text in texts])
    lines, workloads = list[str](), [pair.base.case.workload for pair in pairs]
    for workload in dict.fromkeys(workloads) if len(set(workloads)) > 1 else ():
        places = [place for place, of in enumerate(workloads) if of == workload]
        own, same = headings.apart([named[place][1:] for place in places])
        if same and headings.is_program(pairs[places[0]].base.case):
            lines.append(f"{workload}: {', '.join(same)}")
            for place, words in zip(places, own, strict=True):
                named[place] = [*named[place][:1], *words]
    return list(map(", ".join, named)), ", ".join(shared), lines


def _size(comparison: Comparison) -> str:
    return headings.size_text(comparison.pair.base.case)


def _refused(comparisons: Sequence[Comparison]) -> list[str]:
    reasons = Counter(whole_reason(comparison) for comparison in comparisons if comparison.verdict == "not comparable")
    lines = [f"not compared: {why}{f' ({number} cells)' if number > 1 else ''}" for why, number in reasons.items()]
    left = len(lines) - MOST_REASONS
    return [*lines[:MOST_REASONS], *[f"not compared, for {counted(left, 'other reason')}: --all"] * (left > 0)]


def remarks(comparisons: Sequence[Comparison]) -> list[str]:
    """What could mislead, each line once."""
    pairs = [comparison.pair for comparison in comparisons]
    cells = headings.cells_of_pairs(pairs)
    unequal = caveats.differing_results(comparisons, len({pair.base.case.workload for pair in pairs}) > 1)
    transports = caveats.differing_transports(comparisons)
    if len(transports) > MOST_REASONS:
        transports = [f"transports differ between {len(transports)} pairs of places: --all"]
    limits = caveats.of_launches(comparisons, planned=False) if comparisons else []
    notes = (
        *caveats.by_chance(comparisons), *unequal, *caveats.cpu_waited(comparisons), *limits,
        *caveats.differing_facts(comparisons), *transports, *caveats.in_blocks(cells), *caveats.disturbances(cells),
        *caveats.waited(cells), *caveats.unlike([(pair.base, pair.other) for pair in pairs]),
    )  # fmt: skip
    return list(dict.fromkeys(notes))
