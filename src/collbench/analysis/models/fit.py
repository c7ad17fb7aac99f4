"""Fits of algorithm shapes to one series: non-negative, in relative error, piecewise in size.

A shape's alpha, beta and gamma come from non-negative least squares with every row divided by its measured time, so
that an error of a microsecond at 8 bytes counts as much as one of a millisecond at 8 MiB. In each piece (`pieces.py`)
the shape is the one with the least error on sizes that were held out of the fit. Needs SciPy.

The least squared relative error of every interval of sizes comes from cumulative sums, so that all ways to cut a series
can be tried again for each size that is held out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import numpy as np

from collbench.analysis.models.series import Point
from collbench.analysis.models.shapes import Shape
from collbench.analysis.optional import optimize

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


#: beta and gamma are not distinguished where their columns point in the same direction, with at least this cosine.
COLLINEAR = 0.9995

#: Shapes whose criterion is this close to the best one's are as likely (Burnham and Anderson, Model Selection and
#: Multimodel Inference, 2nd ed. (2002), section 2.6).
AS_LIKELY = 2.0


@dataclass(frozen=True)
class Fitted:
    """A shape with its parameters: seconds a message, seconds a byte, seconds a reduced byte.

    `gamma` is None where `beta` includes it: the ranks measured do not distinguish them, or it explains nothing more.
    """

    shape: Shape
    alpha: float
    beta: float
    gamma: float | None

    def seconds(self, ranks: int, moved: float) -> float:
        """Time of an operation on `ranks` ranks that moves `moved` bytes."""
        messages, travel, reduced = self.shape.terms(ranks, moved)
        return messages * self.alpha + travel * self.beta + reduced * (self.gamma or 0.0)

    @property
    def merged(self) -> bool:
        """Whether `beta` includes the time for reducing."""
        return self.gamma is None and self.shape.reduced(2) > 0

    @property
    def columns(self) -> tuple[int, ...]:
        """Which of alpha, beta, gamma were fitted."""
        return (0, 1) if self.gamma is None else (0, 1, 2)


@dataclass(frozen=True)
class Piece:
    """Sizes asked for from `low` to `high` (both measured), the shape there, and those that are as likely."""

    low: int
    high: int
    fitted: Fitted
    rivals: tuple[Fitted, ...] = ()


@dataclass(frozen=True)
class Fit:
    """Pieces in order of size."""

    pieces: tuple[Piece, ...]

    def piece(self, size: int) -> Piece:
        """The piece a size belongs to: between two pieces, the nearer one by ratio."""
        for piece, after in pairwise(self.pieces):
            if size * size <= piece.high * after.low:
                return piece
        return self.pieces[-1]

    def pieces_at(self, size: int) -> tuple[Piece, ...]:
        """The piece a size belongs to, and where it lies between two, the other one behind it."""
        nearest = self.piece(size)
        for piece, after in pairwise(self.pieces):
            if piece.high < size < after.low:
                return (nearest, after if nearest is piece else piece)
        return (nearest,)

    def seconds(self, point: Point) -> float:
        return self.piece(point.size).fitted.seconds(point.ranks, point.moved)


@dataclass(frozen=True)
class FitEvidence:
    """Points as arrays [n], and each shape's terms [n, 3]; `held` is what is left out in turn: sizes or rank counts."""

    sizes: NDArray[np.int64]
    held: NDArray[np.int64]
    seconds: NDArray[np.float64]
    terms: dict[Shape, NDArray[np.float64]] = field(compare=False)

    def take(self, rows: NDArray[np.bool_]) -> FitEvidence:
        terms = {shape: values[rows] for shape, values in self.terms.items()}
        return FitEvidence(self.sizes[rows], self.held[rows], self.seconds[rows], terms)

    def design(self, shape: Shape, columns: tuple[int, ...]) -> NDArray[np.float64]:
        """Terms over measured times, [n, columns]: times the parameters of a perfect model these are ones."""
        return np.asarray(self.terms[shape][:, columns] / self.seconds[:, None])


def evidence(points: Sequence[Point], shapes: Sequence[Shape]) -> FitEvidence:
    """The points as arrays; sizes are held out in turn, or rank counts where there is one size."""
    sizes = np.array([point.size for point in points])
    ranks = np.array([point.ranks for point in points])
    held = sizes if len(set(sizes.tolist())) > 1 else ranks
    terms = {shape: np.array([shape.terms(point.ranks, point.moved) for point in points]) for shape in shapes}
    return FitEvidence(sizes, held, np.array([point.seconds for point in points]), terms)


def fit(points: Sequence[Point], shapes: Sequence[Shape]) -> Fit:
    """Pieces, their shapes and parameters. The points are of one series, at least two of them different.

    Raises:
        RequestError: SciPy is not installed.
    """
    rows = evidence(points, shapes)
    alike = len({point.ranks for point in points}) == 1  # then every shape is the same line
    designs = [rows.design(shape, (0, 1)) for shape in (shapes[:1] if alike else shapes)]
    fitted = []
    for low, high in pieces(rows.sizes, designs):
        inside = rows.take((rows.sizes >= low) & (rows.sizes <= high))
        likely = [solve(inside, shape, (0, 1))[0] for shape in shapes] if alike else _likely(inside, shapes)
        fitted.append(Piece(low, high, likely[0], tuple(likely[1:])))
    return Fit(tuple(fitted))


def solve(rows: FitEvidence, shape: Shape, columns: tuple[int, ...]) -> tuple[Fitted, float]:
    """The shape with the non-negative parameters of least squared relative error, and this sum of squares."""
    relative = rows.design(shape, columns)
    lengths = np.linalg.norm(relative, axis=0)
    lengths[lengths == 0.0] = 1.0
    values, residual = optimize().nnls(relative / lengths, np.ones(len(relative)))
    parameters = dict(zip(columns, (float(value) for value in values / lengths), strict=True))
    return Fitted(shape, parameters[0], parameters[1], parameters.get(2)), float(residual) ** 2


def best(rows: FitEvidence, shape: Shape) -> tuple[Fitted, float]:
    """As `solve`, with gamma separate from beta where the rows distinguish them and the criterion justifies it."""
    merged, squares = solve(rows, shape, (0, 1))
    travel, reduced = rows.design(shape, (1, 2)).T
    lengths = float(np.linalg.norm(travel) * np.linalg.norm(reduced))
    if lengths == 0.0 or float(travel @ reduced) >= COLLINEAR * lengths:
        return merged, squares
    apart, less = solve(rows, shape, (0, 1, 2))
    n = len(rows.seconds)
    pays = criterion(n, less, 3) < criterion(n, squares, 2) and apart.beta > 0.0 and bool(apart.gamma)
    return (apart, less) if pays else (merged, squares)


def _likely(rows: FitEvidence, shapes: Sequence[Shape]) -> list[Fitted]:
    """The shape with the least error on what is held out in turn, and those that are as likely, in this order."""
    if len(shapes) == 1:
        return [best(rows, shapes[0])[0]]
    ranked = sorted((_held_out(rows, shape), index) for index, shape in enumerate(shapes))
    return [best(rows, shapes[index])[0] for value, index in ranked if value - ranked[0][0] < AS_LIKELY]


def _held_out(rows: FitEvidence, shape: Shape) -> float:
    """Misfit of a shape on what is held out in turn, fitted to the rest; on all rows where nothing can be held out.

    The ends are not held out: to predict them is to extrapolate. One size counts once, on however many ranks.
    """
    inner = np.unique(rows.held)[1:-1]
    means = []
    for value in inner:
        out = rows.held == value
        fitted, _ = best(rows.take(~out), shape)
        parameters = np.array([fitted.alpha, fitted.beta, fitted.gamma or 0.0])
        means.append(float(np.mean((rows.take(out).design(shape, (0, 1, 2)) @ parameters - 1) ** 2)))
    if means:
        return misfit(len(means), sum(means))
    return misfit(len(rows.seconds), best(rows, shape)[1])
