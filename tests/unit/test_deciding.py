"""Experiments that ended when their comparisons were decided: bets on signs, intervals, verdicts."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tests.unit.conftest import Collbench
from tests.unit.made_program_runs import program_case
from tests.unit.made_runs import experiment, made_case, made_cell, made_manifest, write_run

from collbench.analysis.bounds import (
    ALPHA,
    PARTS,
    STAKES,
    Launches,
    bounds_at_any_time,
    fewest_wins,
    of_controls_at_any_time,
    ratio_at_any_time,
)  # fmt: skip
from collbench.analysis.compare import Comparison, compare
from collbench.analysis.estimate import FEWEST, Estimate, ratio_in_blocks
from collbench.analysis.factors import find_factor
from collbench.analysis.pairs import across, within
from collbench.analysis.planning import LEAST_CHANCE, PairStatus, chance_of_verdict, questions, standing, still_open
from collbench.analysis.results import Way
from collbench.analysis.runs import observe, shortage
from collbench.cli.compare import failures
from collbench.report.cells import tables
from collbench.schema import manifest as manifests
from collbench.schema.case import Case
from collbench.schema.manifest import Until


def test_the_mean_wealth_without_a_difference_is_1() -> None:
    """Over all ways in which seven coins can fall: what Ville's inequality needs, exactly."""
    assert sum(PARTS) == pytest.approx(1.0)
    stakes = np.array([[1.0 + STAKES * coin for coin in fell] for fell in product((-1, 1), repeat=7)])
    wealth = stakes.prod(axis=1) @ PARTS
    assert wealth.mean() == pytest.approx(1.0)
    assert wealth.max() > 40


def test_six_blocks_that_agree_have_an_interval_and_five_have_none() -> None:
    assert FEWEST == 6
    assert ratio_at_any_time([1.03, 1.04, 1.05, 1.06, 1.07, 1.08], [1.0] * 6).interval == pytest.approx((1.03, 1.08))
    assert ratio_at_any_time([1.03] * 5, [1.0] * 5).interval is None
    by_the_clock = ratio_at_any_time([200e-9] * 8, [200e-9] * 8, half_steps=(5e-9, 5e-9))
    assert by_the_clock.interval == pytest.approx(((195 / 200) ** 2, (200 / 195) ** 2)), "widened by its step"


def width(ratio: Estimate | None) -> float:
    assert ratio is not None and ratio.interval is not None
    return math.log(ratio.interval[1] / ratio.interval[0])


def test_the_interval_is_wider_than_one_for_a_fixed_number_of_blocks_and_narrows() -> None:
    times, ones = np.exp(np.random.default_rng(2).normal(0, 0.05, 40)), np.ones(40)
    always = {n: ratio_at_any_time(times[:n].tolist(), ones[:n].tolist()) for n in (8, 10, 20, 40)}
    for n in (10, 20, 40):
        once = ratio_in_blocks(times[:n], ones[:n])
        assert always[n].value == once.value
        assert width(once) < width(always[n]) < 3 * width(once)
    assert width(always[40]) < width(always[8])


def _by_chance(runs: int) -> float:
    """So many errors of 5 % occur in fewer than one of 200 repetitions of these runs."""
    return 0.05 * runs + 2.6 * math.sqrt(0.05 * 0.95 * runs)


def heavy(draw: np.random.Generator, cells: int) -> list[list[float]]:
    """Logarithms of ratios [cells, 24] around 0, of cells that share their blocks."""
    logs: list[list[float]] = (draw.standard_t(2, (cells, 24)) * 0.05 + draw.normal(0, 0.05, 24)).tolist()
    return logs


@pytest.mark.parametrize("sizes", [1, 8])
def test_whoever_looks_at_all_sizes_after_every_block_is_wrong_in_at_most_one_run_of_twenty(sizes: int) -> None:
    """Intervals of a question of so many sizes, each with its part of 5 %, at any of 19 looks."""
    draw, outside, runs = np.random.default_rng(3), 0, 100
    for _ in range(runs):
        times = np.exp(heavy(draw, sizes))
        outside += any(ratio_at_any_time(row[:n], np.ones(n), 1 - ALPHA / sizes).excludes(1.0)
                       for row in times for n in range(6, 25))  # fmt: skip
    assert outside <= _by_chance(runs)


def test_bounds_hold_after_every_block() -> None:
    """The lower ones of 8 cells at once, and the upper one of the first by itself."""
    draw, lower, upper, runs = np.random.default_rng(4), 0, 0, 100
    for _ in range(runs):
        logs = heavy(draw, 8)
        looks = [bounds_at_any_time([dict(enumerate(row[:n])) for row in logs]) for n in range(6, 25)]
        lower += any(one.lower > 0 for found in looks for one in found)
        upper += any(found[0].upper < 0 for found in looks)
    assert lower <= _by_chance(runs) and upper <= _by_chance(runs)
    assert upper >= 1, "they are not wider than they need be"


def test_bounds_are_the_blocks_beyond_which_a_bet_would_have_won() -> None:
    """Five wins of five are a wealth of 20, and so a bound; of two cells a lower bound needs 40, so six of six."""
    five, six = ({block: float(block) for block in range(n)} for n in (5, 6))
    assert [fewest_wins(n, 20) for n in (5, 6)] == [5, 6]
    assert [fewest_wins(n, 40) for n in (5, 6, 9, 20)] == [6, 6, 9, 17]
    assert bounds_at_any_time([five]) == [(2.0, 0.0, 4.0)]
    assert bounds_at_any_time([five, six]) == [(2.0, -math.inf, 4.0), (2.5, 0.0, 5.0)]
    assert bounds_at_any_time([{0: 1.0}]) == [(1.0, -math.inf, math.inf)]
    # exchanged sides have mirrored bounds
    logs = dict(enumerate(heavy(np.random.default_rng(5), 1)[0]))
    ((value, lower, upper),) = bounds_at_any_time([logs])
    assert bounds_at_any_time([{block: -log for block, log in logs.items()}]) == [(-value, -upper, -lower)]


def test_of_every_option_as_the_control_a_bound_is_that_of_its_pair_with_a_part_of_five_per_cent() -> None:
    draw = np.random.default_rng(6)
    times = {name: np.exp(draw.normal(0, 0.05, 12)).tolist() for name in "abc"}
    pairs = {(other, control): Launches(times[control], times[other], range(12), range(12))
             for other, control in (("a", "b"), ("a", "c"), ("b", "c"))}  # fmt: skip
    found = of_controls_at_any_time(pairs)
    assert found.keys() == {(other, control) for other in "abc" for control in "abc" if other != control}
    for (other, control), low in found.items():
        logs = dict(enumerate(np.log(np.array(times[other]) / times[control]).tolist()))
        assert low == pytest.approx(bounds_at_any_time([logs, logs])[0].lower)


def test_comparisons_that_cannot_be_decided_any_more_are_given_up() -> None:
    draw = np.random.default_rng(7)
    quiet, loud = draw.normal(0, 0.002, 8).tolist(), draw.normal(0, 0.3, 8).tolist()
    assert chance_of_verdict(quiet, 4, 0.02) > 0.9
    assert chance_of_verdict(loud, 12, 0.02) < LEAST_CHANCE
    assert chance_of_verdict((draw.normal(0.1, 0.02, 7)).tolist(), 13, 0.02) > 0.8
    assert chance_of_verdict(quiet, 0, 0.02) == pytest.approx(1.0)
    # Every log ratio is positive, and one in three lies beyond the margin: it may be `slower`, hardly `same`.
    logs = [0.015, 0.016, 0.017, 0.018, 0.015, 0.016, 0.017, 0.025, 0.026, 0.027]
    assert chance_of_verdict(logs, 10, 0.02) > 0.9
    assert chance_of_verdict([log * (-1) ** number for number, log in enumerate(logs)], 10, 0.02) < 0.4


def test_among_more_sizes_a_verdict_is_less_likely() -> None:
    logs = [0.1, 0.11, 0.09, 0.1, -0.1, 0.12, 0.1, 0.11]
    chances = [chance_of_verdict(logs, 12, 0.02, sizes) for sizes in (1, 12, 80)]
    assert chance_of_verdict(logs, 12, 0.02) == chances[0] > chances[1] > chances[2]


# Runs whose launches ended when they were decided are judged as such; others are judged as before ---------------------

SIZES = tuple(8 << shift for shift in range(12))

#: So many blocks that agree give each of 12 sizes an interval.
AGREED = 10

HOST, SINGLE = made_case(image="openmpi"), made_case("single", "strict", image="openmpi")


def made(added: float, launches: int, spread: float = 0.003) -> dict[Case, list[float | None]]:
    """A run of 12 sizes; at the first the container takes more; only that is launched after `AGREED` blocks."""
    draw = np.random.default_rng(1)
    medians: dict[Case, list[float | None]] = {}
    for size in SIZES:
        for case in (HOST, SINGLE):
            more = 1 + added if case is SINGLE and size == SIZES[0] else 1.0
            times: list[float | None] = (1e-5 * more * np.exp(draw.normal(0, spread, launches))).tolist()
            medians[case.having(size=size)] = times if size == SIZES[0] or case is HOST else times[:AGREED]
    return medians


def compared(path: Path, times: dict[Case, list[float | None]], until: Until) -> list[Comparison]:
    run = write_run(path, times, experiment=experiment(("openmpi",), launches=20, until=until))
    pairs = within(observe(run), find_factor("policy"), frozenset())
    return sorted(compare(pairs), key=lambda one: one.pair.base.case["size"])


def test_one_size_of_twelve_that_differs_is_found_after_ten_blocks(tmp_path: Path) -> None:
    assert fewest_wins(AGREED, 2 * len(SIZES) / ALPHA) == AGREED == fewest_wins(AGREED - 1, 2 * len(SIZES) / ALPHA)
    first, *others = compared(tmp_path / "run", made(0.1, AGREED), "decided")
    assert (first.verdict, first.launches) == ("slower", (AGREED, AGREED))
    assert first.sizes == 12 and first.ratio is not None and first.ratio.excludes(1.0)
    assert {one.verdict for one in others} == {"same"}
    assert {one.launches for one in others} == {(AGREED, AGREED)}


def test_sizes_that_have_too_few_blocks_for_an_interval_count_too(tmp_path: Path) -> None:
    """And what is not decided promises no number of launches."""
    cells = compared(tmp_path / "few", made(0.1, AGREED - 1), "decided")
    assert {(one.verdict, one.sizes) for one in cells} == {("unclear", 12)}
    assert all(one.ratio is not None and one.ratio.interval is None for one in cells)
    first = compared(tmp_path / "noisy", made(0.05, 11, spread=0.05), "decided")[0]
    assert (first.verdict, first.launches, first.launches_more) == ("unclear", (11, 11), None)


def test_intervals_tables_and_checks_are_those_of_a_run_that_ended_so(tmp_path: Path, here: Collbench) -> None:
    """Its intervals are wider than those of a fixed number; fewer launches than the most are no fault."""
    decided = compared(tmp_path / "decided", made(0.1, 12), "decided")
    fixed = compared(tmp_path / "launches", made(0.1, 12), "launches")
    assert width(decided[0].ratio) > width(fixed[0].ratio)
    for until, cells, code in (("decided", decided, 0), ("launches", fixed, 1)):
        lacking = [reason for reason in failures(cells[1:], "slower", 0, ()) if "side lacks" in reason]
        assert bool(lacking) == bool(failures(cells[1:], "slower", 0, ())) == bool(code)
        assert any("until decided" in note for table in tables(cells) for note in table.notes) == (not code)
        checked = here("compare", tmp_path / until, "--by", "policy", "--fail-on", "faster")
        assert checked.code == code, checked.err


def test_a_run_that_ended_early_lacks_nothing(tmp_path: Path) -> None:
    run = observe(write_run(tmp_path / "run", made(0.0, 12)))
    until: tuple[Until, ...] = ("launches", "decided")
    kept = [made_manifest(experiment=experiment(("openmpi",), launches=20, until=end)) for end in until]
    assert [shortage(Path("none"), manifest, run.cells.values()).cells for manifest in kept] == [24, 0]


def test_a_manifest_from_before_the_field_was_there_is_of_all_launches(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {HOST: [1e-5]}, experiment=experiment(("openmpi",), until="decided"))
    text = (run / "manifest.json").read_bytes()
    assert manifests.decode(text).experiment == experiment(("openmpi",), until="decided")
    document = json.loads(text)
    del document["experiment"]["until"]
    older = manifests.decode(json.dumps(document).encode())
    assert older.experiment == experiment(("openmpi",))


def test_beside_another_run_it_is_judged_like_any_other(tmp_path: Path) -> None:
    """Nobody looked at that difference while it was measured."""
    answers = []
    for until in ("decided", "launches"):
        runs = [tmp_path / f"{until}-{name}" for name in ("a", "b")]
        for run in runs:
            compared(run, made(0.0, 12), until)
        base, other = map(observe, runs)
        pairs = across(base, other, None, frozenset())
        answers.append([(one.sizes, one.ratio) for one in compare(pairs, in_blocks=False)])
    assert answers[0] == answers[1]


# Which comparisons, and which of them are open ------------------------------------------------------------------------


def asked(*cases: Case) -> dict[str, list[tuple[str, str]]]:
    by_factor = questions([made_cell(case, ()) for case in cases])
    return {name: [(pair.base_name, pair.other_name) for pair in pairs] for name, pairs in by_factor.items()}


def test_each_side_is_compared_with_the_first_and_steps_on_the_host_s_side_are_not_compared_again() -> None:
    files = made_case("single", "files", image="openmpi")
    assert asked(HOST, SINGLE, files) == {"policy": [("host", "single files"), ("host", "single strict")]}
    assert asked(SINGLE, files) == {"isolation": [("files", "strict")]}
    mpich = [case.having(image="mpich") for case in (HOST, SINGLE)]
    assert asked(HOST, SINGLE, *mpich) == {
        "policy": [("host", "single strict")] * 2, "image": [("mpich", "openmpi")] * 2
    }  # fmt: skip
    assert asked(SINGLE, SINGLE.having(hosts=2)) == {"hosts": [("1", "2")]}
    assert asked(HOST, HOST.having(driver="python")) == {"driver": [("native", "python")]}
    assert asked(HOST, HOST.having(dtype="float64")) == {}


def test_programs_are_compared_measure_by_measure() -> None:
    cells = [program_case(policy, measure=measure) for policy in ("host", "single") for measure in ("copy", "triad")]
    assert {name: len(pairs) for name, pairs in asked(*cells).items()} == {"policy": 2}


def stand(times: dict[Case, list[float]], blocks: int) -> list[PairStatus]:
    """How comparisons stand after so many blocks of at most 20."""
    cells = [made_cell(case, medians, until_decided=True) for case, medians in times.items()]
    return standing(cells, blocks, 20)


def states(statuses: list[PairStatus]) -> list[str]:
    return [status.state for status in statuses]


def test_a_comparison_is_open_until_it_is_decided_or_hopeless() -> None:
    draw = np.random.default_rng(2)

    def noisy(spread: float, blocks: int, added: float = 0.0) -> list[PairStatus]:
        host, single = np.exp(draw.normal(0, spread, (2, blocks)))
        return stand({HOST: host.tolist(), SINGLE: (single * (1 + added)).tolist()}, blocks)

    assert states(noisy(0.001, 5)) == states(noisy(0.5, 5)) == ["open"]
    assert states(noisy(0.001, 6)) == states(noisy(0.001, 10, added=0.5)) == ["decided"]
    hopeless = noisy(0.5, 15)
    assert (states(hopeless), list(still_open(hopeless))) == (["hopeless"], [])
    ratios = [1.07, 0.99, 1.005, 1.0, 0.995, 1.01, 1.012]
    one_outside = stand({HOST: [1e-5] * 7, SINGLE: [1e-5 * ratio for ratio in ratios]}, 7)
    assert states(one_outside) == ["open"]
    assert [cell.case for cell in still_open(one_outside)] == [HOST, SINGLE]


@pytest.mark.parametrize(("blocks", "state"), [(2, "open"), (3, "impossible")])
def test_a_side_that_always_fails_is_given_up_after_three_blocks(blocks: int, state: str) -> None:
    assert states(stand({HOST: [1e-5] * blocks, SINGLE: []}, blocks)) == [state]


def after_fallbacks(blocks: int, *fell_back: int) -> str:
    """How the only comparison stands where the host's launches of these numbers fell back to a barrier."""
    ways: list[list[Way]] = [[(("align", "roundtime"),)] * blocks for _ in range(2)]
    for number in fell_back:
        ways[0][number] = (("align", "barrier"),)
    cells = [made_cell(case, [1e-5] * blocks, of_case, until_decided=True)
             for case, of_case in zip((HOST, SINGLE), ways, strict=True)]  # fmt: skip
    (state,) = states(standing(cells, blocks, 20))
    return state


def test_a_launch_that_fell_back_is_left_out_and_the_others_can_still_decide() -> None:
    assert after_fallbacks(3, 1) == after_fallbacks(5, 0, 1, 2, 3) == "open"
    assert after_fallbacks(8, 1) == "decided"
    assert after_fallbacks(17, *range(14)) == "open", "three agree, and three may follow"
    assert after_fallbacks(17, *range(15)) == "impossible", "no six can agree by the last block"
    assert after_fallbacks(3, 0, 1, 2) == "impossible", "the sides have no way in common"
