"""A series: the cells of a run that one model describes, all sizes and numbers of ranks of otherwise one case."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from collbench.analysis.observations import Cell, Observed
from collbench.schema.case import Case
from collbench.units import counted

#: Why a series without points has no model and no prediction.
NO_LINK = "no cell was measured that says something about a link"


@dataclass(frozen=True)
class Point:
    """A cell as the fit sees it. `size` is the size asked for, `moved` the bytes that move after rounding.

    `medians` are the launches' medians in seconds, `launches` their numbers, in the same order.
    """

    ranks: int
    size: int
    moved: int
    launches: tuple[int, ...]
    medians: tuple[float, ...]

    @property
    def seconds(self) -> float:
        return median(self.medians)


@dataclass(frozen=True)
class Series:
    """One case without size and ranks, over one transport (empty: the library does not report it).

    `sized`: it moves data; a barrier does not, and is modelled over numbers of ranks alone. `points` are in order
    of ranks and size. `left_out` says which cells are not used, and why. `cells` are those of the points.
    """

    case: Case
    transport: str
    points: tuple[Point, ...]
    left_out: tuple[str, ...]
    cells: tuple[Cell, ...]
    sized: bool = True

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sorted({point.size for point in self.points}))

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({point.ranks for point in self.points}))

    @property
    def launches(self) -> int:
        """The most launches that a point has."""
        return max((len(point.medians) for point in self.points), default=0)


def series(observed: Observed, wanted: frozenset[str] = frozenset()) -> list[Series]:
    """The series of a run in the order they were measured; with `wanted`, of these collectives only."""
    groups: dict[tuple[Case, str], list[Cell]] = {}
    for cell in observed.cells.values():
        if not wanted or cell.case.workload in wanted:
            key = cell.case.without(("size", "ranks"))
            groups.setdefault((key, transport(cell)), []).append(cell)
    return [_series(case, name, cells) for (case, name), cells in _with_failed(groups).items()]


def transport(cell: Cell) -> str:
    """How the bytes of a cell travelled; several transports, of several launches, are joined by `and`."""
    return " and ".join(sorted(cell.transports))


def _with_failed(groups: dict[tuple[Case, str], list[Cell]]) -> dict[tuple[Case, str], list[Cell]]:
    """A cell that was never measured has no transport: it goes to the first series of its case that has one."""
    measured: dict[Case, tuple[Case, str]] = {}
    for key, cells in groups.items():
        if any(cell.medians for cell in cells):
            measured.setdefault(key[0], key)
    completed: dict[tuple[Case, str], list[Cell]] = {}
    for key, cells in groups.items():
        for cell in cells:
            completed.setdefault(key if cell.medians else measured.get(key[0], key), []).append(cell)
    return completed


def _series(case: Case, name: str, cells: list[Cell]) -> Series:
    used, points, left_out = [], [], dict[str, int]()
    for cell in sorted(cells, key=lambda cell: (cell.case.where.ranks, cell.case["size"])):
        why = _useless(cell)
        if why:
            left_out[why] = left_out.get(why, 0) + 1
            continue
        used.append(cell)
        medians = dict(zip(cell.launches, cell.medians, strict=True))
        points.append(
            Point(cell.case.where.ranks, cell.case["size"], int(cell.work.amount), tuple(sorted(medians)),
                  tuple(medians[launch] for launch in sorted(medians)))
        )  # fmt: skip
    lines = (f"left out: {number} of {counted(len(cells), 'cell')}: {why}" for why, number in left_out.items())
    sized = any("size" in cell.case.what for cell in cells)
    return Series(case, name, tuple(points), tuple(lines), tuple(used), sized)


def _useless(cell: Cell) -> str:
    """Why a cell says nothing about a link; empty where it does."""
    if not cell.medians:
        return f"{'failed' if cell.failed else 'skipped'}: {'; '.join(sorted(cell.reasons))}"
    if cell.wrong:
        return "results were wrong"
    if cell.case.where.ranks < 2:
        return "one rank, which communicates with nobody"
    if min(cell.medians) <= 0.0:
        return "a median of 0: the clock does not resolve this operation"
    if cell.work.amount == 0 and "size" in cell.case.what:
        return "0 bytes after rounding to whole blocks"
    return ""
