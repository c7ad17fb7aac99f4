"""Predictions: of a collective at a number of ranks and a size, and of the communication of training steps.

Data-parallel training averages the gradients of all ranks; they travel in messages, each of which is all-reduced as
soon as the backward pass has computed it. A model of the all-reduces predicts how long these take one after the other;
the step less the same step without them is what was not hidden behind computing. A prediction counts nothing as hidden,
so it is an upper bound where computing and communicating do not share cores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from msgspec.structs import replace

from collbench.analysis.estimate import Estimate, Floats, centre
from collbench.analysis.launches import together
from collbench.analysis.models import Fitted, HeldOutError, LinkSeries, Model, Piece, Unfit, least, model, series
from collbench.analysis.results import Cell, grouped
from collbench.analysis.runs import Observed
from collbench.schema.case import Case

DRAWS, ERRORS, SEED = 200, 50, 1994  # how often launches are resampled, and how many errors are drawn for each
NEAREST = 4  # held-out errors at so many of the nearest sizes make an interval

#: Measures of a training: with the all-reduces, without them, and the all-reduces of a step alone.
STEP, COMPUTE, ALONE = "step", "compute", "communication"

#: How gradients are reduced: what torch reduces with by the device of the training, and the collective.
BACKENDS = {"cpu": "torch-gloo", "cuda": "torch-nccl"}
COLLECTIVE, DTYPE, OP = "allreduce", "float32", "sum"


@dataclass(frozen=True)
class PredictionQuestion:
    """A point that is asked for. `size` is None where only collectives without sizes are meant."""

    ranks: int
    size: int | None


@dataclass(frozen=True)
class Prediction:
    """Seconds at a point, with the interval in which 95 % of such runs' medians should lie.

    `pieces` are two where the size lies between them. `measured` is the median of launches at this very point.
    """

    series: LinkSeries
    question: PredictionQuestion
    pieces: tuple[Piece, ...]
    seconds: float
    interval: tuple[float, float] | None
    measured: float | None

    @property
    def fitted(self) -> Fitted:
        return self.pieces[0].fitted

    @property
    def standing(self) -> Literal["within reach", "extrapolated", "contradicted"]:
        """Errors are known; or not, so that it has no interval; or what was measured at this point is outside of it."""
        if self.interval is None:
            return "extrapolated"
        low, high = self.interval
        return "within reach" if self.measured is None or low <= self.measured <= high else "contradicted"


def predict(model: Model, question: PredictionQuestion) -> Prediction:
    """The prediction of a model at a point of its own transport."""
    series, ranks = model.series, question.ranks
    size = (question.size or 0) if series.sized else 0
    pieces = model.fit.pieces_at(size)
    measured = next((point.seconds for point in series.points if (point.ranks, point.size) == (ranks, size)), None)
    low, high = series.known_sizes(ranks)
    interval = None
    if low <= size <= high and series.unknown_growth(ranks) is None and (known := error(model, ranks, size)):
        # where the ranks were not measured, shapes that are as likely predict different times, and all count
        likely = [(piece, fitted) for piece in pieces
                  for fitted in (piece.fitted, *(() if ranks in series.ranks else piece.rivals))]  # fmt: skip
        draws = [_draws(model, piece, fitted, (ranks, size), *known) for piece, fitted in likely]
        ends = np.quantile(draws, (0.025, 0.975), axis=(1, 2))
        interval = float(ends[0].min()), float(ends[1].max())
    return Prediction(series, question, pieces, pieces[0].fitted.seconds(ranks, size), interval, measured)


def _draws(
    model: Model, piece: Piece, fitted: Fitted, point: tuple[int, int], spread: float, freedom: int
) -> Floats:  # fmt: skip
    """Values of a prediction: the shape fitted to resampled launches, times an error like those of held-out points.

    Their logarithms have mean 0 and a root mean square that is known from few sizes, hence Student's t.
    """
    generator = np.random.default_rng(SEED)
    values = np.array([fitted.seconds(*point)])
    if model.series.launches > 1:
        inside = [piece.low <= point.size <= piece.high for point in model.series.points]
        seconds = _resampled(model.series, generator)[:, inside]
        designs = fitted.shape.terms_of(model.series.points)[inside] / seconds[:, :, None]
        parameters, _ = least(np.einsum("dri,drj->dij", designs, designs), designs.sum(axis=1))
        values = parameters @ np.array(fitted.shape.terms(*point))
    errors = spread * generator.standard_t(freedom, (len(values), ERRORS * DRAWS // len(values)))
    return np.asarray(values[:, None] * np.exp(np.clip(errors, -50, 50)))


def error(model: Model, ranks: int, size: int) -> tuple[float, int] | None:
    """Root mean square of the logarithms of held-out errors near a point, and its degrees of freedom.

    At a rank count that was measured those of its own sizes. At others those of rank counts that were held out and lie
    likewise: the largest for more ranks, the smallest for fewer; and not less than at held-out sizes.
    """
    known, settled = model.series.ranks, _settled(model)
    if ranks in known and settled:
        return _spread(model, [miss for miss in settled if miss.ranks == ranks] or settled, size)
    alike = known[-1:] if ranks > known[-1] else known[:1] if ranks < known[0] else known[1:-1]
    grown = _spread(model, model.of_ranks(alike), size)
    return grown and max(grown, _spread(model, settled, size) or grown)


def _settled(model: Model) -> Sequence[HeldOutError]:
    """Errors at held-out sizes without those beside a break, which no model without them can locate; else all."""
    breaks = {size for before, after in pairwise(model.fit.pieces) for size in (before.high, after.low)}
    return [miss for miss in model.sizes if miss.size not in breaks] or model.sizes


def _spread(model: Model, misses: Sequence[HeldOutError], size: int) -> tuple[float, int] | None:
    """Of the sizes that are nearest by ratio: errors differ where latency counts and where bandwidth does."""
    every = {miss.size for miss in misses}
    sizes = sorted(every, key=lambda known_size: abs(math.log(max(known_size, 1) / max(size, 1))))[:NEAREST]
    logs = [math.log(miss.measured / miss.predicted) for miss in misses if miss.size in sizes and miss.predicted > 0]
    freedom = len(sizes) if model.series.sized else len(model.series.ranks) - 2
    return (math.sqrt(sum(log * log for log in logs) / len(logs)), freedom) if logs else None


def _resampled(series: LinkSeries, generator: np.random.Generator) -> Floats:
    """Medians of all points [DRAWS, points], launches resampled with replacement: together at points that have them."""
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
    def series(self) -> LinkSeries:
        return self.unfit.series


def answers(
    observed: Observed, fits: Sequence[Model | Unfit], question: PredictionQuestion
) -> list[Prediction | Refusal]:
    """One for every case: of its series over several transports by that of the nearest cell, or why there is none."""
    by_case = grouped((fitted.series.case, fitted) for fitted in fits
                      if question.size is not None or not fitted.series.sized)  # fmt: skip
    hosts = [manifest.hosts for manifest in observed.manifests]  # of several, and a network, any number of ranks
    largest = max((host.cores for of in hosts for host in of), default=0)
    cores = math.inf if any(len(of) > 1 for of in hosts) else largest
    predicted: list[Prediction | Refusal] = []
    for of_case in by_case.values():
        most = max(cores, *(ranks for model in of_case for ranks in (0, *model.series.ranks)))
        nearest = min(of_case, key=lambda model: _distance(model.series, question))
        if question.ranks > most:
            predicted.append(Refusal(question, nearest, int(most)))
        else:
            predicted.append(Refusal(question, nearest) if isinstance(nearest, Unfit) else predict(nearest, question))
    return predicted


def _distance(series: LinkSeries, question: PredictionQuestion) -> tuple[float, float]:
    """Ratios of the rank counts and of the sizes of a point and the nearest cell, as logarithms."""
    size = max(question.size or 0, 1)
    every = ((abs(math.log(point.ranks / question.ranks)), abs(math.log(max(point.size, 1) / size)))
             for point in series.points)  # fmt: skip
    return min(every, default=(math.inf, math.inf))


@dataclass(frozen=True)
class StepTimes:
    """Measured (s): the step, the step without its all-reduces, their difference; all-reduces `alone`, or None."""

    step: Estimate
    compute: Estimate
    exposed: Estimate
    alone: Estimate | None

    @property
    def hidden(self) -> float | None:
        """The share of the communication that computing hid; negative where it took longer than alone."""
        return None if self.alone is None or self.alone.value <= 0 else 1 - self.exposed.value / self.alone.value


@dataclass(frozen=True)
class TrainingStep:
    """A step at one place; `case` has no measure. `messages` are its all-reduces in their order (bytes).

    `predictions` has one for each message, or none, and `why` says why there are none. `times` is None where only
    all-reduces were measured, where `lost` measures were not, or where tasks waited for a CPU in every launch.
    """

    case: Case
    messages: tuple[int, ...]
    predictions: tuple[Prediction, ...]
    why: Literal["messages differ", "no all-reduces"] | Refusal | None
    times: StepTimes | None
    lost: tuple[str, ...] | Literal["waited"] = ()

    @property
    def communication(self) -> float | None:
        """Predicted seconds of all messages, one after the other; None without a prediction."""
        return sum(prediction.seconds for prediction in self.predictions) if self.predictions else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """From the sum of the lowest ends to that of the highest: the errors of one model have one sign."""
        ends = [prediction.interval for prediction in self.predictions if prediction.interval is not None]
        if not ends or len(ends) < len(self.predictions):
            return None
        return sum(low for low, _ in ends), sum(high for _, high in ends)

    @property
    def error(self) -> float | None:
        """Predicted over measured communication that was not hidden, less 1; None where that is not positive."""
        if self.times is None or self.communication is None or self.times.exposed.value <= 0:
            return None
        return self.communication / self.times.exposed.value - 1


def training_steps(observed: Observed, fits: Sequence[Model | Unfit] | None = None) -> tuple[TrainingStep, ...]:
    """The steps of a run's trainings on several ranks, wherever they or their all-reduces (`fits`) were measured."""
    measures = grouped((case.without(("measure",)), (case["measure"], cell))
                       for case, cell in observed.cells.items() if cell.messages and case.where.ranks > 1)  # fmt: skip
    trainings = {case: dict(cells) for case, cells in measures.items()}
    if not trainings:
        return ()
    if fits is None:
        fits = [model(measured) for measured in series(observed, frozenset({COLLECTIVE}))]
    wheres = [fit.series.case.where for fit in fits]
    places = {replace(case, where=replace(where, ranks=case.where.ranks)): case
              for case in trainings for where in wheres if where.image == case.where.image}  # fmt: skip
    every = trainings | {case: trainings[of] for case, of in places.items() if case not in trainings}
    return tuple(_step(observed, fits, case, cells, measured=case in trainings) for case, cells in every.items())


def _step(
    observed: Observed, fits: Sequence[Model | Unfit], case: Case, cells: Mapping[str, Cell], measured: bool
) -> TrainingStep:  # fmt: skip
    sequences = {messages for cell in cells.values() for messages in cell.messages}
    if len(sequences) > 1:
        return TrainingStep(case, (), (), "messages differ", None)
    (messages,) = sequences
    times = _times(cells) if measured else None
    missing = tuple(name for name in (STEP, COMPUTE) if name not in cells)
    lost: tuple[str, ...] | Literal["waited"] = (missing or "waited") if measured and not times else ()
    near = _near(fits, case)
    if not near:
        return TrainingStep(case, messages, (), "no all-reduces", times, lost)
    questions = {size: PredictionQuestion(case.where.ranks, size) for size in messages}
    answers_of = {size: answers(observed, near, question)[0] for size, question in questions.items()}
    refusal = next((answer for answer in answers_of.values() if isinstance(answer, Refusal)), None)
    predictions = (answer for size in messages if isinstance(answer := answers_of[size], Prediction))
    return TrainingStep(case, messages, () if refusal else tuple(predictions), refusal, times, lost)


def _near(fits: Sequence[Model | Unfit], case: Case) -> list[Model | Unfit]:
    """The series of all-reduces as the training does them at its place: those of one case, the plainest of several."""
    where = replace(case.where, ranks=1)
    backend = BACKENDS.get(case["device"] or "cpu")
    near = [fitted for fitted in fits if (of := fitted.series.case).workload == COLLECTIVE and of.where == where
            and (of["backend"], of["dtype"], of["op"]) == (backend, DTYPE, OP)]  # fmt: skip
    plainest = min((fitted.series.case for fitted in near), key=lambda of: len(of.how) + len(of.what), default=None)
    return [fitted for fitted in near if fitted.series.case == plainest]


def _times(cells: Mapping[str, Cell]) -> StepTimes | None:
    """In launches that measured both: what one execution measured alternately. None without such launches."""
    if STEP not in cells or COMPUTE not in cells:
        return None
    medians = together([cells[STEP], cells[COMPUTE]], in_blocks=True)
    if not medians.size:
        return None
    step, compute = medians[:, 0], medians[:, 1]
    alone = together([cells[ALONE]], in_blocks=True) if ALONE in cells else None
    return StepTimes(centre(step), centre(compute), centre(step - compute),
                     centre(alone[:, 0]) if alone is not None and alone.size else None)  # fmt: skip
