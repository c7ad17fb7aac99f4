"""A command in the first of such containers as a launch would make."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collbench.errors import CollbenchError, EngineError, Interrupted, LaunchFailed, PlanError, RequestError
from collbench.launch import stacks
from collbench.launch.engines.fake import FakeCommand, FakeEngineSession, Play, Playing
from collbench.launch.stacks import ExaminedStack, examine, expanded_for
from collbench.launch.waiting import StopCheck


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder in which nothing may be left, and waits that take no time."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(stacks, "LOOK", 0.0)
    return tmp_path


def saying(code: int, *lines: str) -> Play:
    def play(command: FakeCommand) -> Playing:
        assert command.world.folders.placement.exists(), "engines mount it into every container"
        for line in lines:
            yield
            command.log.add(False, line)
        return code

    return play


def examined(
    play: Play, policy: str = "single", check: StopCheck = lambda: None, **session: Any
) -> tuple[ExaminedStack, FakeEngineSession]:
    made = FakeEngineSession(play, **session)
    expanded = expanded_for("openmpi", policy, "strict", "fake")
    return examine(expanded, made, ("collbench", "doctor"), check), made


def test_the_command_runs_in_the_first_container_and_nothing_is_left(temporary: Path) -> None:
    found, session = examined(saying(0, "first", "second"))
    assert (found.lines, found.code) == (("first", "second"), 0)
    assert found.title == "openmpi, single, strict: the first of 2 containers"
    ((command,),) = (opened.commands for opened in session.worlds)
    assert command.host == "cbfake-0-c0"
    assert command.argv == ("collbench", "doctor", "--without", "cma"), "it is alone there"
    assert command.environment == {}, "it is no rank: nothing binds it"
    assert (session.left, session.cleanings, list(temporary.iterdir())) == ([], 1, [])


def test_ranks_that_share_a_container_may_read_each_others_memory() -> None:
    found, session = examined(saying(0), "multi")
    assert session.worlds[0].commands[0].argv == ("collbench", "doctor")
    assert found.title == "openmpi, multi, strict: the first of 1 container"


@pytest.mark.parametrize("code", [0, 1, 2])
def test_doctors_own_ends_are_answers(code: int) -> None:
    assert examined(saying(code))[0].code == code


@pytest.mark.parametrize(
    ("code", "lines", "said"),
    [
        (3, ("first", "the last"), "3: the last"),
        (-1, (), "-1: without output"),
        (127, ("not found",), "127: not found"),
    ],
)
def test_another_end_is_an_error_with_its_last_words(
    temporary: Path, code: int, lines: tuple[str, ...], said: str
) -> None:
    with pytest.raises(LaunchFailed) as caught:
        examined(saying(code, *lines))
    assert str(caught.value) == f"image openmpi: collbench in a container ended with exit code {said}"
    assert list(temporary.iterdir()) == []


def hang(command: FakeCommand) -> Playing:
    while True:
        yield


def test_who_gives_no_answer_is_not_waited_for(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 10_000, 40))
    clock = SimpleNamespace(monotonic=lambda: float(next(now)), sleep=lambda seconds: None)
    monkeypatch.setattr("collbench.launch.stacks.time", clock)
    with pytest.raises(EngineError, match=r"^container cbfake-0-c0: collbench did not end within 120 s\.$"):
        examined(hang)
    assert next(now) == 200, "the first look, three within the limit, and one after it"
    assert list(temporary.iterdir()) == []


def test_told_to_stop_it_waits_no_longer(temporary: Path) -> None:
    asked = iter((False, False, True))

    def check() -> None:
        if next(asked):
            raise Interrupted("interrupted.")

    with pytest.raises(Interrupted):
        examined(hang, check=check)
    assert list(temporary.iterdir()) == []


def test_a_policy_without_containers_has_nothing_to_look_into() -> None:
    with pytest.raises(RequestError, match="doctor --image: policy host has no container; remove --image"):
        expanded_for("openmpi", "host", "strict", "fake")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("openmpi", "sinlge", "strict", "fake"), "policy 'sinlge': unknown"),
        (("openmpi", "single", "loose", "fake"), "isolation 'loose': unknown"),
        (("openmpi", "single", "strict", "fkae"), "engine 'fkae': unknown"),
        (("Open MPI", "single", "strict", "fake"), "image 'Open MPI': not a name of an image"),
    ],
)
def test_unknown_names(given: tuple[str, str, str, str], said: str) -> None:
    with pytest.raises((PlanError, CollbenchError), match=said):
        expanded_for(*given)


def test_two_ranks_are_placed_however_few_cores_there_are() -> None:
    expanded = expanded_for("openmpi", "single", "strict", "fake")
    (cell,) = expanded.cells
    assert (cell.ranks, cell.isolation, expanded.plan.oversubscribe) == (2, "strict", True)
