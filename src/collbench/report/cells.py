"""What tables of cells have in common: their headings, what a reader must know of them, and how ratios are printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from collbench.analysis.estimate import Estimate
from collbench.analysis.observations import Cell
from collbench.analysis.ordering import place
from collbench.report.headings import heading

#: A share of late samples above which they are said.
LATE = 0.1
#: Behind a ratio: it is not decided, or the same within the margin.
SIGNS = {"inconclusive": " ?", "same": " =", "negligible": " ="}


def heading_of(cells: Sequence[Cell]) -> str:
    """The heading of cells of one table, with the drivers that were really used."""
    used = {value for cell in cells for how in cell.how for name, value in how if name == "driver"}
    return heading(cells[0].case, used)


def cautions(cells: Iterable[Cell]) -> list[str]:
    """What a reader of the table must know, each with the places that it is true of; and why what failed did."""
    found: dict[str, set[str]] = {}
    launches = contended = 0
    for cell in cells:
        launches += len(cell.medians)
        contended += cell.contended
        for line in [*sorted(cell.notes), *_disturbed(cell), *_not_measured(cell)]:
            found.setdefault(line, set()).add(f"{cell.case.where.image or ''} {place(cell.case)}".strip())
    lines = [f"{line} ({', '.join(sorted(places))})" for line, places in found.items()]
    if contended:
        lines.append(f"tasks waited for a CPU during {contended} of {launches} measurements")
    return lines


def disturbances(cells: Iterable[Cell]) -> list[str]:
    """What disturbed these cells, each line once."""
    return list(dict.fromkeys(line for cell in cells for line in _disturbed(cell)))


def _disturbed(cell: Cell) -> list[str]:
    lines = []
    if cell.oversubscribed:
        lines.append("more ranks than cores: these times are the scheduler's, not the library's")
    if cell.unchecked:
        lines.append("results were not checked")
    if cell.shared_gpu:
        lines.append("ranks share a GPU (--share-gpu): a test of function; these times say nothing")
    if cell.slowed:
        lines.append(f"a GPU was slowed down: {', '.join(sorted(cell.slowed))}")
    late = cell.late / cell.samples if cell.samples else 0.0
    if late > LATE:
        lines.append(f"{late:.0%} of the samples began late at the gate and are in no statistic")
    if cell.repeated:
        lines.append("a launch was recorded twice; the first counts")
    return lines


def _not_measured(cell: Cell) -> list[str]:
    status = "failed" if cell.failed else "skipped"
    return [f"{status}: {reason}" for reason in sorted(cell.reasons)]


def times_over(found: Estimate | None) -> str:
    """`1.72 (1.65 .. 1.80)`; without interval where the launches are too few."""
    if found is None:
        return ""
    return f"{found.value:.2f}{interval(found.interval, '.2f')}"


def interval(found: tuple[float, float] | None, spec: str) -> str:
    """` (1.65 .. 1.80)`; empty without one."""
    return "" if found is None else f" ({found[0]:{spec}} .. {found[1]:{spec}})"


def times(ratio: Estimate) -> str:
    """`3.1x (2.9 .. 3.3)`."""
    between = "" if ratio.interval is None else f" ({digits(ratio.interval[0])} .. {digits(ratio.interval[1])})"
    return f"{digits(ratio.value)}x{between}"


def digits(value: float) -> str:
    """A ratio with two digits or three that count."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
