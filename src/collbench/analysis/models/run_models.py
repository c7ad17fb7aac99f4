"""All that is asked of the models of one run: the models, what they predict, what they refuse, and what-ifs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from collbench.analysis.models.applicability import standing
from collbench.analysis.models.predict import Prediction, PredictionQuestion, predict
from collbench.analysis.models.series import Series, series
from collbench.analysis.models.shapes import SHAPES
from collbench.analysis.models.validation import Model, Unfit, model
from collbench.analysis.models.what_if import NetworkLink, WhatIf, what_if
from collbench.analysis.observations import Observed
from collbench.errors import RequestError
from collbench.schema.case import Case


@dataclass(frozen=True)
class Refusal:
    """A prediction that is not made, and why. `series` is one of those of the case."""

    series: Series
    question: PredictionQuestion
    why: str


@dataclass(frozen=True)
class Modelled:
    """What was found of a run, in the order it was measured. `simulated`: its times are made up, not measured."""

    name: str
    models: tuple[Model, ...]
    unfit: tuple[Unfit, ...]
    predictions: tuple[Prediction, ...]
    refusals: tuple[Refusal, ...]
    what_ifs: tuple[WhatIf, ...]
    simulated: bool


def modelled(
    observed: Observed, wanted: frozenset[str], questions: Sequence[PredictionQuestion], link: NetworkLink | None
) -> Modelled:
    """Models of a run (with `wanted`, of these collectives) and what they answer; with a link, what-ifs beside it.

    Raises:
        RequestError: nothing can be modelled, or every prediction is refused, and no link is given; no such collective
            in the run; SciPy is not installed.
    """
    found = [model(one) for one in _series(observed, wanted)]
    models = tuple(one for one in found if isinstance(one, Model))
    unfit = tuple(one for one in found if isinstance(one, Unfit))
    if not models and link is None:
        raise RequestError(f"{observed.name}: nothing can be modelled.{_listed(one.why for one in unfit)}")
    answers = [answer for question in questions for answer in _answers(observed, found, question)]
    predictions = tuple(one for one in answers if isinstance(one, Prediction))
    refusals = tuple(one for one in answers if isinstance(one, Refusal))
    what_ifs = _what_ifs(found, questions, link)
    if questions and not predictions and not what_ifs:
        reasons = _listed(one.why for one in refusals) or " --predict needs bytes=SIZE for collectives that move data."
        raise RequestError(f"{observed.name}: nothing is predicted.{reasons}")
    simulated = any(manifest.simulated for manifest in observed.manifests)
    return Modelled(observed.name, models, unfit, predictions, refusals, what_ifs, simulated)


def _series(observed: Observed, wanted: frozenset[str]) -> list[Series]:
    there = {cell.case.workload for cell in observed.cells.values()}
    for name in sorted(wanted - there):
        raise RequestError(f"--collective {name}: not in {observed.name}, which has {', '.join(sorted(there))}.")
    return series(observed, wanted)


def _listed(reasons: Iterable[str]) -> str:
    """Each reason once, in lines of their own."""
    return "".join(f"\n  {reason}" for reason in dict.fromkeys(reasons))


def _answers(
    observed: Observed, found: Sequence[Model | Unfit], question: PredictionQuestion
) -> list[Prediction | Refusal]:
    """Of every case one: by the model of the series that reaches the point, or why there is none."""
    kin: dict[Case, list[Model | Unfit]] = {}
    for one in found:
        if question.size is not None or not one.series.sized:
            kin.setdefault(one.series.case, []).append(one)
    return [_answer(observed, ones, question) for ones in kin.values()]


def _answer(observed: Observed, kin: Sequence[Model | Unfit], question: PredictionQuestion) -> Prediction | Refusal:
    stands = standing(observed, [one.series for one in kin], question)
    if isinstance(stands, str):
        return Refusal(kin[0].series, question, stands)
    one = next(one for one in kin if one.series is stands)
    return Refusal(stands, question, one.why) if isinstance(one, Unfit) else predict(one, question)


def _what_ifs(
    found: Sequence[Model | Unfit], questions: Sequence[PredictionQuestion], link: NetworkLink | None
) -> tuple[WhatIf, ...]:
    if link is None:
        return ()
    names = dict.fromkeys(one.series.case.workload for one in found if one.series.case.workload in SHAPES)
    moving = {one.series.case.workload for one in found if one.series.sized}
    models = [one for one in found if isinstance(one, Model)]
    return tuple(
        what_if(name, [one for one in models if one.series.case.workload == name], question, link)
        for name in names
        for question in questions
        if question.size is not None or name not in moving
    )
