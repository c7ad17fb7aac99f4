"""Models, their predictions and what-ifs as JSON: seconds and bytes, null where there is none."""

from __future__ import annotations

from typing import Any

import msgspec

from collbench.analysis.models.fit import Fitted
from collbench.analysis.models.predict import Prediction
from collbench.analysis.models.run_models import Modelled
from collbench.analysis.models.series import Series
from collbench.analysis.models.validation import HeldOutError, Model
from collbench.analysis.models.what_if import WhatIf


def document(found: Modelled) -> dict[str, Any]:
    """All that was found of a run, for programs."""
    return {
        "run": found.name, "simulated": found.simulated,
        "models": [_model_entry(one) for one in found.models],
        "not_modelled": [{**_series_entry(one.series), "why": one.why} for one in found.unfit],
        "predictions": [_prediction_entry(one) for one in found.predictions],
        "refused": [
            {**_series_entry(one.series), "ranks": one.question.ranks, "bytes": one.question.size, "why": one.why}
            for one in found.refusals
        ],
        "what_if": [_what_if_entry(one) for one in found.what_ifs],
    }  # fmt: skip


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


def _prediction_entry(one: Prediction) -> dict[str, Any]:
    return {
        **_series_entry(one.series), "ranks": one.question.ranks, "bytes": one.question.size,
        **_fitted_entry(one.fitted), "seconds": one.seconds, "interval": one.interval,
        "extrapolated": one.extrapolated, "remarks": one.remarks, "measured": one.measured,
    }  # fmt: skip


def _what_if_entry(one: WhatIf) -> dict[str, Any]:
    return {
        "collective": one.collective, "ranks": one.question.ranks, "bytes": one.question.size,
        "latency": one.link.latency, "bandwidth": one.link.bandwidth, "gamma": one.gamma,
        "algorithms": [
            {"algorithm": row.fitted.shape.name, "seconds": row.seconds, "in_models": row.found or None}
            for row in one.rows
        ],
    }  # fmt: skip
