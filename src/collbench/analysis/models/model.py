"""A model of a series of cells, with its errors on sizes and on numbers of ranks that were held out of the fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Literal

from collbench.analysis.models.fit import Fit, Point, fit
from collbench.analysis.models.shapes import SHAPES
from collbench.analysis.results import Cell
from collbench.analysis.runs import Observed
from collbench.schema.case import Case

#: The fewest sizes of a series that is modelled: a line, and one more when one is held out.
FEWEST_SIZES = 4

#: The fewest rank counts of a series without sizes that is modelled; of any, to know errors at other rank counts.
FEWEST_RANKS = 3

#: Why a cell says nothing about a link.
Useless = Literal["failed", "skipped", "results wrong", "one rank", "median of 0", "0 bytes after rounding"]


@dataclass(frozen=True)
class Series:
    """One case without size and ranks, over one transport (empty: not reported; launches had several: joined by `and`).

    `sized`: it moves data; a barrier does not, and is modelled over numbers of ranks alone. `points` are in order of
    ranks and size, `cells` are theirs. `left_out` is why each of the other cells says nothing about a link.
    """

    case: Case
    transport: str
    points: tuple[Point, ...]
    left_out: tuple[Useless, ...]
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
    """The series of a run in the order they were measured; with `wanted`, of these collectives only.

    A cell that was never measured has no transport: it goes to the first series of its case.
    """
    by_case: dict[Case, dict[str, list[Cell]]] = {}
    for cell in sorted(observed.cells.values(), key=lambda cell: not cell.medians):
        if not wanted or cell.case.workload in wanted:
            groups = by_case.setdefault(cell.case.without(("size", "ranks")), {})
            name = " and ".join(sorted(cell.transports)) if cell.medians else next(iter(groups), "")
            groups.setdefault(name, []).append(cell)
    return [_series(case, name, cells) for case, groups in by_case.items() for name, cells in groups.items()]


def _series(case: Case, name: str, cells: list[Cell]) -> Series:
    cells = sorted(cells, key=lambda cell: (cell.case.where.ranks, cell.case["size"]))
    left_out = tuple(why for cell in cells if (why := _useless(cell)) is not None)
    used = tuple(cell for cell in cells if _useless(cell) is None)
    return Series(case, name, tuple(map(_point, used)), left_out, used, any("size" in cell.case.what for cell in cells))


def _point(cell: Cell) -> Point:
    launches, medians = zip(*sorted(zip(cell.launches, cell.medians, strict=True)), strict=True)
    return Point(cell.case.where.ranks, cell.case["size"], int(cell.work.amount), launches, medians)


def _useless(cell: Cell) -> Useless | None:
    """Why a cell says nothing about a link; None where it does."""
    if not cell.medians:
        return "failed" if cell.failed else "skipped"
    if cell.wrong:
        return "results wrong"
    if cell.case.where.ranks < 2:
        return "one rank"
    if min(cell.medians) <= 0.0:
        return "median of 0"
    return "0 bytes after rounding" if cell.work.amount == 0 and "size" in cell.case.what else None


@dataclass(frozen=True)
class HeldOutError:
    """The prediction of a point by a model that was fitted without it, and the measurement (s)."""

    ranks: int
    size: int
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """|predicted / measured - 1|."""
        return abs(self.predicted / self.measured - 1)


@dataclass(frozen=True)
class Model:
    """A fit and its held-out errors: pieces and shapes were chosen again each time.

    `sizes` are those of every inner size, held out in turn. `by_ranks` are those of every rank count; empty where fewer
    than three were measured, so that no growth with the ranks would be left.
    """

    series: Series
    fit: Fit
    sizes: tuple[HeldOutError, ...]
    by_ranks: tuple[HeldOutError, ...]

    @property
    def inner(self) -> tuple[HeldOutError, ...]:
        """Errors where the model interpolates: of inner sizes, or without sizes of inner rank counts."""
        return self.sizes or self.of_ranks(self.series.ranks[1:-1])

    def of_ranks(self, ranks: Iterable[int]) -> tuple[HeldOutError, ...]:
        """Errors of these rank counts, each held out in turn."""
        return tuple(miss for miss in self.by_ranks if miss.ranks in ranks)


@dataclass(frozen=True)
class Unfit:
    """A series that is not modelled, and why."""

    series: Series
    why: Literal["program", "no algorithms", "no points", "few ranks", "few sizes"]


def model(series: Series) -> Model | Unfit:
    """The model of a series with its held-out errors."""
    if not series.case["backend"]:
        return Unfit(series, "program")
    if series.case.workload not in SHAPES:
        return Unfit(series, "no algorithms")
    if not series.points:
        return Unfit(series, "no points")
    if series.sized and len(series.sizes) < FEWEST_SIZES:
        return Unfit(series, "few sizes")
    if not series.sized and len(series.ranks) < FEWEST_RANKS:
        return Unfit(series, "few ranks")
    sizes = _held_out(series, series.sizes[1:-1], lambda point: point.size)
    several = len(series.ranks) >= FEWEST_RANKS
    by_ranks = _held_out(series, series.ranks, lambda point: point.ranks) if several else ()
    return Model(series, fit(series.points, SHAPES[series.case.workload]), sizes, by_ranks)


def _held_out(series: Series, values: Iterable[int], of: Callable[[Point], int]) -> tuple[HeldOutError, ...]:
    """Points with each of these values in turn, predicted by a model that was fitted without them."""
    misses: list[HeldOutError] = []
    for value in values:
        rest = [point for point in series.points if of(point) != value]
        if series.sized and len({point.size for point in rest}) < FEWEST_SIZES - 1:
            continue
        seen = fit(rest, SHAPES[series.case.workload])
        misses += [HeldOutError(point.ranks, point.size, seen.seconds(point), point.seconds)
                   for point in series.points if of(point) == value]  # fmt: skip
    return tuple(misses)


def errors(misses: Iterable[HeldOutError]) -> tuple[float, float] | None:
    """Median and worst error; None without any."""
    values = [miss.error for miss in misses]
    return (median(values), max(values)) if values else None
