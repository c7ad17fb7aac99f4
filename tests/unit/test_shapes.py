"""Terms of the algorithms against their schedules, played message by message."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench import collectives
from collbench.analysis.models import SHAPES, SHARED, Algorithm, folds, power, rounds

#: Messages of one step: from, to, bytes. Nobody sends or receives two at a time.
Step = list[tuple[int, int, float]]
Schedule = Callable[[int, float], Iterator[Step]]


def play(p: int, steps: Iterator[Step], alpha: float, beta: float) -> tuple[float, list[set[int]]]:
    """When the last rank is done, and whose contributions have reached each rank."""
    clock, known = [0.0] * p, [{rank} for rank in range(p)]
    for step in steps:
        assert len({source for source, *_ in step}) == len({target for _, target, *_ in step}) == len(step)
        before, seen = list(clock), [set(one) for one in known]
        for source, target, size in step:
            end = max(before[source], before[target]) + alpha + size * beta
            clock[source] = max(clock[source], end)
            clock[target] = max(clock[target], end)
            known[target] |= seen[source]
    return max(clock), known


def bits(p: int) -> list[int]:
    return [1 << k for k in range(rounds(p))]


def fold(p: int, m: float) -> Iterator[Step]:
    if folds(p):
        yield [(rank, rank - power(p), m) for rank in range(power(p), p)]


def unfold(p: int, m: float) -> Iterator[Step]:
    if folds(p):
        yield [(rank - power(p), rank, m) for rank in range(power(p), p)]


def exchanges(q: int, bit: int, size: float) -> Step:
    return [(rank, rank ^ bit, size) for rank in range(q)]


def halving(q: int, m: float) -> Iterator[Step]:
    for bit in reversed(bits(q)):
        yield exchanges(q, bit, m * bit / q)


def doubling(p: int, m: float) -> Iterator[Step]:
    yield from fold(p, m)
    for bit in bits(power(p)):
        yield exchanges(power(p), bit, m)
    yield from unfold(p, m)


def rabenseifner(p: int, m: float) -> Iterator[Step]:
    q = power(p)
    yield from fold(p, m)
    yield from halving(q, m)
    for bit in bits(q):
        yield exchanges(q, bit, m * bit / q)
    yield from unfold(p, m)


def ring(p: int, block: float) -> Iterator[Step]:
    for _ in range(p - 1):
        yield [(rank, (rank + 1) % p, block) for rank in range(p)]


def ring_allreduce(p: int, m: float) -> Iterator[Step]:
    yield from ring(p, m / p)
    yield from ring(p, m / p)


def up(p: int, m: float) -> Iterator[Step]:
    for bit in bits(p):
        yield [(rank, rank - bit, m) for rank in range(bit, p, 2 * bit)]


def down(p: int, m: float) -> Iterator[Step]:
    for bit in reversed(bits(p)):
        yield [(rank, rank + bit, m) for rank in range(0, p - bit, 2 * bit)]


def dealt(p: int, block: float) -> Iterator[Step]:
    for bit in reversed(bits(p)):
        yield [(rank, rank + bit, min(bit, p - rank - bit) * block) for rank in range(0, p - bit, 2 * bit)]


def collected(p: int, block: float) -> Iterator[Step]:
    for bit in bits(p):
        yield [(rank, rank - bit, min(bit, p - rank) * block) for rank in range(bit, p, 2 * bit)]


def inwards(p: int, size: float) -> Iterator[Step]:
    for rank in range(1, p):
        yield [(rank, 0, size)]


def outwards(p: int, size: float) -> Iterator[Step]:
    for rank in range(1, p):
        yield [(0, rank, size)]


def bruck_gather(p: int, block: float) -> Iterator[Step]:
    for bit in bits(p):
        yield [(rank, (rank - bit) % p, min(bit, p - bit) * block) for rank in range(p)]


def bruck_alltoall(p: int, m: float) -> Iterator[Step]:
    for bit in bits(p):
        blocks = sum(1 for block in range(p) if block & bit)
        yield [(rank, (rank + bit) % p, blocks * m / p) for rank in range(p)]


def pairwise(p: int, m: float) -> Iterator[Step]:
    for distance in range(1, p):
        yield [(rank, (rank + distance) % p, m / p) for rank in range(p)]


def dissemination(p: int, m: float) -> Iterator[Step]:
    for bit in bits(p):
        yield [(rank, (rank + bit) % p, 0.0) for rank in range(p)]


def both(*parts: Iterator[Step]) -> Iterator[Step]:
    for one in parts:
        yield from one


def halved_reduce(p: int, m: float) -> Iterator[Step]:
    q = power(p)
    return both(fold(p, m), halving(q, m), collected(q, m / q))


BCAST: dict[str, Schedule] = {
    "binomial tree": down,
    "van de Geijn, ring": lambda p, m: both(dealt(p, m / p), ring(p, m / p)),
    "van de Geijn, doubling": lambda p, m: both(dealt(p, m / p), bruck_gather(p, m / p)),
    "linear": outwards,
}
SCHEDULES: dict[str, dict[str, Schedule]] = {
    "allreduce": {
        "recursive doubling": doubling,
        "ring": ring_allreduce,
        "Rabenseifner": rabenseifner,
        "tree, reduce and bcast": lambda p, m: both(up(p, m), down(p, m)),
        "linear": lambda p, m: both(inwards(p, m), outwards(p, m)),
    },
    "bcast": BCAST,
    "ps_bcast": BCAST,
    "reduce": {
        "binomial tree": lambda p, m: up(p, m),
        "Rabenseifner": halved_reduce,
        "ring and gather": lambda p, m: both(ring(p, m / p), collected(p, m / p)),
        "linear": lambda p, m: inwards(p, m),
    },
    "allgather": {
        "doubling or Bruck": lambda p, m: bruck_gather(p, m / p),
        "ring": lambda p, m: ring(p, m / p),
        "tree, gather and bcast": lambda p, m: both(collected(p, m / p), down(p, m)),
    },
    "gather": {
        "binomial tree": lambda p, m: collected(p, m / p),
        "linear": lambda p, m: inwards(p, m / p),
    },
    "scatter": {"binomial tree": lambda p, m: dealt(p, m / p), "linear": lambda p, m: outwards(p, m / p)},
    "reduce_scatter": {
        "recursive halving": lambda p, m: both(fold(p, m), halving(power(p), m), unfold(p, m / p)),
        "ring or pairwise": lambda p, m: ring(p, m / p),
        "tree, reduce and scatter": lambda p, m: both(up(p, m), dealt(p, m / p)),
    },
    "alltoall": {"pairwise": pairwise, "Bruck": bruck_alltoall},
    "barrier": {
        "dissemination": dissemination,
        "recursive doubling": lambda p, m: doubling(p, 0.0),
        "tree, up and down": lambda p, m: both(up(p, 0.0), down(p, 0.0)),
        "linear": lambda p, m: both(inwards(p, 0.0), outwards(p, 0.0)),
    },
    "sendrecv": {"exchange with neighbours": lambda p, m: iter([[(r, (r + 1) % p, m) for r in range(p)]])},
    "ps_gather": {
        "linear": lambda p, m: inwards(p, m),
        "binomial tree": collected,
    },
}  # fmt: skip
#: Who must have heard of everybody at the end; of the root alone, in the others.
EVERYBODY = ("allreduce", "allgather", "barrier", "alltoall")
ROOT = ("reduce", "gather", "ps_gather")
ALL = [(name, shape) for name, shapes in SHAPES.items() for shape in shapes if shape.name != SHARED.name]


def named(one: object) -> str:
    return one.name if isinstance(one, Algorithm) else str(one)


def test_every_collective_has_shapes_and_every_shape_a_schedule() -> None:
    assert set(SHAPES) == set(collectives.names())
    assert {name: set(found) for name, found in SCHEDULES.items()} == {
        name: {shape.name for shape in shapes} - {SHARED.name} for name, shapes in SHAPES.items()
    }


@pytest.mark.parametrize(("name", "shape"), ALL, ids=named)
def test_terms_are_those_of_the_schedule(name: str, shape: Algorithm) -> None:
    """With one of the two parameters at a time, and both together: the same path is the longest for each."""
    m = 5040.0
    for p in range(2, 18):
        messages, travel = shape.terms(p, m)
        for alpha, beta in ((1.0, 0.0), (0.0, 1.0), (3.0, 0.01)):
            time, _ = play(p, SCHEDULES[name][shape.name](p, m), alpha, beta)
            assert time == pytest.approx(messages * alpha + travel * beta), (p, alpha, beta)


def test_ranks_that_share_a_memory_take_turns_to_pass_their_buffers() -> None:
    for name, shapes in SHAPES.items():
        for shape in shapes:
            if shape.name == SHARED.name:
                assert [shape.terms(p, 8.0)[1] for p in (2, 4, 7)] == [16, 32, 56]
                assert [shape.messages(p) for p in (2, 4, 7)] == ([1, 1, 1] if name == "sendrecv" else [1, 2, 3])


@pytest.mark.parametrize(("name", "shape"), ALL, ids=named)
def test_schedules_do_what_the_collective_means(name: str, shape: Algorithm) -> None:
    for p in range(2, 18):
        _, known = play(p, SCHEDULES[name][shape.name](p, 1.0), 1.0, 1.0)
        if name in EVERYBODY:
            assert all(one == set(range(p)) for one in known), p
        elif name in ROOT:
            assert known[0] == set(range(p)), p
        elif name != "reduce_scatter":
            assert all(0 in one for one in known) or name == "sendrecv", p


@given(p=st.integers(2, 4096), m=st.integers(1, 2**40))
def test_terms_are_bounded_and_linear_in_the_size(p: int, m: int) -> None:
    """At least ceil(log2 p) messages bring everybody's word to one; nothing moves more than linear algorithms do."""
    for name, shape in ALL:
        messages, travel = shape.terms(p, m)
        assert messages >= (1 if name == "sendrecv" else rounds(power(p)))
        assert 0 <= travel <= 2 * (p - 1) * m * (1 + 1e-9)
        assert shape.terms(p, 2 * m) == pytest.approx((messages, 2 * travel))


def test_limits() -> None:
    (ring,) = (shape for shape in SHAPES["allreduce"] if shape.name == "ring")
    (halving,) = (shape for shape in SHAPES["allreduce"] if shape.name == "Rabenseifner")
    assert ring.travel(10**6) == pytest.approx(2.0, rel=1e-5)
    assert [halving.terms(p, 1.0) for p in (2, 8)] == [(2, 1.0), (6, 1.75)]
    assert (rounds(2), rounds(3), rounds(1024), rounds(1025)) == (1, 2, 10, 11)
    assert all(power(p) == 2 ** math.floor(math.log2(p)) for p in range(1, 1000))
    for shapes in SHAPES.values():  # of two ranks there is one way to do it, but for who sends twice
        assert all(shape.travel(2) in (0.0, 0.5, 1.0, 1.5, 2.0) for shape in shapes)
