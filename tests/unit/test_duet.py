"""Duets on the fake engine: what is recorded of worlds that take turns, and how the driver leads them."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import geometric_mean, median

import msgspec
import pytest
from tests.unit.duet_worlds import PLAN, ROUNDS, Worlds, by_cell, carried_out, duet_of, how, made_ready, place_of, turns
from tests.unit.made_worlds import Heard

from collbench.analysis.results import cells_of
from collbench.launch import duet
from collbench.launch.campaign import finished, run_campaign
from collbench.launch.cells import Launch, LaunchCell, LaunchPart
from collbench.launch.duet import CHECKED
from collbench.launch.expansion import MOST_WORLDS
from collbench.schema.case import Gate
from collbench.schema.plan import Plan
from collbench.schema.world import SliceRule
from collbench.timing.loop import LARGEST_SLACK

__all__ = ["turns"]

pytestmark = pytest.mark.usefixtures("turns")

A, B, C = "single strict", "multi strict", "single visible"
SIZES = (8, 16, 32)
THREE = msgspec.structs.replace(PLAN, policies=("single", "multi"), isolation=("strict", "visible"))
SEVEN = msgspec.structs.replace(
    PLAN, policies=("single", "multi"), isolation=("strict", "visible", "files"), seccomp=("default", "unconfined"),
    sizes=("8",),
)  # fmt: skip


def table(**rows: tuple[float, ...]) -> dict[str, tuple[float, ...]]:
    return {{"a": A, "b": B, "c": C}[name]: row for name, row in rows.items()}


def taking(rows: Mapping[str, tuple[float | None, ...]]) -> Worlds:
    """Each round of a place takes what its row says."""
    return Worlds(seconds=lambda place, size, number: rows[place][number])


def expected_of(rows: dict[str, tuple[float, ...]], place: str, reference: str | None = None) -> float:
    """The compared time, by its definition: the median ratio to the middles of the rounds, times their mean."""
    rounds = list(zip(*rows.values(), strict=True))
    middles = rows[reference] if reference else [geometric_mean(one) for one in rounds]
    ratios = [one / middle for one, middle in zip(rows[place], middles, strict=True)]
    return median(ratios) * geometric_mean(middles)


# What is recorded ----------------------------------------------------------------------------------------------------


def test_two_worlds_on_the_same_cores_are_a_duet(turns: Path) -> None:
    worlds = Worlds()
    heard = carried_out(worlds)
    found = by_cell(heard)
    assert set(found) == set(itertools.product((A, B), SIZES))
    assert heard.said == [None, None]
    starts = set()
    for (place, _), record in found.items():
        assert (record.how, record.alone, record.status) == ("duet", None, "ok")
        assert record.duet is not None
        assert (record.duet.worlds, record.duet.checked, record.duet.reference) == (2, CHECKED, False)
        assert len(record.duet.slices) == ROUNDS
        starts.add((place, record.duet.started))
        for one in record.duet.slices:
            assert (one.n, one.seconds, one.halves, one.asleep, one.slept, one.valid) == (
                20, 1e-5, (1e-5, 2e-5), 0.0, 0.1, True
            )  # fmt: skip
    assert len(starts) == 2 and {number for _, number in starts} == {0, 1}
    assert list(turns.iterdir()) == []


def test_the_compared_time_is_the_median_ratio_on_the_level_of_all_rounds() -> None:
    """Rounds that move both leave the ratio; one round that moves one of them does not count for it."""
    rows = table(a=(1e-5, 4e-5, 1e-5), b=(2e-5, 8e-5, 9e-5))
    found = by_cell(carried_out(taking(rows)))
    times = {}
    for place in (A, B):
        duet = found[place, 8].duet
        assert duet is not None
        assert [one.seconds for one in duet.slices] == list(rows[place])
        assert duet.seconds == pytest.approx(expected_of(rows, place))
        times[place] = duet.seconds
    assert times[B] / times[A] == pytest.approx(2.0), "the median round; the mean says 3.3"


def test_three_worlds_are_compared_with_their_middle() -> None:
    rows = table(a=(1e-5, 2e-5, 3e-5), b=(2e-5, 3e-5, 9e-5), c=(5e-5, 5e-5, 5e-5))
    plan = msgspec.structs.replace(THREE, policies=("single", "multi"))
    heard = carried_out(taking(rows), plan)
    found = by_cell(heard)
    assert {place for place, _ in found} == {A, B, C}
    for (place, _), record in found.items():
        assert record.duet is not None and record.duet.worlds == 3
        assert record.duet.seconds == pytest.approx(expected_of(rows, place))


def test_the_compared_time_is_what_observations_take() -> None:
    rows = table(a=(1e-5, 4e-5, 1e-5), b=(2e-5, 8e-5, 9e-5))
    found = by_cell(carried_out(taking(rows)))
    record = found[B, 8]
    (cell,) = cells_of([record]).values()
    assert record.duet is not None and record.seconds is not None
    assert list(cell.medians) == [record.duet.seconds] != [record.seconds.p50]


def test_turns_are_in_a_random_order_that_the_seed_repeats() -> None:
    orders = []
    for seed in (1, 1, 2):
        worlds = Worlds()
        heard = carried_out(worlds, msgspec.structs.replace(PLAN, seed=seed, launches=4))
        orders.append([place for place, order in worlds.heard if order.act == "slice"])
        for record in heard.records:
            other = by_cell(heard, record.launch)[A if record.case.where.text == B else B, record.case["size"]]
            assert record.duet is not None and other.duet is not None
            assert {record.duet.slices[0].place, other.duet.slices[0].place} == {0, 1}
    assert orders[0] == orders[1] != orders[2]
    of_one_launch = orders[0][: 2 * ROUNDS * len(SIZES)]
    for firsts in (Counter(of_one_launch[::2]), Counter(orders[0][::2])):
        assert min(firsts[A], firsts[B]) >= sum(firsts.values()) / 5


def test_which_world_is_started_first_is_as_the_order_of_launches_says() -> None:
    heard = carried_out(Worlds(), msgspec.structs.replace(PLAN, launches=8))
    first = {
        record.launch: record.case.where.text
        for record in heard.records if record.duet is not None and record.duet.started == 0
    }  # fmt: skip
    ready, _ = made_ready(Worlds(), msgspec.structs.replace(PLAN, launches=8))
    of_block = {one.number: place_of(one.cell) for one in reversed(ready.expanded.order)}
    assert first == of_block
    assert set(first.values()) == {A, B}


def test_slices_begin_where_the_case_does() -> None:
    found = by_cell(carried_out(Worlds()))
    for size in SIZES:
        slices = [one for place in (A, B) for one in duet_of(found[place, size]).slices]
        assert min(one.start for one in slices) == 0.0
        assert len({one.start for one in slices}) == len(slices)


# How the driver leads ------------------------------------------------------------------------------------------------


def test_one_world_moves_at_a_time_and_both_measure_the_same_case() -> None:
    worlds = Worlds()
    carried_out(worlds)
    acts = worlds.acts()
    assert [act for _, act in acts] == ["begin", "begin", "end", "end"] * len(SIZES) + ["end", "end"]
    for one, other in zip(acts[::2], acts[1::2], strict=True):
        assert {one[0], other[0]} == {A, B}
    slices = [place for place, order in worlds.heard if order.act == "slice"]
    assert len(slices) == 2 * ROUNDS * len(SIZES)
    assert all({slices[k], slices[k + 1]} == {A, B} for k in range(0, len(slices), 2))


def test_only_the_first_slice_of_a_case_begins_anew() -> None:
    worlds = Worlds()
    carried_out(worlds)
    assert [order.anew for order in worlds.slices(A)] == [True, False, False] * len(SIZES)
    assert {order.seconds for order in worlds.slices(A)} == {SliceRule().seconds}
    assert {order.operations for order in worlds.slices(A)} == {0}
    assert {order.rule for order in worlds.slices(A)} == {SliceRule(rounds=ROUNDS, fewest=ROUNDS)}


def test_a_quota_in_one_world_makes_the_slices_of_both_longer() -> None:
    worlds = Worlds(quota=(B,))
    carried_out(worlds)
    assert {order.seconds for _, order in worlds.heard if order.act == "slice"} == {1.0}


@pytest.mark.parametrize(("iters", "sizes"), [(20, [7, 7, 6]), (3, [1, 1, 1]), (2, [1, 1])])
def test_a_plan_that_fixes_samples_has_so_many_in_all(iters: int, sizes: list[int]) -> None:
    worlds = Worlds()
    heard = carried_out(worlds, msgspec.structs.replace(PLAN, iters=iters, sizes=("8",)))
    assert [order.operations for order in worlds.slices(A)] == [order.operations for order in worlds.slices(B)] == sizes
    assert set(how(heard).values()) == {"duet"}


@pytest.mark.parametrize(
    ("rounds", "samples", "passed", "expected"),
    [(5, 0, 9.0, False), (6, 0, 0.7, False), (6, 0, 1.3, True), (19, 0, 1.1, False), (20, 0, 0.1, True),
     (5, 20, 0.1, False), (6, 20, 0.1, True), (2, 3, 9.0, False), (3, 3, 0.1, True)],
)  # fmt: skip
def test_long_slices_are_fewer(rounds: int, samples: int, passed: float, expected: bool) -> None:
    """Slices of 25 ms and 5 ms before them take 0.6 s in 20 rounds."""
    assert duet._enough(rounds, samples, passed, SliceRule()) == expected


@pytest.mark.parametrize(
    ("operation", "seconds"), [(1e-6, 0.6), (0.002, 1.04), (0.05, 3.45), (0.1, 6.75), (1.0, 18.15)]
)
def test_how_long_the_slices_of_a_world_take(operation: float, seconds: float) -> None:
    assert SliceRule().lasts(operation) == pytest.approx(seconds)


def test_the_gate_and_the_slack_are_those_of_the_world_that_needs_more() -> None:
    both: dict[str, tuple[Gate, int]] = {A: ("roundtime", 2000), B: ("roundtime", 5000)}
    worlds = Worlds(ready=both)
    carried_out(worlds, ROUNDTIME)
    assert {(order.gate, order.slack) for _, order in worlds.heard if order.act == "slice"} == {("roundtime", 5000)}
    worlds = Worlds(ready=both | {B: ("barrier", 0)})
    carried_out(worlds, ROUNDTIME)
    assert {order.gate for _, order in worlds.heard if order.act == "slice"} == {"barrier"}


ROUNDTIME = msgspec.structs.replace(PLAN, gate="auto", sizes=("8",))
BOTH: dict[str, tuple[Gate, int]] = {A: ("roundtime", 1000), B: ("roundtime", 1000)}


@pytest.mark.parametrize(("late", "slacks"), [(1, [1000] * 3), (2, [1000, 2000, 4000]), (11, [1000, 4000, 16000])])
def test_late_samples_of_one_world_give_both_more_slack(late: int, slacks: list[int]) -> None:
    """Of 20 samples, 1 is 5 %; more doubles, more than half quadruples."""
    worlds = Worlds(ready=BOTH, late=lambda place, size, order: late if place == B and order.slack < 16000 else 0)
    carried_out(worlds, ROUNDTIME)
    assert [order.slack for order in worlds.slices(A)] == [order.slack for order in worlds.slices(B)] == slacks


def test_slack_has_a_limit() -> None:
    worlds = Worlds(ready={A: ("roundtime", LARGEST_SLACK), B: ("roundtime", 1000)}, late=lambda *_: 2)
    carried_out(worlds, ROUNDTIME)
    assert {order.slack for order in worlds.slices(B)} == {LARGEST_SLACK}


def test_mostly_late_in_one_world_changes_the_gate_of_both_and_begins_anew() -> None:
    worlds = Worlds(
        ready=BOTH, late=lambda place, size, order: 15 if place == B and order.gate == "roundtime" else 0,
        seconds=lambda place, size, number: 1e-5,
    )  # fmt: skip
    heard = carried_out(worlds, ROUNDTIME)
    for place in (A, B):
        assert [(order.gate, order.anew) for order in worlds.slices(place)] == [
            ("roundtime", True), ("roundtime", False), ("roundtime", False),
            ("barrier", True), ("barrier", False), ("barrier", False),
        ]  # fmt: skip
    for record in by_cell(heard).values():
        assert record.duet is not None and len(record.duet.slices) == ROUNDS


def test_hopeless_rounds_in_a_row_end_a_gate_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "slices", property(lambda plan: SliceRule(rounds=20)))
    worlds = Worlds(ready=BOTH, late=lambda place, size, order: 15 if order.gate == "roundtime" else 0)
    carried_out(worlds, ROUNDTIME)
    assert [order.gate for order in worlds.slices(A)] == ["roundtime"] * 6 + ["barrier"] * 20


def test_a_gate_that_the_plan_fixes_stays() -> None:
    worlds = Worlds(ready=BOTH, late=lambda *_: 15)
    carried_out(worlds, msgspec.structs.replace(ROUNDTIME, gate="roundtime"))
    assert [order.gate for order in worlds.slices(A)] == ["roundtime"] * ROUNDS


def test_a_round_without_a_sample_in_time_does_not_count_for_the_ratio() -> None:
    rows = {A: (1e-5, 1e-5, 4e-5), B: (2e-5, None, 2e-5)}
    found = by_cell(carried_out(taking(rows)))
    duet = found[A, 8].duet
    assert duet is not None
    kept: dict[str, tuple[float, ...]] = {A: (1e-5, 4e-5), B: (2e-5, 2e-5)}
    level = geometric_mean([geometric_mean(pair) for pair in zip(*kept.values(), strict=True)])
    ratio = math.sqrt(math.prod(a / math.sqrt(a * b) for a, b in zip(*kept.values(), strict=True)))
    assert duet.seconds == pytest.approx(level * ratio)
    assert [one.seconds for one in duet_of(found[B, 8]).slices] == [2e-5, 0.0, 2e-5]


def test_no_round_with_samples_in_time_is_no_pair() -> None:
    heard = carried_out(taking({A: (1e-5,) * 3, B: (None,) * 3}))
    assert set(how(heard).values()) == {"partner"}


def test_a_case_that_a_world_skips_or_gets_wrong_is_no_duet() -> None:
    heard = carried_out(Worlds(skips=((B, 16),), wrong=((B, 32),)))
    found = how(heard)
    assert (found[A, 8], found[B, 8]) == ("duet", "duet")
    assert (found[A, 16], found[B, 16]) == ("partner", "skipped")
    assert found[B, 32] == "failed"


def test_only_what_both_skip_is_measured_by_nobody() -> None:
    worlds = Worlds(skips=((A, 16), (B, 16)))
    found = how(carried_out(worlds))
    assert (found[A, 16], found[B, 16], found[A, 32]) == ("skipped", "skipped", "duet")
    assert "alone" not in {act for _, act in worlds.acts()}


# Parts of the cases ---------------------------------------------------------------------------------------------------


def in_parts(parts: dict[str, tuple[int, ...]], worlds: Worlds) -> Heard:
    """A block in which each place measures these sizes alone."""
    (ready, session), heard = made_ready(worlds), Heard()

    def wanted(number: int) -> dict[LaunchCell, LaunchPart]:
        return {
            cell: LaunchPart(frozenset(case for case in cases if case["size"] in parts[place_of(cell)]))
            for cell, cases in ready.expanded.expected.items()
        }

    run_campaign(ready, heard, frozenset(), {}, lambda: None, wanted)
    assert session.left == []
    return heard


@pytest.mark.parametrize(
    ("first", "second"), [((8, 16), (8, 32)), ((16, 32), (8, 16)), ((32,), (8, 16, 32)), ((8,), (32,))]
)
def test_worlds_with_different_parts_meet_in_what_both_measure(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    for one, other in ((first, second), (second, first)):
        found = how(in_parts({A: one, B: other}, Worlds()))
        assert found == {
            (place, size): "duet" if size in one and size in other else "partner"
            for place, sizes in ((A, one), (B, other)) for size in sizes
        }  # fmt: skip


# More worlds than live at once ----------------------------------------------------------------------------------------


def test_more_worlds_than_live_at_once_are_linked_by_their_reference() -> None:
    """The machine is slower while the second group measures: the level is that of the first one."""
    ready, _ = made_ready(Worlds(), SEVEN)
    places = [place_of(cell) for cell in ready.expanded.cells]
    assert len(places) > MOST_WORLDS
    own = {place: 1e-5 * (1 + number) for number, place in enumerate(places)}
    met: list[str] = []

    def seconds(place: str, size: int, number: int) -> float:
        met.append(place)
        slow = 3.0 if len(met) > ROUNDS * len(set(met[: ROUNDS * 6])) else 1.0
        return own[place] * slow

    worlds = Worlds(seconds=seconds)
    heard = carried_out(worlds, SEVEN)
    found = by_cell(heard)
    assert set(found) == {(place, 8) for place in places}, "the reference is recorded once"
    assert {record.how for record in found.values()} == {"duet"}
    assert [place for (place, _), record in found.items() if record.duet and record.duet.reference] == [places[0]]
    for (place, _), record in found.items():
        assert record.duet is not None
        assert record.duet.seconds == pytest.approx(own[place]), place
    assert Counter(place for place, order in worlds.heard if order.act == "begin")[places[0]] == 2
    assert heard.said == [None] * len(places)


def test_what_is_left_of_a_block_is_linked_by_the_reference_that_was_measured() -> None:
    """It was interrupted after its first group, and goes on when the machine is three times as slow."""
    plan = msgspec.structs.replace(SEVEN, launches=2)
    ready, _ = made_ready(Worlds(), plan)
    places = [place_of(cell) for cell in ready.expanded.cells]
    own = {place: 1e-5 * (1 + number) for number, place in enumerate(places)}
    before = carried_out(Worlds(seconds=lambda place, size, number: own[place]), plan).records
    first = [record for record in before if record.launch == 0][:4]
    assert any(duet_of(record).reference for record in first)
    ready, _ = made_ready(Worlds(seconds=lambda place, size, number: 3 * own[place]), plan)
    heard, done = Heard(), finished(ready.expanded, tuple(first))
    known = {(record.case, record.launch): duet_of(record).seconds for record in first}
    run_campaign(ready, heard, done, known, lambda: None)
    found = by_cell(heard)
    assert {place for place, _ in found} == set(places) - {record.case.where.text for record in first}
    for (place, _), record in found.items():
        assert duet_of(record).seconds == pytest.approx(own[place]), place
    assert len(by_cell(heard, 1)) == len(places)
    for (place, _), record in by_cell(heard, 1).items():
        assert duet_of(record).seconds == pytest.approx(3 * own[place]), place


def test_launches_are_reported_once_each() -> None:
    heard = carried_out(Worlds(), msgspec.structs.replace(PLAN, launches=3))
    assert heard.said == [None] * 6
    ordered: list[Launch] = list(made_ready(Worlds(), msgspec.structs.replace(PLAN, launches=3))[0].expanded.order)
    assert Counter(record.launch for record in heard.records) == Counter(one.number for one in ordered for _ in SIZES)


def test_a_plan_may_say_blocks() -> None:
    worlds = Worlds()
    heard = carried_out(worlds, msgspec.structs.replace(PLAN, how="blocks"))
    assert set(how(heard).values()) == {"plan"}
    assert {record.how for record in heard.records} == {"blocks"}
    assert worlds.heard == []


def test_a_world_without_others_takes_no_turns() -> None:
    worlds = Worlds()
    heard = carried_out(worlds, msgspec.structs.replace(PLAN, policies=("single",)))
    assert (set(how(heard).values()), worlds.heard) == ({"single"}, [])
