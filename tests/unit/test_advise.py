"""Advice: the option for each range of sizes, what it may lose, what matters, what comes back, where it flips."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from tests.unit.advised_runs import US, advice_on, ladder, two_libraries
from tests.unit.conftest import Collbench
from tests.unit.made_runs import Entry, experiment, made_case, spread, write_run

from collbench.analysis.advise import Advice
from collbench.analysis.tradeoffs import crossover, factor_effects, recoveries
from collbench.report.advice import complete
from collbench.schema.case import Case
from collbench.schema.store import SIDES


def chosen(advice: Advice) -> list[tuple[str, int, float]]:
    """Of each range the option, the last size, and what it may lose."""
    return [(advice.question.name(one.option), one.sizes[-1].size, one.bound) for one in advice.ranges]


def fastest(advice: Advice) -> str:
    """Of the only size the one over which the ratios are."""
    (size,) = advice.sizes
    (name,) = (advice.question.name(option) for option, one in size.options.items() if one.ratio == 1.0)
    return name


def test_the_quickest_option_is_taken_and_all_others_are_out(tmp_path: Path) -> None:
    (advice,) = advice_on(two_libraries(tmp_path / "run", {8: (10, 20), 1024: (20, 40)}))
    assert chosen(advice) == [("openmpi", 1024, 1.0)]
    (only,) = advice.ranges
    assert only.rivals == []
    other = advice.sizes[0].options[next(one for one in advice.question.options if one != only.option)]
    assert other.out and other.ratio == pytest.approx(2.0, rel=0.01) and other.bound == pytest.approx(2.0, rel=0.02)


def test_of_two_that_may_be_taken_each_has_a_bound_and_the_lower_one_is_taken(tmp_path: Path) -> None:
    """Within the margin the second may be taken, however sure it is that it is slower."""
    noise = (1.0, 1.02, 0.99, 1.01, 1.03, 0.98, 1.0, 1.02, 0.99, 1.01)
    cells = {made_case(image="a"): [10 * US] * 10, made_case(image="b"): [10.05 * US * one for one in noise]}
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    (size,) = advice.sizes
    (take, first), (_, second) = size.options.items()
    assert advice.question.name(take) == "a" and not first.out
    assert not second.out
    assert 1.0 <= first.bound < 1.01 < second.bound < 1.04
    assert [advice.question.name(one) for one in advice.ranges[0].rivals] == ["b"]


def test_the_fastest_is_the_one_over_which_the_least_ratio_is_the_largest(tmp_path: Path) -> None:
    """In blocks that differ a hundredfold, and though the medians of launches say otherwise."""
    blocks = [1.0, 100.0, 3.0, 30.0, 10.0, 1.5, 60.0, 5.0]
    cells = {made_case(image="a"): [10 * US * block for block in blocks],
             made_case(image="b"): [9 * US * block for block in [*blocks[1:6], 70.0, 65.0, 80.0]],
             made_case(image="c"): [9.5 * US * block for block in blocks]}  # fmt: skip
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    assert fastest(advice) == "c"


def test_too_few_launches_bound_nothing(tmp_path: Path) -> None:
    (advice,) = advice_on(two_libraries(tmp_path / "run", {8: (10, 20)}, launches=4))
    assert chosen(advice) == [("openmpi", 8, math.inf)]
    assert not advice.sizes[0].known
    assert [(one.at_most, one.out) for one in advice.sizes[0].options.values()] == [("few launches", False)] * 2


def test_a_choice_that_flips_makes_two_ranges_and_a_crossing_between_them(tmp_path: Path) -> None:
    # openmpi 2 us + 2 ns/B, mpich 10 us + 1 ns/B: equal at 8000 B
    sizes = {size: (2 + size * 2e-3, 10 + size * 1e-3) for size in (1 << power for power in range(3, 21))}
    (advice,) = advice_on(two_libraries(tmp_path / "run", sizes))
    assert [found[:2] for found in chosen(advice)] == [("openmpi", 8192), ("mpich", 1 << 20)]
    below, above = (one.option for one in advice.ranges)
    found = crossover(advice.question, below, above, True)
    assert found is not None
    assert found.size == pytest.approx(8000, rel=0.03)
    assert found.interval == (4096.0, 8192.0)  # no size between them was measured, however sure the crossing is
    assert crossover(advice.question, above, below, True) is None  # the other way round it never flips
    assert complete([advice], True)[0].crossovers == (found,)


@pytest.mark.parametrize(
    ("times", "interval"),
    [
        ([(10, 30), (10, 11), (30, 10)], (1000, 1 << 20)),
        ([(10, 30), (10, 10), (30, 10)], (7, 1000)),  # equal at a measured size
        ([(10, 11), (10, 9), (10, 8)], (7, 1000)),
    ],
)
def test_the_interval_of_a_flip_ends_at_measured_sizes(
    tmp_path: Path, times: list[tuple[float, float]], interval: tuple[float, float]
) -> None:
    (advice,) = advice_on(two_libraries(tmp_path / "run", dict(zip((7, 1000, 1 << 20), times, strict=True))))
    below, above = sorted(advice.question.options, key=lambda option: option["library"], reverse=True)
    found = crossover(advice.question, below, above, True)
    assert found is not None and found.interval == interval


def test_a_flip_that_noise_moves_beyond_the_sizes_measured_has_an_open_end(tmp_path: Path) -> None:
    cells = {made_case(image="openmpi", size=size): [10 * US] * 10 for size in (8, 64)}
    cells |= {made_case(image="mpich", size=8): [20 * US] * 10,
              made_case(image="mpich", size=64): [8 * US] * 7 + [12 * US] * 3}  # fmt: skip
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    below, above = sorted(advice.question.options, key=lambda option: option["library"], reverse=True)
    found = crossover(advice.question, below, above, True)
    assert found is not None and found.interval == (8.0, math.inf)


def test_a_flip_with_too_few_launches_has_no_interval(tmp_path: Path) -> None:
    (advice,) = advice_on(two_libraries(tmp_path / "run", {8: (10, 30), 64: (30, 10)}, launches=5))
    below, above = sorted(advice.question.options, key=lambda option: option["library"], reverse=True)
    found = crossover(advice.question, below, above, True)
    assert found is not None and found.interval is None


def test_one_range_covers_sizes_at_which_noise_picks_another_winner(tmp_path: Path) -> None:
    sizes = {8: (10.0, 10.02), 64: (10.02, 10.0), 512: (10.0, 10.02)}
    (advice,) = advice_on(two_libraries(tmp_path / "run", sizes))
    assert len(advice.ranges) == 1


def test_the_best_of_a_size_is_the_best_within_blocks(tmp_path: Path) -> None:
    drift = [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0]
    slower = [10e-6 * d for d in drift]
    quicker = [9e-6 * d for d in drift]
    quicker[:3] = [1.0, 1.0, 1.0]  # three blocks went wrong: the plain median would still be higher
    run = write_run(tmp_path / "run", {made_case(image="a"): slower, made_case(image="b"): quicker})
    (advice,) = advice_on(run)
    assert fastest(advice) == "b"


def test_a_step_gives_back_its_part_of_what_isolation_costs(tmp_path: Path) -> None:
    (advice,) = advice_on(ladder(tmp_path / "run"))
    back = {one.step["isolation"]: one for one in recoveries(advice.question, 1024, True)}
    assert back["ipc"].cost == pytest.approx(3.0, rel=0.01)
    assert back["ipc"].share == pytest.approx(0.8, abs=0.01)
    assert back["limits"].share == pytest.approx(0.0, abs=0.01)
    interval = back["ipc"].share_interval
    assert interval is not None and interval[0] <= 0.8 <= interval[1]


@pytest.mark.parametrize(
    ("free", "isolated", "found"),
    [("multi", "pairs", True), ("pairs", "single", True), ("packed:4", "pairs", False)],
)
def test_what_isolation_costs_is_told_over_a_policy_that_is_surely_less_isolated(
    tmp_path: Path, free: str, isolated: str, found: bool
) -> None:
    """Of a policy that is not known, it is known that one container for all is less, and one for each rank more."""
    places = {(free, "ipc"): 100, (isolated, "strict"): 300, (isolated, "ipc"): 140}
    cells = {made_case(*place, image="mpich"): spread(time * US) for place, time in places.items()}
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    back = recoveries(advice.question, 1024, True)
    assert [(one.free["policy"], one.isolated["policy"]) for one in back] == ([(free, isolated)] if found else [])


def test_near_memory_is_not_what_isolation_with_far_memory_costs(tmp_path: Path) -> None:
    cells = {made_case("multi", "ipc", image="mpich"): spread(100 * US)}
    cells |= {made_case("single", step, image="mpich", affinity="far"): spread(300 * US) for step in ("strict", "ipc")}
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    assert recoveries(advice.question, 1024, True) == []


def test_affinity_is_named_where_it_varies(tmp_path: Path) -> None:
    times = {("host", None, "near"): 100, ("single", "strict", "near"): 200, ("single", "strict", "far"): 300}
    cells = {made_case(policy, step, image="a", affinity=memory): spread(time * US)
             for (policy, step, memory), time in times.items()}  # fmt: skip
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    assert chosen(advice) == [("host, affinity near", 1024, 1.0)]
    found = factor_effects(advice.question, advice.sizes[0])["affinity"]
    assert found[:2] == pytest.approx((1.5, 1.5), rel=0.01) and found.slowest == "far"


def test_a_factor_matters_by_the_ratio_of_its_values_in_otherwise_equal_options(tmp_path: Path) -> None:
    """Of two libraries one container for each costs 2 and 6 times the host, and the step 1 and 1.5 times."""
    times = {("a", "host", None): 10, ("a", "single", "ipc"): 20, ("a", "single", "strict"): 20,
             ("b", "host", None): 10, ("b", "single", "ipc"): 40, ("b", "single", "strict"): 60}  # fmt: skip
    cells = {made_case(policy, step, image=name): [time * US] * 8 for (name, policy, step), time in times.items()}
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    found = factor_effects(advice.question, advice.sizes[0])
    assert {factor: one.slowest for factor, one in found.items()} == {
        "policy": "single", "library": "b", "isolation": "strict"
    }  # fmt: skip
    assert found["policy"][:2] == pytest.approx((2.0, 6.0)) and found["library"][:2] == pytest.approx((2.0, 3.0))
    assert found["isolation"][:2] == pytest.approx((1.0, 1.5))


def test_sides_of_a_plan_are_advised_on_apart_and_named(here: Collbench, tmp_path: Path) -> None:
    case = made_case(image="openmpi")
    cells: dict[Case, list[Entry]] = {
        one.having(side=side): [*spread(time)] for side in SIDES
        for one, time in ((case, 1e-6), (case.having(policy="single", isolation="strict"), 2e-6))
    }  # fmt: skip
    run = write_run(tmp_path / "run", cells, experiment=experiment(("openmpi",)))
    found = json.loads(here("advise", run, "--style", "json").out)["advice"]
    assert [one["operation"].rpartition(", ")[2] for one in found] == ["side base", "side other"]
