"""Breaks of a series: sizes at which a library changes its protocol or algorithm, found by an information criterion.

The least squared relative error of every interval of sizes comes from cumulative sums, so that all ways to cut a series
can be tried again for each size that is held out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The fewest sizes in a piece: a line has two parameters.
FEWEST_IN_PIECE = 3

#: The most breaks between pieces.
MOST_BREAKS = 2

#: Parameters that a break counts for, besides those of the line behind it. Its position is one, but it is searched for:
#: with 2, simulated series of 7 to 20 sizes of one line with 5 to 15 % of noise are broken in 5 to 30 % of cases, with
#: 1 in 25 to 55 %; real switches (a time that jumps by a factor of 2) are found as often.
PLACE = 2

#: Relative errors below this do not favour one model over another: no median of launches is known better.
RESOLVED = 1e-3


def criterion(n: int, squares: float, parameters: int) -> float:
    """Schwarz's criterion of n relative errors with this sum of squares, n log(squares / n) + k log n; less is better.

    G. Schwarz, Estimating the dimension of a model, Annals of Statistics 6 (1978) 461-464; for numbers of breaks Y.-C.
    Yao, Statistics & Probability Letters 6 (1988) 181-189.
    """
    return misfit(n, squares) + parameters * math.log(n)


def misfit(n: int, squares: float) -> float:
    """n log(squares / n): twice the negative log likelihood, up to a constant."""
    return n * math.log(max(squares / n, RESOLVED**2))


def pieces(sizes: NDArray[np.int64], designs: Sequence[NDArray[np.float64]]) -> list[tuple[int, int]]:
    """First and last size of each piece: of all cuts, the one of the least criterion.

    `sizes` [n] are those of the rows; each design [n, 2] has, for one shape, the terms of alpha and beta over the
    measured time. Each piece may have another shape.
    """
    known, index = np.unique(sizes, return_inverse=True)
    squares = np.min([_squares(design, index, len(known)) for design in designs], axis=0)
    chosen, least = [(0, len(known))], math.inf
    for ends in _cuts(len(known)):
        total = sum(float(squares[start, stop]) for start, stop in ends)
        value = criterion(len(sizes), total, 2 * len(ends) + PLACE * (len(ends) - 1))
        if value < least:
            chosen, least = ends, value
    return [(int(known[start]), int(known[stop - 1])) for start, stop in chosen]


def _cuts(n: int) -> Iterator[list[tuple[int, int]]]:
    """Every way to cut n sizes, as [start, stop) of the pieces, the whole first."""
    for breaks in range(MOST_BREAKS + 1):
        for inner in combinations(range(1, n), breaks):
            bounds = (0, *inner, n)
            ends = list(pairwise(bounds))
            if not breaks or all(stop - start >= FEWEST_IN_PIECE for start, stop in ends):
                yield ends


def _squares(design: NDArray[np.float64], index: NDArray[np.int64], n: int) -> NDArray[np.float64]:
    """Sum of squared relative errors of the best line over sizes [start, stop), as [n, n + 1]; infinite if empty.

    Sums run forward from each start: all are of numbers that are not negative, so nothing cancels over many sizes.
    """
    gram, moment, count = np.zeros((n, 2, 2)), np.zeros((n, 2)), np.zeros(n)
    np.add.at(gram, index, design[:, :, None] * design[:, None, :])
    np.add.at(moment, index, design)
    np.add.at(count, index, 1.0)
    squares = np.full((n, n + 1), math.inf)
    for start in range(n):
        explained = _explained(gram[start:].cumsum(axis=0), moment[start:].cumsum(axis=0))
        squares[start, start + 1 :] = np.maximum(count[start:].cumsum() - explained, 0.0)
    return squares


def _explained(gram: NDArray[np.float64], moment: NDArray[np.float64]) -> NDArray[np.float64]:
    """By how much non-negative alpha and beta reduce the sum of squares of ones: gram [n, 2, 2], moment [n, 2] -> [n].

    Both where both are positive, else the better of the two alone, which is positive because every term is.
    """
    a, b, ab = gram[:, 0, 0], gram[:, 1, 1], gram[:, 0, 1]
    p, q = moment[:, 0], moment[:, 1]
    alone = np.maximum(p**2 / np.where(a > 0, a, math.inf), q**2 / np.where(b > 0, b, math.inf))
    determinant = a * b - ab**2
    regular = determinant > 1e-12 * a * b
    safe = np.where(regular, determinant, 1.0)
    alpha, beta = (b * p - ab * q) / safe, (a * q - ab * p) / safe
    return np.where(regular & (alpha >= 0) & (beta >= 0), p * alpha + q * beta, alone)
