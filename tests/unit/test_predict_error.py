"""Which held-out errors say how far a prediction may be off."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from collbench.analysis.models import HeldOutError
from collbench.analysis.predictions import NEAREST, error

SMALL, LARGE = [2**power for power in range(3, 10)], [2**power for power in range(10, 17)]
ONE: Any = SimpleNamespace(low=SMALL[0], high=SMALL[-1])
OTHER: Any = SimpleNamespace(low=LARGE[0], high=LARGE[-1])


def misses(sizes: Iterable[int], times: float, ranks: int = 2) -> list[HeldOutError]:
    """At these sizes it took so many times as long as predicted."""
    return [HeldOutError(ranks=ranks, size=size, measured=times, predicted=1.0) for size in sizes]


def model(sizes: list[HeldOutError], by_ranks: Sequence[HeldOutError] = (), ranks: tuple[int, ...] = (2, 4)) -> Any:
    def of_ranks(wanted: Iterable[int]) -> list[HeldOutError]:
        return [miss for miss in by_ranks if miss.ranks in wanted]

    return SimpleNamespace(series=SimpleNamespace(sized=True, ranks=ranks), fit=SimpleNamespace(pieces=(ONE, OTHER)),
                           sizes=sizes, of_ranks=of_ranks)  # fmt: skip


def spread(made: Any, ranks: int, size: int) -> float:
    found = error(made, ranks, size)
    assert found is not None and found[1] == NEAREST
    return math.exp(found[0])


def test_errors_are_those_of_the_nearest_sizes_at_the_same_ranks() -> None:
    """Those beside the break are left out: a model without them cannot place it."""
    made = model([*misses(SMALL[:-1], 1.1), *misses([SMALL[-1], LARGE[0]], 9.0), *misses(LARGE[1:], 1.5),
                  *misses(SMALL + LARGE, 1.3, 4)])  # fmt: skip
    assert [spread(made, 2, size) for size in (8, 100, LARGE[-1])] == pytest.approx([1.1, 1.1, 1.5])
    assert spread(made, 4, LARGE[-1]) == pytest.approx(1.3)


def test_errors_at_other_ranks_are_those_of_ranks_held_out_that_lie_likewise() -> None:
    by_ranks = [
        miss for ranks, times in ((4, 1.2), (8, 1.4), (16, 1.6), (32, 2.0)) for miss in misses(SMALL, times, ranks)
    ]
    made = model(misses(SMALL, 1.1), by_ranks, (4, 8, 16, 32))
    assert [spread(made, ranks, 64) for ranks in (2, 64)] == pytest.approx([1.2, 2.0])
    assert spread(made, 10, 64) == pytest.approx(math.exp(math.hypot(math.log(1.4), math.log(1.6)) / math.sqrt(2)))


def test_errors_at_other_ranks_are_not_less_than_at_sizes_held_out() -> None:
    made = model(misses(SMALL, 1.5), [miss for ranks in (2, 4, 8) for miss in misses(SMALL, 1.01, ranks)], (2, 4, 8))
    assert spread(made, 16, 64) == pytest.approx(1.5)


def test_without_ranks_held_out_errors_at_other_ranks_are_not_known() -> None:
    assert error(model(misses(SMALL, 1.1)), 8, 64) is None
