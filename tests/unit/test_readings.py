"""Readings around launches, on worlds that are played: when they are taken, of what, and what is recorded."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.unit.made_worlds import Heard, carried_out, made
from tests.unit.test_launch_campaign import PLAN, leave

from collbench import yardsticks
from collbench.errors import EngineError, Interrupted
from collbench.launch.campaign import campaign_manifest, prepare, read_around, run_campaign
from collbench.launch.cells import Launch, LaunchCell
from collbench.launch.engines import fake
from collbench.launch.engines.fake import FakeCommand, FakeEngineSession
from collbench.yardsticks import Readings

GOOD = Readings({"core_distance": 100.0}, None)
CELL = LaunchCell("openmpi", "single", "strict", 2, engine="fake")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[frozenset[int]]:
    """The cores of every reading, which is good where there are any."""
    cores: list[frozenset[int]] = []

    def take(wanted: frozenset[int]) -> Readings:
        cores.append(wanted)
        return GOOD if wanted else Readings({"core_distance": None}, "elsewhere")

    monkeypatch.setattr(yardsticks, "take", take)
    return cores


def test_a_reading_before_and_after_each_launch_on_the_cores_of_its_ranks(
    tmp_path: Path, taken: list[frozenset[int]]
) -> None:
    heard = carried_out(made(tmp_path, "good"))
    assert [(one.launch, one.sequence, one.moment) for one in heard.readings] == [
        (0, 0, "before"), (0, 0, "after"), (1, 1, "before"), (1, 1, "after"),
    ]  # fmt: skip
    assert taken == [frozenset((0, 1))] * 4
    assert {(one.cores, one.reason, tuple(one.values.items())) for one in heard.readings} == {
        ("0-1", None, (("core_distance", 100.0),))
    }
    assert {one.cells for one in heard.readings} == {(record.case.where,) for record in heard.records}
    times = [one.monotonic for one in heard.readings]
    assert times == sorted(times)
    assert all(one.wall > 1e9 for one in heard.readings)


def test_a_launch_that_fails_has_both(tmp_path: Path, taken: list[frozenset[int]]) -> None:
    heard = carried_out(made(tmp_path, "exit 3"))
    assert {record.status for record in heard.records} == {"failed"}
    assert [one.moment for one in heard.readings] == ["before", "after"] * 2


def test_where_ranks_are_on_a_machine_that_is_not_this_one_there_is_a_reason(taken: list[frozenset[int]]) -> None:
    heard = Heard()
    run_campaign(prepare(PLAN, lambda: None, {"fake": FakeEngineSession(leave)}), heard, frozenset(), {}, lambda: None)
    assert [(one.values, one.cores, one.reason) for one in heard.readings] == [
        ({"core_distance": None}, "", "elsewhere")
    ] * 4
    assert taken == [frozenset()] * 4


def test_an_engine_on_this_machine_is_read(monkeypatch: pytest.MonkeyPatch, taken: list[frozenset[int]]) -> None:
    monkeypatch.setattr(fake, "ENGINE", replace(fake.ENGINE, local=True))
    heard = Heard()
    run_campaign(prepare(PLAN, lambda: None, {"fake": FakeEngineSession(leave)}), heard, frozenset(), {}, lambda: None)
    assert set(taken) == {frozenset((0, 1))}


def test_an_interrupted_launch_has_none_after_it(taken: list[frozenset[int]]) -> None:
    def stop(command: FakeCommand) -> int:
        raise Interrupted("told to stop")

    heard = Heard()
    with pytest.raises(Interrupted):
        run_campaign(
            prepare(PLAN, lambda: None, {"fake": FakeEngineSession(stop)}), heard, frozenset(), {}, lambda: None
        )
    assert [one.moment for one in heard.readings] == ["before"]


def test_worlds_that_run_together_are_read_once(taken: list[frozenset[int]]) -> None:
    heard = Heard()
    other = replace(CELL, side="other")
    with read_around(heard, (Launch(CELL, 4, 9), Launch(other, 4, 10)), frozenset((2, 3))):
        assert [one.moment for one in heard.readings] == ["before"]
    assert [(one.launch, one.sequence, one.cores) for one in heard.readings] == [(4, 9, "2-3")] * 2
    assert [where.side for where in heard.readings[0].cells] == [None, "other"]


def test_what_ends_inside_is_not_hidden(taken: list[frozenset[int]]) -> None:
    with pytest.raises(EngineError), read_around(Heard(), (Launch(CELL, 0, 0),), frozenset((0,))):
        raise EngineError("gone")


def test_yardsticks_are_fixed_in_the_manifest() -> None:
    experiment = campaign_manifest(prepare(PLAN, lambda: None, {"fake": FakeEngineSession(leave)}), ()).experiment
    assert experiment is not None
    assert experiment.yardsticks == yardsticks.resolutions()
    assert msgspec.json.decode(msgspec.json.encode(experiment))["yardsticks"] == yardsticks.resolutions()


def test_the_driver_stays_on_its_cores(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    heard = carried_out(made(tmp_path, "good"))
    assert os.sched_getaffinity(0) == before
    assert heard.readings and all(one.values.keys() == set(yardsticks.names()) for one in heard.readings)
