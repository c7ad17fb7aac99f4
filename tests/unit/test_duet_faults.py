"""Duets on the fake engine in which something goes wrong: the others measure everything, and no broken pair counts."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace as with_values
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import msgspec
import pytest
from tests.unit.duet_worlds import (
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
    impatient,
    made_ready,
    place_of,
    turns,
)
from tests.unit.made_worlds import Heard

from collbench.errors import Interrupted
from collbench.launch import duet
from collbench.launch.campaign import finished, run_campaign
from collbench.launch.engines import fake
from collbench.launch.engines.fake import FakeEngineSession
from collbench.schema.plan import Plan
from collbench.schema.world import SliceRule

__all__ = ["turns"]

pytestmark = pytest.mark.usefixtures("turns")

A, B, C = "single strict", "multi strict", "single visible"
SIZES = (8, 16, 32)
THREE = msgspec.structs.replace(PLAN, isolation=("strict", "visible"))
SEVEN = msgspec.structs.replace(
    PLAN, isolation=("strict", "visible", "files"), seccomp=("default", "unconfined"), sizes=("8",), launches=2
)

#: What a fault at a moment of the case of 16 B leaves of the world that has it: (size, how) of its records.
LEFT = {
    "start": {8: "failed"},
    "before": {8: "duet", 16: "failed"},
    "slice": {8: "duet", 16: "failed"},
    "end": {8: "duet", 16: "partner", 32: "failed"},  # it had recorded the case
}


#: It had reported that the case was over.
LEFT_ASLEEP = LEFT | {"end": {8: "duet", 16: "duet", 32: "failed"}}


def faulty(moment: Moment, what: What) -> Fault:
    return Fault(moment, what, size=8 if moment == "start" else 16, place=B)


@pytest.mark.parametrize("what", get_args(What))
@pytest.mark.parametrize("moment", get_args(Moment))
def test_a_world_that_goes_wrong_leaves_the_other_one_whole(
    monkeypatch: pytest.MonkeyPatch, turns: Path, moment: Moment, what: What
) -> None:
    plan = impatient(monkeypatch)
    heard = carried_out(Worlds(fault=faulty(moment, what)), plan)
    found, left = how(heard), (LEFT_ASLEEP if what == "asleep" else LEFT)[moment]
    assert {size: found[B, size] for place, size in found if place == B} == left
    pairs = {size for size, how_measured in left.items() if how_measured == "duet"}
    assert {size: found[A, size] for size in SIZES} == {size: "duet" if size in pairs else "partner" for size in SIZES}
    assert len(heard.said) == 2 and heard.said.count(None) == 1
    assert list(turns.iterdir()) == []


@pytest.mark.parametrize("place", [A, B])
def test_a_world_that_dies_after_a_case_was_part_of_its_pair(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Whether it is the first or the last one to say that the case is over."""
    found = how(carried_out(Worlds(fault=Fault("end", "asleep", place=place)), impatient(monkeypatch)))
    assert {(size, found.get((one, size))) for one in (A, B) for size in (8, 16)} == {(8, "duet"), (16, "duet")}
    assert (found[place, 32], found[A if place == B else B, 32]) == ("failed", "partner")


@pytest.mark.parametrize("moment", get_args(Moment))
def test_a_world_that_fails_is_removed_before_the_others_measure_on(
    monkeypatch: pytest.MonkeyPatch, moment: Moment
) -> None:
    """Its ranks may still compute on their cores."""
    plan = impatient(monkeypatch)
    worlds = Worlds(fault=faulty(moment, "silent"))
    ready, session = made_ready(worlds, plan)
    beside: list[int] = []
    worlds.recorded = lambda place, size: beside.append(len(session.left))
    run_campaign(ready, Heard(), frozenset(), {}, lambda: None)
    assert beside[-2:] == [1, 1], "its last two cases"


def test_the_reason_of_a_failed_world_says_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, reasons = impatient(monkeypatch), {}
    for what in get_args(What):
        heard = carried_out(Worlds(fault=faulty("slice", what)), plan)
        reasons[what] = by_cell(heard)[B, 16].reason or ""
    assert len(set(reasons.values())) == len(reasons) - 2, "to die, and to leave its turns, each in two ways"
    assert reasons["killed"] == reasons["asleep"] == "box c1 died"
    assert reasons["ends"] == "ended early, with 1 of 3 cases"
    assert reasons["silent"].startswith("no report for 0.3 s")
    assert all(reasons.values())


@pytest.mark.parametrize("moment", ["before", "slice", "end"])
def test_of_three_worlds_two_go_on_as_a_pair(monkeypatch: pytest.MonkeyPatch, moment: Moment) -> None:
    plan = impatient(monkeypatch)
    plan = msgspec.structs.replace(plan, isolation=("strict", "visible"))
    worlds = Worlds(fault=faulty(moment, "killed"))
    found = by_cell(carried_out(worlds, plan))
    for place in (A, C):
        assert [found[place, size].how for size in SIZES] == [
            "duet", "blocks" if moment == "end" else "duet", "duet"
        ]  # fmt: skip
        assert [len(duet_of(found[place, size]).slices) for size in (8, 32)] == [ROUNDS] * 2
    if moment == "slice":
        anew = [order.anew for order in worlds.slices(A)]
        assert anew.count(True) == 4, "the case of 16 B began again"


@pytest.mark.parametrize(
    "values",
    [
        {"seconds": -1.0}, {"seconds": 0.0}, {"n": -1}, {"late": -5}, {"asleep": -1.0}, {"slept": -1.0},
        {"halves": (-1.0, 1.0)}, {"seconds": 1e300}, {"slept": 1e300}, {"n": 1 << 63},
    ],
)  # fmt: skip
def test_numbers_that_no_world_can_measure_are_its_failure_alone(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]
) -> None:
    """A container writes what it likes."""
    plan = impatient(monkeypatch)
    heard = carried_out(Worlds(odd={B: values}), plan)
    found = how(heard)
    assert [found[A, size] for size in SIZES] == ["partner"] * 3
    assert found.get((B, 8)) == "failed"


def test_a_driver_that_was_stopped_blames_no_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock went on by an hour while it waited for a slice."""
    hours = [0]

    def seconds(place: str, size: int, number: int) -> float:
        hours[0] += (place, size, number) == (B, 16, 1)
        return 1e-5

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600.0 * hours[0], sleep=time.sleep)
    monkeypatch.setattr(duet, "time", clock)
    assert set(how(carried_out(Worlds(seconds=seconds))).values()) == {"duet"}
    assert hours == [1]


# Ctrl-C --------------------------------------------------------------------------------------------------------------


def interrupted_at(number: int, worlds: Worlds, plan: Plan) -> tuple[Heard, FakeEngineSession, bool]:
    """What was recorded when the driver is told to stop after so many orders; whether it was."""
    (ready, session), heard = made_ready(worlds, plan), Heard()

    def check() -> None:
        if len(worlds.heard) >= number:
            raise Interrupted("interrupted.")

    try:
        run_campaign(ready, heard, frozenset(), {}, check)
    except Interrupted:
        return heard, session, True
    return heard, session, False


def test_whenever_it_is_interrupted_only_whole_pairs_are_kept_and_the_rest_is_measured_later(turns: Path) -> None:
    plan = msgspec.structs.replace(PLAN, sizes=("8", "16"))
    everything = set(itertools.product((A, B), (8, 16)))
    kept_at = {}
    for number in itertools.count():
        heard, session, stopped = interrupted_at(number, Worlds(), plan)
        assert session.left == [] and list(turns.iterdir()) == []
        if not stopped:
            break
        found = how(heard)
        sizes = {size for _, size in found}
        assert set(found) == set(itertools.product((A, B), sizes)), "both or none"
        assert set(found.values()) <= {"duet"}
        kept_at[number] = sizes
        ready, _ = made_ready(Worlds(), plan)
        known = {(record.case, record.launch): record.duet.seconds if record.duet else None for record in heard.records}
        done = finished(ready.expanded, tuple(heard.records))
        rest = Heard()
        run_campaign(ready, rest, done, known, lambda: None)
        assert set(by_cell(rest)) == everything - set(found)
        assert set(how(rest).values()) <= {"duet"}
    per_case = 2 * (1 + ROUNDS + 1)
    assert number > 2 * per_case
    assert kept_at[0] == kept_at[per_case - 1] == set()
    assert kept_at[per_case + 2] == kept_at[2 * per_case - 1] == {8}
    assert kept_at[2 * per_case + 1] == {8, 16}


# Refused -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shares", [True, False])
def test_worlds_that_hold_the_same_thing_are_performed_alone(shares: bool) -> None:
    worlds = Worlds(holds={A: ("memory 0:1 5", "own a"), B: ("own b", "memory 0:1 5" if shares else "memory 0:1 6")})
    heard = carried_out(worlds, msgspec.structs.replace(PLAN, launches=2))
    for launch in (0, 1):
        assert how(heard, launch) == dict.fromkeys(
            itertools.product((A, B), SIZES), "shared" if shares else "duet"
        )  # fmt: skip
    assert len(heard.said) == 4
    opened = [place for place, report in worlds.told if report.at == "stands" and report.holds]
    assert len(opened) == (2 if shares else 4), "the second block did not try again"
    assert (worlds.heard == []) == shares


def test_two_of_three_that_hold_the_same_thing_are_enough() -> None:
    worlds = Worlds(holds={A: ("x",), B: ("y",), C: ("y",)})
    assert set(how(carried_out(worlds, THREE)).values()) == {"shared"}


def test_worlds_on_other_processors_are_performed_alone() -> None:
    for cores, expected in (("boot-a 0-1", "duet"), ("boot-a 0,2", "elsewhere"), ("boot-b 0-1", "elsewhere")):
        worlds = Worlds(cores={A: ("boot-a 0-1",), B: (cores,)})
        assert how(carried_out(worlds)) == dict.fromkeys(itertools.product((A, B), SIZES), expected)


def test_worlds_that_do_not_reach_the_driver_are_performed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake, "ENGINE", with_values(fake.ENGINE, local=False, overlaps=True))
    worlds = Worlds(apart=(A, B))
    heard = carried_out(worlds, msgspec.structs.replace(PLAN, launches=2))
    for launch in (0, 1):
        assert how(heard, launch) == dict.fromkeys(itertools.product((A, B), SIZES), "unreachable")
    assert worlds.told == [] and len(heard.said) == 4


def test_worlds_that_do_not_sleep_are_performed_alone() -> None:
    """Of 0.1 s a rank may use 0.5 %; of the two of a world 1 ms."""
    for asleep, expected in ((0.0009, "duet"), (0.0011, "awake")):
        worlds = Worlds(asleep=lambda place, number, asleep=asleep: asleep if place == B else 0.0)  # type: ignore[misc]
        heard = carried_out(worlds, msgspec.structs.replace(PLAN, launches=2))
        for launch in (0, 1):
            assert set(how(heard, launch).values()) == {expected}
            assert len(by_cell(heard, launch)) == 6
        assert {record.how for record in heard.records} == {"duet" if expected == "duet" else "blocks"}


def test_what_it_takes_to_wake_up_is_no_work() -> None:
    """A sleep that is so short that 0.5 % of it is less than that."""
    worlds = Worlds(asleep=lambda place, number: 0.0005, slept=0.01)
    assert set(how(carried_out(worlds)).values()) == {"duet"}
    worlds = Worlds(asleep=lambda place, number: 0.0007, slept=0.01)
    assert set(how(carried_out(worlds)).values()) == {"awake"}


def test_a_round_beside_a_world_that_was_awake_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was awake before its turn in round 4: during the others' in round 3 or 4. Two of twenty are not too many."""
    monkeypatch.setattr(Plan, "slices", property(lambda plan: SliceRule(rounds=20)))
    worlds = Worlds(
        asleep=lambda place, number: 0.05 if place == B and number == 4 else 0.0,
        seconds=lambda place, size, number: 1e-5 * (2.0 if place == B else 1.0) * (9.0 if number in (3, 4) else 1.0),
    )
    found = by_cell(carried_out(worlds, msgspec.structs.replace(PLAN, sizes=("8",))))
    for place, seconds in ((A, 1e-5), (B, 2e-5)):
        duet = duet_of(found[place, 8])
        assert [number for number, one in enumerate(duet.slices) if not one.valid] == [3, 4]
        assert duet.seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("rounds", "awake", "expected"), [(20, 7, "duet"), (20, 8, "awake"), (6, 3, "duet"), (6, 4, "awake")]
)
def test_clearly_more_than_a_tenth_of_all_sleeps_are_too_many(
    monkeypatch: pytest.MonkeyPatch, rounds: int, awake: int, expected: str
) -> None:
    """Each world sleeps once a round. Of 40 sleeps a tenth is 4, with an error of 1.9; of 12 it is 1.2 and 1."""
    monkeypatch.setattr(Plan, "slices", property(lambda plan: SliceRule(rounds=rounds)))
    worlds = Worlds(asleep=lambda place, number: 0.05 if place == B and number < awake else 0.0)
    assert set(how(carried_out(worlds, msgspec.structs.replace(PLAN, sizes=("8",)))).values()) == {expected}


def test_what_cannot_live_at_once_is_not_tried_again_in_groups() -> None:
    """Of seven places and more the second group has the same processors."""
    ready, _ = made_ready(Worlds(), SEVEN)
    places = [place_of(cell) for cell in ready.expanded.cells]
    worlds = Worlds(holds=dict.fromkeys(places, ("x",)))
    heard = carried_out(worlds, SEVEN)
    for launch in (0, 1):
        assert how(heard, launch) == {(place, 8): "shared" for place in places}
    assert len(heard.said) == 2 * len(places)
    assert len({place for place, report in worlds.told if report.holds}) == 6, "the first group alone was tried"


def test_other_processors_are_tried_all_the_same() -> None:
    plan = msgspec.structs.replace(PLAN, ranks=(2, 4), launches=2, sizes=("8",))
    worlds = Worlds(holds={A: ("x",), B: ("x",)})
    heard = carried_out(worlds, plan)
    for launch in (0, 1):
        found = {(one.case.where.ranks, one.case.where.text): one for one in heard.records if one.launch == launch}
        assert {key: one.alone for key, one in found.items()} == {
            (2, A): "shared", (2, B): "shared", (4, A): None, (4, B): None
        }  # fmt: skip
