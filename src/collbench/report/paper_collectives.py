"""A run beside a paper on collectives: verdicts on its conclusions, and its figures as ratios beside the run's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median

from collbench.analysis.blocks import together
from collbench.analysis.compare import MARGIN
from collbench.analysis.estimate import Estimate, ratio_in_blocks, ratio_of_sides
from collbench.analysis.observations import Observed
from collbench.analysis.paper.cells import PARAMETER_SERVER, At, PaperCells, paper_cells, steps
from collbench.analysis.paper.conclusions import Evidence, judge
from collbench.analysis.paper.judgement import Judgement
from collbench.analysis.paper.reference import CollectivesPaper, PublishedPlace, Ratio
from collbench.errors import RequestError
from collbench.report.cells import times
from collbench.report.tables import Table
from collbench.units import counted, format_duration, format_size


def beside(observed: Observed, published: CollectivesPaper, margin: float = MARGIN) -> tuple[list[str], list[Table]]:
    """The verdicts in lines, and the tables: conclusions and ratios, at every step of isolation that was measured.

    Raises:
        RequestError: nothing of the paper's experiment is in the run.
    """
    at_steps = [cells for step in steps(observed) if (cells := paper_cells(observed, step)).places]
    if not at_steps:
        raise RequestError(
            f"{observed.name}: nothing to compare with {published.reference}, which needs ps_bcast, ps_gather or "
            "allreduce under the policies single or multi, as collbench launch choi2021-cpu measures them."
        )
    judged = [judge(cells, margin) for cells in at_steps]
    lines = [
        f"Conclusion {judgement.number}, {_text(published, judgement)} {judgement.finding.upper()}: {judgement.why}."
        for judgement in judged[0]
    ]
    readings = Table(f"assumptions about {published.reference}", (), (), published.reading)
    tables = [_conclusions(published, cells, verdicts) for cells, verdicts in zip(at_steps, judged, strict=True)]
    tables += [table for cells in at_steps for table in _summaries(cells)]
    return lines, [*tables, *(_ratios(published, cells) for cells in at_steps), readings]


def by_step(observed: Observed, margin: float) -> dict[str, list[Judgement[Evidence]]]:
    """The verdicts at every step that was measured, the most isolated first."""
    at_steps = {step: cells for step in steps(observed) if (cells := paper_cells(observed, step)).places}
    return {step: judge(cells, margin) for step, cells in at_steps.items()}


def _summaries(cells: PaperCells) -> Iterator[Table]:
    """The best library of each policy by number of GPUs: one table for the parameter server, one for all-reduce."""
    for title, operations in (("parameter server", PARAMETER_SERVER), ("all-reduce", ("allreduce",))):
        gpus = sorted({at.gpus for at in cells.places if at.operation in operations})
        rows = [
            (operation, policy, *(_fastest(cells, operation, policy, count) for count in gpus))
            for operation in operations
            for policy in ("single", "multi")
        ]
        if gpus:
            columns = ("operation", "policy", *(counted(count, cells.each) for count in gpus))
            note = "by the median of launch medians; the conclusions say whether the difference is significant"
            yield Table(f"the fastest library, {title}: {_title(cells)}", columns, tuple(rows), (note,))


def _fastest(cells: PaperCells, operation: str, policy: str, gpus: int) -> str:
    times = {
        at.library: median(cell.medians)
        for at, cell in cells.places.items()
        if (at.operation, at.policy, at.gpus) == (operation, policy, gpus)
    }
    if not times:
        return "not measured"
    best = min(times, key=lambda library: times[library])
    return f"{best} {format_duration(times[best])}"


def _text(published: CollectivesPaper, judgement: Judgement[Evidence]) -> str:
    return next(conclusion.text for conclusion in published.conclusions if conclusion.number == judgement.number)


def _title(cells: PaperCells) -> str:
    return f"step {cells.step}, {format_size(cells.size)}" if cells.step else format_size(cells.size)


def _conclusions(published: CollectivesPaper, cells: PaperCells, judged: Iterable[Judgement[Evidence]]) -> Table:
    rows: list[tuple[str, ...]] = []
    for judgement in judged:
        verdict = f"{judgement.finding}: {judgement.why}"
        rows.append((str(judgement.number), _text(published, judgement), verdict, ""))
        rows += [
            ("", cell.text, cell.verdict, "" if cell.ratio is None else times(cell.ratio))
            for cell in judgement.evidence
        ]
    columns = ("number", "conclusion, and the cells that decide it", "verdict", "ratio")
    note = "ratio: what the conclusion calls slower over what it calls better"
    return Table(f"conclusions of {published.reference}: {_title(cells)}", columns, tuple(rows), (note,))


def _ratios(published: CollectivesPaper, cells: PaperCells) -> Table:
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
    return Table(f"ratios of {published.reference}: {_title(cells)}", columns, tuple(rows), (note,))


def _derived(published: CollectivesPaper) -> Iterator[Ratio]:
    """Ratios of published times: every figure over the best of its operation with as many GPUs."""
    for figure in published.figures:
        same = [
            other for other in published.figures if (other.operation, other.gpus) == (figure.operation, figure.gpus)
        ]
        best = min(same, key=lambda other: other.seconds)
        if figure is not best:
            of, over = (
                PublishedPlace(policy=side.policy, library=side.library, gpus=side.gpus) for side in (figure, best)
            )
            text = f"{of.policy} {of.library} over {over.policy} {over.library}, {counted(of.gpus, 'GPU')}"
            yield Ratio(operation=figure.operation, text=text, ratio=figure.seconds / best.seconds, of=of, over=over)


def _measured(published: Ratio, cells: PaperCells) -> Estimate | None:
    of, over = (
        cells.places.get(At(published.operation, side.policy, side.library, side.gpus))
        for side in (published.of, published.over)
    )
    if of is None or over is None:
        return None
    steps = (of.half_step, over.half_step)
    if not cells.in_blocks:
        return ratio_of_sides(list(of.medians), list(over.medians), half_steps=steps)
    medians = together([of, over], in_blocks=True)
    return ratio_in_blocks(medians[:, 0], medians[:, 1], half_steps=steps) if len(medians) else None
