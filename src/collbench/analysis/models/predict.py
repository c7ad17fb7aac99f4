"""Predictions of a model at a number of ranks and a size, with an interval, or why it is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from collbench.analysis.models.fit import Fitted, Piece, least, rows_of
from collbench.analysis.models.model import FEWEST_RANKS, HeldOutError, Model, Series, Unfit
from collbench.analysis.models.shapes import folds
from collbench.analysis.runs import Observed
from collbench.schema.case import Case

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: Rank counts further beyond those measured than by this factor have no interval: known are errors of one step beyond.
BEYOND = 2

#: How often launches are resampled, and how many errors are drawn for each resample.
DRAWS, ERRORS = 200, 50
SEED = 1994

#: Held-out errors at so many of the nearest sizes make an interval.
NEAREST = 4

#: What a prediction is worth: its errors are known; they are not, so that it has no interval; or the median measured at
#: this very point is outside of the interval.
Standing = Literal["within reach", "extrapolated", "contradicted"]


@dataclass(frozen=True)
class PredictionQuestion:
    """A point that is asked for. `size` is None where only collectives without sizes are meant."""

    ranks: int
    size: int | None


@dataclass(frozen=True)
class Prediction:
    """Seconds at a point, with the interval in which 95 % of such runs' medians should lie.

    `pieces` are those at the size: two where it lies between them. `measured` is the median of launches where this very
    point was measured.
    """

    series: Series
    question: PredictionQuestion
    pieces: tuple[Piece, ...]
    seconds: float
    interval: tuple[float, float] | None
    measured: float | None

    @property
    def fitted(self) -> Fitted:
        return self.pieces[0].fitted

    @property
    def standing(self) -> Standing:
        if self.interval is None:
            return "extrapolated"
        low, high = self.interval
        return "within reach" if self.measured is None or low <= self.measured <= high else "contradicted"


def predict(model: Model, question: PredictionQuestion) -> Prediction:
    """The prediction of a model at a point of its own transport."""
    series = model.series
    size = (question.size or 0) if series.sized else 0
    pieces = model.fit.pieces_at(size)
    measured = next((one.seconds for one in series.points if (one.ranks, one.size) == (question.ranks, size)), None)
    low, high = known_sizes(series, question.ranks)
    known = low <= size <= high and unknown_growth(series, question.ranks) is None
    interval = _interval(model, pieces, question.ranks, size) if known else None
    return Prediction(series, question, pieces, pieces[0].fitted.seconds(question.ranks, size), interval, measured)


def known_sizes(series: Series, ranks: int) -> tuple[int, int]:
    """The smallest and the largest size measured at these ranks, or at any: errors beyond them are not known."""
    sizes = [point.size for point in series.points if point.ranks == ranks] or series.sizes
    return min(sizes), max(sizes)


def unknown_growth(series: Series, ranks: int) -> Literal["far", "few", "folded"] | None:
    """Why errors at a rank count are not known; None where they are.

    It is far beyond those measured; or fewer than three were measured; or it is no power of two, of which alone were
    measured (or the other way round), where algorithms have other steps.
    """
    known = series.ranks
    if ranks in known:
        return None
    if ranks > BEYOND * known[-1] or ranks * BEYOND < known[0]:
        return "far"
    return "few" if len(known) < FEWEST_RANKS else None if folds(ranks) in map(folds, known) else "folded"


def _interval(model: Model, pieces: Sequence[Piece], ranks: int, size: int) -> tuple[float, float] | None:
    """From the lowest end to the highest, over the pieces at the size; None where no errors are known.

    Where the ranks asked for were not measured, shapes that are as likely predict different times, and all count.
    """
    known = error(model, ranks, size)
    if known is None:
        return None
    ends = [
        np.quantile(_draws(model, piece, fitted, ranks, size, *known), (0.025, 0.975))
        for piece in pieces
        for fitted in (piece.fitted, *(() if ranks in model.series.ranks else piece.rivals))
    ]
    return min(float(low) for low, _ in ends), max(float(high) for _, high in ends)


def _draws(
    model: Model, piece: Piece, fitted: Fitted, ranks: int, size: int, spread: float, freedom: int
) -> NDArray[np.float64]:
    """Values of a prediction: the shape fitted to resampled launches, times an error like those of held-out points.

    Logarithms of held-out errors have mean 0 (a model is as often above as below) and their root mean square is known
    from few sizes, hence Student's t.
    """
    generator = np.random.default_rng(SEED)
    rows = rows_of(model.series.points, (fitted.shape,))
    inside = (rows.sizes >= piece.low) & (rows.sizes <= piece.high)
    values = np.array([fitted.seconds(ranks, size)])
    if model.series.launches > 1:
        seconds = _resampled(model.series, generator)[:, inside]
        designs = rows.terms[fitted.shape][inside] / seconds[:, :, None]
        parameters, _ = least(np.einsum("dri,drj->dij", designs, designs), designs.sum(axis=1))
        values = parameters @ np.array(fitted.shape.terms(ranks, size))
    errors = spread * generator.standard_t(freedom, (len(values), ERRORS * DRAWS // len(values)))
    return np.asarray(values[:, None] * np.exp(np.clip(errors, -50, 50)))


def error(model: Model, ranks: int, size: int) -> tuple[float, int] | None:
    """Root mean square of the logarithms of held-out errors near a point, and its degrees of freedom.

    At a rank count that was measured they are those of its own held-out sizes, so that what the shape misses there
    counts in full. At others they are those of rank counts that were held out and lie likewise: the largest for more
    ranks, the smallest for fewer, those in between for one in between; and not less than at held-out sizes.
    """
    known, settled = model.series.ranks, _settled(model)
    if ranks in known and settled:
        return _spread(model, [miss for miss in settled if miss.ranks == ranks] or settled, size)
    alike = known[-1:] if ranks > known[-1] else known[:1] if ranks < known[0] else known[1:-1]
    grown = _spread(model, model.of_ranks(alike), size)
    return grown and max(grown, _spread(model, settled, size) or grown)


def _settled(model: Model) -> Sequence[HeldOutError]:
    """Errors at held-out sizes without those beside a break; all, if that leaves none.

    A model without the sizes beside a break cannot locate it, and the model that predicts has them. Between these sizes
    its intervals cover both pieces anyway.
    """
    breaks = {size for before, after in pairwise(model.fit.pieces) for size in (before.high, after.low)}
    return [miss for miss in model.sizes if miss.size not in breaks] or model.sizes


def _spread(model: Model, misses: Sequence[HeldOutError], size: int) -> tuple[float, int] | None:
    """Of the sizes that are nearest by ratio: errors differ where latency counts and where bandwidth does."""
    every = {miss.size for miss in misses}
    sizes = sorted(every, key=lambda one: abs(math.log(max(one, 1) / max(size, 1))))[:NEAREST]
    logs = [math.log(miss.measured / miss.predicted) for miss in misses if miss.size in sizes and miss.predicted > 0]
    freedom = len(sizes) if model.series.sized else len(model.series.ranks) - 2
    return (math.sqrt(sum(log * log for log in logs) / len(logs)), freedom) if logs else None


def _resampled(series: Series, generator: np.random.Generator) -> NDArray[np.float64]:
    """Medians of all points, [DRAWS, points], of each resample of the launches with replacement.

    Points with the same launches are resampled together: what a launch does to one size it does to others too.
    """
    chosen = {launches: generator.integers(0, len(launches), (DRAWS, len(launches)))
              for launches in dict.fromkeys(point.launches for point in series.points)}  # fmt: skip
    return np.stack([np.median(np.array(point.medians)[chosen[point.launches]], axis=1) for point in series.points], 1)


@dataclass(frozen=True)
class Refusal:
    """A prediction that is refused: its series is not modelled, or the one host measured has cores for `most` ranks."""

    question: PredictionQuestion
    unfit: Unfit | Model
    most: int | None = None

    @property
    def series(self) -> Series:
        return self.unfit.series


def answers(
    observed: Observed, fits: Sequence[Model | Unfit], question: PredictionQuestion
) -> list[Prediction | Refusal]:
    """One for every case: of its series over several transports by that of the nearest cell, or why there is none."""
    by_case: dict[Case, list[Model | Unfit]] = {}
    for fitted in fits:
        if question.size is not None or not fitted.series.sized:
            by_case.setdefault(fitted.series.case, []).append(fitted)
    found: list[Prediction | Refusal] = []
    for of_case in by_case.values():
        most = max(_cores(observed), *(ranks for one in of_case for ranks in (0, *one.series.ranks)))
        nearest = min(of_case, key=lambda one: _distance(one.series, question))
        if question.ranks > most:
            found.append(Refusal(question, nearest, int(most)))
        else:
            found.append(Refusal(question, nearest) if isinstance(nearest, Unfit) else predict(nearest, question))
    return found


def _distance(series: Series, question: PredictionQuestion) -> tuple[float, float]:
    """Ratios of the rank counts and of the sizes of a point and the nearest cell, as logarithms."""
    every = ((abs(math.log(one.ranks / question.ranks)), abs(math.log(max(one.size, 1) / max(question.size or 0, 1))))
             for one in series.points)  # fmt: skip
    return min(every, default=(math.inf, math.inf))


def _cores(observed: Observed) -> float:
    """How many ranks fit on what was measured: without bound where that is several hosts, and a network."""
    machines = [manifest.hosts for manifest in observed.manifests]
    if any(len(hosts) > 1 for hosts in machines):
        return math.inf
    return max((host.cores for hosts in machines for host in hosts), default=0)
