"""Advice: the option for each range of sizes, how sure it is, what the rest costs, what comes back, where it flips."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from tests.unit.advised_runs import US, advice_on, ladder, two_libraries
from tests.unit.conftest import Collbench
from tests.unit.made_runs import Entry, experiment, made_case, spread, write_run

from collbench.analysis.advise import crossover
from collbench.analysis.estimate import Estimate
from collbench.analysis.recovery import recoveries
from collbench.report.advice.answer import answer, headline
from collbench.report.advice.sentences import Advised, complete, sentences
from collbench.report.advice.tables import costs
from collbench.schema.case import Case
from collbench.schema.gate_plan import SIDES


def test_the_quickest_option_is_taken_and_the_next_best_has_its_price(tmp_path: Path) -> None:
    (advice,) = advice_on(two_libraries(tmp_path / "run", {8: (10, 20), 1024: (20, 40)}))
    (only,) = advice.ranges
    assert (advice.question.name(only.option), only.sure, only.rivals) == ("openmpi", "sure", set())
    (line,) = sentences(complete([advice], True)[0])
    assert line == "8 to 1K: take openmpi. Next best: mpich, 2.00x (2.00 .. 2.00) the time at 1K."


def test_the_best_is_chosen_by_the_ratios_that_are_printed(tmp_path: Path) -> None:
    """A has the lowest typical time within blocks, B the lower one in most blocks: by the ratio A takes 1.02x."""
    third = [30.0, 30.0, 30.0, 3.0, 3.0, 3.0, 3.0]
    quicker = [9.8 * US * (1.0 if block < 4 else 1.5) for block in range(7)]
    cells = {made_case(image="a"): [10 * US] * 7, made_case(image="b"): quicker,
             made_case(image="c"): [time * US for time in third]}  # fmt: skip
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    (size,) = advice.sizes
    assert all((size.cost(option) or 1.0) >= 1.0 for option in size.others)


def test_in_a_cycle_of_ratios_the_best_has_the_largest_of_the_least_ratios(tmp_path: Path) -> None:
    """B takes 0.9x the time of A in most blocks, C 0.95x that of B, and A 0.8x that of C."""
    orders = {"a": (10.0, 9.0, 8.0), "b": (9.0, 8.0, 10.0), "c": (8.5, 11.0, 9.0)}
    cells = {made_case(image=name): [times[block % 3] * US for block in range(9)] for name, times in orders.items()}
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    (size,) = advice.sizes
    values = {name: np.array([orders[name][block % 3] for block in range(9)]) for name in orders}
    least = {best: min(float(np.median(values[other] / values[best])) for other in orders if other != best)
             for best in orders}  # fmt: skip
    assert all(value < 1 for value in least.values()), "a cycle"
    assert advice.question.name(size.best) == max(least, key=lambda name: least[name])


def test_what_is_the_same_within_the_margin_is_tied(tmp_path: Path) -> None:
    (advice,) = advice_on(two_libraries(tmp_path / "run", {8: (10, 10.05)}))
    (only,) = advice.ranges
    assert only.sure == "tied" and len(only.rivals) == 1
    assert "as fast: mpich" in sentences(complete([advice], True)[0])[0]


def test_too_few_launches_decide_nothing_and_say_how_many_are_lacking(tmp_path: Path) -> None:
    (advice,) = advice_on(two_libraries(tmp_path / "run", {8: (10, 20)}, launches=4))
    (only,) = advice.ranges
    assert only.sure == "undecided"
    assert answer(complete([advice], True)[0]) == [
        "Undecided at 8: openmpi was the fastest measured; mpich may be as fast.",
        "At least 2 more launches needed.",
    ]  # fmt: skip


def test_a_choice_that_flips_makes_two_ranges_and_a_crossing_between_them(tmp_path: Path) -> None:
    # openmpi 2 us + 2 ns/B, mpich 10 us + 1 ns/B: equal at 8000 B
    sizes = {size: (2 + size * 2e-3, 10 + size * 1e-3) for size in (1 << power for power in range(3, 21))}
    (advice,) = advice_on(two_libraries(tmp_path / "run", sizes))
    assert [(advice.question.name(one.option), one.sizes[-1].size) for one in advice.ranges] == [
        ("openmpi", 8192), ("mpich", 1 << 20)]  # at 8192 the two are within the margin  # fmt: skip
    below, above = (one.option for one in advice.ranges)
    found = crossover(advice.question, below, above, True)
    assert found is not None
    assert found.size == pytest.approx(8000, rel=0.03)
    assert found.interval == (4096.0, 8192.0)  # no size between them was measured, however sure the crossing is
    assert crossover(advice.question, above, below, True) is None  # the other way round it never flips
    lines = sentences(complete([advice], True)[0])
    assert "Crossover at about 7.8K (interpolated; between 4K and 8K): " in " ".join(lines)


@pytest.mark.parametrize(
    ("times", "interval", "said"),
    [
        ([(10, 30), (10, 11), (30, 10)], (1000, 1 << 20), "between 1000 and 1M"),
        ([(10, 30), (10, 10), (30, 10)], (7, 1000), "between 7 and 1000"),  # equal at a measured size
        ([(10, 11), (10, 9), (10, 8)], (7, 1000), "between 7 and 1000"),
    ],
)
def test_the_interval_of_a_flip_ends_at_measured_sizes(
    tmp_path: Path, times: list[tuple[float, float]], interval: tuple[float, float], said: str
) -> None:
    (advice,) = advice_on(two_libraries(tmp_path / "run", dict(zip((7, 1000, 1 << 20), times, strict=True))))
    below, above = sorted(advice.question.options, key=lambda option: option["library"], reverse=True)
    found = crossover(advice.question, below, above, True)
    assert found is not None and found.interval == interval
    text = sentences(Advised(advice, (found,), ()))
    assert any(line.startswith("Crossover at about ") and f"(interpolated; {said})" in line for line in text), text


def test_a_flip_that_noise_moves_beyond_the_sizes_measured_has_an_open_end(tmp_path: Path) -> None:
    cells = {made_case(image="openmpi", size=size): [10 * US] * 10 for size in (8, 64)}
    cells |= {made_case(image="mpich", size=8): [20 * US] * 10,
              made_case(image="mpich", size=64): [8 * US] * 7 + [12 * US] * 3}  # fmt: skip
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    below, above = sorted(advice.question.options, key=lambda option: option["library"], reverse=True)
    found = crossover(advice.question, below, above, True)
    assert found is not None and found.interval == (8.0, math.inf)
    assert any(
        line.startswith("Crossover at about ") and "(interpolated; above 8)" in line
        for line in sentences(Advised(advice, (found,), ()))
    )


def test_a_flip_with_too_few_launches_has_no_interval(tmp_path: Path) -> None:
    (advice,) = advice_on(two_libraries(tmp_path / "run", {8: (10, 30), 64: (30, 10)}, launches=5))
    below, above = sorted(advice.question.options, key=lambda option: option["library"], reverse=True)
    found = crossover(advice.question, below, above, True)
    assert found is not None and found.interval is None
    assert any("too few launches for an interval" in line for line in sentences(Advised(advice, (found,), ())))


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
    assert advice.question.name(advice.sizes[0].best) == "b"


def test_a_step_gives_back_its_part_of_what_isolation_costs(tmp_path: Path) -> None:
    (advice,) = advice_on(ladder(tmp_path / "run"))
    back = {one.step["isolation"]: one for one in recoveries(advice.question, 1024, True)}
    assert back["ipc"].cost == pytest.approx(3.0, rel=0.01)
    assert back["ipc"].share == pytest.approx(0.8, abs=0.01)
    assert back["limits"].share == pytest.approx(0.0, abs=0.01)
    interval = back["ipc"].share_interval
    assert interval is not None and interval[0] <= 0.8 <= interval[1]
    text = " ".join(sentences(complete([advice], True)[0]))
    assert "mpich: single strict takes 3.00x (3.00 .. 3.00) the time of host at 1K." in text
    assert "Recovered by: limits 0 % (0 .. 0), ipc 80 % (80 .. 80)" in text


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
    text = " ".join(sentences(complete([advice], True)[0]))
    assert "1K: take host, affinity near. Next best: single strict, affinity near, 2.00x" in text
    assert "The most isolated option (a, single strict, affinity near) takes 2.00x" in text
    rows = costs(complete([advice], True)[0]).rows
    assert [row[:2] for row in rows if row[0] == "affinity"] == [("affinity", "near"), ("affinity", "far")]


def test_the_headline_names_the_choice_the_price_of_isolation_and_how_sure_it_is(tmp_path: Path) -> None:
    (advice,) = advice_on(ladder(tmp_path / "run"))
    assert headline(complete([advice], True)[0]) == (
        "allreduce sum float32, 2 ranks: Take host at 1K. Instead single strict: 3.00x (3.00 .. 3.00) the time. "
        "Sure: every other option is slower."
    )


def test_a_price_that_is_not_decided_is_no_number(tmp_path: Path) -> None:
    cells = {made_case(): spread(10 * US), made_case("single", "strict"): [9 * US] * 4 + [40 * US] * 6}
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    found = complete([advice], True)[0]
    first, tells = answer(found)
    assert first == "Undecided at 1K: host was the fastest measured; single strict may be as fast."
    assert tells == "About 1 more launch would tell."
    said = "The most isolated option (Open MPI 5.0.11, single strict) may be as fast as the fastest at 1K: undecided"
    assert any(line.startswith(said) for line in sentences(found))


@pytest.mark.parametrize(
    ("verdict", "said"), [("inconclusive", "open (0.90 .. 1.10)"), ("same", "as fast (0.90 .. 1.10)")]
)
def test_no_undecided_number_stands_below_that_of_the_fastest(
    tmp_path: Path, verdict: Literal["inconclusive", "same"], said: str
) -> None:
    """Ratios can form a cycle, and then one of them is below 1."""
    places = {("openmpi", "host"): 10, ("openmpi", "multi"): 10.1, ("mpich", "host"): 20}
    cells = {made_case(place, image=image): spread(time * US) for (image, place), time in places.items()}
    (advice,) = advice_on(write_run(tmp_path / "run", cells))
    (size,) = advice.sizes
    others = {
        option: replace(one, ratio=Estimate(0.99, (0.9, 1.1), 10), verdict=verdict)
        if option["policy"] == "multi"
        else one
        for option, one in size.others.items()
    }
    table = costs(Advised(replace(advice, sizes=(replace(size, others=others),)), (), ()))
    cost = {row[:2]: row[2] for row in table.rows}
    assert cost["library", "openmpi"] == "fastest" and cost["policy", "host"] == "fastest"
    assert cost["policy", "multi"] == said


def test_sides_of_a_plan_are_advised_on_apart_and_named(here: Collbench, tmp_path: Path) -> None:
    case = made_case(image="openmpi")
    cells: dict[Case, list[Entry]] = {
        one.having(side=side): [*spread(time)] for side in SIDES
        for one, time in ((case, 1e-6), (case.having(policy="single", isolation="strict"), 2e-6))
    }  # fmt: skip
    run = write_run(tmp_path / "run", cells, experiment=experiment(("openmpi",)))
    found = json.loads(here("advise", run, "--style", "json").out)["advice"]
    assert [one["operation"].rpartition(", ")[2] for one in found] == ["side base", "side other"]
