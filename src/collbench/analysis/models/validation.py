"""A model of a series and how far off it is: on sizes held out of it, and on the largest number of ranks held out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from collbench.analysis.models.fit import Fit, fit
from collbench.analysis.models.series import Point, Series
from collbench.analysis.models.shapes import SHAPES, Shape
from collbench.units import format_size

#: Sizes of a series that is modelled, at the least: a line, and one more when one is held out.
FEWEST_SIZES = 4

#: Rank counts of a series without sizes that is modelled, at the least.
FEWEST_RANKS = 3


@dataclass(frozen=True)
class HeldOutError:
    """What a model that did not see a point said of it, beside what was measured; seconds."""

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
    """A fit and its misses.

    `sizes` are those on every inner size, each held out in turn together with the choice of pieces and shapes; for a
    collective without sizes, on inner rank counts. `largest` are those on the largest rank count, of every shape that
    the others leave as likely; empty where fewer than two were measured.
    """

    series: Series
    shapes: tuple[Shape, ...]
    fit: Fit
    sizes: tuple[HeldOutError, ...]
    largest: tuple[HeldOutError, ...]


@dataclass(frozen=True)
class Unfit:
    """A series that is not modelled, and what it lacks."""

    series: Series
    why: str


def model(series: Series) -> Model | Unfit:
    """The model of a series, judged.

    Raises:
        RequestError: SciPy is not installed.
    """
    why = _lacks(series)
    if why:
        return Unfit(series, why)
    shapes = SHAPES[series.case.workload]
    return Model(series, shapes, fit(series.points, shapes), _on_sizes(series, shapes), _on_largest(series, shapes))


def errors(misses: Iterable[HeldOutError]) -> tuple[float, float] | None:
    """Median and worst error; None without any."""
    found = [miss.error for miss in misses]
    return (median(found), max(found)) if found else None


def _lacks(series: Series) -> str:
    """What a series lacks for a model; empty where nothing."""
    name = series.case.workload
    if name not in SHAPES:
        return f"no algorithms of {name} are known; there are those of {', '.join(SHAPES)}"
    if not series.points:
        return "; ".join(("nothing was measured that says something of a link", *series.left_out))
    if not series.sized:
        there = ", ".join(map(str, series.ranks))
        lacking = len(series.ranks) < FEWEST_RANKS
        return f"ranks {there} measured; a model needs {FEWEST_RANKS} rank counts at least" if lacking else ""
    if len(series.sizes) >= FEWEST_SIZES:
        return ""
    number = "1 size" if len(series.sizes) == 1 else f"{len(series.sizes)} sizes"
    there = ", ".join(map(format_size, series.sizes))
    return (
        f"{number} measured ({there}); a model needs {FEWEST_SIZES} at least, because each inner one is held out in "
        f"turn, and {2 * FEWEST_SIZES} or more to find a protocol switch: collbench {name} -b 8 -e 4M -f 4"
    )


def _on_sizes(series: Series, shapes: tuple[Shape, ...]) -> tuple[HeldOutError, ...]:
    """Each inner size (of a collective without: rank count) predicted by a model that never saw it."""
    held = series.sizes if series.sized else series.ranks
    found: list[HeldOutError] = []
    for one in held[1:-1]:
        out = [point for point in series.points if (point.size if series.sized else point.ranks) == one]
        rest = [point for point in series.points if point not in out]
        seen = fit(rest, shapes)
        found += [_miss(point, seen.seconds(point)) for point in out]
    return tuple(found)


def _on_largest(series: Series, shapes: tuple[Shape, ...]) -> tuple[HeldOutError, ...]:
    """The largest rank count predicted by the others, by every shape that they leave as likely."""
    largest = series.ranks[-1]
    rest = [point for point in series.points if point.ranks < largest]
    if len({point.size for point in rest}) < (FEWEST_SIZES if series.sized else 1):
        return ()
    seen = fit(rest, shapes)
    return tuple(
        _miss(point, fitted.seconds(point.ranks, point.moved))
        for point in series.points
        if point.ranks == largest
        for fitted in (seen.piece(point.size).fitted, *seen.piece(point.size).rivals)
    )


def _miss(point: Point, predicted: float) -> HeldOutError:
    return HeldOutError(point.ranks, point.size, predicted, point.seconds)
