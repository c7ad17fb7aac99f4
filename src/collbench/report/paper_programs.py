"""A run beside a paper on host and container: verdicts on its conclusions, and its Diff% beside those of the run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from collbench.analysis.compare import Comparison
from collbench.analysis.estimate import Estimate
from collbench.analysis.observations import Observed
from collbench.analysis.paper import training
from collbench.analysis.paper.judgement import Judgement
from collbench.analysis.paper.programs import Found, diff_percent, judge
from collbench.analysis.paper.reference import ProgramsPaper, Published, Selector
from collbench.analysis.paper.sides import Sides, other_device, sides
from collbench.errors import RequestError
from collbench.report import paper_training
from collbench.report.cells import cautions
from collbench.report.comparison import of_launches
from collbench.report.headings import operation, variant
from collbench.report.rates import rate_heading, rate_text
from collbench.report.tables import Table
from collbench.units import format_duration, format_size

_DIFF = (
    "Diff%: (host - container) / host x 100 in the quantity that the paper shows, here of medians, with the 95 % "
    "interval: of a rate positive where the container is slower, of a time negative"
)


def beside(observed: Observed, published: ProgramsPaper) -> tuple[list[str], list[Table]]:
    """The verdicts in lines, and the tables: conclusions and figures, for every kind of container that was measured.

    Raises:
        RequestError: nothing of the paper's experiment is in the run.
    """
    workloads = published.workloads
    found, trained = sides(observed, workloads), training.judge(published, observed)
    if workloads and not found and not training.trained(observed, published):
        named = " or ".join(filter(None, (", ".join(workloads[:-1]), workloads[-1])))
        raise RequestError(
            f"{observed.name}: nothing to compare with {published.reference}, which needs {named} on the host and in a "
            'container, as collbench launch measures them under policies = ["host", "multi"].'
        )
    kinds = found or [Sides("", None, (), {}, True)]
    judged = [judge(published, kind) for kind in kinds]
    texts = {conclusion.number: conclusion.text for conclusion in published.conclusions}
    every: list[Judgement[Found] | Judgement[Comparison]] = [*judged[0], *trained]
    lines = [
        f"Conclusion {judgement.number}, {texts[judgement.number]} {judgement.finding.upper()}: {judgement.why}."
        for judgement in sorted(every, key=lambda judgement: judgement.number)
    ]
    tables = [_conclusions(published, kind, verdicts, kind is kinds[0])
              for kind, verdicts in zip(kinds, judged, strict=True)]  # fmt: skip
    tables += [_figures(published, kind, kind is kinds[0]) for kind in kinds if kind.comparisons]
    tables += paper_training.tables(published, observed, trained)
    return lines, [*tables, Table(f"assumptions about {published.reference}", (), (), published.reading)]


def _conclusions(published: ProgramsPaper, kind: Sides, judged: Iterable[Judgement[Found]], whole: bool) -> Table:
    """Every conclusion with its cells; if not the `whole` paper is asked for, those that this kind has cells of."""
    texts = {conclusion.number: conclusion.text for conclusion in published.conclusions}
    rows: list[tuple[str, ...]] = []
    for judgement in judged:
        if whole or judgement.evidence:
            verdict = f"{judgement.finding}: {judgement.why}"
            rows.append((str(judgement.number), texts[judgement.number], verdict, "", ""))
            rows += [_row(published, found) for found in judgement.evidence]
    columns = ("number", "conclusion, and the cells that decide it", "verdict", "Diff%", "Diff% of the paper")
    title = f"conclusions of {published.reference}" + (f": {kind.title}" if kind.title else "")
    return Table(title, columns, tuple(rows), (_DIFF, *_notes(kind)))


def _notes(kind: Sides) -> list[str]:
    rows = kind.comparisons
    cells = {id(cell): cell for row in rows for cell in (row.pair.base, row.pair.other)}
    without_advice = [replace(row, launches_more=None) for row in rows]  # it is for the margin of `compare`
    return [*of_launches(without_advice), *cautions(list(cells.values()))] if rows else []


def _row(published: ProgramsPaper, found: Found) -> tuple[str, ...]:
    slow = found.comparison.slow
    why = "; ".join(word for word in (found.why, slow.text if slow else "") if word)
    verdict = ": ".join(word for word in (found.finding or "compared with", why) if word)
    cell = ", ".join(word for word in (_cell(found.comparison), found.figures) if word)
    return ("", cell, verdict, _percent(found.diff), _published(published, found.comparison))


def _cell(comparison: Comparison) -> str:
    """`dd bs 65536 count 16 write`, `ioping request, mode direct`: what was measured, with its size, and how."""
    case = comparison.pair.base.case
    size = format_size(case["size"]) if "size" in case.what else ""
    what = " ".join(word for word in (operation(case), size) if word)
    return ", ".join(word for word in (what, variant(case)) if word)


def _percent(diff: Estimate | None) -> str:
    """`0.24 (-0.10 .. 0.51)`."""
    if diff is None:
        return ""
    value, *ends = (f"{round(number, 2) + 0.0:.2f}" for number in (diff.value, *(diff.interval or ())))  # no -0.00
    return f"{value} ({' .. '.join(ends)})" if ends else value


def _published(published: ProgramsPaper, comparison: Comparison) -> str:
    """`pc -4.263, server -4.023`."""
    beside = (one for one in published.experiments if one.cell and one.cell.takes(comparison.pair.base.case))
    return ", ".join(f"{one.machine} {_of_paper(one)}" for one in beside if one.diff is not None)


def _of_paper(figure: Published) -> str:
    """Diff% with the digits of the paper; two where only results are published."""
    if figure.diff_percent is not None:
        return f"{figure.diff_percent:.3f}"
    return "" if figure.diff is None else f"{figure.diff:.2f}"


def _figures(published: ProgramsPaper, kind: Sides, whole: bool) -> Table:
    """Figures that the run has something beside; of the `whole` paper, then the others."""
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
    return (quantity, figure.machine, *values, _of_paper(figure) or bound)


def _value(value: float | None, unit: str | None) -> str:
    return "" if value is None else f"{value:g} {unit or ''}".strip()


def _beside(selector: Selector | None, kind: Sides) -> list[tuple[str, tuple[str, str, str]]]:
    """Host, container and Diff% of each cell of the run; with what it is where there are several."""
    if selector is None:
        return []
    found = [one for one in kind.comparisons if selector.takes(one.pair.base.case)]
    return [(_cell(one) if len(found) > 1 else "", _here(one, selector)) for one in found]


def _here(comparison: Comparison, selector: Selector) -> tuple[str, str, str]:
    base, other = (_shown(time, comparison, selector) for time in (comparison.base, comparison.other))
    if comparison.ratio is None or other_device(comparison.pair):
        return base, other, "not comparable"
    return base, other, _percent(diff_percent(comparison.ratio, selector.shown))


def _shown(time: Estimate | None, comparison: Comparison, selector: Selector) -> str:
    work = comparison.pair.base.work
    if time is None:
        return ""
    return (
        format_duration(time.value)
        if selector.shown == "time"
        else f"{rate_text(work, time.value)} {rate_heading(work)}"
    )
