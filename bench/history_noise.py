"""What runs of a history make of the times of its cells although nothing changed: for `history.py`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Draw = np.random.Generator

CELLS = 8


def _outliers(draw: Draw, runs: int) -> Values:
    shape = (runs, CELLS)
    far = draw.choice([-1, 1], shape) * draw.exponential(0.5, shape)
    return draw.normal(0, 0.01, shape) + far * (draw.random(shape) < 0.1)


def _steps(draw: Draw, runs: int) -> Values:
    times = 2e-7 * np.exp(draw.normal(0, 0.005, (runs, CELLS)))
    found: Values = np.log(np.rint(times / 1e-8) * 1e-8)
    return found


def _correlated(r: float, spread: float) -> Callable[[Draw, int], Values]:
    """Each run keeps the share `r` of how far the run before was off."""

    def noise(draw: Draw, runs: int) -> Values:
        values = draw.normal(0, spread, (runs, CELLS))
        for run in range(1, runs):
            values[run] = r * values[run - 1] + (1 - r**2) ** 0.5 * values[run]
        return values

    return noise


#: Logarithm of what each run makes of the times of its cells, [runs, cells].
NOISES: dict[str, Callable[[Draw, int], Values]] = {
    "log-normal, 1 %": lambda draw, runs: draw.normal(0, 0.01, (runs, CELLS)),
    "log-normal, 5 %": lambda draw, runs: draw.normal(0, 0.05, (runs, CELLS)),
    "log-normal, 20 %": lambda draw, runs: draw.normal(0, 0.2, (runs, CELLS)),
    "heavy-tailed, 2 %": lambda draw, runs: 0.02 * draw.standard_t(2, (runs, CELLS)),
    "one run in ten is an outlier": _outliers,
    "7 % of values + 49 %, 1 %": lambda draw, runs: (
        np.log(1.49) * (draw.random((runs, CELLS)) < 0.07) + draw.normal(0, 0.01, (runs, CELLS))
    ),
    "cells switch modes, + 30 %": lambda draw, runs: (
        np.log(1.3) * (draw.random((runs, CELLS)) < 0.3) + draw.normal(0, 0.01, (runs, CELLS))
    ),
    "runs switch modes, + 30 %": lambda draw, runs: (
        np.log(1.3) * (draw.random((runs, 1)) < 0.3) + draw.normal(0, 0.01, (runs, CELLS))
    ),
    "cells depend on each other, 3 %": lambda draw, runs: (
        draw.normal(0, 0.03, (runs, 1)) + draw.normal(0, 0.005, (runs, CELLS))
    ),
    "10 ns steps at 200 ns": _steps,
    "AR(1), r = 0.3, 1 %": _correlated(0.3, 0.01),
    "AR(1), r = 0.3, 5 %": _correlated(0.3, 0.05),
    "AR(1), r = 0.6, 5 %": _correlated(0.6, 0.05),
    "drift by 5 % over all runs, 1 %": lambda draw, runs: (
        np.linspace(0, np.log(1.05), runs)[:, None] + draw.normal(0, 0.01, (runs, CELLS))
    ),
}


def shared(draw: Draw, runs: int, cells: int, r: float) -> Values:
    """One state of the machine for all cells, 3 %, of which each run keeps the share `r`; cells 1 % besides."""
    state = draw.normal(0, 0.03, (runs, 1))
    for run in range(1, runs):
        state[run] = r * state[run - 1] + (1 - r**2) ** 0.5 * state[run]
    found: Values = state + draw.normal(0, 0.01, (runs, cells))
    return found
