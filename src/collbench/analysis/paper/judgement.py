"""A verdict on a conclusion of a paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeVar, get_args

Finding = Literal["confirmed", "refuted", "undecided", "not measurable here"]
FINDINGS: tuple[Finding, ...] = get_args(Finding)

Cell = TypeVar("Cell")


@dataclass(frozen=True)
class Judgement(Generic[Cell]):
    """The verdict on a conclusion, the reason, and the cells that decide it."""

    number: int
    finding: Finding
    why: str
    evidence: tuple[Cell, ...]
