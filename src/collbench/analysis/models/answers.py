"""Answers to a question about a point: a prediction for every case that was modelled, or why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collbench.analysis.models.applicability import reaching_series
from collbench.analysis.models.predict import Prediction, PredictionQuestion, predict
from collbench.analysis.models.series import Series
from collbench.analysis.models.validation import Model, Unfit
from collbench.analysis.observations import Observed
from collbench.schema.case import Case


@dataclass(frozen=True)
class Refusal:
    """A prediction that is refused, and why. `series` is one of those of the case."""

    series: Series
    question: PredictionQuestion
    why: str


def answers(
    observed: Observed, fits: Sequence[Model | Unfit], question: PredictionQuestion
) -> list[Prediction | Refusal]:
    """One for every case: by the model of the series that reaches the point, or why there is none.

    Raises:
        RequestError: SciPy is not installed.
    """
    by_case: dict[Case, list[Model | Unfit]] = {}
    for fitted in fits:
        if question.size is not None or not fitted.series.sized:
            by_case.setdefault(fitted.series.case, []).append(fitted)
    return [_answer(observed, same_case, question) for same_case in by_case.values()]


def _answer(observed: Observed, fits: Sequence[Model | Unfit], question: PredictionQuestion) -> Prediction | Refusal:
    reaching = reaching_series(observed, [fitted.series for fitted in fits], question)
    if isinstance(reaching, str):
        return Refusal(fits[0].series, question, reaching)
    chosen = next(fitted for fitted in fits if fitted.series is reaching)
    return Refusal(reaching, question, chosen.why) if isinstance(chosen, Unfit) else predict(chosen, question)
