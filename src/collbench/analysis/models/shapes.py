"""What an algorithm of a collective costs: messages and bytes on its longest path.

The model is Hockney's (R. W. Hockney, The communication challenge for MPP: Intel Paragon and Meiko CS-2, Parallel
Computing 20 (1994) 389-398): a message of m bytes takes alpha + m beta. An algorithm on p ranks with m bytes then takes

    messages(p) alpha + travel(p) m beta

where a rank sends and receives one message at a time, in both directions at once, and links do not disturb each other;
but for the shape `shared memory`, whose ranks share one bandwidth. Reducing is part of beta: nearly every algorithm
reduces in proportion to what it moves, so that measurements could not separate the two.

The terms are those of R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations in
MPICH, International Journal of High Performance Computing Applications 19 (2005) 49-66 [TRG], and E. Chan, M. Heimlich,
A. Purkayastha, R. van de Geijn, Collective communication: theory, practice, and experience, Concurrency and
Computation: Practice and Experience 19 (2007) 1749-1783 [CHPV]. The bytes m are collbench's size: the whole buffer for
allreduce, bcast, reduce and sendrecv; the blocks of all ranks for allgather, gather, scatter, reduce_scatter and
alltoall; one worker's buffer for ps_bcast and ps_gather.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

#: A term as a function of the number of ranks, at least 2.
Term = Callable[[int], float]


@dataclass(frozen=True)
class Shape:
    """An algorithm. `travel` is in units of the collective's size; both terms are linear in it."""

    name: str
    messages: Term
    travel: Term = lambda p: 0.0

    def terms(self, ranks: int, size: float) -> tuple[float, float]:
        """Messages and bytes over a link, each in sequence, for `ranks` >= 2 and `size` bytes."""
        return self.messages(ranks), self.travel(ranks) * size


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
SHARED = Shape("shared memory", rounds, lambda p: p)

#: Root to all along a binomial tree: a rank that has the data gives it to one that has not [TRG, CHPV].
_TREE = Shape("binomial tree", rounds, rounds)

#: The root sends to one after the other.
_LINEAR = Shape("linear", lambda p: p - 1, lambda p: p - 1)

_BCAST = (
    _TREE,
    # Binomial scatter, then ring all-gather: van de Geijn's [TRG, CHPV].
    Shape("van de Geijn, ring", lambda p: rounds(p) + p - 1, lambda p: 2 * others(p)),
    # The same with an all-gather that doubles (Bruck's where p is no power of two) [TRG].
    Shape("van de Geijn, doubling", lambda p: 2 * rounds(p), lambda p: 2 * others(p)),
    _LINEAR,
    SHARED,
)

_ALLREDUCE = (
    # Partners exchange whole buffers; a fold adds a message before and one after [TRG].
    Shape("recursive doubling", lambda p: _steps(p) + 2 * folds(p), lambda p: _steps(p) + 2 * folds(p)),
    # Reduce-scatter around the ring, then all-gather around it [CHPV].
    Shape("ring", lambda p: 2 * (p - 1), lambda p: 2 * others(p)),
    # Rabenseifner's: reduce-scatter by halving, then all-gather by doubling [TRG].
    Shape("Rabenseifner", lambda p: 2 * _steps(p) + 2 * folds(p), lambda p: 2 * _halved(p) + 2 * folds(p)),
    # A reduce along a binomial tree, then a broadcast along it [CHPV].
    Shape("tree, reduce and bcast", lambda p: 2 * rounds(p), lambda p: 2 * rounds(p)),
    Shape("linear", lambda p: 2 * (p - 1), lambda p: 2 * (p - 1)),
    SHARED,
)

_REDUCE = (
    _TREE,
    # Rabenseifner's: reduce-scatter by halving, then a binomial gather [TRG].
    Shape("Rabenseifner", lambda p: 2 * _steps(p) + folds(p), lambda p: 2 * _halved(p) + folds(p)),
    Shape("ring and gather", lambda p: p - 1 + rounds(p), lambda p: 2 * others(p)),
    _LINEAR,
    SHARED,
)

_ALLGATHER = (
    # Doubling where p is a power of two, Bruck's where it is not: the same terms [TRG].
    Shape("doubling or Bruck", rounds, others),
    Shape("ring", lambda p: p - 1, others),  # [TRG]
    Shape("tree, gather and bcast", lambda p: 2 * rounds(p), lambda p: others(p) + rounds(p)),  # [CHPV]
    SHARED,
)

#: Gather and scatter are each other reversed: all blocks but one pass the root's link [CHPV].
_ROOTED = (Shape("binomial tree", rounds, others), Shape("linear", lambda p: p - 1, others))

_REDUCE_SCATTER = (
    # Halving; a fold adds whole buffers before, and a block after [TRG, simplified: equal pieces].
    Shape("recursive halving", lambda p: _steps(p) + 2 * folds(p), lambda p: _halved(p) + folds(p) * (1 + 1 / p)),
    Shape("ring or pairwise", lambda p: p - 1, others),  # [TRG]
    Shape("tree, reduce and scatter", lambda p: 2 * rounds(p), lambda p: rounds(p) + others(p)),  # [CHPV]
    SHARED,
)

_ALLTOALL = (
    Shape("pairwise", lambda p: p - 1, others),  # [TRG]
    # Block i travels once for every bit that is set in i, over p [TRG].
    Shape("Bruck", rounds, lambda p: sum(i.bit_count() for i in range(p)) / p),
    SHARED,
)

_BARRIER = (
    # D. Hensgen, R. Finkel, U. Manber, International Journal of Parallel Programming 17 (1988) 1-17.
    Shape("dissemination", rounds),
    Shape("recursive doubling", lambda p: _steps(p) + 2 * folds(p)),
    Shape("tree, up and down", lambda p: 2 * rounds(p)),
    Shape("linear", lambda p: 2 * (p - 1)),
)

#: The algorithms of each collective, the most usual first: it is named where the ranks measured do not tell.
SHAPES: dict[str, tuple[Shape, ...]] = {
    "allreduce": _ALLREDUCE,
    "bcast": _BCAST,
    "reduce": _REDUCE,
    "allgather": _ALLGATHER,
    "gather": _ROOTED,
    "scatter": _ROOTED,
    "reduce_scatter": _REDUCE_SCATTER,
    "alltoall": _ALLTOALL,
    "barrier": _BARRIER,
    "sendrecv": (
        Shape("exchange with neighbours", lambda p: 1, lambda p: 1),
        Shape(SHARED.name, lambda p: 1, lambda p: p),
    ),
    "ps_bcast": _BCAST,
    "ps_gather": (
        Shape("linear", lambda p: p - 1, lambda p: p - 1),
        Shape("binomial tree", rounds, lambda p: p - 1),
    ),
}
