"""What a paper published beside what runs measured: Diff%, ratios of collectives, and times of trainings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from collbench.analysis.compare import Comparison, compare
from collbench.analysis.estimate import Estimate, centre
from collbench.analysis.pair import Pair
from collbench.analysis.paper.cells import PARAMETER_SERVER, Item, Kind, other_device
from collbench.analysis.paper.judge import diff_percent
from collbench.analysis.paper.reference import Paper, Published, PublishedTraining, Ratio, Selector
from collbench.report.cells import times
from collbench.report.headings import operation, variant
from collbench.report.rates import rate_heading, rate_text
from collbench.report.tables import Table
from collbench.schema.case import Case
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
    found = [(figure, _beside(figure.cell, kind)) for figure in published.experiments]
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


def _beside(selector: Selector | None, kind: Kind) -> list[tuple[str, tuple[str, str, str]]]:
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
