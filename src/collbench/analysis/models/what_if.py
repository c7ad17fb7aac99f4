"""The time of every algorithm of a collective over a link that was not measured: from its latency and bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from collbench.analysis.models.fit import Fitted, Piece
from collbench.analysis.models.predict import PredictionQuestion
from collbench.analysis.models.shapes import SHAPES, Shape
from collbench.analysis.models.validation import Model

#: Whether a model of the run chose an algorithm, did not exclude it, or neither.
InModels = Literal["chosen", "not excluded", ""]


@dataclass(frozen=True)
class NetworkLink:
    """Seconds a message, and bytes per second."""

    latency: float
    bandwidth: float


@dataclass(frozen=True)
class Supposed:
    """An algorithm over the link: its seconds, and whether the models of this run chose it at this size."""

    fitted: Fitted
    seconds: float
    in_models: InModels


@dataclass(frozen=True)
class WhatIf:
    """All algorithms of a collective at a point, the fastest first. `gamma` in seconds a byte, if one was measured."""

    collective: str
    question: PredictionQuestion
    link: NetworkLink
    gamma: float | None
    rows: tuple[Supposed, ...]


def what_if(collective: str, models: Sequence[Model], question: PredictionQuestion, link: NetworkLink) -> WhatIf:
    """Every shape with the latency as alpha, the inverse bandwidth as beta, and gamma if one of these models has it."""
    size = question.size or 0
    pieces = [model.fit.piece(size) for model in models]
    gammas = [piece.fitted.gamma for piece in pieces if piece.fitted.gamma is not None]
    gamma = median(gammas) if gammas else None
    rows = []
    for shape in SHAPES[collective]:
        fitted = Fitted(shape, link.latency, 1 / link.bandwidth, gamma if shape.reduced(2) > 0 else None)
        rows.append(Supposed(fitted, fitted.seconds(question.ranks, size), _in_models(shape, pieces)))
    return WhatIf(collective, question, link, gamma, tuple(sorted(rows, key=lambda row: row.seconds)))


def _in_models(shape: Shape, pieces: Sequence[Piece]) -> InModels:
    """A shape is chosen where the ranks measured exclude all others."""
    if any(piece.fitted.shape == shape and not piece.rivals for piece in pieces):
        return "chosen"
    likely = {fitted.shape for piece in pieces for fitted in (piece.fitted, *piece.rivals)}
    return "not excluded" if shape in likely else ""
