"""The loss of a training as it is compared between sides."""

from __future__ import annotations

#: Significant digits that are compared: a loss is summed in float32, which has seven.
DIGITS = 6


def compared(loss: float) -> float:
    return float(f"{loss:.{DIGITS}g}")
