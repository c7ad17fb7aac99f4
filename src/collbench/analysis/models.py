"""Latency-bandwidth models: what an algorithm of a collective costs, fitted to a series of cells.

The model is Hockney's (Parallel Computing 20 (1994) 389-398): a message of m bytes takes alpha + m beta. An algorithm
on p ranks with m bytes, the size (docs/method.md), then takes messages(p) alpha + travel(p) m beta, where a
rank sends and receives one message at a time, in both directions at once, and links do not disturb each other; but for
the shape `shared memory`, whose ranks share one bandwidth. Reducing is part of beta: nearly every algorithm reduces in
proportion to what it moves. The terms are those of R. Thakur, R. Rabenseifner, W. Gropp, International Journal of High
Performance Computing Applications 19 (2005) 49-66 [TRG], and E. Chan, M. Heimlich, A. Purkayastha, R. van de Geijn,
Concurrency and Computation: Practice and Experience 19 (2007) 1749-1783 [CHPV].

A shape's alpha and beta come from non-negative least squares with every row divided by its measured time, so that an
error of a microsecond at 8 bytes counts as much as one of a millisecond at 8 MiB. Sizes are cut into pieces; in each
the shape is the one with the least error on sizes that were held out. Two parameters have a solution in closed form, so
that all ways to cut a series can be tried again for each size that is held out, and for each resample of the launches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import median
from typing import TYPE_CHECKING, Literal

import numpy as np

from collbench.analysis.estimate import Floats
from collbench.analysis.results import Cell
from collbench.analysis.runs import Observed
from collbench.schema.case import Case

if TYPE_CHECKING:
    from numpy.typing import NDArray

Term = Callable[[int], float]  # of the number of ranks, at least 2


@dataclass(frozen=True)
class Algorithm:
    """An algorithm. `travel` is in units of the collective's size; both terms are linear in it."""

    name: str
    messages: Term
    travel: Term = lambda p: 0.0

    def terms(self, ranks: int, size: float) -> tuple[float, float]:
        """Messages and bytes over a link, each in sequence, for `ranks` >= 2 and `size` bytes."""
        return self.messages(ranks), self.travel(ranks) * size

    def terms_of(self, points: Sequence[FitPoint]) -> Floats:
        """The terms at each point, [n, 2]: messages and bytes."""
        return np.array([self.terms(point.ranks, point.moved) for point in points])


def rounds(p: int) -> int:
    """ceil(log2 p): how often what p ranks know must double."""
    return (p - 1).bit_length()


def power(p: int) -> int:
    """The largest power of two that is at most p."""
    return 1 << (p.bit_length() - 1)


def folds(p: int) -> int:
    """1 where ranks must first hand their data to another, because p is no power of two; else 0 [TRG]."""
    return int(power(p) != p)


def others(p: int) -> float:
    """(p - 1) / p: the share of a buffer that belongs to the other ranks."""
    return (p - 1) / p


def _halved(p: int) -> float:
    """What a recursive halving of the ranks that a fold leaves moves, and as much again reversed."""
    return others(power(p))


def _steps(p: int) -> int:
    """log2 of the ranks that a fold leaves."""
    return rounds(power(p))


#: Ranks of one host whose buffers all pass one memory, or one link of it; they wait for each other in rounds.
SHARED = Algorithm("shared memory", rounds, lambda p: p)

#: Root to all along a binomial tree: a rank that has the data gives it to one that has not [TRG, CHPV].
_TREE = Algorithm("binomial tree", rounds, rounds)

#: The root sends to one after the other.
_LINEAR = Algorithm("linear", lambda p: p - 1, lambda p: p - 1)

_BCAST = (
    _TREE,
    # A binomial scatter, then an all-gather: by a ring [TRG, CHPV], or doubling, Bruck's if p is no power of two [TRG].
    Algorithm("van de Geijn, ring", lambda p: rounds(p) + p - 1, lambda p: 2 * others(p)),
    Algorithm("van de Geijn, doubling", lambda p: 2 * rounds(p), lambda p: 2 * others(p)),
    _LINEAR,
    SHARED,
)

#: Gather and scatter are each other reversed: all blocks but one pass the root's link [CHPV].
_ROOTED = (Algorithm("binomial tree", rounds, others), Algorithm("linear", lambda p: p - 1, others))

#: The algorithms of each collective, the most usual first: it is named where the ranks measured do not tell.
SHAPES: dict[str, tuple[Algorithm, ...]] = {
    "allreduce": (
        # Partners exchange whole buffers; a fold adds a message before and one after [TRG].
        Algorithm("recursive doubling", lambda p: _steps(p) + 2 * folds(p), lambda p: _steps(p) + 2 * folds(p)),
        Algorithm("ring", lambda p: 2 * (p - 1), lambda p: 2 * others(p)),  # reduce-scatter, then all-gather [CHPV]
        # Rabenseifner's: reduce-scatter by halving, then all-gather by doubling [TRG].
        Algorithm("Rabenseifner", lambda p: 2 * _steps(p) + 2 * folds(p), lambda p: 2 * _halved(p) + 2 * folds(p)),
        Algorithm("tree, reduce and bcast", lambda p: 2 * rounds(p), lambda p: 2 * rounds(p)),  # [CHPV]
        Algorithm("linear", lambda p: 2 * (p - 1), lambda p: 2 * (p - 1)),
        SHARED,
    ),
    "bcast": _BCAST,
    "reduce": (
        _TREE,
        # Rabenseifner's: reduce-scatter by halving, then a binomial gather [TRG].
        Algorithm("Rabenseifner", lambda p: 2 * _steps(p) + folds(p), lambda p: 2 * _halved(p) + folds(p)),
        Algorithm("ring and gather", lambda p: p - 1 + rounds(p), lambda p: 2 * others(p)),
        _LINEAR,
        SHARED,
    ),
    "allgather": (
        Algorithm("doubling or Bruck", rounds, others),  # the latter where p is no power of two: the same terms [TRG]
        Algorithm("ring", lambda p: p - 1, others),  # [TRG]
        Algorithm("tree, gather and bcast", lambda p: 2 * rounds(p), lambda p: others(p) + rounds(p)),  # [CHPV]
        SHARED,
    ),
    "gather": _ROOTED,
    "scatter": _ROOTED,
    "reduce_scatter": (
        # Halving; a fold adds whole buffers before, and a block after [TRG, simplified: equal pieces].
        Algorithm("recursive halving", lambda p: _steps(p) + 2 * folds(p),
                  lambda p: _halved(p) + folds(p) * (1 + 1 / p)),
        Algorithm("ring or pairwise", lambda p: p - 1, others),  # [TRG]
        Algorithm("tree, reduce and scatter", lambda p: 2 * rounds(p), lambda p: rounds(p) + others(p)),  # [CHPV]
        SHARED,
    ),
    "alltoall": (
        Algorithm("pairwise", lambda p: p - 1, others),  # [TRG]
        Algorithm("Bruck", rounds, lambda p: sum(i.bit_count() for i in range(p)) / p),  # block i once a bit [TRG]
        SHARED,
    ),
    "barrier": (
        # D. Hensgen, R. Finkel, U. Manber, International Journal of Parallel Programming 17 (1988) 1-17.
        Algorithm("dissemination", rounds),
        Algorithm("recursive doubling", lambda p: _steps(p) + 2 * folds(p)),
        Algorithm("tree, up and down", lambda p: 2 * rounds(p)),
        Algorithm("linear", lambda p: 2 * (p - 1)),
    ),
    "sendrecv": (Algorithm("exchange with neighbours", lambda p: 1, lambda p: 1),
                 Algorithm(SHARED.name, lambda p: 1, lambda p: p)),
    "ps_bcast": _BCAST,
    "ps_gather": (_LINEAR, Algorithm("binomial tree", rounds, lambda p: p - 1)),
}  # fmt: skip


FEWEST_IN_PIECE, MOST_BREAKS = 3, 2  # sizes in a piece, whose line has two parameters; breaks between pieces
FEWEST_SIZES = 4  # the fewest sizes of a series that is modelled: a line, and one more when one is held out
FEWEST_RANKS = 3  # of a series without sizes the fewest rank counts; of any, to know errors at other rank counts
BEYOND = 2  # rank counts further beyond those measured than by this factor have no interval: errors are of one step
RESOLVED = 1e-3  # relative errors below this do not favour one model over another: no median is known better

#: Parameters that a break counts for, besides those of the line behind it. Its position is one, but it is searched for:
#: with 2, simulated series of 7 to 20 sizes of one line with 5 to 15 % of noise are broken in 5 to 30 % of cases, with
#: 1 in 25 to 55 %; real switches (a time that jumps by a factor of 2) are found as often.
PLACE = 2

#: Shapes whose criterion is this close to the best one's are as likely (Burnham and Anderson, Model Selection and
#: Multimodel Inference, 2nd ed. (2002), section 2.6).
AS_LIKELY = 2.0


@dataclass(frozen=True)
class FitPoint:
    """A cell as the fit sees it: size asked for, bytes `moved` after rounding; numbers, medians (s) of launches."""

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

    shape: Algorithm
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

    def inside(self, misses: Iterable[HeldOutError]) -> list[HeldOutError]:
        """The errors at its sizes."""
        return [miss for miss in misses if self.low <= miss.size <= self.high]


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

    def seconds(self, point: FitPoint) -> float:
        return self.pieces_at(point.size)[0].fitted.seconds(point.ranks, point.moved)


def fit(points: Sequence[FitPoint], shapes: Sequence[Algorithm]) -> Fit:
    """Pieces of a series, with shapes and parameters. Sizes are held out in turn; of one size, rank counts."""
    sizes, ranks = (np.array(values) for values in zip(*((point.size, point.ranks) for point in points), strict=True))
    held = sizes if len(set(sizes.tolist())) > 1 else ranks
    seconds = np.array([[point.seconds] for point in points])  # times the parameters of a perfect model rows are ones
    designs = {shape: shape.terms_of(points) / seconds for shape in shapes}
    alike = len(set(ranks.tolist())) == 1  # then every shape is the same line
    pieces = []
    for low, high in _cut(sizes, [designs[shape] for shape in (shapes[:1] if alike else shapes)]):
        inside = (sizes >= low) & (sizes <= high)
        designs_inside = {shape: design[inside] for shape, design in designs.items()}
        errors = (
            {} if alike else {shape: _held_out_error(design, held[inside]) for shape, design in designs_inside.items()}
        )
        ranked = sorted(errors, key=lambda shape: errors[shape])
        chosen = [shape for shape in ranked if errors[shape] - errors[ranked[0]] < AS_LIKELY]
        likely = [solve(designs_inside[shape], shape) for shape in chosen or shapes]
        pieces.append(Piece(low, high, likely[0], tuple(likely[1:])))
    return Fit(tuple(pieces))


def solve(design: Floats, shape: Algorithm) -> Fitted:
    """The shape with the non-negative parameters of least squared relative error."""
    (alpha, beta), _ = least(design.T @ design, design.sum(axis=0))
    return Fitted(shape, float(alpha), float(beta))


def least(gram: Floats, moment: Floats) -> tuple[Floats, Floats]:
    """Non-negative least squares of ones: gram [..., 2, 2], moment [..., 2] -> parameters [..., 2], explained squares.

    Both parameters where both are positive, else the better of the two alone, which is positive as every term is.
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
    """Schwarz's criterion, n log(squares / n) + k log n, of n relative errors with this sum of squares: less is better.

    Annals of Statistics 6 (1978) 461-464; for breaks Yao, Statistics & Probability Letters 6 (1988) 181-189.
    """
    return n * math.log(max(squares / n, RESOLVED**2)) + parameters * math.log(n)


def _held_out_error(design: Floats, held: NDArray[np.int64]) -> float:
    """Misfit of a shape on what is held out in turn, fitted to the rest; on all rows where nothing can be held out.

    The ends are not held out: to predict them is to extrapolate. One size counts once, on however many ranks.
    """
    groups, index = np.unique(held, return_inverse=True)
    gram, moment, count = _sums(design, index, len(groups))
    if len(groups) < 3:
        _, explained = least(gram.sum(axis=0), moment.sum(axis=0))
        return criterion(len(index), len(index) - float(explained), 0)
    parameters, _ = least(gram.sum(axis=0) - gram, moment.sum(axis=0) - moment)
    squares = ((design * parameters[index]).sum(axis=1) - 1) ** 2
    means = (np.bincount(index, squares) / count)[1:-1]
    return criterion(len(means), float(means.sum()), 0)


def _sums(design: Floats, index: NDArray[np.int64], n: int) -> tuple[Floats, Floats, Floats]:
    """Gram matrices [n, 2, 2], moments [n, 2] and numbers [n] of the rows of each index."""
    gram, moment = np.zeros((n, 2, 2)), np.zeros((n, 2))
    np.add.at(gram, index, design[:, :, None] * design[:, None, :])
    np.add.at(moment, index, design)
    return gram, moment, np.bincount(index, minlength=n).astype(float)


def _cut(sizes: NDArray[np.int64], designs: Sequence[Floats]) -> list[tuple[int, int]]:
    """First and last size of each piece: of all cuts, the one of the least criterion; each may have another shape."""
    distinct, index = np.unique(sizes, return_inverse=True)
    squares = np.min([_squares(design, index, len(distinct)) for design in designs], axis=0)

    def value(ends: list[tuple[int, int]]) -> float:
        total = sum(float(squares[start, stop]) for start, stop in ends)
        return criterion(len(sizes), total, 2 * len(ends) + PLACE * (len(ends) - 1))

    return [(int(distinct[start]), int(distinct[stop - 1])) for start, stop in min(_cuts(len(distinct)), key=value)]


def _cuts(n: int) -> Iterator[list[tuple[int, int]]]:
    """Every way to cut n sizes, as [start, stop) of the pieces, the whole first."""
    for breaks in range(MOST_BREAKS + 1):
        for inner in combinations(range(1, n), breaks):
            ends = list(pairwise((0, *inner, n)))
            if not breaks or all(stop - start >= FEWEST_IN_PIECE for start, stop in ends):
                yield ends


def _squares(design: Floats, index: NDArray[np.int64], n: int) -> Floats:
    """Sum of squared relative errors of the best line over sizes [start, stop), as [n, n + 1]; infinite if empty.

    Sums run forward from each start: all are of numbers that are not negative, so nothing cancels over many sizes.
    """
    sums = _sums(design, index, n)
    squares = np.full((n, n + 1), math.inf)
    for start in range(n):
        gram, moment, count = (values[start:].cumsum(axis=0) for values in sums)
        squares[start, start + 1 :] = np.maximum(count - least(gram, moment)[1], 0.0)
    return squares


#: Why a cell says nothing about a link.
Useless = Literal["failed", "skipped", "results wrong", "one rank", "median of 0", "0 bytes after rounding"]


@dataclass(frozen=True)
class LinkSeries:
    """One case without size and ranks, over one transport (empty: not reported; launches had several: joined by `and`).

    `sized`: it moves data; a barrier does not, and is modelled over numbers of ranks alone. `points` are in order of
    ranks and size, `cells` are theirs. `left_out` is why each of the other cells says nothing about a link.
    """

    case: Case
    transport: str
    points: tuple[FitPoint, ...]
    left_out: tuple[Useless, ...]
    cells: tuple[Cell, ...]
    sized: bool = True

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sorted({point.size for point in self.points}))

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({point.ranks for point in self.points}))

    @property
    def launches(self) -> int:
        """The most launches that a point has."""
        return max((len(point.medians) for point in self.points), default=0)

    def known_sizes(self, ranks: int) -> tuple[int, int]:
        """The smallest and the largest size measured at these ranks, or at any: errors beyond them are not known."""
        sizes = [point.size for point in self.points if point.ranks == ranks] or self.sizes
        return min(sizes), max(sizes)

    def unknown_growth(self, ranks: int) -> Literal["far", "few", "folded"] | None:
        """Why errors at a rank count are not known; None where they are.

        Beyond those measured; of fewer than three; or no power of two, of which alone were measured, or the reverse.
        """
        known = self.ranks
        if ranks in known:
            return None
        if ranks > BEYOND * known[-1] or ranks * BEYOND < known[0]:
            return "far"
        return "few" if len(known) < FEWEST_RANKS else None if folds(ranks) in map(folds, known) else "folded"


def series(observed: Observed, wanted: frozenset[str] = frozenset()) -> list[LinkSeries]:
    """The series of a run in the order they were measured; with `wanted`, of these collectives only.

    A cell that was never measured has no transport: it goes to the first series of its case.
    """
    by_case: dict[Case, dict[str, list[Cell]]] = {}
    for cell in sorted(observed.cells.values(), key=lambda cell: not cell.medians):
        if not wanted or cell.case.workload in wanted:
            groups = by_case.setdefault(cell.case.without(("size", "ranks")), {})
            name = " and ".join(sorted(cell.transports)) if cell.medians else next(iter(groups), "")
            groups.setdefault(name, []).append(cell)
    return [_series(case, name, cells) for case, groups in by_case.items() for name, cells in groups.items()]


def _series(case: Case, name: str, cells: list[Cell]) -> LinkSeries:
    points, left_out, used = list[FitPoint](), list[Useless](), list[Cell]()
    for cell in sorted(cells, key=lambda cell: (cell.case.where.ranks, cell.case["size"])):
        if (why := _useless(cell)) is not None:
            left_out.append(why)
            continue
        launches, medians = zip(*sorted(zip(cell.launches, cell.medians, strict=True)), strict=True)
        points.append(FitPoint(cell.case.where.ranks, cell.case["size"], int(cell.work.amount), launches, medians))
        used.append(cell)
    sized = any("size" in cell.case.what for cell in cells)
    return LinkSeries(case, name, tuple(points), tuple(left_out), tuple(used), sized)


def _useless(cell: Cell) -> Useless | None:
    """Why a cell says nothing about a link; None: it does."""
    if not cell.medians:
        return "failed" if cell.failed else "skipped"
    if cell.wrong:
        return "results wrong"
    if cell.case.where.ranks < 2:
        return "one rank"
    if min(cell.medians) <= 0.0:
        return "median of 0"
    return "0 bytes after rounding" if cell.work.amount == 0 and "size" in cell.case.what else None


@dataclass(frozen=True)
class HeldOutError:
    """The prediction of a point by a model that was fitted without it, and the measurement (s)."""

    ranks: int
    size: int
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """|predicted / measured - 1|."""
        return abs(self.predicted / self.measured - 1)


@dataclass(frozen=True)
class Model:
    """A fit and its held-out errors: pieces and shapes were chosen again for every inner size, and every rank count.

    Empty where fewer than three of these were measured, so that no growth would be left.
    """

    series: LinkSeries
    fit: Fit
    sizes: tuple[HeldOutError, ...]
    by_ranks: tuple[HeldOutError, ...]

    @property
    def inner(self) -> tuple[HeldOutError, ...]:
        """Errors where the model interpolates: of inner sizes, or without sizes of inner rank counts."""
        return self.sizes or self.of_ranks(self.series.ranks[1:-1])

    def of_ranks(self, ranks: Iterable[int]) -> tuple[HeldOutError, ...]:
        """Errors of these rank counts, each held out in turn."""
        return tuple(miss for miss in self.by_ranks if miss.ranks in ranks)


@dataclass(frozen=True)
class Unfit:
    """A series that is not modelled, and why."""

    series: LinkSeries
    why: Literal["program", "no algorithms", "no points", "few ranks", "few sizes"]


def model(series: LinkSeries) -> Model | Unfit:
    """The model of a series with its held-out errors."""
    if not series.case["backend"]:
        return Unfit(series, "program")
    if series.case.workload not in SHAPES:
        return Unfit(series, "no algorithms")
    if not series.points:
        return Unfit(series, "no points")
    if series.sized and len(series.sizes) < FEWEST_SIZES:
        return Unfit(series, "few sizes")
    if not series.sized and len(series.ranks) < FEWEST_RANKS:
        return Unfit(series, "few ranks")
    sizes = _held_out(series, series.sizes[1:-1], lambda point: point.size)
    several = len(series.ranks) >= FEWEST_RANKS
    by_ranks = _held_out(series, series.ranks, lambda point: point.ranks) if several else ()
    return Model(series, fit(series.points, SHAPES[series.case.workload]), sizes, by_ranks)


def _held_out(series: LinkSeries, values: Iterable[int], of: Callable[[FitPoint], int]) -> tuple[HeldOutError, ...]:
    """Points with each of these values in turn, predicted by a model that was fitted without them."""
    misses: list[HeldOutError] = []
    for value in values:
        rest = [point for point in series.points if of(point) != value]
        if series.sized and len({point.size for point in rest}) < FEWEST_SIZES - 1:
            continue
        fitted = fit(rest, SHAPES[series.case.workload])
        misses += [HeldOutError(point.ranks, point.size, fitted.seconds(point), point.seconds)
                   for point in series.points if of(point) == value]  # fmt: skip
    return tuple(misses)


def errors(misses: Iterable[HeldOutError]) -> tuple[float, float] | None:
    """Median and worst error; None without any."""
    values = [miss.error for miss in misses]
    return (median(values), max(values)) if values else None
