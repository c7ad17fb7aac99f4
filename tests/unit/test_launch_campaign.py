"""Launches on the fake engine: what goes wrong in a world is its failure, and nothing of it is left."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.unit.made_worlds import Heard, leave_good

from collbench.errors import EngineError, ImageMissing, Interrupted, LaunchLost, PlanError
from collbench.launch.campaign import Known, PreparedCampaign, campaign_manifest, finished, prepare, run_campaign
from collbench.launch.cells import cases_in
from collbench.launch.engines import fake
from collbench.launch.engines.fake import FakeCommand, FakeEngineSession, Play, Playing, contents
from collbench.launch.probe import Contents
from collbench.schema.manifest import Library
from collbench.schema.plan import Plan
from collbench.schema.world import Place, read_places

PLAN = Plan(
    collectives=("bcast",), images=("openmpi",), policies=("single",), sizes=("8", "16"), launches=2, timeout="5s",
    gate="barrier", engine="fake",
)  # fmt: skip

GOOD = [(1, 8, "ok"), (1, 16, "ok")]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder in which nothing may be left."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


def leave(command: FakeCommand, plan: Plan = PLAN, cases: int | None = None) -> int:
    """What ranks that measure so many cases of their world leave; all of them where no number is given."""
    asked = tuple(one for case in cases_in(plan, command.world.cell) for one in case.identities)
    leave_good(command.world.folders.out, asked[:cases])
    return 0


def first(command: FakeCommand) -> bool:
    """Whether this is the first launch."""
    return command.world.name.endswith("-0")


def only_first(oddity: Play) -> Play:
    """The first launch is odd, and the others are good."""
    return lambda command: oddity(command) if first(command) else leave(command)


def carried_out(
    play: Play, plan: Plan = PLAN, check: Callable[[], None] = lambda: None, remark: str = ""
) -> tuple[Heard, FakeEngineSession]:
    """A whole experiment."""
    session, heard = FakeEngineSession(play, remark=remark), Heard()
    prepared = prepare(plan, check, {"fake": session})
    run_campaign(prepared, heard, frozenset(), {}, check)
    return heard, session


def one_failed(oddity: Play, temporary: Path, remark: str = "") -> tuple[str, FakeEngineSession]:
    """The reason of the first launch; the second one went well, and nothing is left."""
    heard, session = carried_out(only_first(oddity), remark=remark)
    (failed,) = [record for record in heard.records if record.status == "failed"]
    assert failed.launch == 0
    assert heard.found[-2:] == GOOD
    assert session.left == []
    assert list(temporary.iterdir()) == []
    return failed.reason or "", session


def test_every_launch_is_opened_measured_and_closed(temporary: Path) -> None:
    heard, session = carried_out(leave)
    assert heard.found == [(0, 8, "ok"), (0, 16, "ok"), *GOOD]
    assert {record.case.where.policy for record in heard.records} == {"single"}
    assert {record.case.where.isolation for record in heard.records} == {"strict"}
    assert heard.said == [None, None]
    assert [opened.hosts for opened in session.worlds] == [
        (("cbfake-0-c0", 1), ("cbfake-0-c1", 1)), (("cbfake-1-c0", 1), ("cbfake-1-c1", 1))
    ]  # fmt: skip
    assert (session.readied, session.left, session.cleanings) == (2, [], 2)
    assert list(temporary.iterdir()) == []


def test_ranks_find_their_places_in_a_file_beside_their_plan() -> None:
    found: list[tuple[Place, ...]] = []

    def look(command: FakeCommand) -> int:
        found.append(read_places(command.world.folders.placement))
        return leave(command)

    carried_out(look)
    assert found == [(Place(container="c0", cores="0"), Place(container="c1", cores="1"))] * 2


def ask_for(host: str) -> Play:
    """The launcher asks for a daemon on a host, waits until it is taken up, and ends well."""

    def play(command: FakeCommand) -> Playing | int:
        if command.argv[0] == "sh":
            return 0
        request = command.world.folders.relay / "1.request"
        request.write_text(json.dumps([host.format(command.world.name), "prted", "--daemonize"]))

        def wait() -> Playing:
            while request.exists():
                yield
            return leave(command)

        return wait()

    return play


def test_a_daemon_is_started_where_the_launcher_asks_for_it(temporary: Path) -> None:
    heard, session = carried_out(ask_for("{}-c1"))
    assert [status for _, _, status in heard.found] == ["ok"] * 4
    for opened in session.worlds:
        launcher, daemon = opened.commands
        assert launcher.argv[0] == "mpirun"
        assert (daemon.host, daemon.argv) == (f"{opened.world.name}-c1", ("sh", "-c", "prted --daemonize"))


def test_no_daemon_is_started_in_a_container_of_somebody_else(temporary: Path) -> None:
    reason, session = one_failed(ask_for("another-launch-c1"), temporary)
    assert "a daemon was requested in 'another-launch-c1', which is not part of this launch" in reason
    assert [command.argv[0] for command in session.worlds[0].commands] == ["mpirun"]


def test_a_box_that_died_is_a_failure_though_the_launcher_ended_with_code_0(temporary: Path) -> None:
    """An engine may say 0 of a command whose container was killed."""

    def die(command: FakeCommand) -> int:
        command.opened.gone = "c1"
        return 0

    assert one_failed(die, temporary)[0] == "box c1 died"


def test_a_box_that_dies_ends_the_wait_for_its_launcher(temporary: Path) -> None:
    def die(command: FakeCommand) -> Playing:
        yield
        command.opened.gone = "c0"
        while True:
            yield

    assert one_failed(die, temporary, remark="; out of memory")[0] == "box c0 died; out of memory"


def test_a_world_that_measured_half_is_a_failure_though_it_ended_with_code_0(temporary: Path) -> None:
    reason, _ = one_failed(lambda command: leave(command, cases=1), temporary)
    assert reason == "ended early, with 1 of 2 cases"


def test_an_exit_code_is_a_failure_with_the_ranks_own_words(temporary: Path) -> None:
    def fail(command: FakeCommand) -> int:
        command.log.add(True, "collbench: no such \x1b[2Jplace\x07")
        return 3

    assert one_failed(fail, temporary)[0] == "ended with exit code 3: no such [2Jplace"


def test_boxes_that_cannot_be_made_are_a_failure_of_their_launch(temporary: Path) -> None:
    def refuse(command: FakeCommand) -> int:
        raise EngineError("no such executable in the box")

    assert one_failed(refuse, temporary)[0] == "no such executable in the box"


def test_told_to_stop_the_world_is_closed_and_what_it_measured_is_kept(temporary: Path) -> None:
    stop: list[bool] = []

    def check() -> None:
        if stop:
            raise Interrupted("interrupted.")

    def play(command: FakeCommand) -> Playing:
        leave(command, cases=1)
        stop.append(True)
        while True:
            yield

    session, heard = FakeEngineSession(play), Heard()
    prepared = prepare(PLAN, check, {"fake": session})
    with pytest.raises(Interrupted):
        run_campaign(prepared, heard, frozenset(), {}, check)
    assert heard.found == [(0, 8, "ok")]
    assert (session.left, list(temporary.iterdir())) == ([], [])


# Going on with a run --------------------------------------------------------------------------------------------------


def test_an_engine_is_asked_why_a_launch_was_lost_even_if_it_is_the_last() -> None:
    def lose(command: FakeCommand) -> int:
        raise LaunchLost("Slurm job 7 ended: TIMEOUT")

    heard, session = carried_out(lambda command: leave(command) if first(command) else lose(command))
    assert [(record.launch, record.lost) for record in heard.records] == [(0, False), (0, False), (1, True)]
    assert session.readied == 3, "before each launch, and after the last"


def test_records_that_are_known_are_not_written_again() -> None:
    heard, _ = carried_out(lambda command: leave(command, cases=1) if first(command) else leave(command))
    kept = [record for record in heard.records if record.status == "ok"]
    session = FakeEngineSession(leave)
    prepared = prepare(PLAN, lambda: None, {"fake": session})
    done, again = finished(prepared.expanded, tuple(kept)), Heard()
    assert {number for _, number in done} == {1}
    known: Known = {(record.case, record.launch): None for record in kept}
    run_campaign(prepared, again, done, known, lambda: None)
    assert again.found == [(0, 16, "ok")]
    assert [opened.world.name for opened in session.worlds] == ["cbfake-0"]  # the other launch is done


# Software -------------------------------------------------------------------------------------------------------------


def held(sha256: str) -> dict[str, Contents]:
    library = Library(name="Open MPI", version="5.0.11", sha256=sha256)
    return {"openmpi": msgspec.structs.replace(contents(), libraries=(library,))}


def beside(host: str, inside: str) -> PreparedCampaign:
    """The host and a container of one image, each with a build of the library; and a step that this engine lacks."""
    plan = msgspec.structs.replace(PLAN, policies=("host", "single"), isolation=("strict", "limits"))
    sessions = {
        "fake": FakeEngineSession(leave, held=held(inside), ids={"openmpi": "sha256:4711"}),
        "host": FakeEngineSession(leave, held=held(host), title=""),
    }
    return prepare(plan, lambda: None, sessions)


def test_two_builds_of_one_version_are_a_difference_besides_the_container() -> None:
    assert beside("ab", "ab").stacks.differences == ()
    assert beside("ab", "cd").stacks.differences == (
        "openmpi: apart from the container, host and image differ: Open MPI 5.0.11: two builds, ab and cd",
    )


def test_a_run_holds_cells_of_several_engines() -> None:
    prepared, heard = beside("ab", "ab"), Heard()
    run_campaign(prepared, heard, frozenset(), {}, lambda: None)
    places = {
        (record.case.where.engine, record.case.where.policy, record.case.where.isolation) for record in heard.records
    }
    assert places == {("host", "host", None), ("fake", "single", "strict")}
    assert [status for _, _, status in heard.found] == ["ok"] * 8
    for name, session in prepared.sessions.items():
        assert isinstance(session, FakeEngineSession)
        assert {opened.world.cell.engine for opened in session.worlds} == {name}
    experiment = campaign_manifest(prepared, ("collbench",)).experiment
    assert experiment is not None
    assert experiment.engine == "Fake Engine 1"
    assert experiment.left_out == prepared.expanded.left_out == ("isolation limits: left out; engine fake has strict, "
                                                                 "visible, files",)  # fmt: skip
    assert ([image.id for image in experiment.images], len(experiment.environments)) == (["sha256:4711"], 1)


STREAM = {"name": "stream", "arrays": "any", "size": ("8", "16")}
PROGRAMS = msgspec.structs.replace(PLAN, collectives=(), benchmarks=(STREAM,), sizes=None, images=("bare",), launches=1)
BARE = {"bare": msgspec.structs.replace(contents(""), missing={"mpi": "mpi4py is not installed"})}


def test_programs_are_started_in_an_image_without_an_mpi(temporary: Path) -> None:
    session, heard = FakeEngineSession(lambda command: leave(command, PROGRAMS), held=BARE), Heard()
    run_campaign(prepare(PROGRAMS, lambda: None, {"fake": session}), heard, frozenset(), {}, lambda: None)
    assert [status for _, _, status in heard.found] == ["ok"] * 8
    ((command,),) = (opened.commands for opened in session.worlds)
    assert command.argv == command.opened.program


def test_a_collective_needs_an_image_with_a_library() -> None:
    plan = msgspec.structs.replace(PROGRAMS, collectives=("bcast",), sizes=("8",), ranks=(1,))
    with pytest.raises(PlanError, match="image bare: backend mpi: mpi4py is not installed"):
        prepare(plan, lambda: None, {"fake": FakeEngineSession(leave, held=BARE)})
    with pytest.raises(ImageMissing, match="image bare: holds no MPI; the launcher starts mpich, openmpi, torch"):
        prepare(plan, lambda: None, {"fake": FakeEngineSession(leave, held={"bare": contents("")})})


# Engines --------------------------------------------------------------------------------------------------------------


def test_an_engine_that_starts_the_ranks_needs_no_launcher(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake, "ENGINE", replace(fake.ENGINE, starts_ranks=True))

    def anywhere(command: FakeCommand) -> int:
        assert not command.world.folders.placement.exists(), "nobody knows where ranks will be"
        return leave(command)

    heard, session = carried_out(anywhere)
    assert [status for _, _, status in heard.found] == ["ok"] * 4
    for opened in session.worlds:
        (command,) = opened.commands
        assert command.argv == opened.program


def test_the_fake_engine_is_for_tests_alone() -> None:
    with pytest.raises(PlanError, match="engine fake: is for tests and starts no ranks"):
        prepare(PLAN, lambda: None)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"engine": "dokcer"}, "engine 'dokcer': unknown. Did you mean docker"),
        ({"engine": "host"}, "policy single: engine host makes no containers"),
        ({"isolation": ("loose",)}, "isolation 'loose': unknown. There are: strict, visible"),
        ({"isolation": ("limits",), "policies": ("multi",)}, "isolation limits: left out; engine fake has"),
    ],
)
def test_what_no_engine_can_do_is_refused_before_one_is_asked(more: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError) as caught:
        prepare(msgspec.structs.replace(PLAN, **more), lambda: None, {})
    assert message in str(caught.value)
