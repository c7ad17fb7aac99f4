"""A run beside a paper on training with parameter servers: its claims with their cells, and times over one process."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.analysis.compare import Comparison, compare
from collbench.analysis.estimate import centre
from collbench.analysis.observations import Cell, Observed
from collbench.analysis.paper.judgement import Judgement
from collbench.analysis.paper.reference import ProgramsPaper, PublishedTraining, Selector
from collbench.analysis.paper.training import opposed, workers
from collbench.report.cells import cautions
from collbench.report.tables import Table
from collbench.units import format_duration

_ANY = Selector(workload="parameter_server", shown="time")
_ALONE = Selector(
    workload="parameter_server", shown="time", values={"policy": ("host", "multi"), "servers": 0, "shard": "variable"}
)

_TIMES = (
    "times of other machines, and of other numbers of steps, are not comparable; only ratios are: over one process in "
    "a container, of what is on the host over one process there"
)


def tables(published: ProgramsPaper, observed: Observed, judged: Sequence[Judgement[Comparison]]) -> list[Table]:
    """Conclusions with their cells, and times over that of one process; none where the paper or the run has none."""
    cells = [cell for cell in observed.cells.values() if _ANY.takes(cell.case)]
    return [_conclusions(published, judged, cells), _times(published, observed, cells)] if judged and cells else []


def _conclusions(published: ProgramsPaper, judged: Sequence[Judgement[Comparison]], cells: Sequence[Cell]) -> Table:
    texts = {conclusion.number: conclusion.text for conclusion in published.conclusions}
    rows: list[tuple[str, ...]] = []
    for judgement in judged:
        rows.append((str(judgement.number), texts[judgement.number], f"{judgement.finding}: {judgement.why}", ""))
        rows += [("", f"{one.pair.other_name} over {one.pair.base_name}", one.verdict, _ratio(one))
                 for one in judgement.evidence]  # fmt: skip
    columns = ("number", "conclusion, and the cells that decide it", "verdict", "ratio (95 %)")
    return Table(f"conclusions of {published.reference} on training", columns, tuple(rows), tuple(cautions(cells)))


def _ratio(comparison: Comparison) -> str:
    """`0.76 (0.70 .. 0.81)`; of what is not comparable the reason."""
    if comparison.ratio is None:
        return comparison.why
    value, *ends = (f"{number:.2f}" for number in (comparison.ratio.value, *(comparison.ratio.interval or ())))
    return f"{value} ({' .. '.join(ends)})" if ends else value


def _times(published: ProgramsPaper, observed: Observed, cells: Sequence[Cell]) -> Table:
    """A row for each cell of the run, then for what only the paper measured."""
    pairs = opposed(observed, _ANY, _ALONE)
    over_one = {id(one.pair.other): _ratio(one) for one in compare(pairs, in_blocks=observed.interleaved)}
    machines = tuple(dict.fromkeys(one.machine for one in published.training))
    rows = []
    for cell in sorted(cells, key=_order):
        theirs = {one.machine: _of_paper(one, published) for one in published.training if one.cell.takes(cell.case)
                  and one.workers == workers(cell.case)}  # fmt: skip
        beside = tuple(theirs.get(machine, "") for machine in machines)
        here = format_duration(centre(cell.medians).value) if cell.medians else "not measured"
        rows.append((*_place(cell), *beside, here, over_one.get(id(cell), "")))
    measured = [(cell.case, workers(cell.case)) for cell in cells]
    for one in published.training:
        if not any(one.cell.takes(case) and one.workers == number for case, number in measured):
            beside = tuple(_of_paper(one, published) if one.machine == machine else "" for machine in machines)
            values = one.cell.values
            place = (str(values["servers"]), str(one.workers), str(values["policy"]), str(values["shard"]))
            rows.append((*place, *beside, "not measured", ""))
    columns = ("servers", "workers", "place", "shard", *machines, "here", "over one process (95 %)")
    return Table(f"times of the training of {published.reference}", columns, tuple(rows), (_TIMES,))


def _order(cell: Cell) -> tuple[object, ...]:
    case = cell.case
    return (case["servers"], case["shard"] != "variable", workers(case), case.where.text)


def _place(cell: Cell) -> tuple[str, ...]:
    case = cell.case
    return (str(case["servers"]), str(workers(case)), case.where.text, str(case["shard"]))


def _of_paper(figure: PublishedTraining, published: ProgramsPaper) -> str:
    """`17.12 s, 0.76`: the time, and its ratio to that of one process on the same machine."""
    one = next((one.seconds for one in published.training
                if one.machine == figure.machine and one.cell.values["servers"] == 0), None)  # fmt: skip
    ratio = "" if one is None or one == figure.seconds else f", {figure.seconds / one:.2f}"
    return f"{figure.seconds:g} s{ratio}"
