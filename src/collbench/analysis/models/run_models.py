"""Everything that `collbench model` computes of one run: models, predictions, refusals, what-ifs, training steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from collbench.analysis.models.predict import Prediction, PredictionQuestion, Refusal, answers
from collbench.analysis.models.series import Series, series
from collbench.analysis.models.shapes import SHAPES
from collbench.analysis.models.steps import COLLECTIVE, TrainingStep, training_steps
from collbench.analysis.models.validation import Model, Unfit, model
from collbench.analysis.models.what_if import NetworkLink, WhatIf, what_if
from collbench.analysis.observations import Observed
from collbench.errors import RequestError


@dataclass(frozen=True)
class Modelled:
    """The models of a run, in the order it was measured. `simulated`: its times were generated, not measured."""

    name: str
    models: tuple[Model, ...]
    unfit: tuple[Unfit, ...]
    predictions: tuple[Prediction, ...]
    refusals: tuple[Refusal, ...]
    what_ifs: tuple[WhatIf, ...]
    steps: tuple[TrainingStep, ...]
    simulated: bool


def modelled(
    observed: Observed, wanted: frozenset[str], questions: Sequence[PredictionQuestion], link: NetworkLink | None
) -> Modelled:
    """Models of a run (with `wanted`, of these collectives) and their predictions; with a link, what-ifs too.

    Raises:
        RequestError: nothing can be modelled, or every prediction is refused, and no link is given; no such collective
            in the run; SciPy is not installed.
    """
    fits = [model(series) for series in _series(observed, wanted)]
    models = tuple(fitted for fitted in fits if isinstance(fitted, Model))
    unfit = tuple(fitted for fitted in fits if isinstance(fitted, Unfit))
    if not models and link is None:
        raise RequestError(f"{observed.name}: nothing can be modelled.{_listed(series.why for series in unfit)}")
    found = [answer for question in questions for answer in answers(observed, fits, question)]
    predictions = tuple(answer for answer in found if isinstance(answer, Prediction))
    refusals = tuple(answer for answer in found if isinstance(answer, Refusal))
    what_ifs = _what_ifs(fits, questions, link)
    if questions and not predictions and not what_ifs:
        reasons = _listed(refusal.why for refusal in refusals)
        missing = " --predict needs bytes=SIZE for collectives that move data."
        raise RequestError(f"{observed.name}: nothing can be predicted.{reasons or missing}")
    simulated = any(manifest.simulated for manifest in observed.manifests)
    steps = training_steps(observed, fits) if not wanted or COLLECTIVE in wanted else ()
    return Modelled(observed.name, models, unfit, predictions, refusals, what_ifs, steps, simulated)


def _series(observed: Observed, wanted: frozenset[str]) -> list[Series]:
    """Those of the collectives; of a run that has none those of its programs, which say why they have no model."""
    measured = {case.workload for case in observed.cells}
    for name in sorted(wanted - measured):
        raise RequestError(f"--collective {name}: not in {observed.name}, which has {', '.join(sorted(measured))}.")
    collectives = {case: cell for case, cell in observed.cells.items() if case["backend"]}
    return series(replace(observed, cells=collectives or observed.cells), wanted)


def _listed(reasons: Iterable[str]) -> str:
    """Each reason once, on a line of its own."""
    return "".join(f"\n  {reason}" for reason in dict.fromkeys(reasons))


def _what_ifs(
    fits: Sequence[Model | Unfit], questions: Sequence[PredictionQuestion], link: NetworkLink | None
) -> tuple[WhatIf, ...]:
    if link is None:
        return ()
    sized: dict[str, bool] = {}
    models: dict[str, list[Model]] = {}
    for fitted in fits:
        name = fitted.series.case.workload
        if name in SHAPES:
            sized[name] = sized.get(name, False) or fitted.series.sized
            models.setdefault(name, []).extend([fitted] if isinstance(fitted, Model) else [])
    return tuple(
        what_if(name, of_name, question, link)
        for name, of_name in models.items()
        for question in questions
        if question.size is not None or not sized[name]
    )
