"""What tables of cells have in common: headings, what a reader must know about cells, and how ratios are printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from collbench.analysis.estimate import FEWEST, Estimate
from collbench.analysis.launches import why_in_blocks
from collbench.analysis.results import Cell
from collbench.report.headings import heading, operation, software
from collbench.report.remarks import OVERSUBSCRIBED, SHARED_GPU
from collbench.schema.case import Case
from collbench.units import counted, format_size

#: The share of late samples above which a caution mentions them.
LATE = 0.1
#: Behind a ratio: it is undecided, or the same within the margin.
SIGNS = {"unclear": " ?", "same": " ="}


def heading_of(cells: Sequence[Cell], common: Case | None = None) -> str:
    """The heading of cells of one table, with the drivers that were really used; `common`: what their cases share."""
    used = {value for cell in cells for how in cell.how for name, value in how if name == "driver"}
    with_ranks = len({(cell.case.where.ranks, cell.case.where.hosts) for cell in cells}) == 1
    return heading(common or cells[0].case, used, with_ranks)


def cautions(cells: Sequence[Cell]) -> list[str]:
    """What a reader of the table must know, each with the places that it applies to; and why cells failed."""
    places: dict[str, set[str]] = {}
    for cell in cells:
        for line in [*sorted(cell.notes), *_disturbed(cell), *_not_measured(cell)]:
            places.setdefault(line, set()).add(image_and_place(cell))
    lines = [f"{line} ({', '.join(sorted(where))})" for line, where in places.items()] + often_late(cells)
    return lines + waited(cells) + in_blocks(cells)


#: Why a launch had no other beside it, in words; that the plan says so, or has nothing to compare, is no caution.
ALONE = {
    "engine": "its engine cannot",
    "gpus": "GPUs",
    "programs": "programs",
    "oversubscribed": "more ranks than cores",
    "memory": "too little memory",
    "shared": "the worlds shared memory, files or connections",
    "elsewhere": "the worlds were on different processors",
    "unreachable": "ranks could not connect to collbench launch",
    "awake": "a world computed while it should have slept",
    "partner": "the other world failed or skipped the case",
}


def in_blocks(cells: Sequence[Cell]) -> list[str]:
    """A line for each reason why measurements were no duets, with how many had it."""
    measured = sum(len(cell.medians) for cell in cells)
    return [f"{number} of {counted(measured, 'measurement')} in blocks, not as duets: {ALONE[reason]}"
            for reason, number in why_in_blocks(cells).items() if reason in ALONE]  # fmt: skip


def failed(cells: Sequence[Cell]) -> list[str]:
    """A line for each place in which launches failed: of its cell with most of them how many, and one reason."""
    worst: dict[str, Cell] = {}
    for cell in cells:
        place = image_and_place(cell)
        if cell.failed > (worst[place].failed if place in worst else 0):
            worst[place] = cell
    lines = []
    for place, cell in worst.items():
        launches = counted(len(cell.medians) + cell.failed + cell.skipped, "launch", "launches")
        lines.append(f"{place}: {cell.failed} of {launches} failed: {min(cell.reasons, default='no reason')}")
    return lines


def waited(cells: Sequence[Cell]) -> list[str]:
    """The line that tasks waited for a CPU, if they did."""
    contended = sum(len(cell.contended) for cell in cells)
    launches = sum(len(cell.medians) for cell in cells)
    return [f"tasks waited for a CPU during {contended} of {launches} measurements"] if contended else []


def unlike(cells: Sequence[Sequence[Cell]]) -> list[str]:
    """The line that launches of a cell differ by more than half, if they do in any that has enough for a verdict.

    Each cell is given by its sides, one or both.
    """
    wide = [sides for sides in cells if any(map(_unlike, sides))]
    return (
        [f"in {len(wide)} of {counted(len(cells), 'cell')} launches differ by more than half: see the samples"]
        if wide
        else []
    )


def _unlike(side: Cell) -> bool:
    """Of duets it does not matter: what both worlds have in common is no part of their ratio."""
    in_turns = len(side.turns) >= len(side.medians)
    return not in_turns and len(side.medians) >= FEWEST and max(side.medians) > 1.5 * min(side.medians)


def image_and_place(cell: Cell) -> str:
    """`mpich single strict`."""
    where = cell.case.where
    return f"{software(where)} {where.text}".strip()


def disturbances(cells: Sequence[Cell]) -> list[str]:
    """What disturbed these cells, each line once."""
    return list(dict.fromkeys(line for cell in cells for line in _disturbed(cell))) + often_late(cells)


def late_samples(cells: Sequence[Cell]) -> str:
    """`0.3 % of the samples began late at the gate and are excluded; of the worst cell 44 % (2M, a host)`, or none."""
    late, samples = sum(cell.late for cell in cells), sum(cell.samples for cell in cells)
    if not late:
        return ""
    worst = max(cells, key=_late)
    names: tuple[Callable[[Cell], str], ...] = (
        lambda cell: operation(cell.case),
        lambda cell: f"{cell.case['driver']} driver",
    )
    words = [name(worst) for name in names if len(set(map(name, cells))) > 1]
    words += [format_size(worst.case["size"])] if "size" in worst.case.what else []
    where = ", ".join((*words, image_and_place(worst)))
    most = f"; of the worst cell {_percent(_late(worst))} ({where})" if len(cells) > 1 else ""
    return f"{_percent(late / samples)} of the samples began late at the gate and are excluded{most}"


def often_late(cells: Sequence[Cell]) -> list[str]:
    """The line of `late_samples`, if in one of these cells many were."""
    return [late_samples(cells)] if any(_late(cell) > LATE for cell in cells) else []


def _late(cell: Cell) -> float:
    return cell.late / cell.samples if cell.samples else 0.0


def _percent(share: float) -> str:
    """`44 %`, `0.3 %`; one decimal below 10 %."""
    return f"{share * 100:.0f} %" if share >= 0.1 else f"{share * 100:.1f} %" if share >= 0.001 else "< 0.1 %"


def _disturbed(cell: Cell) -> list[str]:
    lines = []
    if cell.oversubscribed:
        lines.append(OVERSUBSCRIBED)
    if cell.unchecked:
        lines.append("results were not checked")
    if cell.shared_gpu:
        lines.append(SHARED_GPU)
    if cell.slowed:
        lines.append(f"a GPU was throttled: {', '.join(sorted(cell.slowed))}")
    if cell.repeated:
        lines.append("a launch was recorded twice; the first record counts")
    return lines


def _not_measured(cell: Cell) -> list[str]:
    status = "failed" if cell.failed else "skipped"
    return [f"{status}: {reason}" for reason in sorted(cell.reasons)]


def interval(ends: tuple[float, float] | None, form: Callable[[float], str]) -> str:
    """` (1.65 .. 1.80)`; empty without one."""
    return "" if ends is None else f" ({form(ends[0])} .. {form(ends[1])})"


def times(ratio: Estimate) -> str:
    """`3.10x (2.90 .. 3.30)`; without interval where there are too few launches."""
    return f"{digits(ratio.value)}x{interval(ratio.interval, digits)}"


def change(ratio: float) -> str:
    """`+9 %`, `-0.4 %`, from twice the time on `2.10x`."""
    if ratio >= 2:
        return f"{digits(ratio)}x"
    percent = (ratio - 1) * 100
    return f"{percent:+.1f} %" if abs(percent) < 2 else f"{percent:+.0f} %"


def span(low: float, high: float) -> str:
    """`-9 to +7 %`, `5.20 to 6.60x`, `+62 % to 2.75x`."""
    ends = [change(low), change(high)]
    unit = next((unit for unit in (" %", "x") if all(end.endswith(unit) for end in ends)), "")
    return f"{ends[0].removesuffix(unit)} to {ends[1]}"


def difference_text(ratio: Estimate) -> str:
    """`+12 % (+9 to +15 %)`; without its interval where there are too few launches."""
    return change(ratio.value) + ("" if ratio.interval is None else f" ({span(*ratio.interval)})")


def digits(value: float) -> str:
    """A ratio with three significant digits, at most two decimals."""
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
