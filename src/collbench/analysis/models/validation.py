"""A model of a series and its errors: on sizes held out in turn, and on the largest number of ranks held out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from collbench.analysis.models.fit import Fit, fit
from collbench.analysis.models.series import NO_LINK, Point, Series
from collbench.analysis.models.shapes import SHAPES, Shape
from collbench.units import counted, format_size

#: The fewest sizes of a series that is modelled: a line, and one more when one is held out.
FEWEST_SIZES = 4

#: The fewest rank counts of a series without sizes that is modelled.
FEWEST_RANKS = 3


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
    """A fit and its held-out errors.

    `sizes` are those of every inner size, held out in turn, pieces and shapes chosen again each time; for a collective
    without sizes, those of inner rank counts. `largest` are those of the largest rank count, for every shape that is as
    likely on the others; empty where fewer than two were measured.
    """

    series: Series
    shapes: tuple[Shape, ...]
    fit: Fit
    sizes: tuple[HeldOutError, ...]
    largest: tuple[HeldOutError, ...]


@dataclass(frozen=True)
class Unfit:
    """A series that is not modelled, and why."""

    series: Series
    why: str


def model(series: Series) -> Model | Unfit:
    """The model of a series with its held-out errors.

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
    values = [miss.error for miss in misses]
    return (median(values), max(values)) if values else None


def _lacks(series: Series) -> str:
    """What a series lacks for a model; empty where nothing."""
    name = series.case.workload
    if not series.case["backend"]:
        return (f"{name} is a program; what is modelled are collectives ({', '.join(SHAPES)}), and from all-reduces "
                "at the same place the communication of ddp")  # fmt: skip
    if name not in SHAPES:
        return f"no algorithms of {name} are known; known are those of {', '.join(SHAPES)}"
    if not series.points:
        return "; ".join((NO_LINK, *series.left_out))
    if not series.sized:
        listed = ", ".join(map(str, series.ranks))
        lacking = len(series.ranks) < FEWEST_RANKS
        return f"measured with {listed} ranks; a model needs at least {FEWEST_RANKS} rank counts" if lacking else ""
    if len(series.sizes) >= FEWEST_SIZES:
        return ""
    listed = ", ".join(map(format_size, series.sizes))
    return (
        f"{counted(len(series.sizes), 'size')} measured ({listed}); a model needs at least {FEWEST_SIZES}, because "
        f"each inner one is held out in turn, and {2 * FEWEST_SIZES} or more to find a protocol switch: "
        f"collbench {name} -b 8 -e 4M -f 4"
    )


def _on_sizes(series: Series, shapes: tuple[Shape, ...]) -> tuple[HeldOutError, ...]:
    """Each inner size (of a collective without sizes: rank count) predicted by a model that was fitted without it."""
    values = series.sizes if series.sized else series.ranks
    misses: list[HeldOutError] = []
    for value in values[1:-1]:
        out = [point for point in series.points if (point.size if series.sized else point.ranks) == value]
        fitted = fit([point for point in series.points if point not in out], shapes)
        misses += [_miss(point, fitted.seconds(point)) for point in out]
    return tuple(misses)


def _on_largest(series: Series, shapes: tuple[Shape, ...]) -> tuple[HeldOutError, ...]:
    """The largest rank count predicted from the others, by every shape that is as likely on these."""
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
