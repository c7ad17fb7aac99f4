"""A run beside a paper: its conclusions with a verdict each, and its figures as ratios next to ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from statistics import median

from collbench.analysis.compare import MARGIN
from collbench.analysis.estimate import Estimate, ratio_in_blocks, ratio_of_sides
from collbench.analysis.observations import Observed
from collbench.analysis.paper.cells import PARAMETER_SERVER, At, PaperCells, paper_cells, steps
from collbench.analysis.paper.conclusions import Judgement, judge
from collbench.analysis.paper.reference import Paper, PublishedPlace, Ratio, decode
from collbench.errors import RequestError
from collbench.report.cells import times
from collbench.report.tables import Table
from collbench.units import format_duration, format_size

#: Papers whose experiments are collectives.
PAPERS = ("choi2021",)


def paper(reference: str) -> Paper:
    """The figures of a paper, as they come with the program."""
    found: Paper = decode((files("collbench.report") / "reference" / f"{reference}.json").read_bytes())
    return found


def beside(observed: Observed, published: Paper, margin: float = MARGIN) -> tuple[list[str], list[Table]]:
    """The verdicts in lines, and the tables: conclusions and ratios, at every step of isolation that was measured.

    Raises:
        RequestError: nothing of the paper's experiment is in the run.
    """
    found = [paper_cells(observed, step) for step in steps(observed)]
    found = [cells for cells in found if cells.places]
    if not found:
        raise RequestError(
            f"{observed.name}: nothing to hold against {published.reference}: it takes ps_bcast, ps_gather or "
            "allreduce under the policies single or multi, as collbench launch choi2021-cpu measures them."
        )
    judged = [judge(cells, margin) for cells in found]
    lines = [f"Conclusion {one.number}, {_text(published, one)} {one.finding.upper()}: {one.why}." for one in judged[0]]
    readings = Table(f"how {published.reference} is read", (), (), published.reading)
    tables = [_conclusions(published, cells, verdicts) for cells, verdicts in zip(found, judged, strict=True)]
    tables += [table for cells in found for table in _summaries(published, cells)]
    return lines, [*tables, *(_ratios(published, cells) for cells in found), readings]


def counted(lines: Sequence[str]) -> str:
    """How many conclusions have which verdict, of the lines of `beside`."""
    findings = ("confirmed", "refuted", "undecided", "not measurable here")
    numbers = {finding: sum(f" {finding.upper()}: " in line for line in lines) for finding in findings}
    return ", ".join(f"{number} {finding}" for finding, number in numbers.items() if number)


def _summaries(published: Paper, cells: PaperCells) -> Iterator[Table]:
    """The best library of each policy by number of GPUs: one table for the parameter server, one for all-reduce."""
    for title, operations in (("parameter server", PARAMETER_SERVER), ("all-reduce", ("allreduce",))):
        gpus = sorted({at.gpus for at in cells.places if at.operation in operations})
        rows = [
            (operation, policy, *(_quickest(cells, operation, policy, count) for count in gpus))
            for operation in operations
            for policy in ("single", "multi")
        ]
        if gpus:
            columns = ("operation", "policy", *(f"{count} GPU{'s' if count > 1 else ''}" for count in gpus))
            note = "by the median of launch medians; the conclusions say whether it is quicker for sure"
            yield Table(f"the quickest library, {title}: {_title(cells)}", columns, tuple(rows), (note,))


def _quickest(cells: PaperCells, operation: str, policy: str, gpus: int) -> str:
    found = {
        at.library: median(cell.medians)
        for at, cell in cells.places.items()
        if (at.operation, at.policy, at.gpus) == (operation, policy, gpus)
    }
    if not found:
        return "not measured"
    best = min(found, key=lambda library: found[library])
    return f"{best} {format_duration(found[best])}"


def _text(published: Paper, judgement: Judgement) -> str:
    return next(one.text for one in published.conclusions if one.number == judgement.number)


def _title(cells: PaperCells) -> str:
    return f"step {cells.step}, {format_size(cells.bytes)}" if cells.step else format_size(cells.bytes)


def _conclusions(published: Paper, cells: PaperCells, judged: Iterable[Judgement]) -> Table:
    rows: list[tuple[str, ...]] = []
    for one in judged:
        rows.append((str(one.number), _text(published, one), f"{one.finding}: {one.why}", ""))
        rows += [
            ("", item.text, item.verdict, "" if item.ratio is None else times(item.ratio)) for item in one.evidence
        ]
    columns = ("number", "conclusion, and the cells that decide it", "verdict", "ratio")
    note = "a ratio is what the conclusion calls slower over what it calls better"
    return Table(f"conclusions of {published.reference}: {_title(cells)}", columns, tuple(rows), (note,))


def _ratios(published: Paper, cells: PaperCells) -> Table:
    """What was measured first; what the run lacks stands below."""
    found = [(one, _ours(one, cells)) for one in (*published.ratios, *_derived(published))]
    rows = [
        (one.operation, one.text, f"{one.ratio:.2f}", times(ours) if ours else "not measured", _distance(one, ours))
        for one, ours in sorted(found, key=lambda pair: pair[1] is None)
    ]
    columns = ("operation", "ratio", published.reference, "this run", "this run over the paper")
    moved = f"{published.bytes / 1e9:g} GB"
    note = f"times of one machine do not compare with another's, so all are ratios; the paper moved {moved}"
    return Table(f"ratios of {published.reference}: {_title(cells)}", columns, tuple(rows), (note,))


def _derived(published: Paper) -> Iterator[Ratio]:
    """Ratios of published times: every figure over the best of its operation with as many GPUs."""
    for figure in published.figures:
        alike = [one for one in published.figures if (one.operation, one.gpus) == (figure.operation, figure.gpus)]
        best = min(alike, key=lambda one: one.seconds)
        if figure is not best:
            of, over = (PublishedPlace(policy=one.policy, library=one.library, gpus=one.gpus) for one in (figure, best))
            text = (
                f"{of.policy} {of.library} over {over.policy} {over.library}, {of.gpus} GPU{'s' if of.gpus > 1 else ''}"
            )
            yield Ratio(operation=figure.operation, text=text, ratio=figure.seconds / best.seconds, of=of, over=over)


def _ours(one: Ratio, cells: PaperCells) -> Estimate | None:
    of = cells.places.get(At(one.operation, one.of.policy, one.of.library, one.of.gpus))
    over = cells.places.get(At(one.operation, one.over.policy, one.over.library, one.over.gpus))
    if of is None or over is None:
        return None
    steps = (of.half_step, over.half_step)
    if not cells.in_blocks:
        return ratio_of_sides(list(of.medians), list(over.medians), half_steps=steps)
    mine, theirs = of.by_launch, over.by_launch
    common = sorted(mine.keys() & theirs.keys())
    if not common:
        return None
    return ratio_in_blocks([mine[n] for n in common], [theirs[n] for n in common], half_steps=steps)


def _distance(published: Ratio, ours: Estimate | None) -> str:
    return "" if ours is None else f"{ours.value / published.ratio:.2f}"
