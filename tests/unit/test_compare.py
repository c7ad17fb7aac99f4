"""Comparing: which cells meet, what is refused, each verdict and the numbers behind it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
from tests.unit.advised_runs import US, advice_on
from tests.unit.conftest import Collbench
from tests.unit.made_program_runs import launches_of, program_case, program_record
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

from collbench.analysis import baseline
from collbench.analysis.bounds import ALPHA, Launches, intervals, ratio_at_any_time
from collbench.analysis.compare import Comparison, Reason, Verdict, compare, turned, verdict_on
from collbench.analysis.compare import compare as compared
from collbench.analysis.estimate import Estimate
from collbench.analysis.factors import FACTORS, find_factor
from collbench.analysis.launches import REFUSED, together
from collbench.analysis.pairs import across, opposed, within
from collbench.analysis.results import joined
from collbench.analysis.runs import Observed, observe
from collbench.schema.case import Case
from collbench.schema.record import Samples

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


# Of one pair the same is said everywhere, whichever side is the base --------------------------------------------------

NOISE = [1.0, 1.0, 1.3] * 20


@pytest.mark.parametrize(
    ("base", "other"),
    [([1.0] * 10, [1.5, 1.6] * 5), ([2.0, 2.1] * 5, [1.0] * 10), (NOISE, [1.001] * 60), ([1.0] * 4, [1.1] * 4)],
)
def test_sides_that_change_places_have_the_opposite_verdict(
    tmp_path: Path, base: list[float], other: list[float]
) -> None:
    run = observe(write_run(tmp_path / "run", {made_case("host"): base, made_case("multi", "strict"): other}))
    (pair,) = opposed(run.cells.values(), FACTORS["policy"])
    back = replace(pair, base=pair.other, other=pair.base, base_name=pair.other_name, other_name=pair.base_name)
    (one,), (opposite,) = compare([pair]), compare([back])
    found = turned(one)
    assert found.ratio is not None and opposite.ratio is not None
    assert found.ratio.value == pytest.approx(opposite.ratio.value)
    assert (found.ratio.interval or ()) == pytest.approx(opposite.ratio.interval or ())
    assert replace(found, ratio=opposite.ratio) == opposite


# Samples within launches that a median hides --------------------------------------------------------------------------


def measured(path: Path, means: float, samples: int = 1000, launches: int = 12) -> Path:
    """Equal medians on the host and in a container, where launch means are so many times as long."""
    cells: dict[Case, list[Entry]] = {}
    for place, factor in ((("host", None), 1.0), (("multi", "strict"), means)):
        case = made_case(*place, image="a")
        taken = Samples(n=samples, invalid=0, warmup=5)
        cells[case] = [
            made_record(case, number, time, mean=time * factor * 1.01, samples=taken)
            for number, time in enumerate(spread(10 * US, launches, 0.002))
        ]
    return write_run(path, cells)


def compared_with(run: Path) -> Comparison:
    (pair,) = opposed(observe(run).cells.values(), FACTORS["policy"])
    (found,) = compare([pair])
    return found


def test_samples_far_slower_on_one_side_stand_beside_the_verdict(tmp_path: Path) -> None:
    """Of 40 % of the samples ten times as long the mean is 4.6 times as long, and the median the same."""
    found = compared_with(measured(tmp_path / "run", 4.6))
    assert found.verdict == "same" and found.slow is not None
    assert found.slow.means == pytest.approx(4.6, rel=0.01) and found.slow.on_other
    back = turned(found).slow
    assert back is not None and back.means == pytest.approx(1 / 4.6, rel=0.01) and not back.on_other
    assert replace(back.turned, means=None) == replace(found.slow, means=None)


@pytest.mark.parametrize(("means", "samples", "launches"), [(1.2, 1000, 12), (4.6, 100, 12), (4.6, 1000, 6)])
def test_a_little_and_what_is_not_known_is_no_tail(tmp_path: Path, means: float, samples: int, launches: int) -> None:
    """Below 1.25, of few samples, and of six launches, of which no bound is at 1 %."""
    assert compared_with(measured(tmp_path / "run", means, samples, launches)).slow is None


def test_a_check_fails_and_the_steady_option_is_taken(here: Collbench, tmp_path: Path) -> None:
    run = measured(tmp_path / "run", 4.6)
    assert here("compare", run, "--by", "policy", "--fail-on", "slower").code == 1
    (entry,) = json.loads(here("compare", run, "--by", "policy", "--style", "json").out)["comparisons"]
    assert entry["slow"]["means"] == pytest.approx(4.6, rel=0.01)
    (advice,) = advice_on(run)
    (size,) = advice.sizes
    assert size.take["policy"] == "host"
    assert [one.slow_at_times for one in size.options.values()] == [False, True]


# Launches of programs during which others used the cores leave a comparison on both sides; and CPU seconds

BARE, INSIDE = program_case(), program_case("multi", "strict")

#: Blocks 2 and 5 were contended in the container, which took twice the time, and block 7 on the host.
SLOW = [2.0 if block in (2, 5) else time for block, time in enumerate(spread(1.0))]
HOST_SLOW = [3.0 if block == 7 else time for block, time in enumerate(spread(1.0))]


def written(path: Path, of_host: Collection[int] = (7,), inside: Collection[int] = (2, 5)) -> Path:
    records = {BARE: launches_of(BARE, HOST_SLOW, of_host), INSIDE: launches_of(INSIDE, SLOW, inside)}
    return write_run(path / "run", records)


def by_policy(run: Observed) -> Comparison:
    [comparison] = compared(within(run, find_factor("policy"), frozenset()))
    return comparison


def test_a_block_that_was_contended_on_either_side_leaves_both(tmp_path: Path) -> None:
    found = by_policy(observe(written(tmp_path)))
    assert (found.contended, found.launches, found.left_out, found.verdict) == (3, (7, 7), 0, "same")
    assert found.base is not None and found.base.n == 7
    assert len(found.pair.base.medians) == 10, "the table says of how many"
    assert found.paper_diff == pytest.approx(0.0, abs=0.5)


def test_a_launch_without_its_partner_is_no_block_that_is_left_out(tmp_path: Path) -> None:
    for name, more in (("host", BARE), ("inside", INSIDE)):
        records = {case: launches_of(case, spread(1.0, 12 if case == more else 10), (11,)) for case in (BARE, INSIDE)}
        assert by_policy(observe(write_run(tmp_path / name, records))).contended == 0


def test_ranks_are_compared_as_before(tmp_path: Path) -> None:
    cases = [made_case(), made_case("multi", "strict")]
    records = {case: [made_record(case, n, 1.0, contended=n == 3) for n in range(8)] for case in cases}
    found = by_policy(observe(write_run(tmp_path / "run", records)))
    assert (found.contended, found.launches) == (0, (8, 8))


def test_too_few_that_are_left_are_undecided_with_the_reason(tmp_path: Path) -> None:
    found = by_policy(observe(written(tmp_path, of_host=range(5))))
    assert (found.verdict, found.launches_more) == ("unclear", 2)
    assert found.why == Reason("few launches", (2,), contended=6)
    none = by_policy(observe(written(tmp_path / "none", range(5), range(5, 10))))
    assert (none.verdict, none.launches, none.contended, none.ratio) == ("unclear", (0, 0), 10, None)
    assert none.why == Reason("no launches", contended=10)
    assert none.base is not None and none.cpu[0] is not None, "what was measured is shown"


def test_what_left_is_said_in_table_and_json(compare: Collbench, tmp_path: Path) -> None:
    run = written(tmp_path)
    text = compare(run, "--by", "policy", "--all").out
    assert "7 of 10" in text
    assert re.search(r"left out, .*\bCPU\b.*: 3$", text, re.MULTILINE)
    document = json.loads(compare(run, "--by", "policy", "--style", "json").out)
    assert document["comparisons"][0]["contended"] == 3
    assert any(" CPU " in note and note.endswith(": 3") for note in document["notes"])


def test_a_check_fails_where_nothing_is_left(compare: Collbench, tmp_path: Path) -> None:
    assert compare(written(tmp_path), "--by", "policy", "--fail-on", "slower").code == 0
    found = compare(written(tmp_path / "2", range(10)), "--by", "policy", "--all", "--fail-on", "slower")
    assert found.code == 1 and "fewer than 6" in found.err
    assert "0 of 10" in found.out


def test_of_two_runs_each_side_loses_its_own(tmp_path: Path) -> None:
    base, other = (
        observe(write_run(tmp_path / str(len(busy)), {BARE: launches_of(BARE, spread(1.0), busy)}))
        for busy in ((1, 2), (3,))
    )
    [found] = compared(across(base, other, None, frozenset()), in_blocks=False)
    assert (found.contended, found.launches) == (3, (8, 9))


def test_a_baseline_keeps_which_launches_were_contended_and_the_cpu_seconds(tmp_path: Path) -> None:
    run = observe(written(tmp_path))
    baseline.keep(run, tmp_path / "baseline.json")
    stored = baseline.load(tmp_path / "baseline.json")
    assert stored.cells[INSIDE].contended == {2, 5}
    assert stored.cells[INSIDE].cpu == run.cells[INSIDE].cpu
    [found] = compared(across(stored, run, None, frozenset({"policy"}))[:1], in_blocks=False)
    assert found.contended == 2


def test_runs_taken_together_move_the_numbers_of_contended_launches(tmp_path: Path) -> None:
    one, two = observe(written(tmp_path / "1")), observe(written(tmp_path / "2"))
    cell = joined([(one.cells, 0), (two.cells, 10)])[INSIDE]
    assert cell.contended == {2, 5, 12, 15} and cell.cpu.keys() == set(range(20))


def test_advice_is_taken_from_launches_that_were_not_contended(tmp_path: Path) -> None:
    """The container is faster, and was contended in most blocks."""
    busy = range(8)
    times = [5.0 if block in busy else 0.5 for block in range(14)]
    records = {BARE: launches_of(BARE, spread(1.0, 14)), INSIDE: launches_of(INSIDE, times, busy)}
    [advice] = advice_on(write_run(tmp_path / "run", records))
    [at] = advice.sizes
    assert at.take["policy"] == "multi" and at.bound == 1.0
    assert [one.out for one in at.options.values()] == [False, True]


def test_advice_where_every_launch_was_contended_is_none(tmp_path: Path) -> None:
    [advice] = advice_on(written(tmp_path, range(10), range(10)))
    assert (advice.sizes, advice.ranges) == ((), ())


def test_cells_side_by_side_have_no_contended_block(tmp_path: Path) -> None:
    cells = list(observe(written(tmp_path)).cells.values())
    assert len(together(cells, in_blocks=True)) == 7
    assert len(together(cells, in_blocks=False)) == 8
    assert together(cells, in_blocks=True).max() < 1.5


def test_cpu_seconds_tell_waiting_from_computing(compare: Collbench, tmp_path: Path) -> None:
    def printed(name: str, cpu: float) -> str:
        records = {BARE: launches_of(BARE, spread(0.8), cpu=0.75), INSIDE: launches_of(INSIDE, spread(1.6), cpu=cpu)}
        return " ".join(compare(write_run(tmp_path / name, records), "--by", "policy", "--all").out.split())

    remark = "same CPU seconds for each sample (host 0.75 s, multi strict 0.76 s), in 1.6 s against 0.8 s: " \
             "multi strict waited"  # fmt: skip
    waited = printed("waited", 0.76)
    assert remark in waited and "CPU s/s" in waited
    computed = printed("computed", 1.5)
    assert "waited" not in computed and "CPU s/s" not in computed  # the same on both sides


def test_times_that_agree_are_not_remarked(tmp_path: Path, compare: Collbench) -> None:
    records = {case: launches_of(case, spread(1.0), cpu=0.1) for case in (BARE, INSIDE)}
    assert "waited" not in compare(write_run(tmp_path / "run", records), "--by", "policy", "--all").out


def test_cpu_seconds_are_those_of_the_launches_that_are_compared(tmp_path: Path) -> None:
    busy = range(8)
    times = [9.0 if block in busy else 1.0 for block in range(14)]
    records = {BARE: launches_of(BARE, spread(1.0, 14)), INSIDE: launches_of(INSIDE, times, busy)}
    found = by_policy(observe(write_run(tmp_path / "run", records)))
    assert found.cpu[1] is not None and found.cpu[1].seconds == pytest.approx(1.0, rel=0.01)
    assert found.cpu[1].share == pytest.approx(1.0)


def test_json_has_cpu_seconds_of_each_side_and_null_for_ranks(compare: Collbench, tmp_path: Path) -> None:
    [entry] = json.loads(compare(written(tmp_path), "--by", "policy", "--style", "json").out)["comparisons"]
    assert entry["base"]["cpu"] == {"seconds": pytest.approx(1.0, rel=0.01), "wall": pytest.approx(1.0, rel=0.01),
                                    "share": 1.0}  # fmt: skip
    ranks = {case: spread(1e-6) for case in (made_case(), made_case("multi", "strict"))}
    run = write_run(tmp_path / "ranks", ranks)
    [entry] = json.loads(compare(run, "--by", "policy", "--style", "json").out)["comparisons"]
    assert entry["base"]["cpu"] is None
    assert "CPU" not in compare(run, "--by", "policy").out
