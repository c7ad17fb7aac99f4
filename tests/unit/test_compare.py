"""What is said of two sides, cell by cell: each verdict, the numbers behind it, and what is no number at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
from tests.unit.made_program_runs import program_case, program_record
from tests.unit.made_runs import (
    Entry,
    experiment,
    made_case,
    made_failure,
    made_record,
    spread,
    write_launches,
    write_run,
)

from collbench.analysis.bounds import ALPHA, Launches, intervals, ratio_at_any_time
from collbench.analysis.compare import Comparison, Reason, Verdict, compare, verdict_on
from collbench.analysis.estimate import Estimate
from collbench.analysis.factors import find_factor
from collbench.analysis.launches import REFUSED
from collbench.analysis.pairs import across, within
from collbench.analysis.runs import observe
from collbench.schema.case import Case

MULTI = made_case("multi", "strict", image="openmpi")
HOST = made_case("host", image="openmpi")
PLAIN = made_case()


def in_one_run(folder: Path, base: Sequence[Entry], other: Sequence[Entry], margin: float = 0.02) -> Comparison:
    """The host against a container, launch by launch."""
    observed = observe(write_run(folder / "run", {HOST: base, MULTI: other}))
    assert observed.interleaved
    [found] = compare(within(observed, find_factor("policy"), frozenset()), margin, observed.interleaved)
    return found


def of_two_runs(folder: Path, base: Sequence[Entry], other: Sequence[Entry], margin: float = 0.02) -> Comparison:
    """Two runs on the host, which were not interleaved."""
    runs = [observe(write_run(folder / name, {PLAIN: side})) for name, side in (("a", base), ("b", other))]
    [found] = compare(across(runs[0], runs[1], None, frozenset()), margin, in_blocks=False)
    return found


def test_ten_percent_more_in_every_block_is_slower_and_the_other_way_round_faster(tmp_path: Path) -> None:
    host, multi = spread(10e-6), spread(11e-6)
    slower = in_one_run(tmp_path / "1", host, multi)
    faster = in_one_run(tmp_path / "2", multi, host)
    assert (slower.verdict, faster.verdict) == ("slower", "faster")
    assert slower.percent == pytest.approx(10.0)
    assert faster.percent == pytest.approx(-100 / 11)
    assert (slower.pair.base_name, slower.pair.other_name) == ("host", "multi strict")
    assert (slower.base and slower.base.value, slower.other and slower.other.value) == pytest.approx((10e-6, 11e-6))


def test_two_runs_are_compared_side_by_side_and_not_launch_by_launch(tmp_path: Path) -> None:
    base, other = spread(10e-6, 8), spread(11e-6, 8)
    found = of_two_runs(tmp_path / "one", base, other)
    assert (found.verdict, found.blocks) == ("slower", False)
    assert interval_of(of_two_runs(tmp_path / "two", base, other[::-1])) == pytest.approx(interval_of(found))
    in_blocks = [in_one_run(tmp_path / name, base, side) for name, side in (("3", other), ("4", other[::-1]))]
    assert interval_of(in_blocks[0]) == pytest.approx((1.1, 1.1))
    assert interval_of(in_blocks[1])[0] < 1.095


def interval_of(comparison: Comparison) -> tuple[float, float]:
    assert comparison.ratio is not None and comparison.ratio.interval is not None
    return comparison.ratio.interval


def of_sizes(folder: Path, sides: Sequence[tuple[Sequence[Entry], Sequence[Entry]]], **fields: str) -> list[Comparison]:
    """The host against a container at sizes of 8 B, 16 B and so on, each with its launches on both sides."""
    runs: dict[Case, Sequence[Entry]] = {}
    for power, (base, other) in enumerate(sides):
        for case, entries in ((HOST, base), (MULTI, other)):
            runs[case.having(size=8 << power, **fields)] = entries
    return compare(within(observe(write_run(folder, runs)), find_factor("policy"), frozenset()), 0.02)


def test_one_cell_of_eight_is_found_with_six_blocks_that_drift(tmp_path: Path) -> None:
    """Six blocks all one way: 2 of 64 ways to give them signs, alone and among eight cells that do not differ."""
    drift = [10e-6, 20e-6, 40e-6, 15e-6, 30e-6, 25e-6]
    slower: list[Entry] = [1.5 * (1 + 0.01 * n) * value for n, value in enumerate(drift)]
    equal: list[Entry] = [
        value * (1 + noise) for value, noise in zip(drift, (0.005, -0.004, 0.001, -0.006, 0.002, 0.0), strict=True)
    ]
    found = of_sizes(tmp_path / "all", [(drift, slower), *[(drift, equal)] * 7])
    assert [one.verdict for one in found] == ["slower", *["same"] * 7]
    assert {one.sizes for one in found} == {8}
    assert in_one_run(tmp_path / "alone", drift, slower).verdict == "slower"


# Questions: intervals of all sizes of one operation hold at once ------------------------------------------------------


def noisy(seed: int, launches: int = 12, share: float = 0.03) -> list[Entry]:
    """Times around 10 us whose logarithms are normal."""
    return [1e-5 * math.exp(log) for log in np.random.default_rng(seed).normal(0, share, launches).tolist()]


def test_sizes_of_an_operation_are_judged_at_once_and_operations_apart(tmp_path: Path) -> None:
    sides = [(noisy(seed), noisy(seed + 10)) for seed in range(3)]
    together = of_sizes(tmp_path / "sum", sides)
    for other, fields in (("op", {"op": "max"}), ("dtype", {"dtype": "float64"})):
        runs: dict[Case, Sequence[Entry]] = {}
        for power, (base, multi) in enumerate(sides):
            for case, entries in ((HOST, base), (MULTI, multi)):
                runs[case.having(size=8 << power)] = entries
                if power == 0:
                    runs[case.having(size=8, **fields)] = entries
        both = compare(within(observe(write_run(tmp_path / other, runs)), find_factor("policy"), frozenset()), 0.02)
        assert sorted(one.sizes for one in both) == [1, 3, 3, 3]
        alone = next(one for one in both if one.sizes == 1)
        assert alone.ratio == in_one_run(tmp_path / f"{other} alone", *sides[0]).ratio
        assert [one.ratio for one in both if one.sizes == 3] == [one.ratio for one in together]
        assert width(alone) < width(together[0])


def width(comparison: Comparison) -> float:
    low, high = interval_of(comparison)
    return math.log(high / low)


def test_the_intervals_of_a_question_are_those_of_its_sizes_at_once(tmp_path: Path) -> None:
    sides = [(noisy(seed), noisy(seed + 10)) for seed in range(3)]
    cells = [Launches(base, other, range(12), range(12)) for base, other in sides]  # type: ignore[arg-type]
    for one, (value, low, high) in zip(of_sizes(tmp_path / "run", sides), intervals(cells, True), strict=True):
        assert one.ratio is not None
        assert (one.ratio.value, *interval_of(one)) == pytest.approx((math.exp(value), math.exp(low), math.exp(high)))


def test_other_sides_are_another_question(tmp_path: Path) -> None:
    """Steps of isolation in one run are each compared with the host."""
    files = made_case("multi", "files", image="openmpi")
    runs: dict[Case, Sequence[Entry]] = {}
    for size in (8, 16):
        for seed, case in enumerate((HOST, MULTI, files)):
            runs[case.having(size=size)] = noisy(seed + size)
    found = compare(within(observe(write_run(tmp_path / "run", runs)), find_factor("policy"), frozenset()))
    assert [one.sizes for one in found] == [2] * 4


def test_launches_until_decided_have_their_part_of_five_per_cent_each(tmp_path: Path) -> None:
    sides = [(noisy(seed), noisy(seed + 10)) for seed in range(3)]
    runs: dict[Case, Sequence[Entry]] = {}
    for power, both in enumerate(sides):
        runs |= {case.having(size=8 << power): entries for case, entries in zip((HOST, MULTI), both, strict=True)}
    run = write_run(tmp_path / "run", runs, experiment=experiment(("openmpi",), launches=20, until="decided"))
    found = compare(within(observe(run), find_factor("policy"), frozenset()))
    assert [one.sizes for one in found] == [3] * 3
    for one, (base, other) in zip(found, sides, strict=True):
        assert one.ratio == ratio_at_any_time(other, base, 1 - ALPHA / 3)  # type: ignore[arg-type]


def test_cells_without_enough_launches_are_not_counted(tmp_path: Path) -> None:
    twice: list[Entry] = [2 * value for value in spread(1e-6, 6)]
    few, enough = of_sizes(tmp_path / "run", [(spread(1e-6, 3), spread(3e-6, 3)), (spread(1e-6, 6), twice)])
    assert few.ratio is not None and few.ratio.interval is None
    assert (few.verdict, few.launches_more) == ("unclear", 3)
    assert (enough.sizes, enough.verdict) == (1, "slower")
    assert enough.ratio == in_one_run(tmp_path / "alone", spread(1e-6, 6), twice).ratio


# The verdict ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "value", "high", "verdict"),
    [
        (0.99, 1.02, 1.1, "same"), (1.01, 1.05, 1.1, "same"), (1 / 1.1, 0.95, 0.99, "same"), (1.0, 1.0, 1.0, "same"),
        (1.01, 1.05, 1.11, "slower"), (1.2, 1.25, 1.3, "slower"),
        (0.90, 0.95, 0.99, "faster"), (0.7, 0.8, 0.98, "faster"),
        (0.99, 1.05, 1.11, "unclear"), (0.90, 0.95, 1.01, "unclear"), (0.5, 1.0, 2.0, "unclear"),
        (1.0, 1.2, 1.3, "unclear"),
    ],
)  # fmt: skip
def test_within_the_margin_is_the_same_and_beyond_it_what_excludes_1(
    low: float, value: float, high: float, verdict: Verdict
) -> None:
    """A margin of 10 %: a ratio of 1.1 one way is one of 1 / 1.1 the other."""
    assert verdict_on(Estimate(value, (low, high), 10), 0.1) == verdict


def test_a_proven_difference_within_the_margin_is_the_same(tmp_path: Path) -> None:
    host = spread(10e-6, 12, 0.001)
    multi = [1.01 * value for value in host]
    same = in_one_run(tmp_path / "1", host, multi)
    assert same.verdict == "same" and same.ratio is not None and same.ratio.excludes(1.0)
    assert same.launches_more is None
    assert in_one_run(tmp_path / "2", host, multi, margin=0.005).verdict == "slower"
    assert in_one_run(tmp_path / "3", multi, host, margin=0.005).verdict == "faster"


def following(seed: int, launches: int, times: float = 1.0) -> list[Entry]:
    """Launches each of which is nearly as fast as the one before."""
    draw, logs = np.random.default_rng(seed), [0.0]
    for step in draw.normal(0, 0.001, launches - 1).tolist():
        logs.append(0.9 * logs[-1] + step)
    return [times * 1e-5 * math.exp(log) for log in logs]


@pytest.mark.parametrize(("times", "verdict"), [(1.0, "same"), (1.5, "slower"), (0.7, "faster")])
def test_where_launches_depend_on_those_before_there_is_no_verdict_from_twenty_on(
    tmp_path: Path, times: float, verdict: Verdict
) -> None:
    """In fewer it cannot be seen whether they do."""
    for launches in (19, 20):
        steady: list[Entry] = [1e-5] * launches
        found = of_sizes(tmp_path / str(launches), [(steady, following(seed, launches, times)) for seed in (0, 8)])
        assert min(one.serial or 0.0 for one in found) > REFUSED
        assert {one.verdict for one in found} == {"unclear" if launches == 20 else verdict}
        assert {one.launches_more for one in found} == {None}


def test_whether_launches_depend_on_those_before_is_told_from_all_sizes(tmp_path: Path) -> None:
    """Of three sizes the launches of one do, by chance."""
    sides: list[tuple[list[Entry], list[Entry]]] = [([1e-5] * 20, following(0, 20, 1.5))]
    sides += [([1e-5] * 20, [1.5 * value for value in spread(1e-5, 20)]) for _ in range(2)]
    found = of_sizes(tmp_path, sides)
    assert found[0].serial is not None and found[0].serial > REFUSED
    assert [one.verdict for one in found] == ["slower"] * 3


def test_too_few_launches_say_how_many_are_lacking(tmp_path: Path) -> None:
    found = in_one_run(tmp_path, spread(10e-6, 4), spread(20e-6, 4))
    assert (found.verdict, found.launches_more) == ("unclear", 2)
    assert found.ratio is not None and found.ratio.interval is None


def test_more_launches_of_the_same_kind_do_settle_it(tmp_path: Path) -> None:
    host, multi = spread(10e-6, 10, 0.1), spread(10.4e-6, 10, 0.1)[::-1]
    found = in_one_run(tmp_path / "few", host, multi)
    assert found.verdict == "unclear"
    assert found.launches_more is not None
    times = math.ceil((10 + found.launches_more) / 10)
    assert in_one_run(tmp_path / "many", host * 2 * times, multi * 2 * times).verdict == "slower"


def test_the_papers_difference_is_of_means_and_negative_where_the_container_is_slower(tmp_path: Path) -> None:
    """Diff% = (H - D) / H x 100 (Xu, Shi and Chu, 2017): here (12 - 15) / 12."""
    host = [made_record(HOST, n, 10e-6, mean=12e-6) for n in range(6)]
    multi = [made_record(MULTI, n, 11e-6, mean=15e-6) for n in range(6)]
    found = in_one_run(tmp_path, host, multi)
    assert found.paper_diff == pytest.approx(-25.0)
    assert found.percent == pytest.approx(10.0)


def test_the_papers_difference_of_a_rate_is_of_rates(tmp_path: Path) -> None:
    """1000 events in 12 s and in 15 s are 83.3 and 66.7 events/s: (83.3 - 66.7) / 83.3."""
    cases = [program_case(), program_case("multi", "strict")]
    records = {
        case: [program_record(case, n, seconds) for n in range(6)]
        for case, seconds in zip(cases, (12, 15), strict=True)
    }
    [found] = compare(within(observe(write_run(tmp_path / "run", records)), find_factor("policy"), frozenset()))
    assert found.paper_diff == pytest.approx(20.0)


def test_the_papers_difference_takes_the_mean_over_launches(tmp_path: Path) -> None:
    host, multi = [10e-6, 20e-6, 60e-6], [5e-6, 5e-6, 5e-6]
    assert in_one_run(tmp_path, host, multi).paper_diff == pytest.approx((mean(host) - 5e-6) / mean(host) * 100)


def test_only_blocks_that_both_sides_have_are_paired(tmp_path: Path) -> None:
    """The host measured launches 0-6, the container 2-9; what only one has does not count."""
    host = [*spread(10e-6, 7), None, None, None]
    multi = [None, None, *[1.5 * value for value in spread(10e-6, 7)[2:]], 1.0, 1.0, 1.0]
    found = in_one_run(tmp_path, host, multi)
    assert found.ratio is not None and found.ratio.n == 5 and found.ratio.value == pytest.approx(1.5)


def test_without_a_common_block_there_is_nothing_to_compare(tmp_path: Path) -> None:
    found = in_one_run(tmp_path, [1e-6, None], [None, 1e-6])
    assert (found.verdict, found.why) == ("not comparable", Reason("no common blocks"))


def test_failures_and_skips_say_why_there_is_no_verdict(tmp_path: Path) -> None:
    failed = in_one_run(tmp_path / "1", spread(1e-6), ["container c1 died"] * 10)
    assert (failed.verdict, failed.why) == (
        "not comparable", Reason("not measured", ("multi strict", "failed", "container c1 died"))
    )  # fmt: skip
    skip = made_failure(HOST, 0, "no such algorithm", "skipped")
    skipped = in_one_run(tmp_path / "2", [skip], spread(1e-6))
    assert skipped.why == Reason("not measured", ("host", "skipped", "no such algorithm"))
    assert (skipped.ratio, skipped.base, skipped.sizes) == (None, None, 0)
    assert skipped.other is not None


def test_a_few_failed_launches_leave_the_others(tmp_path: Path) -> None:
    multi: list[Entry] = [1.5 * value for value in spread(10e-6, 12)]
    multi[4] = multi[9] = "out of memory"
    found = in_one_run(tmp_path, spread(10e-6, 12), multi)
    assert found.verdict == "slower"
    assert found.ratio is not None and found.ratio.n == 10


def test_medians_of_zero_are_no_numbers_to_compare(tmp_path: Path) -> None:
    for base, other in ((spread(1e-6), [0.0] * 10), ([0.0, *spread(1e-6)[1:]], spread(1e-6)), ([0.0] * 8, [0.0] * 8)):
        found = in_one_run(tmp_path / str(len(base)) / str(other[0]), base, other)
        assert (found.verdict, found.ratio) == ("not comparable", None)
        assert found.why == Reason("clock 0")


def test_a_cell_without_a_verdict_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    """Cells that cannot be compared are not judged, so they cost the others nothing."""
    small = [made_case(case.where.policy, case.where.isolation, image="openmpi", size=8) for case in (HOST, MULTI)]
    medians: dict[Case, Sequence[Entry]] = {small[0]: spread(1e-6), small[1]: ["died"] * 10}
    medians |= {HOST: spread(1e-6), MULTI: spread(2e-6)}
    observed = observe(write_run(tmp_path / "run", medians))
    first, second = compare(within(observed, find_factor("policy"), frozenset()))
    assert (first.verdict, second.verdict) == ("not comparable", "slower")
    assert (second.sizes, second.ratio) == (1, in_one_run(tmp_path / "alone", spread(1e-6), spread(2e-6)).ratio)


def test_one_launch_is_a_value_without_interval(tmp_path: Path) -> None:
    found = of_two_runs(tmp_path, [10e-6], [20e-6])
    assert found.ratio is not None and found.ratio.interval is None
    assert found.ratio.value == pytest.approx(2.0)
    assert (found.verdict, found.launches_more) == ("unclear", 5)


def test_runs_in_a_folder_are_launches(tmp_path: Path) -> None:
    base = observe(write_launches(tmp_path / "a", {PLAIN: spread(10e-6)}))
    other = observe(write_launches(tmp_path / "b", {PLAIN: spread(12e-6)}))
    [found] = compare(across(base, other, None, frozenset()), in_blocks=base.interleaved)
    assert (found.verdict, found.blocks) == ("slower", False)
    assert found.ratio is not None and found.ratio.n == 10
    assert list(base.cells[PLAIN].launches) == list(range(10))


def test_a_launch_that_was_recorded_twice_counts_once(tmp_path: Path) -> None:
    twice = [made_record(PLAIN, 0, 10e-6), made_record(PLAIN, 0, 99e-6), made_record(PLAIN, 1, 11e-6)]
    cell = observe(write_run(tmp_path / "run", {PLAIN: twice})).cells[PLAIN]
    assert (list(cell.medians), cell.repeated) == ([10e-6, 11e-6], 1)
