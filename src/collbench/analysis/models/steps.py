"""Training steps: their communication predicted from all-reduces alone.

Data-parallel training averages the gradients of all ranks. They travel in messages, each of which is all-reduced as
soon as the backward pass has computed it. A model of the all-reduces at a place predicts how long these messages take
one after the other; the step less the same step without them is what was not hidden behind computing. A prediction
counts nothing as hidden, so it is an upper bound where computing and communicating do not share cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from collbench.analysis.estimate import Estimate, centre
from collbench.analysis.launches import together
from collbench.analysis.models.model import Model, Unfit, model, series
from collbench.analysis.models.predict import Prediction, PredictionQuestion, Refusal, answers
from collbench.analysis.results import Cell
from collbench.analysis.runs import Observed
from collbench.schema.case import Case, Where

#: Measures of a training: with the all-reduces, without them, and the all-reduces of a step alone.
STEP, COMPUTE, ALONE = "step", "compute", "communication"

#: What torch reduces with, by the device of the training.
BACKENDS = {"cpu": "torch-gloo", "cuda": "torch-nccl"}

#: How gradients are reduced.
COLLECTIVE, DTYPE, OP = "allreduce", "float32", "sum"


@dataclass(frozen=True)
class StepTimes:
    """What was measured (s): the step, the step without its all-reduces, and their difference in each launch.

    `alone` are its all-reduces one after the other in the same processes; None where they were not measured.
    """

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
        return sum(one.seconds for one in self.predictions) if self.predictions else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """From the sum of the lowest ends to that of the highest: the errors of one model have one sign."""
        ends = [one.interval for one in self.predictions if one.interval is not None]
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
    """The steps of a run's trainings on several ranks, at every place where their all-reduces or they were measured.

    `fits` are the models of the run's all-reduces where they are known already.
    """
    trainings = _trainings(observed)
    if not trainings:
        return ()
    if fits is None:
        fits = [model(one) for one in series(observed, frozenset({COLLECTIVE}))]
    places = {
        Case(workload=case.workload, what=dict(case.what), how=dict(case.how), where=where): case
        for case in trainings
        for where in _places(fits, case)
    }
    every = trainings | {case: trainings[of] for case, of in places.items() if case not in trainings}
    return tuple(_step(observed, fits, case, cells, measured=case in trainings) for case, cells in every.items())


def _trainings(observed: Observed) -> dict[Case, dict[str, Cell]]:
    """By case without measure, the cells of every measure."""
    found: dict[Case, dict[str, Cell]] = {}
    for case, cell in observed.cells.items():
        if cell.messages and case.where.ranks > 1:
            found.setdefault(case.without(("measure",)), {})[case["measure"]] = cell
    return found


def _places(fits: Sequence[Model | Unfit], case: Case) -> list[Where]:
    """Where all-reduces were measured in the same image."""
    wheres = (fitted.series.case.where for fitted in fits if fitted.series.case.where.image == case.where.image)
    return [msgspec.structs.replace(where, ranks=case.where.ranks) for where in wheres]


def _step(
    observed: Observed, fits: Sequence[Model | Unfit], case: Case, cells: Mapping[str, Cell], measured: bool
) -> TrainingStep:
    found = sorted({messages for cell in cells.values() for messages in cell.messages})
    if len(found) > 1:
        return TrainingStep(case, (), (), "messages differ", None)
    answer = _predictions(observed, fits, case, found[0])
    predictions, why = (answer, None) if isinstance(answer, tuple) else ((), answer)
    times = _times(cells) if measured else None
    missing = tuple(name for name in (STEP, COMPUTE) if name not in cells)
    return TrainingStep(
        case, found[0], predictions, why, times, (missing or "waited") if measured and not times else ()
    )


def _predictions(
    observed: Observed, fits: Sequence[Model | Unfit], case: Case, messages: Sequence[int]
) -> tuple[Prediction, ...] | Literal["no all-reduces"] | Refusal:
    """One for each message; or why there are none."""
    near = _near(fits, case)
    if not near:
        return "no all-reduces"
    by_size: dict[int, Prediction] = {}
    for size in dict.fromkeys(messages):
        (answer,) = answers(observed, near, PredictionQuestion(case.where.ranks, size))
        if isinstance(answer, Refusal):
            return answer
        by_size[size] = answer
    return tuple(by_size[size] for size in messages)


def _near(fits: Sequence[Model | Unfit], case: Case) -> list[Model | Unfit]:
    """The series of all-reduces as the training does them at its place: those of one case, the plainest of several."""
    where = msgspec.structs.replace(case.where, ranks=1)
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


def training_of(case: Case) -> Case:
    """The case without its place, as far as steps at several places are one training: with its ranks."""
    return case.without(("engine", "image", "policy", "isolation", "affinity", "seccomp"))
