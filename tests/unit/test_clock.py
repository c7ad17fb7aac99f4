"""Medians that are multiples of the clock's step: no interval is narrower than that, and no verdict comes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.unit.advised_runs import advice_on
from tests.unit.made_runs import Entry, host, made_case, made_record, write_run

from collbench.analysis.compare import MARGIN, Comparison, compare
from collbench.analysis.estimate import centre, ratio_in_blocks, ratio_of_sides
from collbench.analysis.factors import find_factor
from collbench.analysis.pairs import within
from collbench.analysis.planning import hidden_by_clock
from collbench.analysis.runs import observe

HOST, MULTI = made_case("host", image="a"), made_case("multi", "strict", image="a")
NS = 1e-9


def stepped(true: float, launches: int, seed: int) -> list[Entry]:
    """Launches around a time in ns, spread by half a per cent, as a clock with steps of 10 ns shows them."""
    times = np.random.default_rng(seed).normal(true, 0.005 * true, launches)
    return [float(time) * NS for time in np.rint(times / 10) * 10]


def compared(path: Path, base: list[Entry], other: list[Entry], step: float | None) -> Comparison:
    run = write_run(path, {HOST: base, MULTI: other}, hosts=(host(clock_step=step),))
    observed = observe(run)
    [found] = compare(within(observed, find_factor("policy"), frozenset()))
    return found


@pytest.mark.parametrize("seed", range(6))
def test_three_per_cent_below_the_step_is_never_the_same(tmp_path: Path, seed: int) -> None:
    """200 ns against 206 ns: all medians are 200 or 210 ns."""
    base, other = stepped(199.0, 25, seed), stepped(205.2, 25, seed + 100)
    comparison = compared(tmp_path / "run", base, other, 10 * NS)
    assert comparison.verdict == "unclear" and comparison.launches_more is None
    assert comparison.ratio is not None and comparison.ratio.interval is not None
    assert hidden_by_clock(comparison.ratio, MARGIN)
    assert comparison.ratio.interval[0] <= 205.2 / 199.0 <= comparison.ratio.interval[1]
    assert comparison.base is not None and comparison.base.interval is not None
    assert comparison.base.interval[1] - comparison.base.interval[0] >= 9.99 * NS


def test_what_an_option_may_lose_is_no_less_than_the_step_leaves_open(tmp_path: Path) -> None:
    """All launches of both sides take 200 ns, by a clock of which each median may be 5 ns off."""
    run = write_run(
        tmp_path / "run", {HOST: [200 * NS] * 10, MULTI: [200 * NS] * 10}, hosts=(host(clock_step=10 * NS),)
    )
    (advice,) = advice_on(run)
    assert [one.at_most for one in advice.sizes[0].options.values()] == pytest.approx([1 / (1 - 5 / 200) ** 2] * 2)


def test_half_as_long_again_is_seen_through_the_steps(tmp_path: Path) -> None:
    comparison = compared(tmp_path / "run", stepped(200.0, 25, 1), stepped(300.0, 25, 2), 10 * NS)
    assert comparison.verdict == "slower"


def test_a_burst_divides_the_step(tmp_path: Path) -> None:
    """A time of 20 operations is 20 times as long, so the clock's step is a twentieth of it."""
    entries = [[made_record(case, n, 200 * NS, burst=20, cadence="streaming") for n in range(10)]
               for case in (HOST, MULTI)]  # fmt: skip
    comparison = compared(tmp_path / "run", list(entries[0]), list(entries[1]), 10 * NS)
    assert comparison.verdict == "same"


def test_times_finer_than_their_differences_are_as_they_were(tmp_path: Path) -> None:
    """Launches that never agree to the nanosecond show no step."""
    times: list[Entry] = [(200 + 0.7 * n) * NS for n in range(10)]
    comparison = compared(tmp_path / "run", times, times, None)
    assert comparison.verdict == "same" and comparison.ratio is not None and comparison.ratio.resolution == 0.0


def test_intervals_are_wider_by_half_a_step_on_each_side() -> None:
    times, others = [200.0] * 10, [300.0] * 10
    assert centre(times, half_step=5.0).interval == (195.0, 205.0)
    for ratio in (ratio_in_blocks, ratio_of_sides):
        low, high = ratio(others, times, half_steps=(5.0, 5.0)).interval or (0.0, 0.0)
        assert low == pytest.approx(1.5 * (1 - 5 / 300) * (1 - 5 / 200))
        assert high == pytest.approx(1.5 / (1 - 5 / 300) / (1 - 5 / 200))
