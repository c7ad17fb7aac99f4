"""Fits of algorithm shapes to one series: non-negative, in relative error, piecewise in size.

A shape's alpha and beta come from non-negative least squares with every row divided by its measured time, so that an
error of a microsecond at 8 bytes counts as much as one of a millisecond at 8 MiB. In each piece the shape is the one
with the least error on sizes that were held out of the fit.

Two parameters have a solution in closed form, so that all ways to cut a series can be tried again for each size that is
held out, and for each resample of the launches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from collbench.analysis.models.shapes import Shape

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

#: Shapes whose criterion is this close to the best one's are as likely (Burnham and Anderson, Model Selection and
#: Multimodel Inference, 2nd ed. (2002), section 2.6).
AS_LIKELY = 2.0


@dataclass(frozen=True)
class Point:
    """A cell as the fit sees it. `size` is the size asked for, `moved` the bytes that move after rounding.

    `medians` are the launches' medians in seconds, `launches` their numbers, in the same order.
    """

    ranks: int
    size: int
    moved: int
    launches: tuple[int, ...]
    medians: tuple[float, ...]

    @property
    def seconds(self) -> float:
        return median(self.medians)


@dataclass(frozen=True)
class Fitted:
    """A shape with its parameters: seconds a message, seconds a byte (which includes the time to reduce it)."""

    shape: Shape
    alpha: float
    beta: float

    def seconds(self, ranks: int, moved: float) -> float:
        """Time of an operation on `ranks` ranks that moves `moved` bytes."""
        messages, travel = self.shape.terms(ranks, moved)
        return messages * self.alpha + travel * self.beta


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

    def pieces_at(self, size: int) -> tuple[Piece, ...]:
        """The piece a size belongs to; between two pieces the nearer one by ratio, and the other one behind it."""
        for piece, after in pairwise(self.pieces):
            if piece.high < size < after.low:
                return (piece, after) if size * size <= piece.high * after.low else (after, piece)
            if size <= piece.high:
                return (piece,)
        return (self.pieces[-1],)

    def seconds(self, point: Point) -> float:
        return self.pieces_at(point.size)[0].fitted.seconds(point.ranks, point.moved)


@dataclass(frozen=True)
class Rows:
    """Points as arrays [n], and each shape's terms [n, 2]; `held` is what is left out in turn: sizes or rank counts."""

    sizes: NDArray[np.int64]
    held: NDArray[np.int64]
    seconds: NDArray[np.float64]
    terms: dict[Shape, NDArray[np.float64]] = field(compare=False)

    def take(self, rows: NDArray[np.bool_]) -> Rows:
        terms = {shape: values[rows] for shape, values in self.terms.items()}
        return Rows(self.sizes[rows], self.held[rows], self.seconds[rows], terms)

    def design(self, shape: Shape) -> NDArray[np.float64]:
        """Terms over measured times, [n, 2]: times the parameters of a perfect model these are ones."""
        return np.asarray(self.terms[shape] / self.seconds[:, None])


def rows_of(points: Sequence[Point], shapes: Sequence[Shape]) -> Rows:
    """The points as arrays; sizes are held out in turn, or rank counts where there is one size."""
    sizes = np.array([point.size for point in points])
    ranks = np.array([point.ranks for point in points])
    held = sizes if len(set(sizes.tolist())) > 1 else ranks
    terms = {shape: np.array([shape.terms(point.ranks, point.moved) for point in points]) for shape in shapes}
    return Rows(sizes, held, np.array([point.seconds for point in points]), terms)


def fit(points: Sequence[Point], shapes: Sequence[Shape]) -> Fit:
    """Pieces, their shapes and parameters. The points are of one series, at least two of them different."""
    rows = rows_of(points, shapes)
    alike = len({point.ranks for point in points}) == 1  # then every shape is the same line
    pieces = []
    for low, high in _cut(rows.sizes, [rows.design(shape) for shape in (shapes[:1] if alike else shapes)]):
        inside = rows.take((rows.sizes >= low) & (rows.sizes <= high))
        likely = [solve(inside, shape) for shape in (shapes if alike else _likely(inside, shapes))]
        pieces.append(Piece(low, high, likely[0], tuple(likely[1:])))
    return Fit(tuple(pieces))


def solve(rows: Rows, shape: Shape) -> Fitted:
    """The shape with the non-negative parameters of least squared relative error."""
    design = rows.design(shape)
    (alpha, beta), _ = least(design.T @ design, design.sum(axis=0))
    return Fitted(shape, float(alpha), float(beta))


def least(gram: NDArray[np.float64], moment: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Non-negative least squares of ones: gram [..., 2, 2], moment [..., 2] -> parameters [..., 2], explained [...].

    Both parameters where both are positive, else the better of the two alone, which is positive because every term is.
    `explained` is by how much they reduce the sum of squares.
    """
    squares = np.stack((gram[..., 0, 0], gram[..., 1, 1]), axis=-1)
    mixed = gram[..., 0, 1]
    alone = moment / np.where(squares > 0, squares, math.inf)
    gains = alone * moment
    alone = np.where(gains >= gains.max(axis=-1, keepdims=True), alone, 0.0)
    alone[..., 1] = np.where(alone[..., 0] > 0, 0.0, alone[..., 1])
    product = squares[..., 0] * squares[..., 1]
    determinant = product - mixed**2
    regular = determinant > 1e-12 * product
    both = squares[..., ::-1] * moment - mixed[..., None] * moment[..., ::-1]
    both = both / np.where(regular, determinant, 1.0)[..., None]
    chosen = np.where((regular & (both >= 0).all(axis=-1))[..., None], both, alone)
    return chosen, (chosen * moment).sum(axis=-1)


def criterion(n: int, squares: float, parameters: int) -> float:
    """Schwarz's criterion of n relative errors with this sum of squares, n log(squares / n) + k log n; less is better.

    G. Schwarz, Estimating the dimension of a model, Annals of Statistics 6 (1978) 461-464; for numbers of breaks Y.-C.
    Yao, Statistics & Probability Letters 6 (1988) 181-189.
    """
    return n * math.log(max(squares / n, RESOLVED**2)) + parameters * math.log(n)


def _likely(rows: Rows, shapes: Sequence[Shape]) -> list[Shape]:
    """The shape with the least error on what is held out in turn, and those that are as likely, in this order."""
    ranked = sorted((_held_out(rows, shape), index) for index, shape in enumerate(shapes))
    return [shapes[index] for value, index in ranked if value - ranked[0][0] < AS_LIKELY]


def _held_out(rows: Rows, shape: Shape) -> float:
    """Misfit of a shape on what is held out in turn, fitted to the rest; on all rows where nothing can be held out.

    The ends are not held out: to predict them is to extrapolate. One size counts once, on however many ranks.
    """
    known, index = np.unique(rows.held, return_inverse=True)
    design = rows.design(shape)
    gram, moment, count = _sums(design, index, len(known))
    if len(known) < 3:
        _, explained = least(gram.sum(axis=0), moment.sum(axis=0))
        return criterion(len(index), len(index) - float(explained), 0)
    parameters, _ = least(gram.sum(axis=0) - gram, moment.sum(axis=0) - moment)
    squares = ((design * parameters[index]).sum(axis=1) - 1) ** 2
    means = (np.bincount(index, squares) / count)[1:-1]
    return criterion(len(means), float(means.sum()), 0)


def _sums(
    design: NDArray[np.float64], index: NDArray[np.int64], n: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Gram matrices [n, 2, 2], moments [n, 2] and numbers [n] of the rows of each index."""
    gram, moment = np.zeros((n, 2, 2)), np.zeros((n, 2))
    np.add.at(gram, index, design[:, :, None] * design[:, None, :])
    np.add.at(moment, index, design)
    return gram, moment, np.bincount(index, minlength=n).astype(float)


def _cut(sizes: NDArray[np.int64], designs: Sequence[NDArray[np.float64]]) -> list[tuple[int, int]]:
    """First and last size of each piece: of all cuts, the one of the least criterion; each may have another shape."""
    known, index = np.unique(sizes, return_inverse=True)
    squares = np.min([_squares(design, index, len(known)) for design in designs], axis=0)

    def value(ends: list[tuple[int, int]]) -> float:
        total = sum(float(squares[start, stop]) for start, stop in ends)
        return criterion(len(sizes), total, 2 * len(ends) + PLACE * (len(ends) - 1))

    return [(int(known[start]), int(known[stop - 1])) for start, stop in min(_cuts(len(known)), key=value)]


def _cuts(n: int) -> Iterator[list[tuple[int, int]]]:
    """Every way to cut n sizes, as [start, stop) of the pieces, the whole first."""
    for breaks in range(MOST_BREAKS + 1):
        for inner in combinations(range(1, n), breaks):
            ends = list(pairwise((0, *inner, n)))
            if not breaks or all(stop - start >= FEWEST_IN_PIECE for start, stop in ends):
                yield ends


def _squares(design: NDArray[np.float64], index: NDArray[np.int64], n: int) -> NDArray[np.float64]:
    """Sum of squared relative errors of the best line over sizes [start, stop), as [n, n + 1]; infinite if empty.

    Sums run forward from each start: all are of numbers that are not negative, so nothing cancels over many sizes.
    """
    sums = _sums(design, index, n)
    squares = np.full((n, n + 1), math.inf)
    for start in range(n):
        gram, moment, count = (values[start:].cumsum(axis=0) for values in sums)
        squares[start, start + 1 :] = np.maximum(count - least(gram, moment)[1], 0.0)
    return squares
