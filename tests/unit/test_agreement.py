"""What ranks find together: extremes and sums, the first that has something to say, what many have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.made_measurements import in_world
from tests.unit.made_pairs import Pair

from collbench.backends.fake import FakeWorld
from collbench.bindings.spec import World, first_rank, first_value, gathered_once
from collbench.run.worlds_of_programs import AloneWorld

#: What int64 holds besides its smallest number, whose opposite it does not hold.
WHOLE = st.integers(-(2**63) + 1, 2**63 - 1)


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(WHOLE, min_size=n, max_size=n), min_size=1, max_size=4)))
def test_extremes_are_those_of_each_number_over_the_ranks(by_rank: list[list[int]]) -> None:
    def body(world: World) -> tuple[list[int], list[int]]:
        lowest, highest = world.minmax(by_rank[world.rank])
        assert lowest.dtype == highest.dtype == np.int64
        return lowest.tolist(), highest.tolist()

    columns = list(zip(*by_rank, strict=True))
    assert in_world(len(by_rank), body) == [([min(c) for c in columns], [max(c) for c in columns])] * len(by_rank)


def test_totals_are_sums_over_the_ranks_and_leave_what_was_given() -> None:
    given = np.array([1, -2, 10**15])

    found = in_world(3, lambda world: world.total(given * (world.rank + 1)))
    assert [total.tolist() for total in found] == [[6, -12, 6 * 10**15]] * 3
    alone = AloneWorld()
    own = alone.total(given)
    own += 1
    assert given.tolist() == [1, -2, 10**15]
    assert [found.tolist() for found in alone.minmax([3, -4])] == [[3, -4], [3, -4]]
    assert alone.bcast_from("what", 0) == "what"


def test_any_rank_may_tell() -> None:
    assert in_world(3, lambda world: world.bcast_from(f"of {world.rank}", 2)) == ["of 2"] * 3
    assert in_world(3, lambda world: world.bcast(f"of {world.rank}")) == ["of 0"] * 3


@pytest.mark.parametrize(
    ("values", "first"),
    [((None, None, None), None), ((None, "b", "c"), 1), (("a", None, None), 0), ((None, None, 0), 2)],
)
def test_the_first_rank_with_a_value_tells_it(values: tuple[Any, ...], first: int | None) -> None:
    assert in_world(3, lambda world: first_rank(world, values[world.rank] is not None)) == [first] * 3
    value = None if first is None else values[first]
    assert in_world(3, lambda world: first_value(world, values[world.rank])) == [value] * 3


def test_nobody_tells_where_nobody_has_anything_to_say() -> None:
    pair: Any = Pair(lambda mine: [2])
    pair.bcast_from = None
    assert first_value(pair, None) is None


def test_what_ranks_have_in_common_is_sent_once() -> None:
    sent: list[Any] = []

    class Watched(FakeWorld):
        def gather(self, value: Any) -> list[Any] | None:
            sent.append(value)
            return super().gather(value)

    values = ("a", "b", "a", "a", "b")

    def body(world: Any) -> list[str] | None:
        world.__class__ = Watched
        return gathered_once(world, f"text of {values[world.rank]}")

    found, *others = in_world(5, body)
    assert found == [f"text of {value}" for value in values]
    assert found[0] is found[2] and found[1] is found[4], "equal ones are one object"
    assert others == [None] * 4
    assert sorted(map(str, sent[5:])) == ["None"] * 3 + ["text of a", "text of b"]
    assert all(len(digest) == 8 for digest in sent[:5])
