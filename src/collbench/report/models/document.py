"""Models, their predictions and what-ifs as JSON: seconds and bytes, null where there is none."""

from __future__ import annotations

from typing import Any

import msgspec

from collbench.analysis.models.fit import Fitted
from collbench.analysis.models.predict import Prediction, PredictionQuestion
from collbench.analysis.models.run_models import Modelled
from collbench.analysis.models.series import Series
from collbench.analysis.models.validation import HeldOutError, Model
from collbench.analysis.models.what_if import WhatIf
from collbench.report.models.steps import step_entry


def document(modelled: Modelled) -> dict[str, Any]:
    """Everything of one run; seconds and bytes, null where there is none."""
    return {
        "run": modelled.name, "simulated": modelled.simulated,
        "models": [_model_entry(model) for model in modelled.models],
        "not_modelled": [{**_series_entry(unfit.series), "why": unfit.why} for unfit in modelled.unfit],
        "predictions": [_prediction_entry(prediction) for prediction in modelled.predictions],
        "refused": [
            {**_series_entry(refusal.series), **_point_entry(refusal.question), "why": refusal.why}
            for refusal in modelled.refusals
        ],
        "what_if": [_what_if_entry(what_if) for what_if in modelled.what_ifs],
        "steps": [step_entry(step) for step in modelled.steps],
    }  # fmt: skip


def _point_entry(question: PredictionQuestion) -> dict[str, Any]:
    return {"ranks": question.ranks, "bytes": question.size}


def _series_entry(series: Series) -> dict[str, Any]:
    return {"case": msgspec.to_builtins(series.case), "transport": series.transport or None}


def _model_entry(model: Model) -> dict[str, Any]:
    series = model.series
    return {
        **_series_entry(series), "launches": series.launches, "ranks": series.ranks, "sizes": series.sizes,
        "left_out": series.left_out,
        "pieces": [
            {"low": piece.low, "high": piece.high, **_fitted_entry(piece.fitted),
             "as_likely": [_fitted_entry(rival) for rival in piece.rivals]}
            for piece in model.fit.pieces
        ],
        "held_out": [_miss_entry(miss) for miss in model.sizes],
        "largest_ranks_held_out": [_miss_entry(miss) for miss in model.largest],
    }  # fmt: skip


def _miss_entry(miss: HeldOutError) -> dict[str, Any]:
    return {"ranks": miss.ranks, "size": miss.size, "predicted": miss.predicted, "measured": miss.measured}


def _fitted_entry(fitted: Fitted) -> dict[str, Any]:
    return {"algorithm": fitted.shape.name, "alpha": fitted.alpha, "beta": fitted.beta, "gamma": fitted.gamma,
            "beta_includes_reducing": fitted.merged}  # fmt: skip


def _prediction_entry(prediction: Prediction) -> dict[str, Any]:
    return {
        **_series_entry(prediction.series), **_point_entry(prediction.question), **_fitted_entry(prediction.fitted),
        "seconds": prediction.seconds, "interval": prediction.interval, "extrapolated": prediction.extrapolated,
        "remarks": prediction.remarks, "measured": prediction.measured,
    }  # fmt: skip


def _what_if_entry(what_if: WhatIf) -> dict[str, Any]:
    return {
        "collective": what_if.collective, **_point_entry(what_if.question),
        "latency": what_if.link.latency, "bandwidth": what_if.link.bandwidth, "gamma": what_if.gamma,
        "algorithms": [
            {"algorithm": row.fitted.shape.name, "seconds": row.seconds, "in_models": row.in_models or None}
            for row in what_if.rows
        ],
    }  # fmt: skip
