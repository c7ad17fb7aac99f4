"""The step of a clock: read off the clock itself, and kept with the host."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from collbench.machine import facts
from collbench.timing.clocks import clock_step, lattice


def clock(step: float, seed: int) -> Callable[[], int]:
    """A clock that shows whole nanoseconds of multiples of `step`; a read takes some 70 ns, never equally long."""
    times = itertools.accumulate(np.random.default_rng(seed).gamma(4.0, 12.0, 5000) + 20.0)
    return lambda: int(np.floor(next(times) / step) * step)


@pytest.mark.parametrize("step", [1.0, 2.0, 4.0, 10.0, 10.0167, 41.67, 100.0, 280.0, 1000.0])
def test_the_step_is_found_whatever_it_is(step: float) -> None:
    assert [clock_step(clock(step, seed)) for seed in range(8)] == pytest.approx([step] * 8, rel=0.02)


@pytest.mark.parametrize("step", [4.0, 10.0])
def test_the_step_is_that_of_the_best_fit_not_the_first_good_one(step: float) -> None:
    """Frequencies that are looked at lie 0.0005 per ns apart: 0.2 % at 4 ns, 0.5 % at 10 ns."""
    assert [clock_step(clock(step, seed)) for seed in range(8)] == pytest.approx([step] * 8, rel=0.002)


def test_reads_that_take_about_as_long_as_a_multiple_have_no_longer_step() -> None:
    """Reads of 97 to 105 ns, now and then of twice and three times as long: all near multiples of 100 ns."""
    for seed in range(30):
        draw = np.random.default_rng(seed)
        times = itertools.accumulate(draw.uniform(97.0, 105.0, 5000) * draw.choice([1, 2, 3], 5000, p=[0.6, 0.3, 0.1]))
        shown = (int(time / 10) * 10 for time in times)
        assert clock_step(lambda shown=shown: next(shown)) == pytest.approx(10.0, rel=0.01)  # type: ignore[misc]


def test_reads_that_are_neighbours_count() -> None:
    """Reads so far apart that all others are left out: the step is seen between neighbours alone."""
    times = itertools.accumulate(itertools.cycle((210, 250, 230, 240, 220)))
    assert clock_step(lambda: next(times)) == pytest.approx(10.0, rel=0.01)


def test_a_clock_of_single_nanoseconds_has_no_longer_step() -> None:
    assert {clock_step(clock(1.0, seed)) for seed in range(30)} == {1.0}


@pytest.mark.parametrize("values", [[], [220], [220, 220, 220], [220] * 9 + [430] * 9])
def test_heaps_of_values_are_no_steps(values: list[int]) -> None:
    assert lattice(np.array(values, dtype=np.int64)) == 0.0


def test_a_manifest_tells_the_step_of_the_host_in_seconds() -> None:
    step = facts.host().clock_step
    assert step is not None and 1e-9 <= step < 1e-2
