"""Which held-out errors say how far a prediction may be off."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from collbench.analysis.models.predict import ENOUGH, error
from collbench.analysis.models.validation import HeldOutError

SMALL, LARGE = [2**power for power in range(3, 10)], [2**power for power in range(10, 17)]
ONE: Any = SimpleNamespace(low=SMALL[0], high=SMALL[-1])
OTHER: Any = SimpleNamespace(low=LARGE[0], high=LARGE[-1])


def misses(sizes: list[int], times: float, ranks: int = 2) -> list[HeldOutError]:
    """At these sizes it took so many times as long as predicted."""
    return [HeldOutError(ranks=ranks, size=size, measured=times, predicted=1.0) for size in sizes]


def model(small: list[HeldOutError], large: list[HeldOutError], largest: list[HeldOutError] | None = None) -> Any:
    return SimpleNamespace(
        series=SimpleNamespace(sized=True, ranks=(2, 4)), fit=SimpleNamespace(pieces=(ONE, OTHER)),
        sizes=[*small, *large], largest=largest or [],
    )  # fmt: skip


def test_a_piece_has_the_errors_at_its_own_sizes() -> None:
    """Those beside the break are left out: a model without them cannot place it."""
    made = model(misses(SMALL, 1.1), misses(LARGE, 1.5))
    for piece, ranks, times in ((ONE, 2, 1.1), (OTHER, 4, 1.5)):
        spread, freedom = error(made, piece, ranks)
        assert spread == pytest.approx(math.log(times))
        assert freedom == len(SMALL) - 1 == len(LARGE) - 1


def test_a_piece_with_few_errors_has_those_of_all() -> None:
    few = misses(SMALL[: ENOUGH - 1], 1.1)
    spread, freedom = error(model(few, misses(LARGE[1:], 1.5)), ONE, 2)
    assert freedom == len(few) + len(LARGE) - 1
    logs = [math.log(1.1)] * len(few) + [math.log(1.5)] * (len(LARGE) - 1)
    assert spread == pytest.approx(math.sqrt(sum(log * log for log in logs) / len(logs)))


def test_at_other_rank_counts_it_is_at_least_that_of_the_largest_held_out() -> None:
    made = model(misses(SMALL, 1.1), misses(LARGE, 1.5), misses([8], 2.0, 4))
    assert error(made, ONE, 8)[0] == pytest.approx(math.log(2.0))
    assert error(made, ONE, 4)[0] == pytest.approx(math.log(1.1))
    smaller = model(misses(SMALL, 1.1), misses(LARGE, 1.5), misses([8], 1.01, 4))
    assert error(smaller, ONE, 8)[0] == pytest.approx(math.log(1.1))
