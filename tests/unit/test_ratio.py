"""Ratios of two sides, block by block."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from collbench.analysis.ratio import ratio
from collbench.schema.case import Case
from collbench.schema.record import Record
from collbench.schema.summary import summarise


def side(times: Mapping[int, float]) -> list[Record]:
    """Records of so many ns by launch."""
    case = Case(collective="allreduce", backend="mpi", bytes=8, dtype="float32", op="sum", root=None, ranks=2,
                driver="native", thread_level="single")  # fmt: skip
    return [Record(case=case, launch=n, status="ok", seconds=summarise(np.array([int(t)]))) for n, t in times.items()]


def test_the_median_of_the_blocks_ratios_not_the_ratio_of_the_medians() -> None:
    drifting = {block: 100.0 * 3**block for block in range(7)}
    found = ratio(side({block: 2 * time for block, time in drifting.items()}), side(drifting))
    assert found is not None
    assert (found.value, found.interval, found.blocks) == (2.0, (2.0, 2.0), 7)


def test_seven_blocks_span_their_whole_range_and_five_have_no_interval() -> None:
    found = ratio(side({n: 100 + n for n in range(7)}), side(dict.fromkeys(range(7), 100.0)))
    assert found is not None and found.interval is not None
    assert found.value == pytest.approx(1.03)
    assert found.interval == pytest.approx((1.0, 1.06))
    few = ratio(side(dict.fromkeys(range(5), 100.0)), side(dict.fromkeys(range(5), 100.0)))
    assert few is not None and few.interval is None


def test_only_blocks_that_both_sides_have_count() -> None:
    found = ratio(side({0: 300, 1: 500, 2: 100}), side({0: 100, 2: 100, 5: 1}))
    assert found is not None and (found.blocks, found.value) == (2, 2.0)
    assert ratio(side({0: 1}), side({1: 1})) is None
    assert ratio([], []) is None


def test_the_interval_covers_what_it_says() -> None:
    """2000 experiments of 9 blocks with launch effects of 10 %: as many as the binomial says hold the true ratio."""
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(2000):
        drift = 1e6 * rng.lognormal(0, 0.5, 9)
        mine, theirs = (drift * scale * rng.lognormal(0, 0.1, 9) for scale in (1.2, 1.0))
        found = ratio(side(dict(enumerate(mine))), side(dict(enumerate(theirs))))
        assert found is not None and found.interval is not None
        held += found.interval[0] <= 1.2 <= found.interval[1]
    exact = 1 - 2 * sum(math.comb(9, k) for k in range(2)) / 2**9
    assert held / 2000 == pytest.approx(exact, abs=0.015)
