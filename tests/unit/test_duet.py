"""Duets on the fake engine: what is recorded of worlds that take turns, how the driver leads them, and what goes wrong.

Where something does, the others measure everything, and no broken pair counts.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace as with_values
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, get_args

import msgspec
import pytest
from tests.unit.duet_worlds import (
    CLOCK,
    PLAN,
    ROUNDS,
    Fault,
    Moment,
    What,
    Worlds,
    by_cell,
    carried_out,
    duet_of,
    how,
    made_ready,
    place_of,
    turns,
    with_rounds,
)
from tests.unit.made_worlds import Heard

from collbench.analysis.results import cells_of
from collbench.errors import Interrupted
from collbench.launch import duet
from collbench.launch.campaign import finished, run_campaign
from collbench.launch.cells import LaunchCell, LaunchPart
from collbench.launch.duet import CHECKED
from collbench.launch.engines import fake
from collbench.launch.expansion import MOST_WORLDS
from collbench.schema.case import Alignment
from collbench.schema.plan import Plan
from collbench.schema.world import Order, SliceRule
from collbench.timing.loop import LARGEST_SLACK

__all__ = ["turns"]

pytestmark = pytest.mark.usefixtures("turns")

A, B, C = "single strict", "multi strict", "single visible"
SIZES = (8, 16, 32)
ALL = set(itertools.product((A, B), SIZES))
THREE = msgspec.structs.replace(PLAN, isolation=("strict", "visible"))
SEVEN = msgspec.structs.replace(THREE, isolation=("strict", "visible", "files"), seccomp=("default", "unconfined"),
                                sizes=("8",))  # fmt: skip


def taking(rows: Mapping[str, tuple[float | None, ...]]) -> Worlds:
    """Each round of a place takes what its row says."""
    return Worlds(seconds=lambda place, size, number: rows[place][number])


def expected_of(rows: Mapping[str, tuple[float, ...]], place: str) -> float:
    """The compared time, by its definition: the median ratio to the middles of the rounds, times their mean."""
    middles = [geometric_mean(times) for times in zip(*rows.values(), strict=True)]
    ratios = [time / middle for time, middle in zip(rows[place], middles, strict=True)]
    return median(ratios) * geometric_mean(middles)


# What is recorded ----------------------------------------------------------------------------------------------------


def test_two_worlds_on_the_same_cores_are_a_duet(turns: Path) -> None:
    heard = carried_out(Worlds())
    records = by_cell(heard)
    assert set(records) == ALL
    assert heard.said == [None, None]
    starts = set()
    for (place, _), record in records.items():
        assert (record.how, record.alone, record.status) == ("duet", None, "ok")
        duet = duet_of(record)
        assert (duet.worlds, duet.checked, duet.reference, len(duet.slices)) == (2, CHECKED, False, ROUNDS)
        starts.add((place, duet.started))
        for taken in duet.slices:
            assert (taken.n, taken.seconds, taken.halves, taken.asleep, taken.slept, taken.valid) == (
                20, 1e-5, (1e-5, 2e-5), 0.0, 0.1, True
            )  # fmt: skip
    assert len(starts) == 2 and {number for _, number in starts} == {0, 1}
    for size in SIZES:
        begun = [taken.start for place in (A, B) for taken in duet_of(records[place, size]).slices]
        assert min(begun) == 0.0 and len(set(begun)) == len(begun), "in s since the case began"
    assert list(turns.iterdir()) == []


def test_the_compared_time_is_the_median_ratio_on_the_level_of_all_rounds() -> None:
    """Rounds that move both leave the ratio; one round that moves one of them does not count for it."""
    rows = {A: (1e-5, 4e-5, 1e-5), B: (2e-5, 8e-5, 9e-5)}
    records = by_cell(carried_out(taking(rows)))
    times = {place: duet_of(records[place, 8]).seconds for place in (A, B)}
    for place in (A, B):
        assert [taken.seconds for taken in duet_of(records[place, 8]).slices] == list(rows[place])
        assert times[place] == pytest.approx(expected_of(rows, place))
    assert times[B] / times[A] == pytest.approx(2.0), "the median round; the mean says 3.3"
    (cell,) = cells_of([records[B, 8]]).values()
    seconds = records[B, 8].seconds
    assert seconds is not None and list(cell.medians) == [times[B]] != [seconds.p50], "what observations take"


def test_three_worlds_are_compared_with_their_middle() -> None:
    rows = {A: (1e-5, 2e-5, 3e-5), B: (2e-5, 3e-5, 9e-5), C: (5e-5, 5e-5, 5e-5)}
    records = by_cell(carried_out(taking(rows), THREE))
    assert {place for place, _ in records} == {A, B, C}
    for (place, _), record in records.items():
        assert duet_of(record).worlds == 3
        assert duet_of(record).seconds == pytest.approx(expected_of(rows, place))


def test_turns_are_in_a_random_order_that_the_seed_repeats() -> None:
    orders = []
    for seed in (1, 1, 2):
        worlds = Worlds()
        heard = carried_out(worlds, seed=seed, launches=4)
        orders.append([place for place, order in worlds.heard if order.act == "slice"])
        for record in heard.records:
            other = by_cell(heard, record.launch)[A if record.case.where.text == B else B, record.case["size"]]
            assert {duet_of(record).slices[0].place, duet_of(other).slices[0].place} == {0, 1}
    assert orders[0] == orders[1] != orders[2]
    of_one_launch = orders[0][: 2 * ROUNDS * len(SIZES)]
    for firsts in (Counter(of_one_launch[::2]), Counter(orders[0][::2])):
        assert min(firsts[A], firsts[B]) >= sum(firsts.values()) / 5


def test_worlds_are_started_in_the_order_of_launches_and_each_launch_is_reported_once() -> None:
    heard = carried_out(Worlds(), launches=8)
    first = {record.launch: record.case.where.text for record in heard.records if duet_of(record).started == 0}
    ready, _ = made_ready(Worlds(), msgspec.structs.replace(PLAN, launches=8))
    assert first == {launch.number: place_of(launch.cell) for launch in reversed(ready.expanded.order)}
    assert set(first.values()) == {A, B}
    assert heard.said == [None] * 16
    assert Counter(record.launch for record in heard.records) == dict.fromkeys(range(8), 2 * len(SIZES))


# How the driver leads ------------------------------------------------------------------------------------------------


def test_one_world_moves_at_a_time_and_both_measure_the_same_case() -> None:
    worlds = Worlds()
    carried_out(worlds)
    acts = worlds.acts()
    assert [act for _, act in acts] == ["begin", "begin", "end", "end"] * len(SIZES) + ["end", "end"]
    for first, second in zip(acts[::2], acts[1::2], strict=True):
        assert {first[0], second[0]} == {A, B}
    slices = [place for place, order in worlds.heard if order.act == "slice"]
    assert len(slices) == 2 * ROUNDS * len(SIZES)
    assert all({slices[k], slices[k + 1]} == {A, B} for k in range(0, len(slices), 2))
    assert [order.anew for order in worlds.slices(A)] == [True, False, False] * len(SIZES), "the first of a case alone"
    rule = SliceRule(rounds=ROUNDS, fewest=ROUNDS)
    orders = {(order.seconds, order.operations, order.rule, order.sleepers) for order in worlds.slices(A)}
    assert orders == {(rule.seconds, 0, rule, 1)}


def test_a_quota_in_one_world_makes_the_slices_of_both_longer() -> None:
    worlds = Worlds(quota=(B,))
    carried_out(worlds)
    assert {order.seconds for _, order in worlds.heard if order.act == "slice"} == {1.0}


@pytest.mark.parametrize(("iters", "sizes"), [(20, [7, 7, 6]), (3, [1, 1, 1]), (2, [1, 1])])
def test_a_plan_that_fixes_samples_has_so_many_in_all(iters: int, sizes: list[int]) -> None:
    worlds = Worlds()
    heard = carried_out(worlds, iters=iters, sizes=("8",))
    assert [order.operations for order in worlds.slices(A)] == [order.operations for order in worlds.slices(B)] == sizes
    assert set(how(heard).values()) == {"duet"}


@pytest.mark.parametrize(
    ("rounds", "samples", "passed", "expected"),
    [(5, 0, 9.0, False), (6, 0, 0.7, False), (6, 0, 1.3, True), (19, 0, 1.1, False), (20, 0, 0.1, True),
     (5, 8, 9.0, False), (6, 8, 0.1, True), (9, 20, 9.0, False), (10, 20, 0.1, True), (19, 99, 9.0, False),
     (20, 99, 0.1, True), (2, 3, 9.0, False), (3, 3, 0.1, True)],
)  # fmt: skip
def test_long_slices_are_fewer(rounds: int, samples: int, passed: float, expected: bool) -> None:
    """Slices of 25 ms and 5 ms before them take 0.6 s in 20 rounds."""
    assert duet._enough(rounds, samples, passed, SliceRule()) == expected


@pytest.mark.parametrize(
    ("operation", "seconds"), [(1e-6, 0.6), (0.002, 1.04), (0.05, 3.45), (0.1, 6.75), (1.0, 18.15)]
)
def test_how_long_the_slices_of_a_world_take(operation: float, seconds: float) -> None:
    assert SliceRule().lasts(operation) == pytest.approx(seconds)


ROUNDTIME = msgspec.structs.replace(PLAN, align="auto", sizes=("8",))
BOTH: dict[str, tuple[Alignment, int]] = {A: ("roundtime", 1000), B: ("roundtime", 1000)}
Late = Callable[[str, int, Order], int]
ROUND, BARRIER, HIGHEST = "roundtime", "barrier", LARGEST_SLACK
#: What B or A need, how many of 20 samples are late, what the plan says, and how the slices of both align, with slacks.
ALIGNMENTS: dict[str, tuple[dict[str, tuple[Alignment, int]], Late, dict[str, Any], list[tuple[str, int]]]] = {
    "the larger slack": ({B: ("roundtime", 5000)}, lambda *_: 0, {}, [(ROUND, 5000)] * 3),
    "the barrier of one": ({B: ("barrier", 0)}, lambda *_: 0, {}, [(BARRIER, 1000)] * 3),
    "5 % late": ({}, lambda place, *_: int(place == B), {}, [(ROUND, 1000)] * 3),
    "10 % late, of few": ({}, lambda place, *_: 2 * (place == B), {}, [(ROUND, 1000)] * 3),
    "55 % late": (
        {}, lambda place, size, order: 11 * (place == B and order.slack < 16000), {},
        [(ROUND, 1000), (ROUND, 4000), (ROUND, 16000)],
    ),
    "late at the largest slack": ({A: ("roundtime", HIGHEST)}, lambda *_: 2, {}, [(ROUND, HIGHEST)] * 3),
    "mostly late": (
        {}, lambda place, size, order: 15 * (place == B and order.align == "roundtime"), {},
        [(ROUND, 1000), (ROUND, 4000), (ROUND, 16000), *[(BARRIER, 64000)] * 3],
    ),
    "mostly late, and the plan fixes the align": (
        {}, lambda *_: 15, {"align": "roundtime"}, [(ROUND, 1000), (ROUND, 4000), (ROUND, 16000)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", ALIGNMENTS)
def test_gate_and_slack_are_those_of_the_world_that_needs_more(which: str) -> None:
    ready, late, values, expected = ALIGNMENTS[which]
    worlds = Worlds(ready=BOTH | ready, late=late)
    heard = carried_out(worlds, ROUNDTIME, **values)
    for place in (A, B):
        assert [(order.align, order.slack) for order in worlds.slices(place)] == expected
        alignments = [order.align for order in worlds.slices(place)]
        assert [order.anew for order in worlds.slices(place)] == [
            n == alignments.index(g) for n, g in enumerate(alignments)
        ]
    assert {len(duet_of(record).slices) for record in heard.records} == {ROUNDS}, (
        "what is before another alignment is none"
    )


def test_hopeless_rounds_in_a_row_end_a_gate_early(monkeypatch: pytest.MonkeyPatch) -> None:
    with_rounds(monkeypatch, SliceRule(rounds=20))
    worlds = Worlds(ready=BOTH, late=lambda place, size, order: 15 if order.align == "roundtime" else 0)
    carried_out(worlds, ROUNDTIME)
    assert [order.align for order in worlds.slices(A)] == ["roundtime"] * 6 + ["barrier"] * 20


def test_a_round_without_a_sample_in_time_does_not_count_for_the_ratio() -> None:
    records = by_cell(carried_out(taking({A: (1e-5, 1e-5, 4e-5), B: (2e-5, None, 2e-5)})))
    kept = [(1e-5, 2e-5), (4e-5, 2e-5)]
    level = geometric_mean([geometric_mean(pair) for pair in kept])
    ratio = math.sqrt(math.prod(a / math.sqrt(a * b) for a, b in kept))
    assert duet_of(records[A, 8]).seconds == pytest.approx(level * ratio)
    assert [taken.seconds for taken in duet_of(records[B, 8]).slices] == [2e-5, 0.0, 2e-5]
    heard = carried_out(taking({A: (1e-5,) * 3, B: (None,) * 3}))
    assert set(how(heard).values()) == {"partner"}, "no round is no pair"


def test_a_case_that_a_world_skips_or_gets_wrong_is_no_duet() -> None:
    by_case = how(carried_out(Worlds(skips=((B, 16),), wrong=((B, 32),))))
    del by_case[A, 32]  # which may have been a pair when its partner failed
    assert by_case == {(A, 8): "duet", (B, 8): "duet", (A, 16): "partner", (B, 16): "skipped", (B, 32): "failed"}


def test_only_what_both_skip_is_measured_by_nobody() -> None:
    worlds = Worlds(skips=((A, 16), (B, 16)))
    by_case = how(carried_out(worlds))
    assert (by_case[A, 16], by_case[B, 16], by_case[A, 32]) == ("skipped", "skipped", "duet")
    assert "alone" not in {act for _, act in worlds.acts()}


@pytest.mark.parametrize(
    ("first", "second"), [((8, 16), (8, 32)), ((16, 32), (8, 16)), ((32,), (8, 16, 32)), ((8,), (32,))]
)
def test_worlds_with_different_parts_meet_in_what_both_measure(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    for sizes, others in ((first, second), (second, first)):
        (ready, session), heard = made_ready(Worlds()), Heard()
        parts = {}
        for cell, cases in ready.expanded.expected.items():
            own = sizes if place_of(cell) == A else others
            parts[cell] = LaunchPart(frozenset(case for case in cases if case["size"] in own))

        def wanted(number: int, parts: dict[LaunchCell, LaunchPart] = parts) -> dict[LaunchCell, LaunchPart]:
            return parts

        run_campaign(ready, heard, frozenset(), {}, lambda: None, wanted)
        assert session.left == []
        assert how(heard) == {
            (place, size): "duet" if size in sizes and size in others else "partner"
            for place, of_place in ((A, sizes), (B, others)) for size in of_place
        }  # fmt: skip


@pytest.mark.parametrize(("values", "alone"), [({"how": "blocks"}, "plan"), ({"policies": ("single",)}, "single")])
def test_alone_no_turns_are_taken(values: dict[str, Any], alone: str) -> None:
    worlds = Worlds()
    heard = carried_out(worlds, **values)
    assert (set(how(heard).values()), worlds.heard) == ({alone}, [])
    assert {record.how for record in heard.records} == {"blocks"}


# More worlds than live at once ----------------------------------------------------------------------------------------


def own_seconds(plan: Plan) -> dict[str, float]:
    """A time of its own for each place of the plan, of which there are more than live at once."""
    places = [place_of(cell) for cell in made_ready(Worlds(), plan)[0].expanded.cells]
    assert len(places) > MOST_WORLDS
    return {place: 1e-5 * (1 + number) for number, place in enumerate(places)}


def test_more_worlds_than_live_at_once_are_linked_by_their_reference() -> None:
    """The machine is slower while the second group measures: the level is that of the first one."""
    own = own_seconds(SEVEN)
    met: list[str] = []

    def seconds(place: str, size: int, number: int) -> float:
        met.append(place)
        return own[place] * (3.0 if len(met) > ROUNDS * len(set(met[: ROUNDS * 6])) else 1.0)

    worlds = Worlds(seconds=seconds)
    heard = carried_out(worlds, SEVEN)
    records = by_cell(heard)
    assert set(records) == {(place, 8) for place in own}, "the reference is recorded once"
    assert {record.how for record in records.values()} == {"duet"}
    reference = next(iter(own))
    assert [place for (place, _), record in records.items() if duet_of(record).reference] == [reference]
    assert {place: duet_of(record).seconds for (place, _), record in records.items()} == pytest.approx(own)
    assert Counter(place for place, order in worlds.heard if order.act == "begin")[reference] == 2
    assert heard.said == [None] * len(own)


def test_what_is_left_of_a_block_is_linked_by_the_reference_that_was_measured() -> None:
    """It was interrupted after its first group, and goes on when the machine is three times as slow."""
    plan = msgspec.structs.replace(SEVEN, launches=2)
    own = own_seconds(plan)
    before = carried_out(Worlds(seconds=lambda place, size, number: own[place]), plan).records
    first = [record for record in before if record.launch == 0][:4]
    assert any(duet_of(record).reference for record in first)
    ready, _ = made_ready(Worlds(seconds=lambda place, size, number: 3 * own[place]), plan)
    heard, done = Heard(), finished(ready.expanded, tuple(first))
    known = {(record.case, record.launch): duet_of(record).seconds for record in first}
    run_campaign(ready, heard, done, known, lambda: None)
    left = set(own) - {record.case.where.text for record in first}
    for launch, expected in ((0, {place: own[place] for place in left}), (1, {place: 3 * own[place] for place in own})):
        seconds = {place: duet_of(record).seconds for (place, _), record in by_cell(heard, launch).items()}
        assert seconds == pytest.approx(expected)


# What goes wrong -----------------------------------------------------------------------------------------------------


#: What a fault at a moment of the case of 16 B leaves of the world that has it: (size, how) of its records.
LEFT = {
    "start": {8: "failed"},
    "before": {8: "duet", 16: "failed"},
    "slice": {8: "duet", 16: "failed"},
    "end": {8: "duet", 16: "partner", 32: "failed"},  # it had recorded the case
}


def faulty(moment: Moment, what: What) -> Fault:
    return Fault(moment, what, size=8 if moment == "start" else 16, place=B)


@pytest.mark.parametrize("what", get_args(What))
@pytest.mark.parametrize("moment", get_args(Moment))
def test_a_world_that_goes_wrong_leaves_the_other_one_whole(turns: Path, moment: Moment, what: What) -> None:
    heard = carried_out(Worlds(fault=faulty(moment, what)))
    by_case, left = how(heard), LEFT[moment]
    if (moment, what) == ("end", "asleep"):
        left = {8: "duet", 16: "duet", 32: "failed"}  # it had reported that the case was over
    assert {size: by_case[B, size] for place, size in by_case if place == B} == left
    assert all(by_case[A, size] == ("duet" if left.get(size) == "duet" else "partner") for size in SIZES)
    assert len(heard.said) == 2 and heard.said.count(None) == 1
    assert list(turns.iterdir()) == []


@pytest.mark.parametrize("place", [A, B])
def test_a_world_that_dies_after_a_case_was_part_of_its_pair(place: str) -> None:
    """Whether it is the first or the last one to say that the case is over."""
    by_case = how(carried_out(Worlds(fault=Fault("end", "asleep", place=place))))
    assert by_case == dict.fromkeys(ALL, "duet") | {(place, 32): "failed", (A if place == B else B, 32): "partner"}


@pytest.mark.parametrize("moment", get_args(Moment))
def test_a_world_that_fails_is_removed_before_the_others_measure_on(moment: Moment) -> None:
    """Its ranks may still compute on their cores."""
    worlds = Worlds(fault=faulty(moment, "silent"))
    ready, session = made_ready(worlds)
    beside: list[int] = []
    worlds.recorded = lambda place, size: beside.append(len(session.left))
    run_campaign(ready, Heard(), frozenset(), {}, lambda: None)
    assert beside[-2:] == [1, 1], "its last two cases"


def test_the_reason_of_a_failed_world_says_what_it_did(golden: Callable[[str, str], None]) -> None:
    reasons = {what: by_cell(carried_out(Worlds(fault=faulty("slice", what))))[B, 16].reason for what in get_args(What)}
    golden("duet-reasons.txt", "".join(f"{what}: {reason}\n" for what, reason in reasons.items()))


@pytest.mark.parametrize("moment", ["before", "slice", "end"])
def test_of_three_worlds_two_go_on_as_a_pair(moment: Moment) -> None:
    worlds = Worlds(fault=faulty(moment, "killed"))
    records = by_cell(carried_out(worlds, THREE))
    for place in (A, C):
        assert [records[place, size].how for size in SIZES] == [
            "duet", "blocks" if moment == "end" else "duet", "duet"
        ]  # fmt: skip
        assert [len(duet_of(records[place, size]).slices) for size in (8, 32)] == [ROUNDS] * 2
    if moment == "slice":
        anew = [order.anew for order in worlds.slices(A)]
        assert anew.count(True) == 4, "the case of 16 B began again"


@pytest.mark.parametrize("values", [
    {"seconds": -1.0}, {"seconds": 0.0}, {"n": -1}, {"late": -5}, {"asleep": -1.0}, {"slept": -1.0},
    {"halves": (-1.0, 1.0)}, {"seconds": 1e300}, {"slept": 1e300}, {"n": 1 << 63},
])  # fmt: skip
def test_numbers_that_no_world_can_measure_are_its_failure_alone(values: dict[str, Any]) -> None:
    """A container writes what it likes."""
    by_case = how(carried_out(Worlds(odd={B: values})))
    assert [by_case[A, size] for size in SIZES] == ["partner"] * 3
    assert by_case.get((B, 8)) == "failed"


def test_a_driver_that_was_stopped_blames_no_world() -> None:
    """Its clock went on by an hour while it waited for a slice."""

    def seconds(place: str, size: int, number: int) -> float:
        CLOCK.ahead += 3600.0 * ((place, size, number) == (B, 16, 1))
        return 1e-5

    assert set(how(carried_out(Worlds(seconds=seconds))).values()) == {"duet"}
    assert CLOCK.ahead == 3600.0


def test_whenever_it_is_interrupted_only_whole_pairs_are_kept_and_the_rest_is_measured_later(turns: Path) -> None:
    plan = msgspec.structs.replace(PLAN, sizes=("8", "16"))
    kept_at = {}
    for number in itertools.count():
        worlds = Worlds()

        def check(worlds: Worlds = worlds, number: int = number) -> None:
            if len(worlds.heard) >= number:
                raise Interrupted("interrupted.")

        (ready, session), heard = made_ready(worlds, plan), Heard()
        with contextlib.suppress(Interrupted):
            run_campaign(ready, heard, frozenset(), {}, check)
            break  # after the last order it is told no more
        assert session.left == [] and list(turns.iterdir()) == []
        kept = how(heard)
        kept_at[number] = {size for _, size in kept}
        assert set(kept) == set(itertools.product((A, B), kept_at[number])), "both or none"
        assert set(kept.values()) <= {"duet"}
        (ready, _), rest = made_ready(Worlds(), plan), Heard()
        known = {(record.case, record.launch): duet_of(record).seconds for record in heard.records}
        run_campaign(ready, rest, finished(ready.expanded, tuple(heard.records)), known, lambda: None)
        assert set(by_cell(rest)) == set(itertools.product((A, B), (8, 16))) - set(kept)
        assert set(how(rest).values()) <= {"duet"}
    assert session.left == [] and list(turns.iterdir()) == []
    per_case = 2 * (1 + ROUNDS + 1)
    assert number > 2 * per_case
    assert kept_at[0] == kept_at[per_case - 1] == set()
    assert kept_at[per_case + 2] == kept_at[2 * per_case - 1] == {8}
    assert kept_at[2 * per_case + 1] == {8, 16}


# Refused -------------------------------------------------------------------------------------------------------------


#: What two worlds say of themselves, and how they are measured then.
TOGETHER: dict[str, tuple[dict[str, Any], str]] = {
    "one memory": ({"holds": {A: ("memory 0:1 5", "own a"), B: ("own b", "memory 0:1 5")}}, "shared"),
    "two memories": ({"holds": {A: ("memory 0:1 5", "own a"), B: ("own b", "memory 0:1 6")}}, "duet"),
    "the same cores": ({"cores": {A: ("boot-a 0-1",), B: ("boot-a 0-1",)}}, "duet"),
    "other cores": ({"cores": {A: ("boot-a 0-1",), B: ("boot-a 0,2",)}}, "elsewhere"),
    "another machine": ({"cores": {A: ("boot-a 0-1",), B: ("boot-b 0-1",)}}, "elsewhere"),
    # Of 0.1 s a rank may use 1 %, and 0.3 ms to wake up: the two of a world 2.6 ms.
    "asleep": ({"asleep": lambda place, number: 0.0025 * (place == B), "slept": 0.1}, "duet"),
    "awake": ({"asleep": lambda place, number: 0.0027 * (place == B), "slept": 0.1}, "awake"),
    # 1 % of so short a sleep is less than what it takes to wake up.
    "asleep for a short time": ({"asleep": lambda place, number: 0.0007 * (place == B), "slept": 0.01}, "duet"),
    "awake for a short time": ({"asleep": lambda place, number: 0.0009 * (place == B), "slept": 0.01}, "awake"),
}


@pytest.mark.parametrize("which", TOGETHER)
def test_worlds_that_cannot_live_at_once_are_performed_alone(which: str) -> None:
    reports, expected = TOGETHER[which]
    worlds = Worlds(**reports)
    heard = carried_out(worlds, launches=2)
    for launch in (0, 1):
        assert how(heard, launch) == dict.fromkeys(ALL, expected)
    assert len(heard.said) == 4
    assert {record.how for record in heard.records} == {"duet" if expected == "duet" else "blocks"}
    if "holds" in reports:
        opened = [place for place, report in worlds.told if report.at == "stands" and report.holds]
        assert len(opened) == (2 if expected == "shared" else 4), "the second block did not try again"
        assert (worlds.heard == []) is (expected == "shared")


def test_two_of_three_that_hold_the_same_thing_are_enough() -> None:
    worlds = Worlds(holds={A: ("x",), B: ("y",), C: ("y",)})
    assert set(how(carried_out(worlds, THREE)).values()) == {"shared"}


def test_worlds_that_do_not_reach_the_driver_are_performed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake, "ENGINE", with_values(fake.ENGINE, local=False, overlaps=True))
    heard = carried_out(worlds := Worlds(apart=(A, B)), launches=2)
    assert how(heard, 0) == how(heard, 1) == dict.fromkeys(ALL, "unreachable")
    assert worlds.told == [] and len(heard.said) == 4


def test_a_round_beside_a_world_that_was_awake_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was awake before its turn in round 4: during the others' in round 3 or 4. Two of twenty are not too many."""
    with_rounds(monkeypatch, SliceRule(rounds=20))
    worlds = Worlds(
        asleep=lambda place, number: 0.05 if place == B and number == 4 else 0.0,
        seconds=lambda place, size, number: 1e-5 * (2.0 if place == B else 1.0) * (9.0 if number in (3, 4) else 1.0),
    )
    records = by_cell(carried_out(worlds, sizes=("8",)))
    for place, seconds in ((A, 1e-5), (B, 2e-5)):
        duet = duet_of(records[place, 8])
        assert [number for number, taken in enumerate(duet.slices) if not taken.valid] == [3, 4]
        assert duet.seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("rounds", "awake", "expected"), [(20, 7, "duet"), (20, 8, "awake"), (6, 3, "duet"), (6, 4, "awake")]
)
def test_a_tenth_of_all_sleeps_may_fail(
    monkeypatch: pytest.MonkeyPatch, rounds: int, awake: int, expected: str
) -> None:
    """Each world sleeps once a round. Of 40 sleeps a tenth is 4, with an error of 1.9; of 12 it is 1.2 and 1."""
    with_rounds(monkeypatch, SliceRule(rounds=rounds))
    worlds = Worlds(asleep=lambda place, number: 0.05 if place == B and number < awake else 0.0)
    assert set(how(carried_out(worlds, sizes=("8",))).values()) == {expected}


@pytest.mark.parametrize(
    ("quietest", "loudest", "expected"),
    [(0.012, 0.012, "duet"), (0.012, 0.021, "duet"), (0.012, 0.023, "awake"), (0.0, 0.012, "awake"),
     (0.029, 0.029, "duet"), (0.031, 0.031, "awake")],
)  # fmt: skip
def test_what_all_worlds_use_asleep_slows_all_alike(quietest: float, loudest: float, expected: str) -> None:
    """Shares of a processor of each of two ranks: 1 % above the quietest world's and at most 3 %, besides waking up."""
    used = {place: 2 * (0.1 * share + 0.0003) for place, share in ((A, quietest), (B, loudest))}
    worlds = Worlds(asleep=lambda place, number: used[place])
    assert set(how(carried_out(worlds, sizes=("8",))).values()) == {expected}


def test_what_cannot_live_at_once_is_not_tried_again_in_groups() -> None:
    """Of seven places and more the second group has the same processors."""
    places = list(own_seconds(SEVEN))
    worlds = Worlds(holds=dict.fromkeys(places, ("x",)))
    heard = carried_out(worlds, SEVEN, launches=2)
    assert how(heard, 0) == how(heard, 1) == {(place, 8): "shared" for place in places}
    assert len(heard.said) == 2 * len(places)
    assert len({place for place, report in worlds.told if report.holds}) == 6, "the first group alone was tried"


def test_other_processors_are_tried_all_the_same() -> None:
    heard = carried_out(Worlds(holds={A: ("x",), B: ("x",)}), ranks=(2, 4), launches=2, sizes=("8",))
    alone = {(record.launch, record.case.where.ranks, record.case.where.text): record.alone for record in heard.records}
    expected = {(2, A): "shared", (2, B): "shared", (4, A): None, (4, B): None}
    assert alone == {(launch, *key): value for launch in (0, 1) for key, value in expected.items()}
