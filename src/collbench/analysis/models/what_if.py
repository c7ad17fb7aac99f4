"""What every algorithm of a collective would take over a link that nobody measured: arithmetic, and no measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from collbench.analysis.models.fit import Fitted, Piece
from collbench.analysis.models.predict import PredictionQuestion
from collbench.analysis.models.shapes import SHAPES, Shape
from collbench.analysis.models.validation import Model

#: `chosen` by a model, `not excluded` by one, or empty.
Found = Literal["chosen", "not excluded", ""]


@dataclass(frozen=True)
class NetworkLink:
    """Seconds a message, and bytes per second."""

    latency: float
    bandwidth: float


@dataclass(frozen=True)
class Supposed:
    """An algorithm over the link: its seconds, and whether the models of this run have it at this size."""

    fitted: Fitted
    seconds: float
    found: Found


@dataclass(frozen=True)
class WhatIf:
    """All algorithms of a collective at a point, the quickest first. `gamma` in seconds a byte, if one was measured."""

    collective: str
    question: PredictionQuestion
    link: NetworkLink
    gamma: float | None
    rows: tuple[Supposed, ...]


def what_if(collective: str, models: Sequence[Model], question: PredictionQuestion, link: NetworkLink) -> WhatIf:
    """Every shape with the latency as alpha, the inverse bandwidth as beta, and gamma if a model of these found one."""
    size = question.size or 0
    pieces = [model.fit.piece(size) for model in models]
    gammas = [piece.fitted.gamma for piece in pieces if piece.fitted.gamma is not None]
    gamma = median(gammas) if gammas else None
    rows = []
    for shape in SHAPES[collective]:
        fitted = Fitted(shape, link.latency, 1 / link.bandwidth, gamma if shape.reduced(2) > 0 else None)
        rows.append(Supposed(fitted, fitted.seconds(question.ranks, size), _found(shape, pieces)))
    return WhatIf(collective, question, link, gamma, tuple(sorted(rows, key=lambda row: row.seconds)))


def _found(shape: Shape, pieces: Sequence[Piece]) -> Found:
    """A shape is chosen where the ranks measured leave no other."""
    if any(piece.fitted.shape == shape and not piece.rivals for piece in pieces):
        return "chosen"
    likely = {one.shape for piece in pieces for one in (piece.fitted, *piece.rivals)}
    return "not excluded" if shape in likely else ""
