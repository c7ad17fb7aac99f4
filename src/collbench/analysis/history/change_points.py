"""Where the level of series changed: all series of a history tested together, so that few changes are false.

Were the runs of a history alike, every order of them would be as likely as the one in time. So the runs are put into
random orders, the same for all series, each series gets the largest statistic of a split in every order (`scan`), and
its adjusted p is that of the step-down maximum (`joint`): the probability that anything is found in a history without
a change is at most `ALPHA`, however the series depend on each other and whatever their noise. A series in which a
change is found is split there, and its parts take its place, until nothing more is found: divisive estimation with a
permutation test in each step (Matteson and James, JASA 109 (2014) 334-345), as a sequential rejection (Goeman and
Solari, Annals of Statistics 38 (2010) 3782-3810).

Runs that resemble their neighbours, as on a machine that is in a good or a bad state for days, are not as likely in any
order. Their correlation is estimated, and where random orders have less, what was measured must stand out as much more
as the mean of such values varies more: by the root of (1 + r) / (1 - r), and by that of 1 - r, because distances of
neighbours are smaller then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from collbench.analysis import joint
from collbench.analysis.history.scan import FEWEST, distances, scores, splits, statistics
from collbench.analysis.joint import ALPHA

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Orders that are drawn, at the least and at the most, and how many splits in all of them bound their number.
DRAWN = (249, 999)
_WORK = 3 * 10**8
SEED = 1

#: Random orders of ten cells and more have less correlation than this.
_PRECISE = 0.35

#: Above it neighbours are as good as equal, and every level is a matter of taste.
MOST_CORRELATED = 0.9


@dataclass(frozen=True)
class Trace:
    """A series in time: logarithms of times [n], and the numbers of their runs [n], ascending."""

    values: NDArray[np.float64]
    runs: NDArray[np.int64]


@dataclass(frozen=True)
class Level:
    """Values [start, stop) of a series, between which nothing changed; `p` is that of the change at its start."""

    start: int
    stop: int
    p: float | None = None


@dataclass(frozen=True)
class Found:
    """The levels of each series, in time, and the correlation of neighbouring runs that was allowed for."""

    levels: list[tuple[Level, ...]]
    correlation: float


def find(traces: Sequence[Trace], least: float) -> Found:
    """The levels of all series. `least`: a spread (logarithm) that every series is taken to have."""
    history = _History(traces, least)
    correlation = history.correlation()
    widened = np.float32(math.sqrt(1 + correlation) / (1 - correlation))
    pieces = [history.piece(number, 0, len(trace.values), None) for number, trace in enumerate(traces)]
    while True:
        split = _significant(pieces, widened)
        if not split:
            break
        pieces = [part for index, piece in enumerate(pieces) for part in history.parts(piece, split.get(index))]
    found = [
        tuple(Level(piece.start, piece.stop, piece.p) for piece in pieces if piece.trace == number)
        for number in range(len(traces))
    ]
    return Found(found, correlation)


@dataclass(frozen=True)
class _Piece:
    """Values [start, stop) of a series; its statistic in every order, none if it is too short; where it would split."""

    trace: int
    start: int
    stop: int
    p: float | None
    statistics: NDArray[np.float32] | None = None
    split: int = 0


def _significant(pieces: Sequence[_Piece], widened: np.float32) -> dict[int, float]:
    """Which pieces are split, with their adjusted p."""
    long = {index: piece.statistics for index, piece in enumerate(pieces) if piece.statistics is not None}
    if not long:
        return {}
    found = np.stack(list(long.values()))
    found[:, 0] /= widened
    p_adjusted = joint.of_statistics(found).p_adjusted.tolist()
    return {index: p for index, p in zip(long, p_adjusted, strict=True) if p <= ALPHA}


class _History:
    """All series, and the orders that their runs are put into: in each order a random number for each run.

    The first order is that in time.
    """

    def __init__(self, traces: Sequence[Trace], least: float) -> None:
        self._traces, self._least = traces, least
        looked = sum(len(splits(len(trace.values)).at) for trace in traces)
        number = min(max(_WORK // max(looked, 1), DRAWN[0]), DRAWN[1])
        runs = 1 + max((int(trace.runs[-1]) for trace in traces if len(trace.runs)), default=0)
        self._keys = np.random.default_rng(SEED).random((number + 1, runs), np.float32)
        self._keys[0] = np.linspace(0, 1, runs)
        self._orders = lru_cache(maxsize=4)(self._orders_of)  # most cells have the same runs

    def piece(self, number: int, start: int, stop: int, p: float | None) -> _Piece:
        if stop - start < FEWEST:
            return _Piece(number, start, stop, p)
        found, split = statistics(self._ordered(number, start, stop), self._least)
        return _Piece(number, start, stop, p, found, start + split)

    def parts(self, piece: _Piece, p: float | None) -> tuple[_Piece, ...]:
        """Both parts of a piece that is split with this p; the piece where it is not."""
        if p is None:
            return (piece,)
        number, start, stop = piece.trace, piece.start, piece.stop
        return self.piece(number, start, piece.split, piece.p), self.piece(number, piece.split, stop, p)

    def correlation(self) -> float:
        """Of neighbouring runs, in all series together, where it is more than random orders have; else 0.

        Of values with the correlations r, r^2, ... the squared distance of neighbours is 2 (1 - r) variances, and that
        of values with one between them 2 (1 - r^2): r is their ratio less 1. Of few cells, where random orders have
        much of it too, it is drawn towards 0.
        """
        near, far = np.zeros(len(self._keys)), np.zeros(len(self._keys))
        for number, trace in enumerate(self._traces):
            if len(trace.values) >= FEWEST:
                of_near, of_far = distances(self._ordered(number, 0, len(trace.values)))
                both = np.maximum(of_near + of_far, 1e-12)  # each series counts the same, whatever its spread
                near, far = near + of_near / both, far + of_far / both
        found = (far / np.maximum(near, 1e-12)) ** 2 - 1
        usual = max(float(np.quantile(found, 1 - ALPHA)), 0.0)
        measured = min(float(found[0]), MOST_CORRELATED)
        if measured <= usual:
            return 0.0
        return measured if usual <= _PRECISE else measured * (1 - (usual / measured) ** 2)

    def _ordered(self, number: int, start: int, stop: int) -> NDArray[np.float32]:
        """The scores of these values in every order, [orders, values]."""
        trace = self._traces[number]
        orders = self._orders(trace.runs[start:stop].tobytes())
        ordered: NDArray[np.float32] = scores(trace.values[start:stop], self._least).astype(np.float32)[orders]
        return ordered

    def _orders_of(self, runs: bytes) -> NDArray[np.int64]:
        """The orders that the runs of these numbers (int64) are put into, [orders, runs]."""
        return np.argsort(self._keys[:, np.frombuffer(runs, np.int64)], axis=1)
