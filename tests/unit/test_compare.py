"""What is said of two sides, cell by cell: each verdict, the numbers behind it, and what is no number at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import pytest
from tests.unit.made_program_runs import program_case, program_record
from tests.unit.made_runs import Entry, made_case, made_failure, made_record, spread, write_launches, write_run

from collbench.analysis.compare import Comparison, compare, judge
from collbench.analysis.estimate import Estimate
from collbench.analysis.factors import find_factor
from collbench.analysis.observations import observe
from collbench.analysis.pairs import across, within
from collbench.analysis.significance import PValues
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
    found = of_two_runs(tmp_path, spread(10e-6, 7), spread(11e-6, 7)[::-1])
    assert (found.verdict, found.blocks) == ("slower", False)
    assert found.p == found.p_adjusted == pytest.approx(2 / math.comb(14, 7))
    assert (found.arrangements, found.seed) == (math.comb(14, 7), None)


def test_one_cell_of_eight_is_found_with_six_blocks_that_drift(tmp_path: Path) -> None:
    """Six blocks all one way: p = 2/64, alone and among eight cells of which no other differs."""
    sizes = [made_case("multi", "strict", image="openmpi", size=8 << power) for power in range(8)]
    hosts = [made_case("host", image="openmpi", size=8 << power) for power in range(8)]
    drift = [10e-6, 20e-6, 40e-6, 15e-6, 30e-6, 25e-6]
    runs: dict[Case, Sequence[Entry]] = dict.fromkeys(hosts, drift)
    runs[sizes[0]] = [1.5 * value for value in drift]
    runs |= {case: [value * (1 + 0.01 * (-1) ** n) for n, value in enumerate(drift)] for case in sizes[1:]}
    observed = observe(write_run(tmp_path / "run", runs))
    found = compare(within(observed, find_factor("policy"), frozenset()))
    alone = in_one_run(tmp_path / "alone", drift, runs[sizes[0]])
    assert alone.p == alone.p_adjusted == found[0].p_adjusted == 2 / 64
    assert [one.verdict for one in found] == ["slower", *["same"] * 7]
    assert {one.cells for one in found} == {8}


def test_cells_without_enough_launches_have_no_p_and_are_not_counted(tmp_path: Path) -> None:
    small = [made_case(case.where.policy, case.where.isolation, image="openmpi", size=8) for case in (HOST, MULTI)]
    runs: dict[Case, Sequence[Entry]] = {small[0]: spread(1e-6, 3), small[1]: spread(3e-6, 3), HOST: spread(1e-6, 6)}
    runs[MULTI] = [2 * value for value in spread(1e-6, 6)]
    observed = observe(write_run(tmp_path / "run", runs))
    few, enough = compare(within(observed, find_factor("policy"), frozenset()))
    assert (few.p, few.p_adjusted, few.cells, few.why) == (
        None, None, 0, "an interval needs at least 3 more launches"
    )  # fmt: skip
    assert (enough.p_adjusted, enough.cells, enough.verdict) == (2 / 64, 1, "slower")


def test_within_the_margin_is_the_same_or_where_a_difference_is_sure_negligible(tmp_path: Path) -> None:
    host = spread(10e-6, 12, 0.001)
    same = in_one_run(tmp_path / "1", host, host[6:] + host[:6])
    negligible = in_one_run(tmp_path / "2", host, [1.01 * value for value in host])
    assert (same.verdict, negligible.verdict) == ("same", "negligible")
    assert in_one_run(tmp_path / "3", host, [1.01 * value for value in host], margin=0.005).verdict == "slower"


def test_the_margin_holds_the_whole_interval_and_both_ways_alike() -> None:
    def verdict(low: float, value: float, high: float, p: float = 1e-4, margin: float = 0.1) -> str:
        return judge(Estimate(value, (low, high), 10), PValues(p, p, 1, 1, 512, None), margin)[0]

    assert verdict(0.99, 1.02, 1.1) == "same"
    assert verdict(1.01, 1.05, 1.1) == "negligible"
    assert verdict(1.01, 1.05, 1.1, p=0.06) == "same"
    assert verdict(1.01, 1.05, 1.11) == "inconclusive"
    assert verdict(1 / 1.1, 0.95, 0.99) == "negligible"
    assert verdict(0.90, 0.95, 0.99) == "inconclusive"
    assert verdict(1.02, 1.2, 1.3) == "slower"
    assert verdict(0.7, 0.8, 0.98) == "faster"
    assert verdict(1.02, 1.2, 1.3, p=0.051) == "inconclusive"
    assert verdict(0.99, 1.2, 1.3) == "inconclusive"


def test_too_few_launches_say_how_many_are_lacking(tmp_path: Path) -> None:
    found = in_one_run(tmp_path, spread(10e-6, 4), spread(20e-6, 4))
    assert (found.verdict, found.launches_more, found.why) == (
        "inconclusive",
        2,
        "an interval needs at least 2 more launches",
    )
    assert found.ratio is not None and found.ratio.interval is None


def test_more_launches_of_the_same_kind_do_settle_it(tmp_path: Path) -> None:
    host, multi = spread(10e-6, 10, 0.1), spread(10.4e-6, 10, 0.1)[::-1]
    found = in_one_run(tmp_path / "few", host, multi)
    assert found.verdict == "inconclusive"
    assert found.launches_more is not None and f"needs about {found.launches_more} more launches" in found.why
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
    assert (found.verdict, found.why) == ("not comparable", "the sides have no block of launches in common")


def test_failures_and_skips_say_why_there_is_no_verdict(tmp_path: Path) -> None:
    failed = in_one_run(tmp_path / "1", spread(1e-6), ["container c1 died"] * 10)
    assert (failed.verdict, failed.why) == ("not comparable", "multi strict: failed: container c1 died")
    skip = made_failure(HOST, 0, "no such algorithm", "skipped")
    skipped = in_one_run(tmp_path / "2", [skip], spread(1e-6))
    assert skipped.why == "host: skipped: no such algorithm"
    assert (skipped.p, skipped.ratio, skipped.base) == (None, None, None)
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
        assert (found.verdict, found.p) == ("not comparable", None)
        assert "the clock does not resolve" in found.why


def test_a_cell_without_a_verdict_leaves_the_others_their_p(tmp_path: Path) -> None:
    """Cells that cannot be compared are no tests, so they cost the others nothing."""
    small = [made_case(case.where.policy, case.where.isolation, image="openmpi", size=8) for case in (HOST, MULTI)]
    medians: dict[Case, Sequence[Entry]] = {small[0]: spread(1e-6), small[1]: ["died"] * 10}
    medians |= {HOST: spread(1e-6), MULTI: spread(2e-6)}
    observed = observe(write_run(tmp_path / "run", medians))
    first, second = compare(within(observed, find_factor("policy"), frozenset()))
    assert (first.verdict, second.verdict) == ("not comparable", "slower")
    assert second.p_adjusted == in_one_run(tmp_path / "alone", spread(1e-6), spread(2e-6)).p_adjusted


def test_one_launch_is_a_value_without_interval(tmp_path: Path) -> None:
    found = of_two_runs(tmp_path, [10e-6], [20e-6])
    assert found.ratio is not None and found.ratio.interval is None
    assert found.ratio.value == pytest.approx(2.0)
    assert (found.verdict, found.launches_more) == ("inconclusive", 5)


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
