"""Runs beside a paper: verdicts on its conclusions, and its figures beside what runs measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from statistics import median

from collbench.analysis.compare import MARGIN, Comparison, compare
from collbench.analysis.estimate import Estimate, centre
from collbench.analysis.observations import Observed, Pair
from collbench.analysis.paper.cells import PARAMETER_SERVER, Apart, Item, Kind, judged_together, kinds_of, other_device
from collbench.analysis.paper.judge import FINDINGS, Evidence, Judgement, PartVerdict, diff_percent, judge
from collbench.analysis.paper.reference import Paper, Published, PublishedTraining, Ratio, Scalar, Selector, decode
from collbench.errors import RequestError
from collbench.report.cells import cautions, times
from collbench.report.comparison import of_launches
from collbench.report.headings import operation, variant
from collbench.report.scales import rate_heading, rate_text
from collbench.report.tables import Table, without_empty
from collbench.schema.case import Case
from collbench.spelling import nearest_and_all
from collbench.units import counted, format_duration, format_size

_TIMES = (
    "times of other machines, and of other numbers of steps, are not comparable; only the ratios behind them are: over "
    "one process in one container"
)

#: Operation, policy, library, number of GPUs or workers: a cell of a paper on collectives.
_At = tuple[str, str, str, int]


def figures(published: Paper, kinds: Sequence[Kind]) -> Iterator[Table]:
    """The tables of every kind of container that was measured; what only the paper measured stands in the first."""
    if published.experiments:
        for kind in kinds:
            if kind.beside_host:
                yield _diffs(published, kind, kind is kinds[0])
    for kind in kinds:
        cells = _collectives(kind)
        if cells:
            yield from _fastest_libraries(kind, cells)
            yield _ratios(published, kind, cells)
    trained = [item for kind in kinds for item in kind.items if item.case.workload == "parameter_server"]
    if published.training and trained:
        yield _trainings(published, trained)


def cell_text(case: Case) -> str:
    """`dd bs 65536 count 16 write`: what was measured, with its size."""
    size = format_size(case["size"]) if "size" in case.what else ""
    return " ".join(word for word in (operation(case), size) if word)


def percent(diff: Estimate | None) -> str:
    """`0.24 (-0.10 .. 0.51)`."""
    if diff is None:
        return ""
    value, *ends = (f"{round(number, 2) + 0.0:.2f}" for number in (diff.value, *(diff.interval or ())))  # no -0.00
    return f"{value} ({' .. '.join(ends)})" if ends else value


def published_diff(published: Paper, case: Case) -> str:
    """`pc -4.263, server -4.023`."""
    beside = (one for one in published.experiments if one.cell and one.cell.takes(case))
    return ", ".join(f"{one.machine} {_diff(one)}" for one in beside if one.diff is not None)


def _diff(figure: Published) -> str:
    """Diff% with the digits of the paper; two where only results are published."""
    if figure.diff_percent is not None:
        return f"{figure.diff_percent:.3f}"
    return "" if figure.diff is None else f"{figure.diff:.2f}"


def _diffs(published: Paper, kind: Kind, whole: bool) -> Table:
    """Figures that runs have something beside; of the `whole` paper, then the others."""
    found = [(figure, _figure_beside(figure.cell, kind)) for figure in published.experiments]
    rows = [(*_first(figure, cell), *here) for figure, beside in found for cell, here in beside]
    rows += [(*_first(figure), "", "", "not measured") for figure, beside in found if whole and not beside]
    columns = ("experiment", "machine", "host", "container", "Diff%", "host here", "container here", "Diff% here")
    note = "results of different machines are not comparable; only Diff% are"
    return Table(f"figures of {published.reference}: {kind.title}", columns, tuple(rows), (note,))


def _first(figure: Published, cell: str = "") -> tuple[str, ...]:
    """What was published; `cell` tells apart what the run has several of."""
    bound = "" if figure.bound_percent is None else f"|Diff%| < {figure.bound_percent:g}"
    values = (_value(figure.host, figure.unit), _value(figure.docker, figure.unit))
    quantity = f"{figure.quantity} (here {cell})" if cell else figure.quantity
    return (quantity, figure.machine, *values, _diff(figure) or bound)


def _value(value: float | None, unit: str | None) -> str:
    return "" if value is None else f"{value:g} {unit or ''}".strip()


def _figure_beside(selector: Selector | None, kind: Kind) -> list[tuple[str, tuple[str, str, str]]]:
    """Host, container and Diff% of each cell; with what it is where there are several."""
    if selector is None:
        return []
    found = [one.comparison for one in kind.beside_host if selector.takes(one.comparison.pair.base.case)]
    cases = [one.pair.base.case for one in found]
    texts = [", ".join(filter(None, (cell_text(case), variant(case)))) if len(found) > 1 else "" for case in cases]
    return [(text, _here(one, selector)) for text, one in zip(texts, found, strict=True)]


def _here(comparison: Comparison, selector: Selector) -> tuple[str, str, str]:
    base, other = (_shown(time, comparison, selector) for time in (comparison.base, comparison.other))
    if comparison.ratio is None or other_device(comparison.pair):
        return base, other, "not comparable"
    return base, other, percent(diff_percent(comparison.ratio, selector.shown))


def _shown(time: Estimate | None, comparison: Comparison, selector: Selector) -> str:
    work = comparison.pair.base.work
    if time is None:
        return ""
    if selector.shown == "time":
        return format_duration(time.value)
    return f"{rate_text(work, time.value)} {rate_heading(work)}"


# Collectives: every published number as a ratio.


def number_of(item: Item) -> str:
    """`4 GPUs`, or `4 workers` where there were none."""
    return counted(item["workers"], "worker" if item.case["backend"] == "mpi" else "GPU")


def _collectives(kind: Kind) -> dict[_At, Item]:
    cells: dict[_At, Item] = {}
    for item in kind.items:
        if item.case["backend"] and item.library is not None:
            for name in (item.library, item.library.partition(" (")[0]):
                cells.setdefault((item.case.workload, item.case.where.policy, name, item["workers"]), item)
    return cells


def _of_step(what: str, kind: Kind, cells: dict[_At, Item]) -> str:
    return f"{what}: step {kind.step}, {format_size(next(iter(cells.values()))['size'])}"


def _fastest_libraries(kind: Kind, cells: dict[_At, Item]) -> Iterator[Table]:
    """The best library of each policy by number of GPUs: one table for the parameter server, one for all-reduce."""
    for title, operations in (("parameter server", PARAMETER_SERVER), ("all-reduce", ("allreduce",))):
        known = {at: item for at, item in cells.items() if at[0] in operations}
        counts = {at[3]: number_of(item) for at, item in sorted(known.items(), key=lambda one: one[0][3])}
        rows = [
            (operation, policy, *(_fastest(known, operation, policy, count) for count in counts))
            for operation in operations
            for policy in ("single", "multi")
        ]
        if counts:
            columns = ("operation", "policy", *counts.values())
            note = "by the median of launch medians; the conclusions say whether the difference is significant"
            yield Table(_of_step(f"the fastest library, {title}", kind, cells), columns, tuple(rows), (note,))


def _fastest(cells: dict[_At, Item], operation: str, policy: str, count: int) -> str:
    found = {at[2]: median(item.cell.medians) for at, item in cells.items()
             if (at[0], at[1], at[3]) == (operation, policy, count) and item.cell}  # fmt: skip
    if not found:
        return "not measured"
    best = min(found, key=lambda library: found[library])
    return f"{best} {format_duration(found[best])}"


def _ratios(published: Paper, kind: Kind, cells: dict[_At, Item]) -> Table:
    """Ratios that were measured, then those that the run lacks."""
    ratios = [(ratio, _measured(ratio, cells)) for ratio in (*published.ratios, *_derived(published))]
    rows = [
        (ratio.operation, ratio.text, f"{ratio.ratio:.2f}", times(measured) if measured else "not measured",
         f"{measured.value / ratio.ratio:.2f}" if measured else "")
        for ratio, measured in sorted(ratios, key=lambda pair: pair[1] is None)
    ]  # fmt: skip
    columns = ("operation", "ratio", published.reference, "this run", "this run over the paper")
    moved = f"{published.bytes / 1e9:g} GB"
    note = f"times of different machines are not comparable, so all are ratios; the paper moved {moved}"
    return Table(_of_step(f"ratios of {published.reference}", kind, cells), columns, tuple(rows), (note,))


def _derived(published: Paper) -> Iterator[Ratio]:
    """Ratios of published times: every figure over the best of its operation with as many GPUs."""
    for figure in published.figures:
        same = [one for one in published.figures if (one.operation, one.gpus) == (figure.operation, figure.gpus)]
        best = min(same, key=lambda one: one.seconds)
        if figure is not best:
            text = f"{figure.policy} {figure.library} over {best.policy} {best.library}, {counted(figure.gpus, 'GPU')}"
            yield Ratio(
                operation=figure.operation, text=text, ratio=figure.seconds / best.seconds, of=figure, over=best
            )


def _measured(published: Ratio, cells: dict[_At, Item]) -> Estimate | None:
    of, over = (cells.get((published.operation, side.policy, side.library, side.gpus))
                for side in (published.of, published.over))  # fmt: skip
    if of is None or over is None or of.run != over.run or of.cell is None or over.cell is None:
        return None
    (one,) = compare([Pair(over.cell, of.cell, over.name, of.name)], in_blocks=of.in_blocks)
    return one.ratio


# Trainings with parameter servers: times over that of one process.


def _trainings(published: Paper, items: Sequence[Item]) -> Table:
    """A row for each cell of the runs, then for what only the paper measured."""
    machines = tuple(dict.fromkeys(one.machine for one in published.training))
    rows = []
    for item in sorted(items, key=lambda one: (one["servers"], one["shard"] != "variable", one["workers"], one.name)):
        theirs = {one.machine: _of_paper(one, published) for one in published.training
                  if one.cell.takes(item) and one.workers == item["workers"]}  # fmt: skip
        beside = tuple(theirs.get(machine, "") for machine in machines)
        place = (str(item["servers"]), str(item["workers"]), item.case.where.text, str(item["shard"]))
        rows.append((*place, *beside, _time(item, items)))
    for one in published.training:
        if not any(one.cell.takes(item) and one.workers == item["workers"] for item in items):
            beside = tuple(_of_paper(one, published) if one.machine == machine else "" for machine in machines)
            values = one.cell.values
            place = (str(values["servers"]), str(one.workers), str(values["policy"]), str(values["shard"]))
            rows.append((*place, *beside, "not measured"))
    columns = ("servers", "workers", "place", "shard", *machines, "here")
    return Table(f"times of the training of {published.reference}", columns, tuple(rows), (_TIMES,))


def _time(item: Item, items: Sequence[Item]) -> str:
    """`2.39 s, 2.70 (2.42 .. 3.07)`: the time, and its ratio to that of one process in one container of its run."""
    if item.cell is None or not item.cell.medians:
        return "not measured"
    here = format_duration(centre(item.cell.medians).value)
    axes = (item.run, "multi", 0, "variable", item["isolation"])
    for one in items:
        alone = (one.run, one["policy"], one["servers"], one["shard"], one["isolation"]) == axes
        if alone and one is not item and one.cell is not None:
            (ratio,) = compare([Pair(one.cell, item.cell, one.name, item.name)], in_blocks=item.in_blocks)
            return f"{here}, {percent(ratio.ratio)}"
    return here


def _of_paper(figure: PublishedTraining, published: Paper) -> str:
    """`17.12 s, 0.76`: the time, and its ratio to that of one process on the same machine."""
    one = next((one.seconds for one in published.training
                if one.machine == figure.machine and one.cell.values["servers"] == 0), None)  # fmt: skip
    ratio = "" if one is None or one == figure.seconds else f", {figure.seconds / one:.2f}"
    return f"{figure.seconds:g} s{ratio}"


_FOLDER = files("collbench.report") / "reference"

#: More values or programs without a measurement are counted and not named.
_MOST_NAMED = 6

_DIFF = (
    "Diff%: (host - container) / host x 100 in the quantity that the paper shows, here of medians, with the 95 % "
    "interval: of a rate positive where the container is slower, of a time negative"
)
_RATIO = "ratio: of what the conclusion calls faster over the other; of a growth, both are growths of times"


def papers() -> list[str]:
    """The references of the papers whose figures come with the program."""
    return sorted(entry.name.removesuffix(".json") for entry in _FOLDER.iterdir() if entry.name.endswith(".json"))


def paper(reference: str) -> Paper:
    """What a paper published.

    Raises:
        RequestError: no such paper.
    """
    known = papers()
    if reference not in known:
        raise RequestError(f"paper {reference}: no such paper. {nearest_and_all(reference, known)}")
    return decode((_FOLDER / f"{reference}.json").read_bytes())


@dataclass(frozen=True)
class Beside:
    """Runs that are judged together: a line for each kind of container, and tables, that of verdicts first."""

    runs: tuple[str, ...]
    answer: tuple[str, ...]
    tables: tuple[Table, ...]


def beside(runs: Sequence[Observed], published: Paper, margin: float = MARGIN) -> list[Beside]:
    """Runs beside a paper, judged together unless they measured one cell on different machines.

    The margin is for claims that one side is faster; conclusions on host and container have bounds of their own.

    Raises:
        RequestError: nothing of the paper's experiment is in a group of runs.
    """
    groups, apart = judged_together(runs, published)
    lines = tuple(map(_apart, apart))
    return [_beside(group, published, margin, lines) for group in groups]


def _beside(runs: Sequence[Observed], published: Paper, margin: float, apart: tuple[str, ...]) -> Beside:
    kinds = kinds_of(runs, published)
    judged = [judge(published, kind, margin) for kind in kinds]
    if not any(kind.beside_host or kind.items or kind.refused for kind in kinds):
        raise RequestError(_nothing(runs, published))
    answer: list[str] = []
    tables: list[Table] = []
    for number, (kind, verdicts) in enumerate(zip(kinds, judged, strict=True)):
        title = f" at {kind.title}" if kind.title else ""
        numbers = Counter(one.finding for one in verdicts)
        tally = ", ".join(f"{numbers[finding]} {finding}" for finding in FINDINGS if numbers[finding])
        answer.append(f"Of the {len(published.conclusions)} conclusions of {published.reference}{title}: {tally}.")
        tables.append(_conclusions(published, kind, [one for one in verdicts if not number or one.evidence]))
    tables += [_evidence(published, *of_kind, len(runs) > 1) for of_kind in zip(kinds, judged, strict=True)]
    tables = [table for table in tables if table.rows]
    tables += figures(published, kinds)
    tables.append(Table(f"assumptions about {published.reference}", (), (), published.reading))
    return Beside(tuple(run.name for run in runs), (*answer, *apart), tuple(tables))


def _nothing(runs: Sequence[Observed], published: Paper) -> str:
    needs = ", ".join(dict.fromkeys(one.workload for part in published.parts for one in part.selectors))
    places = "on the host and in a container" if published.programs else "under the policies single and multi"
    return (f"{', '.join(run.name for run in runs)}: nothing to compare with {published.reference}, which needs one of "
            f"{needs} {places}.")  # fmt: skip


def _apart(apart: Apart) -> str:
    first, second = apart.runs
    return (f"{first} and {second} are judged apart: both measured {cell_text(apart.case)}, on different machines "
            f"({apart.machines[0]}; {apart.machines[1]}).")  # fmt: skip


def decidable(published: Paper, judged: Sequence[Judgement], missing: Collection[str] = ()) -> list[str]:
    """What a plan can decide of a paper, in lines: `judged` are its conclusions as foreseen.

    The first line has all conclusions; the others say what is lacking of those that cannot be both confirmed and
    refuted. `missing` are workloads of the plan whose programs are not there.
    """
    words = {(True, True): "can decide", (True, False): "can confirm but not refute",
             (False, True): "can refute but not confirm", (False, False): "cannot decide"}  # fmt: skip
    able: dict[str, list[str]] = {word: [] for word in words.values()}
    for one in judged:
        able[words[one.can_confirm, one.can_refute]].append(str(one.conclusion.number))
    texts = [f"{word} {', '.join(numbers)}" for word, numbers in able.items() if numbers]
    lines = [f"  conclusion {one.conclusion.number}: {_why_open(one, missing)}"
             for one in judged if not (one.can_confirm and one.can_refute)]  # fmt: skip
    return [f"of the conclusions of {published.reference} this plan {'; '.join(texts)}", *lines]


def _why_open(judgement: Judgement, missing: Collection[str]) -> str:
    words = [judgement.conclusion.lacking] if judgement.conclusion.lacking else []
    for part in judgement.parts:
        if part.can_confirm and part.can_refute:
            continue
        enough = f"{part.open} of {counted(part.total, 'cell')}, {part.needed} needed to confirm it"
        gone = [one.workload for one in part.part.selectors if one.workload in missing]
        programs = f"not installed: {', '.join(dict.fromkeys(gone))}" if gone else _missing(part)
        needs = "; ".join(filter(None, (enough, programs))) if part.open or not programs else programs
        why = part.part.lacking or needs
        words.append(f"{_part_name(part)}: {why}" if len(judgement.parts) > 1 else why)
    return "; ".join(dict.fromkeys(words))


def _conclusions(published: Paper, kind: Kind, judged: Iterable[Judgement]) -> Table:
    """A row for each conclusion, and below it one for each of several parts."""
    rows: list[tuple[str, ...]] = []
    for one in judged:
        conclusion, parts = one.conclusion, one.parts
        first = parts[0] if len(parts) == 1 else None
        rest = (_counts(first), _remark(first)) if first else ("", conclusion.lacking)
        rows.append((str(conclusion.number), conclusion.text, one.finding, *rest))
        if not first:
            rows += [("", _part_name(part), part.finding, _counts(part), _remark(part)) for part in parts]
    columns = ("number", "conclusion", "verdict", "cells of the paper", "why")
    return without_empty(Table(_title("conclusions", published, kind), columns, tuple(rows)))


def _title(what: str, published: Paper, kind: Kind) -> str:
    return f"{what} of {published.reference}" + (f": {kind.title}" if kind.title else "")


def _part_name(part: PartVerdict) -> str:
    return part.part.text or part.part.of.workload


def _counts(part: PartVerdict) -> str:
    """`3 of 14 support it, 8 needed; 1 contradicts it, 2 undecided`."""
    words = [f"{part.support} of {part.total} {'supports' if part.support == 1 else 'support'} it"]
    if part.needed != part.total:
        words.append(f"{part.needed} needed")
    if part.against:
        words.append(f"{part.against} {'contradicts' if part.against == 1 else 'contradict'} it")
    if part.open:
        words.append(f"{part.open} undecided")
    return ", ".join(words)


def _remark(part: PartVerdict) -> str:
    """Why there is no verdict on all cells: what no run can show, what was not measured, or could not be compared."""
    found = [one for one in part.evidence if one.finding == "not measurable here" and not part.part.lacking]
    reasons = dict.fromkeys(map(_reason, found))
    return "; ".join(filter(None, (part.part.lacking, *reasons, _missing(part))))


def _missing(part: PartVerdict) -> str:
    refused = [f"{workload} in {run}: the sides differ in {why}" for (run, workload), why in part.refused.items()]
    known = {workload for _, workload in part.refused}
    absent = [_selected(one) for one in part.absent if one.workload not in known]
    words = [*refused, *([f"not measured: {'; '.join(absent)}"] if absent else [])]
    if part.missing:
        words.append(f"not measured: {'; '.join(_values(name, values) for name, values in part.missing.items())}")
    measured = part.support + part.against + part.open
    if not words and measured < part.total:
        words.append(f"not measured: {part.total - measured} of the cells" if measured or not part.evidence else "")
    return "; ".join(filter(None, words))


def _selected(selector: Selector) -> str:
    """`parameter_server with policy single, shard variable`."""
    several = {name: value if isinstance(value, tuple) else (value,) for name, value in selector.values.items()}
    values = ", ".join(_values(name, some) for name, some in several.items() if len(some) <= _MOST_NAMED)
    return f"{selector.workload} with {values}" if values else selector.workload


def _values(name: str, values: Sequence[Scalar]) -> str:
    """`n 15000, 18000`, `workers 3 to 24`, `problem: 9 values`."""
    name = name.removeprefix("than.")
    whole = [value for value in values if isinstance(value, int)]
    if len(whole) > 2 and len(whole) == len(values) and whole == list(range(whole[0], whole[0] + len(whole))):
        return f"{name} {whole[0]} to {whole[-1]}"
    if len(values) <= _MOST_NAMED:
        return f"{name} {', '.join(str(value) for value in values)}"
    return f"{name} {', '.join(str(value) for value in values[:3])} and {len(values) - 3} more"


def _evidence(published: Paper, kind: Kind, judged: Iterable[Judgement], several: bool) -> Table:
    """Every cell that bears on a conclusion; with its run where there are several."""
    rows = dict.fromkeys(
        _row(published, str(one.conclusion.number), evidence, several) for one in judged for evidence in one.evidence
    )
    columns = ("conclusion", "cell", "run", "finding", "Diff%", "ratio", "Diff% of the paper")
    table = without_empty(Table(_title("cells", published, kind), columns, tuple(rows)))
    notes = [note for note, column in ((_DIFF, "Diff%"), (_RATIO, "ratio")) if column in table.columns]
    return replace(table, notes=(*notes, *_notes(kind)))


def _row(published: Paper, number: str, one: Evidence, several: bool) -> tuple[str, ...]:
    slow = one.comparison.slow if one.comparison else None
    why = "; ".join(word for word in (_reason(one), slow.text if slow else "") if word)
    finding = ": ".join(word for word in (one.finding or "compared with", why) if word)
    ratio = diff = beside = ""
    if one.sides[0].case.workload in published.programs:
        diff, beside = percent(one.estimate), published_diff(published, one.sides[0].case)
    elif one.estimate is not None:
        ratio = times(one.estimate)
    return (number, _cell(one), one.run if several else "", finding, diff, ratio, beside)


def _cell(one: Evidence) -> str:
    """`dd write, bs 65536, count 16`; `ps_bcast, 4 workers: multi MPICH over single MPICH`."""
    base, other, *few = one.sides
    if few:
        case = base.case
        return (f"{case.workload}, {case.where.policy}, {few[0]['workers']} to {number_of(base)}: growth of "
                f"{other.library} over that of {base.library}")  # fmt: skip
    if base.case["backend"]:
        return f"{base.case.workload}, {number_of(base)}: {other.name} over {base.name}"
    if base.case.workload == "parameter_server":
        return f"{other.name} over {base.name}"
    figures_ = ", ".join(f"{value:,.10g} {name}" for name, value in one.figures.items())
    far = "far over near" if one.sides[1].case["affinity"] != base.case["affinity"] else ""
    return ", ".join(word for word in (cell_text(base.case), variant(base.case), figures_, far) if word)


def _reason(one: Evidence) -> str:
    """Why a cell has its finding, in words."""
    if one.reason == "interval" and one.bounds is not None:
        share = {"confirmed": "the whole", "refuted": "no part of the"}.get(str(one.finding), "a part of the")
        low, high = ("" if end is None else f"{end:g}" for end in one.bounds)
        bounds = f"within {low} .. {high}" if low and high else f"above {low}" if low else f"below {high}"
        return f"{share} interval lies {bounds} %"
    if one.reason == "references":
        affected = {"confirmed": "more affected than all of", "refuted": "less affected than some of"}
        return f"{affected.get(str(one.finding), 'its interval overlaps those of')} what it is compared with"
    if one.reason == "devices":
        return f"not known to be one device: {one.detail[0]} on the host, {one.detail[1]} in containers"
    if one.reason == "verdict" and one.comparison is not None:
        return one.comparison.verdict
    return _REASONS.get(one.reason, "; ".join(one.detail))


#: Reasons that need no more than their name; of the others the detail says it.
_REASONS = {
    "unknown references": "not all that it is compared with is known",
    "not in turns": "host and container were not measured alternately",
    "crowded": "more ranks than cores",
}


def _notes(kind: Kind) -> Iterator[str]:
    rows = [one.comparison for one in kind.beside_host]
    cells = {id(cell): cell for row in rows for cell in (row.pair.base, row.pair.other)}
    cells |= {id(item.cell): item.cell for item in kind.items if item.cell is not None and not item.case["backend"]}
    if rows:
        yield from of_launches([replace(row, launches_more=None) for row in rows])  # the advice is for compare's margin
    yield from cautions(list(cells.values()))
