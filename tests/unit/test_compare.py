"""Comparing: which cells meet, what is refused, each verdict and the numbers behind it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from tests.unit import made_runs
from tests.unit.advised_runs import US, advice_on
from tests.unit.conftest import Collbench
from tests.unit.made_program_runs import launches_of, program_case, program_record
from tests.unit.made_runs import Entry, made_case, made_failure, made_record, spread, write_launches, write_run

from collbench.analysis.advise import advise
from collbench.analysis.bounds import ALPHA, Launches, intervals, ratio_at_any_time
from collbench.analysis.compare import Comparison, Reason, Verdict, compare, differing_questions, judge, verdict_on
from collbench.analysis.estimate import Estimate
from collbench.analysis.factors import FACTORS, find_factor
from collbench.analysis.launches import REFUSED, together
from collbench.analysis.options import questions
from collbench.analysis.pairs import across, opposed, within
from collbench.analysis.results import joined
from collbench.analysis.runs import Observed, load_baseline, observe, save_baseline
from collbench.schema.case import Case
from collbench.schema.manifest import Library
from collbench.schema.record import Loaded, Samples, loaded_note

HOST, MULTI = made_case("host", image="openmpi"), made_case("multi", "strict", image="openmpi")
PLAIN = made_case()

Sides = tuple[Sequence[Entry], Sequence[Entry]]


class Folder(NamedTuple):
    """Where runs are written that are compared."""

    path: Path

    def run(self, cells: Mapping[Case, Sequence[Entry]], **fields: Any) -> Observed:
        return observe(write_run(self.path / f"run-{len([*self.path.iterdir()])}", cells, **fields))

    def by_policy(self, cells: Mapping[Case, Sequence[Entry]], margin: float = 0.02, **fields: Any) -> list[Comparison]:
        observed = self.run(cells, **fields)
        return compare(within(observed, find_factor("policy"), frozenset()), margin, observed.interleaved)

    def sides(self, base: Sequence[Entry], other: Sequence[Entry], margin: float = 0.02) -> Comparison:
        """The host against a container, launch by launch."""
        [comparison] = self.by_policy({HOST: base, MULTI: other}, margin)
        return comparison

    def two_runs(self, base: Sequence[Entry], other: Sequence[Entry]) -> Comparison:
        """Two runs on the host, which were not interleaved."""
        runs = [self.run({PLAIN: side}) for side in (base, other)]
        [comparison] = compare(across(runs[0], runs[1], None, frozenset()), 0.02, in_blocks=False)
        return comparison

    def sizes(self, sides: Sequence[Sides], **fields: Any) -> list[Comparison]:
        """The host against a container at sizes of 8 B, 16 B and so on, each with its launches on both sides."""
        return self.by_policy(of_sizes(sides), **fields)


def of_sizes(sides: Sequence[Sides]) -> dict[Case, Sequence[Entry]]:
    return {case.having(size=8 << power): entries
            for power, both in enumerate(sides) for case, entries in zip((HOST, MULTI), both, strict=True)}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def interval_of(comparison: Comparison) -> tuple[float, float]:
    assert comparison.ratio is not None and comparison.ratio.interval is not None
    return comparison.ratio.interval


def times(ratio: float, entries: Sequence[float]) -> list[Entry]:
    return [ratio * time for time in entries]


def test_ten_percent_more_in_every_block_is_slower_and_the_other_way_round_faster(folder: Folder) -> None:
    host, multi = spread(10e-6), spread(11e-6)
    slower, faster = folder.sides(host, multi), folder.sides(multi, host)
    assert (slower.verdict, faster.verdict) == ("slower", "faster")
    assert [one.ratio and one.ratio.value for one in (slower, faster)] == pytest.approx([1.1, 1 / 1.1])
    assert (slower.pair.base_name, slower.pair.other_name) == ("host", "multi strict")
    assert (slower.base and slower.base.value, slower.other and slower.other.value) == pytest.approx((10e-6, 11e-6))


def test_two_runs_are_compared_side_by_side_and_not_launch_by_launch(folder: Folder) -> None:
    base, other = spread(10e-6, 8), spread(11e-6, 8)
    apart = folder.two_runs(base, other)
    assert (apart.verdict, apart.blocks) == ("slower", False)
    assert interval_of(folder.two_runs(base, other[::-1])) == pytest.approx(interval_of(apart))
    assert interval_of(folder.sides(base, other)) == pytest.approx((1.1, 1.1))
    assert interval_of(folder.sides(base, other[::-1]))[0] < 1.095
    once = folder.two_runs([10e-6], [20e-6])
    assert once.ratio is not None and once.ratio.value == pytest.approx(2.0)
    assert (once.verdict, once.launches_more, once.ratio.interval) == ("unclear", 5, None)


def test_one_cell_of_eight_is_found_with_six_blocks_that_drift(folder: Folder) -> None:
    """Six blocks all one way: 2 of 64 ways to give them signs, alone and among eight cells that do not differ."""
    drift = [10e-6, 20e-6, 40e-6, 15e-6, 30e-6, 25e-6]
    slower = [1.5 * (1 + 0.01 * n) * time for n, time in enumerate(drift)]
    noise = (0.005, -0.004, 0.001, -0.006, 0.002, 0.0)
    equal = [time * (1 + share) for time, share in zip(drift, noise, strict=True)]
    comparisons = folder.sizes([(drift, slower), *[(drift, equal)] * 7])
    assert [(one.verdict, one.sizes) for one in comparisons] == [("slower", 8), *[("same", 8)] * 7]
    assert folder.sides(drift, slower).verdict == "slower"


# Questions: intervals of all sizes of one operation hold at once ------------------------------------------------------


def noisy(seed: int, launches: int = 12, share: float = 0.03) -> list[float]:
    """Times around 10 us whose logarithms are normal."""
    return [1e-5 * math.exp(log) for log in np.random.default_rng(seed).normal(0, share, launches).tolist()]


THREE = [(noisy(seed), noisy(seed + 10)) for seed in range(3)]


@pytest.mark.parametrize("other", [{"op": "max"}, {"dtype": "float64"}])
def test_sizes_of_an_operation_are_judged_at_once_and_operations_apart(folder: Folder, other: dict[str, str]) -> None:
    at_once = folder.sizes(THREE)
    cells = of_sizes(THREE)
    both = folder.by_policy(cells | {case.having(**other): of for case, of in cells.items() if case["size"] == 8})
    assert sorted(one.sizes for one in both) == [1, 3, 3, 3]
    (alone,) = (one for one in both if one.sizes == 1)
    assert alone.ratio == folder.sides(*THREE[0]).ratio
    assert [one.ratio for one in both if one.sizes == 3] == [one.ratio for one in at_once]
    (narrow, wide) = (math.log(high / low) for low, high in map(interval_of, (alone, at_once[0])))
    assert narrow < wide


def test_the_intervals_of_a_question_are_those_of_its_sizes_at_once(folder: Folder) -> None:
    """Of launches until decided each has its part of five per cent."""
    launches = [Launches(base, other, range(12), range(12)) for base, other in THREE]
    for one, logs in zip(folder.sizes(THREE), intervals(launches, True), strict=True):
        assert one.ratio is not None
        assert (one.ratio.value, *interval_of(one)) == pytest.approx([math.exp(log) for log in logs])
    until = folder.sizes(THREE, experiment=made_runs.experiment(("openmpi",), launches=20, until="decided"))
    assert [(one.sizes, one.ratio) for one in until] == [
        (3, ratio_at_any_time(other, base, 1 - ALPHA / 3)) for base, other in THREE]  # fmt: skip


@pytest.mark.parametrize(
    ("questions", "differ", "chance"),
    [(19, 1, False), (20, 2, True), (20, 3, False), (287, 20, True), (287, 21, False)],
)
def test_whether_chance_alone_makes_so_many_differ(folder: Folder, questions: int, differ: int, chance: bool) -> None:
    """In 95 of 100 such comparisons of equal sides at most so many do."""
    comparison = folder.sides(noisy(1), noisy(2))
    rows = [replace(comparison, pair=replace(comparison.pair, base_name=f"host {n}"),
                    verdict="slower" if n < differ else "same") for n in range(questions)]  # fmt: skip
    assert differing_questions(rows) == (differ, questions, chance)


def test_other_sides_are_another_question(folder: Folder) -> None:
    """Steps of isolation in one run are each compared with the host."""
    cases = (HOST, MULTI, MULTI.having(isolation="files"))
    comparisons = folder.by_policy({
        case.having(size=size): noisy(seed + size) for size in (8, 16) for seed, case in enumerate(cases)})  # fmt: skip
    assert [one.sizes for one in comparisons] == [2] * 4


def test_cells_without_a_verdict_leave_the_others_as_they_are(folder: Folder) -> None:
    """Too few launches, and failures, are not judged, so they cost the others nothing."""
    base = spread(1e-6, 6)
    alone = folder.sides(base, times(2, base)).ratio
    few, enough = folder.sizes([(spread(1e-6, 3), spread(3e-6, 3)), (base, times(2, base))])
    assert few.ratio is not None and few.ratio.interval is None
    assert (few.verdict, few.launches_more) == ("unclear", 3)
    failed, other = folder.sizes([(base, ["died"] * 6), (base, times(2, base))])
    assert failed.verdict == "not comparable"
    assert [(one.sizes, one.verdict, one.ratio) for one in (enough, other)] == [(1, "slower", alone)] * 2


# The verdict ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "value", "high", "verdict"),
    [(0.99, 1.02, 1.1, "same"), (1.01, 1.05, 1.1, "same"), (1 / 1.1, 0.95, 0.99, "same"), (1.0, 1.0, 1.0, "same"),
     (1.01, 1.05, 1.11, "slower"), (1.2, 1.25, 1.3, "slower"), (0.90, 0.95, 0.99, "faster"), (0.7, 0.8, 0.98, "faster"),
     (0.99, 1.05, 1.11, "unclear"), (0.90, 0.95, 1.01, "unclear"), (0.5, 1.0, 2.0, "unclear"),
     (1.0, 1.2, 1.3, "unclear")],
)  # fmt: skip
def test_within_the_margin_is_the_same(low: float, value: float, high: float, verdict: Verdict) -> None:
    """A margin of 10 %: a ratio of 1.1 one way is one of 1 / 1.1 the other."""
    assert verdict_on(Estimate(value, (low, high), 10), 0.1) == verdict


def test_a_proven_difference_within_the_margin_is_the_same(folder: Folder) -> None:
    host = spread(10e-6, 12, 0.001)
    same = folder.sides(host, times(1.01, host))
    assert same.verdict == "same" and same.launches_more is None
    assert same.ratio is not None and same.ratio.excludes(1.0)
    assert folder.sides(host, times(1.01, host), margin=0.005).verdict == "slower"
    assert folder.sides(times(1.01, host), host, margin=0.005).verdict == "faster"


def following(seed: int, launches: int, ratio: float = 1.0) -> list[Entry]:
    """Launches each of which is nearly as fast as the one before."""
    logs = [0.0]
    for step in np.random.default_rng(seed).normal(0, 0.001, launches - 1).tolist():
        logs.append(0.9 * logs[-1] + step)
    return [ratio * 1e-5 * math.exp(log) for log in logs]


@pytest.mark.parametrize(("ratio", "verdict"), [(1.0, "same"), (1.5, "slower"), (0.7, "faster")])
def test_dependent_launches_have_no_verdict_from_twenty_on(folder: Folder, ratio: float, verdict: Verdict) -> None:
    """In fewer it cannot be seen whether they do; of one size among three they may by chance."""
    for launches in (19, 20):
        comparisons = folder.sizes([([1e-5] * launches, following(seed, launches, ratio)) for seed in (0, 8)])
        assert min(one.serial or 0.0 for one in comparisons) > REFUSED
        assert {(one.verdict, one.launches_more) for one in comparisons} == {
            ("unclear" if launches == 20 else verdict, None)}  # fmt: skip
    steady = [1e-5] * 20
    one_of_three = folder.sizes([(steady, following(0, 20, 1.5)), *[(steady, times(1.5, spread(1e-5, 20)))] * 2])
    assert (one_of_three[0].serial or 0.0) > REFUSED and {one.verdict for one in one_of_three} == {"slower"}


def test_how_many_more_launches_settle_it(folder: Folder) -> None:
    few = folder.sides(spread(10e-6, 4), spread(20e-6, 4))
    assert few.ratio is not None and (few.verdict, few.launches_more, few.ratio.interval) == ("unclear", 2, None)
    host, multi = spread(10e-6, 10, 0.1), spread(10.4e-6, 10, 0.1)[::-1]
    unclear = folder.sides(host, multi)
    assert unclear.verdict == "unclear" and unclear.launches_more is not None
    repeated = 2 * math.ceil((10 + unclear.launches_more) / 10)
    assert folder.sides(host * repeated, multi * repeated).verdict == "slower"


def test_the_papers_difference_is_of_means_and_negative_where_the_container_is_slower(folder: Folder) -> None:
    """Diff% = (H - D) / H x 100 (Xu, Shi and Chu, 2017): here (12 - 15) / 12; of a rate it is of rates.

    1000 events in 12 s and in 15 s are 83.3 and 66.7 events/s: (83.3 - 66.7) / 83.3.
    """
    host = [made_record(HOST, n, 10e-6, mean=12e-6) for n in range(6)]
    multi = [made_record(MULTI, n, 11e-6, mean=15e-6) for n in range(6)]
    of_time = folder.sides(host, multi)
    assert (of_time.paper_diff, of_time.ratio and of_time.ratio.value) == pytest.approx((-25.0, 1.1))
    [of_rate] = folder.by_policy({case: [program_record(case, n, seconds) for n in range(6)] for case, seconds in
                                  ((program_case(), 12), (program_case("multi", "strict"), 15))})  # fmt: skip
    assert of_rate.paper_diff == pytest.approx(20.0)
    over_launches = folder.sides([10e-6, 20e-6, 60e-6], [5e-6, 5e-6, 5e-6])
    assert over_launches.paper_diff == pytest.approx((mean([10, 20, 60]) - 5) / mean([10, 20, 60]) * 100)


def test_only_blocks_that_both_sides_have_are_paired(folder: Folder) -> None:
    """The host measured launches 0-6, the container 2-9; what only one has, or what failed, does not count."""
    host = [*spread(10e-6, 7), None, None, None]
    multi = [None, None, *times(1.5, spread(10e-6, 7)[2:]), 1.0, 1.0, 1.0]
    paired = folder.sides(host, multi)
    assert paired.ratio is not None and (paired.ratio.n, paired.ratio.value) == pytest.approx((5, 1.5))
    multi = times(1.5, spread(10e-6, 12))
    multi[4] = multi[9] = "out of memory"
    failing = folder.sides(spread(10e-6, 12), multi)
    assert failing.ratio is not None and (failing.verdict, failing.ratio.n) == ("slower", 10)


@pytest.mark.parametrize(
    ("base", "other", "why"),
    [([1e-6, None], [None, 1e-6], Reason("no common blocks")),
     (spread(1e-6), ["it died"] * 10, Reason("not measured", ("multi strict", "failed", "it died"))),
     ([made_failure(HOST, 0, "no such algorithm", "skipped")], spread(1e-6),
      Reason("not measured", ("host", "skipped", "no such algorithm"))),
     # medians of zero are no numbers to compare
     (spread(1e-6), [0.0] * 10, Reason("clock 0")), ([0.0, *spread(1e-6)[1:]], spread(1e-6), Reason("clock 0")),
     ([0.0] * 8, [0.0] * 8, Reason("clock 0"))],
)  # fmt: skip
def test_why_there_is_no_verdict(folder: Folder, base: list[Entry], other: list[Entry], why: Reason) -> None:
    comparison = folder.sides(base, other)
    assert (comparison.verdict, comparison.why) == ("not comparable", why)
    assert (comparison.ratio, comparison.sizes) == (None, 0)
    assert why.kind != "not measured" or (comparison.base is None) is (why.values[0] == "host")


OURS, OLD, USED = (f"/{name}/libmpi.so.40" for name in ("ours", "old", "opt"))


@pytest.mark.parametrize(
    ("loaded", "workload", "instead"),
    [([Loaded("libmpi.so", OURS, "b" * 64)], {}, None), ([], {}, None), ([Loaded("libm.so")], {}, None),
     ([Loaded("libmpi.so")], {}, (USED, "a" * 64)), ([Loaded("libmpi.so", OLD, "c" * 64)], {}, (OLD, "c" * 64)),
     ([Loaded("libmpi.so", OURS, "b" * 64), Loaded("libmpi.so", OLD, "c" * 64)], {}, (OLD, "c" * 64)),
     ([Loaded("libmpi.so")], {"backend": None}, None)],  # a program, which another process executes
)  # fmt: skip
def test_a_side_whose_ranks_did_not_load_its_library_is_not_comparable(
    folder: Folder, loaded: list[Loaded], workload: dict[str, None], instead: tuple[str, str] | None
) -> None:
    base, other = (HOST.having(side=side, **workload) for side in ("base", "other"))
    used = (Library(name="Open MPI", version="5", path=USED, sha256="a" * 64),)
    given = made_runs.image(side="other", files={OURS: "b" * 64}, libraries=used)
    inside = msgspec.structs.replace(given, files={OURS: "d" * 64})
    known = made_runs.experiment((), images=(inside,), environments=(given, made_runs.image(side="base")))
    entries = [made_record(other, launch, 0.5e-6, notes=tuple(map(loaded_note, loaded))) for launch in range(6)]
    observed = folder.run({base: [1e-6] * 6, other: entries}, experiment=known)
    [comparison] = compare(within(observed, FACTORS["side"], frozenset({"library", "library-file"})))
    assert comparison.verdict == ("not comparable" if instead else "faster")
    if instead:
        assert comparison.why == Reason("not loaded", ("other", OURS, "b" * 64, *instead))
        [advised] = advise(questions(observed, {}), observed.interleaved)
        [apart] = [{option["side"]: apart.why for option, apart in size.apart.items()} for size in advised.sizes]
        assert apart == {"other": comparison.why}


def test_runs_in_a_folder_are_launches_and_one_that_was_recorded_twice_counts_once(tmp_path: Path) -> None:
    base, other = (observe(write_launches(tmp_path / name, {PLAIN: spread(centre)}))
                   for name, centre in (("a", 10e-6), ("b", 12e-6)))  # fmt: skip
    [comparison] = compare(across(base, other, None, frozenset()), in_blocks=base.interleaved)
    assert comparison.ratio is not None
    assert (comparison.verdict, comparison.blocks, comparison.ratio.n) == ("slower", False, 10)
    assert list(base.cells[PLAIN].launches) == list(range(10))
    twice = [made_record(PLAIN, 0, 10e-6), made_record(PLAIN, 0, 99e-6), made_record(PLAIN, 1, 11e-6)]
    cell = observe(write_run(tmp_path / "run", {PLAIN: twice})).cells[PLAIN]
    assert (list(cell.medians), cell.repeated) == ([10e-6, 11e-6], 1)


# Of one pair the same is said everywhere, whichever side is the base --------------------------------------------------


@pytest.mark.parametrize(
    ("base", "other"),
    [([1.0] * 10, [1.5, 1.6] * 5), ([2.0, 2.1] * 5, [1.0] * 10), ([1.0, 1.0, 1.3] * 20, [1.001] * 60),
     ([1.0] * 4, [1.1] * 4)],
)  # fmt: skip
def test_sides_that_change_places_are_opposite(folder: Folder, base: list[float], other: list[float]) -> None:
    (pair,) = opposed(folder.run({HOST: base, MULTI: other}).cells.values(), FACTORS["policy"])
    back = replace(pair, base=pair.other, other=pair.base, base_name=pair.other_name, other_name=pair.base_name)
    (forth,), (opposite,) = compare([pair]), compare([back])
    assert forth.ratio is not None and opposite.ratio is not None
    assert opposite.ratio.value == pytest.approx(1 / forth.ratio.value)
    assert (opposite.ratio.interval or ()) == pytest.approx([1 / end for end in (forth.ratio.interval or ())[::-1]])
    assert opposite.verdict == {"slower": "faster", "faster": "slower"}.get(forth.verdict, forth.verdict)
    assert (opposite.base, opposite.other, opposite.why) == (forth.other, forth.base, forth.why)
    assert (opposite.slow is None) == (forth.slow is None)
    if forth.slow is not None and opposite.slow is not None:
        assert (opposite.slow.base, opposite.slow.other) == (forth.slow.other, forth.slow.base)


# Samples within launches that a median hides --------------------------------------------------------------------------


def with_means(means: float, samples: int = 1000, launches: int = 12) -> dict[Case, list[Entry]]:
    """Equal medians on the host and in a container, where launch means are so many times as long."""
    taken = Samples(n=samples, invalid=0, warmup=5)
    return {case: [made_record(case, number, time, mean=time * factor * 1.01, samples=taken)
                   for number, time in enumerate(spread(10 * US, launches, 0.002))]
            for case, factor in ((HOST, 1.0), (MULTI, means))}  # fmt: skip


def test_samples_far_slower_on_one_side_stand_beside_the_verdict(folder: Folder) -> None:
    """Of 40 % of the samples ten times as long the mean is 4.6 times as long, and the median the same."""
    (comparison,) = folder.by_policy(with_means(4.6))
    assert comparison.verdict == "same" and comparison.slow is not None
    assert comparison.slow.means == pytest.approx(4.6, rel=0.01) and comparison.slow.on_other
    # below 1.25, of few samples, and of six launches, of which no bound is at 1 %, it is none
    for means, samples, launches in ((1.2, 1000, 12), (4.6, 100, 12), (4.6, 1000, 6)):
        assert [one.slow for one in folder.by_policy(with_means(means, samples, launches))] == [None]


def test_a_check_fails_and_the_steady_option_is_taken(here: Collbench, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", with_means(4.6))
    assert here("compare", run, "--by", "policy", "--fail-on", "slower").code == 1
    (entry,) = json.loads(here("compare", run, "--by", "policy", "--style", "json").out)["comparisons"]
    assert entry["slow"]["means"] == pytest.approx(4.6, rel=0.01)
    (size,) = advice_on(run)[0].sizes
    assert size.take["policy"] == "host"
    assert [one.slow_at_times for one in size.options.values()] == [False, True]


# Launches of programs during which others used the cores leave a comparison on both sides; and CPU seconds

BARE, INSIDE = program_case(), program_case("multi", "strict")


def contended(of_host: Collection[int] = (7,), inside: Collection[int] = (2, 5)) -> dict[Case, list[Entry]]:
    """Blocks 2 and 5 took twice the time in the container, and block 7 three times on the host."""
    slow = [2.0 if block in (2, 5) else time for block, time in enumerate(spread(1.0))]
    host_slow = [3.0 if block == 7 else time for block, time in enumerate(spread(1.0))]
    return {BARE: [*launches_of(BARE, host_slow, of_host)], INSIDE: [*launches_of(INSIDE, slow, inside)]}


#: The container takes much longer in most blocks, in which it was contended.
BUSY = {BARE: launches_of(BARE, spread(1.0, 14)),
        INSIDE: launches_of(INSIDE, [5.0 if block < 8 else 0.5 for block in range(14)], range(8))}  # fmt: skip


def test_a_block_that_was_contended_on_either_side_leaves_both(folder: Folder) -> None:
    [comparison] = folder.by_policy(contended())
    assert (comparison.contended, comparison.launches, comparison.left_out) == (3, (7, 7), 0)
    assert comparison.verdict == "same" and comparison.paper_diff == pytest.approx(0.0, abs=0.5)
    assert comparison.base is not None and comparison.base.n == 7
    assert len(comparison.pair.base.medians) == 10, "the table says of how many"


def test_blocks_without_a_partner_and_of_ranks_are_not_left_out(folder: Folder) -> None:
    for more in (BARE, INSIDE):
        cells = {case: launches_of(case, spread(1.0, 12 if case == more else 10), (11,)) for case in (BARE, INSIDE)}
        assert [one.contended for one in folder.by_policy(cells)] == [0]
    ranks = {case: [made_record(case, n, 1.0, contended=n == 3) for n in range(8)] for case in (HOST, MULTI)}
    assert [(one.contended, one.launches) for one in folder.by_policy(ranks)] == [(0, (8, 8))]


def test_too_few_that_are_left_are_undecided_with_the_reason(folder: Folder) -> None:
    [few] = folder.by_policy(contended(of_host=range(5)))
    assert (few.verdict, few.launches_more, few.why) == ("unclear", 2, Reason("few launches", (2,), contended=6))
    [none] = folder.by_policy(contended(range(5), range(5, 10)))
    assert (none.verdict, none.launches, none.contended, none.ratio) == ("unclear", (0, 0), 10, None)
    assert none.why == Reason("no launches", contended=10)
    assert none.base is not None and none.cpu[0] is not None, "what was measured is shown"


def test_what_left_is_said_in_table_and_json_and_nothing_left_fails_a_check(here: Collbench, tmp_path: Path) -> None:
    some, none = (write_run(tmp_path / name, cells) for name, cells in
                  (("some", contended()), ("none", contended(range(10)))))  # fmt: skip
    shown = here("compare", some, "--by", "policy", "--all", "--fail-on", "slower")
    assert shown.code == 0 and "7 of 10" in shown.out and re.search(r"\bCPU\b.*: 3$", shown.out, re.MULTILINE)
    document = json.loads(here("compare", some, "--by", "policy", "--style", "json").out)
    assert document["comparisons"][0]["contended"] == 3
    assert any(" CPU " in note and note.endswith(": 3") for note in document["notes"])
    failed = here("compare", none, "--by", "policy", "--all", "--fail-on", "slower")
    assert failed.code == 1 and "0 of 10" in failed.out


def test_of_two_runs_each_side_loses_its_own_and_a_baseline_keeps_which(folder: Folder) -> None:
    base, other = (folder.run({BARE: launches_of(BARE, spread(1.0), busy)}) for busy in ((1, 2), (3,)))
    [comparison] = compare(across(base, other, None, frozenset()), in_blocks=False)
    assert (comparison.contended, comparison.launches) == (3, (8, 9))
    run = folder.run(contended())
    save_baseline(run, folder.path / "baseline.json")
    stored = load_baseline(folder.path / "baseline.json")
    assert (stored.cells[INSIDE].contended, stored.cells[INSIDE].cpu) == ({2, 5}, run.cells[INSIDE].cpu) != ({2, 5}, {})
    kept = folder.path / "baseline.json"
    kept.write_text(kept.read_text().replace('"title": "', '"title": "\\\\'))  # texts with escapes are read another way
    assert load_baseline(kept).cells[INSIDE].cpu == stored.cells[INSIDE].cpu
    [comparison] = compare(across(stored, run, None, frozenset({"policy"}))[:1], in_blocks=False)
    assert comparison.contended == 2
    cell = joined([(run.cells, 0), (folder.run(contended()).cells, 10)])[INSIDE]
    assert cell.contended == {2, 5, 12, 15} and cell.cpu.keys() == set(range(20))


def test_advice_is_taken_from_launches_that_were_not_contended(folder: Folder, tmp_path: Path) -> None:
    """The container is faster in the others; none are left where every launch was."""
    [advice] = advice_on(write_run(tmp_path / "run", BUSY))
    [size] = advice.sizes
    assert size.take["policy"] == "multi" and size.bound == 1.0
    assert [one.out for one in size.options.values()] == [False, True]
    [nothing] = advice_on(write_run(tmp_path / "nothing", contended(range(10), range(10))))
    assert (nothing.sizes, nothing.ranges) == ((), ())
    cells = list(folder.run(contended()).cells.values())
    assert [len(together(cells, in_blocks)) for in_blocks in (True, False)] == [7, 8]
    assert together(cells, in_blocks=True).max() < 1.5


def test_cpu_seconds_tell_waiting_from_computing(compare: Collbench, tmp_path: Path) -> None:
    """Those of the container, where it takes twice the time; and of sides that agree."""

    def remarked(seconds: float, cpu: float) -> bool:
        host, inside = launches_of(BARE, spread(0.8), cpu=0.75), launches_of(INSIDE, spread(seconds), cpu=cpu)
        run = write_run(tmp_path / f"{seconds} {cpu}", {BARE: host, INSIDE: inside})
        out = " ".join(compare(run, "--by", "policy", "--all").out.split())
        assert ("CPU s/s" in out) is ("(host 0.75 s, multi strict 0.76 s), in 1.6 s against 0.8 s:" in out)
        return "CPU s/s" in out

    assert [remarked(1.6, 0.76), remarked(1.6, 1.5), remarked(0.8, 0.75)] == [True, False, False]


def test_cpu_seconds_are_those_of_the_launches_that_are_compared(folder: Folder, compare: Collbench) -> None:
    """And null for ranks."""
    [comparison] = folder.by_policy(BUSY)
    assert comparison.cpu[1] is not None
    assert (comparison.cpu[1].seconds, comparison.cpu[1].share) == pytest.approx((0.5, 1.0), rel=0.01)
    programs = write_run(folder.path / "programs", contended())
    [entry] = json.loads(compare(programs, "--by", "policy", "--style", "json").out)["comparisons"]
    second = pytest.approx(1.0, rel=0.01)
    assert entry["base"]["cpu"] == {"seconds": second, "wall": second, "share": 1.0}
    ranks = write_run(folder.path / "ranks", {HOST: spread(1e-6), MULTI: spread(1e-6)})
    [entry] = json.loads(compare(ranks, "--by", "policy", "--style", "json").out)["comparisons"]
    assert entry["base"]["cpu"] is None and "CPU" not in compare(ranks, "--by", "policy").out


@pytest.mark.parametrize(
    ("interval", "verdict", "reason"),
    [((0.99, 1.01), "same", Reason("within margin")), ((1.1, 1.2), "faster", Reason("excludes equality"))],
)
def test_why_there_is_a_verdict(interval: tuple[float, float], verdict: Verdict, reason: Reason) -> None:
    assert judge(Estimate(1.0, interval, 10), 0.05) == (verdict, reason, None)


def test_an_interval_at_any_time_is_the_reciprocal_of_the_other_side() -> None:
    base, other = spread(1e-6), [1.1 * time * factor for time, factor in zip(spread(1e-6), spread(1.0), strict=True)]
    one, back = ratio_at_any_time(other, base, 0.5), ratio_at_any_time(base, other, 0.5)
    assert one.interval is not None and back.interval is not None
    assert one.interval[0] < one.value < one.interval[1]
    assert back.interval == pytest.approx((1 / one.interval[1], 1 / one.interval[0]))
