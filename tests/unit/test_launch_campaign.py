"""Launches on the fake engine: what is recorded of them, what their failures say, and what a run of them holds.

What goes wrong in a world is its failure, and nothing of it is left.
"""

from __future__ import annotations

import datetime
import json
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.fake_engine import FakeCommand, FakeEngineSession, Play, Playing, contents
from tests.unit.made_worlds import Heard, good, leave_good

import collbench
from collbench.errors import CollbenchError, EngineError, ImageMissing, Interrupted, LaunchLost, PlanError
from collbench.launch import campaign, expansion
from collbench.launch.campaign import Known, PreparedCampaign, campaign_manifest, finished, prepare, run_campaign
from collbench.launch.cells import cases_in
from collbench.launch.collect import CollectedRecord, RecordCollector, placed_case, with_placement
from collbench.launch.engines import fake, host
from collbench.launch.folders import driver_identity, user_inside
from collbench.launch.probe import Contents
from collbench.run.facts_of_ranks import protocol
from collbench.schema import record as records
from collbench.schema.manifest import Library
from collbench.schema.plan import Plan
from collbench.schema.record import Record
from collbench.schema.world import Place, read_places
from collbench.timing import _loop

Golden = Callable[[str, str], None]
PLAN = Plan(
    collectives=("bcast",), images=("openmpi",), policies=("single",), sizes=("8", "16"), launches=2, timeout="5s",
    align="barrier", engine="fake",
)  # fmt: skip

GOOD = [(1, 8, "ok"), (1, 16, "ok")]


def plan(**values: Any) -> Plan:
    return msgspec.structs.replace(PLAN, **values)


MULTI = plan(policies=("multi",), launches=1)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder in which nothing may be left."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


def leave(command: FakeCommand, plan: Plan = PLAN, cases: int | None = None) -> int:
    """What ranks that measure so many cases of their world leave; all of them where no number is given."""
    of_world = tuple(identity for case in cases_in(plan, command.world.cell) for identity in case.identities)
    leave_good(command.world.folders.out, of_world[:cases])
    return 0


def first(command: FakeCommand) -> bool:
    """Whether this is the first launch."""
    return command.world.name.endswith("-0")


def only_first(oddity: Play) -> Play:
    """The first launch is odd, and the others are good."""
    return lambda command: oddity(command) if first(command) else leave(command)


def prepared(
    plan: Plan, play: Play = leave, check: Callable[[], None] = lambda: None, **session: Any
) -> tuple[PreparedCampaign, FakeEngineSession]:
    made = FakeEngineSession(play, **session)
    return prepare(plan, check, {"fake": made}), made


def carried_out(plan: Plan, play: Play = leave, **session: Any) -> tuple[Heard, FakeEngineSession]:
    """A whole experiment, of which nothing is left."""
    (ready, made), heard = prepared(plan, play, **session), Heard()
    run_campaign(ready, heard, frozenset(), {}, lambda: None)
    assert (made.left, list(Path(tempfile.gettempdir()).iterdir())) == ([], [])
    return heard, made


# A launch ------------------------------------------------------------------------------------------------------------


def test_every_launch_is_opened_measured_and_closed() -> None:
    heard, session = carried_out(PLAN)
    assert heard.found == [(0, 8, "ok"), (0, 16, "ok"), *GOOD]
    assert {record.case.where.text for record in heard.records} == {"single strict"}
    assert heard.said == [None, None]
    assert [opened.hosts for opened in session.worlds] == [
        (("cbfake-0-c0", 1), ("cbfake-0-c1", 1)), (("cbfake-1-c0", 1), ("cbfake-1-c1", 1))
    ]  # fmt: skip
    assert (session.readied, session.cleanings) == (2, 2)
    for number, opened in enumerate(session.worlds):
        world = opened.world
        assert (world.run, world.name, world.driver) == ("cbfake", f"cbfake-{number}", driver_identity())
        assert (world.user, world.cell.image, world.stack.reference) == (user_inside(), "openmpi", "openmpi")


def seen(plan: Plan, look: Callable[[FakeCommand], Any]) -> list[Any]:
    """What there is to see in each launch while it measures."""
    looks: list[Any] = []

    def play(command: FakeCommand) -> int:
        looks.append(look(command))
        return leave(command, plan)

    carried_out(plan, play)
    return looks


def test_a_world_finds_its_places_the_plan_of_its_image_and_others_which_cores_are_taken() -> None:
    places = (Place(container="c0", cores="0"), Place(container="c1", cores="1"))
    assert seen(PLAN, lambda command: read_places(command.world.folders.placement)) == [places] * 2
    assert seen(MULTI, lambda command: (command.world.folders.plan.parent / "cores").read_text()) == ["0-1"]
    of_image = msgspec.structs.replace(MULTI, image_backends={"openmpi": ("mpi",)}, backends=("torch-gloo",))
    (inner,) = seen(of_image, lambda command: msgspec.json.decode(command.world.folders.plan.read_bytes()))
    assert (inner["backends"], inner["collectives"], inner["sizes"]) == (["mpi"], ["bcast"], ["8", "16"])


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


def test_a_daemon_is_started_where_the_launcher_asks_for_it() -> None:
    heard, session = carried_out(PLAN, ask_for("{}-c1"))
    assert [status for _, _, status in heard.found] == ["ok"] * 4
    for opened in session.worlds:
        launcher, daemon = opened.commands
        assert launcher.argv[0] == "mpirun"
        assert (daemon.host, daemon.argv) == (f"{opened.world.name}-c1", ("sh", "-c", "prted --daemonize"))
    _, session = carried_out(PLAN, only_first(ask_for("another-launch-c1")))
    assert [command.argv[0] for command in session.worlds[0].commands] == ["mpirun"], "in no container of somebody else"


def said(*lines: str, code: int = 0, good: bool = True) -> Play:
    def play(command: FakeCommand) -> int:
        for line in lines:
            command.log.add(True, line)
        if good:
            leave(command)
        return code

    return play


@pytest.mark.parametrize(("code", "statuses"), [(0, ["ok", "ok"]), (3, ["failed"])])
def test_the_transport_that_the_library_told_of_stands_in_every_record(code: int, statuses: list[str]) -> None:
    heard, _ = carried_out(MULTI, said("mca: bml: Using sm btl for send to x", code=code, good=code == 0))
    assert [(record.status, record.transport) for record in heard.records] == [(text, "ob1: sm") for text in statuses]


# What goes wrong -----------------------------------------------------------------------------------------------------


def dead(command: FakeCommand) -> int:
    """An engine may say 0 of a command whose container was killed."""
    command.opened.gone = "c1"
    return 0


def dies(command: FakeCommand) -> Playing:
    yield
    command.opened.gone = "c0"
    while True:
        yield


def raises(error: Exception) -> Play:
    def play(command: FakeCommand) -> int:
        command.log.add(True, "words")
        raise error

    return play


def rewritten(change: Callable[[list[Record]], list[Record]], code: int) -> Play:
    """Its records are others than those of a good world."""

    def play(command: FakeCommand) -> int:
        leave(command)
        path = command.world.folders.out / "records.jsonl"
        changed = change([records.decode(line) for line in path.read_bytes().splitlines()])
        path.write_bytes(b"".join(records.encode(record) + b"\n" for record in changed))
        return code

    return play


def spoilt(code: int) -> Play:
    """A record, and what is none."""

    def play(command: FakeCommand) -> int:
        leave(command, cases=1)
        with (command.world.folders.out / "records.jsonl").open("ab") as file:
            file.write(b"nothing\n")
        return code

    return play


SHM: dict[str, Any] = {"images": ("mpich",), "policies": ("multi",), "sizes": ("8",), "launches": 1}

#: What happens in the first launch, in which plan, and what is recorded of its cases.
ODDITIES: dict[str, tuple[Play, dict[str, Any], list[tuple[int, str]]]] = {
    "a daemon for a container of somebody else": (ask_for("another-launch-c1"), {}, [(8, "failed")]),
    "a box died, and the launcher ended with code 0": (dead, {}, [(8, "failed")]),
    "a box dies while its launcher waits": (dies, {}, [(8, "failed")]),
    "half, and exit code 0": (lambda command: leave(command, cases=1), {}, [(8, "ok"), (16, "failed")]),
    "words, and an exit code": (
        said("collbench: no such \x1b[2Jplace\x07", code=3, good=False), {}, [(8, "failed")],
    ),
    "chatter, and an exit code": (
        said("[c0:1] mca: chatter", "a reason", "collbench: words", code=4, good=False), {}, [(8, "failed")],
    ),
    "an engine's error": (raises(EngineError("the engine is gone")), {}, [(8, "failed")]),
    "an error of ours": (raises(OSError("odd \udcff")), {}, [(8, "failed")]),
    "records that cannot be read": (spoilt(0), {}, [(8, "ok"), (16, "failed")]),
    "records that cannot be read, and an exit code": (spoilt(9), {}, [(8, "ok"), (16, "failed")]),
    "everything, and an exit code": (said(code=3), {}, [(8, "ok"), (16, "ok")]),
    "a case that failed inside, which explains exit code 1": (
        rewritten(lambda of: [Record(case=of[0].case, launch=0, status="failed", reason="wrong result"), of[1]], 1),
        {}, [(8, "failed"), (16, "ok")],
    ),
    "nothing but skipped cases, which explains exit code 2": (
        rewritten(lambda of: [Record(case=r.case, launch=0, status="skipped", reason="not there") for r in of], 2),
        {}, [(8, "skipped"), (16, "skipped")],
    ),
    "a library that dies of a small shm": (said(code=7, good=False), SHM | {"ranks": (13,)}, [(8, "failed")]),
    "a library that has enough of shm": (said(code=7, good=False), SHM | {"ranks": (12,)}, [(8, "failed")]),
}  # fmt: skip


def test_what_goes_wrong_in_a_launch_is_its_failure_and_no_other_launchs(golden: Golden) -> None:
    """What is said of it: in a line, and in its records the reason and notes of each."""
    lines = []
    for what, (oddity, values, expected) in ODDITIES.items():
        heard, _ = carried_out(plan(**values), only_first(oddity), remark="; out of memory" if oddity is dies else "")
        of_others = GOOD if "launches" not in values else []
        assert heard.found == [*((0, size, status) for size, status in expected), *of_others], what
        lines += [f"# {what}", str(heard.said[0])]
        for record in heard.records[: len(expected)]:
            notes = "".join(f" [{note}]" for note in record.notes)
            lines.append(f"{record.case['size']} {record.status}: {record.reason}{notes}")
    golden("launches-gone-wrong.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("traced", ["", "1"])
@pytest.mark.parametrize("error", [EngineError("the engine is gone"), OSError("odd")])
def test_an_error_of_ours_has_a_traceback_where_one_is_wanted(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception, traced: str
) -> None:
    monkeypatch.setenv("COLLBENCH_TRACEBACK", traced)
    carried_out(PLAN, only_first(raises(error)))
    assert ("Traceback" in capfd.readouterr().err) == (bool(traced) and isinstance(error, OSError))


def test_the_first_case_by_workload_and_size_is_the_failed_one_with_a_part_of_words_without_end() -> None:
    several = msgspec.structs.replace(MULTI, collectives=("reduce", "bcast"), sizes=("16", "8", "1K"))
    heard, _ = carried_out(several, said("x" * 1990, "collbench: " + "y" * 5000, code=7, good=False))
    (record,) = heard.records
    assert (record.case.workload, record.case["size"], record.launch) == ("bcast", 8, 0)
    assert (record.reason or "").endswith(f" 7: {'y' * 1976} ...")
    assert [len(note) for note in record.notes] == [1990, 2000]


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

    (ready, session), heard = prepared(PLAN, play, check), Heard()
    with pytest.raises(Interrupted):
        run_campaign(ready, heard, frozenset(), {}, check)
    assert heard.found == [(0, 8, "ok")]
    assert (session.left, list(temporary.iterdir())) == ([], [])


def test_before_each_launch_its_engine_is_made_ready_and_after_each_one_may_stop() -> None:
    ready, session = prepared(PLAN)
    assert (session.cleanings, session.readied) == (1, 0), "to look at images is cleaned up too"

    def check() -> None:
        if session.worlds and session.left == []:
            raise Interrupted("interrupted.")

    with pytest.raises(Interrupted):
        run_campaign(ready, Heard(), frozenset(), {}, check)
    assert (len(session.worlds), session.readied, session.cleanings) == (1, 1, 2)


def test_an_engine_is_asked_why_a_launch_was_lost_even_if_it_is_the_last() -> None:
    lost = raises(LaunchLost("Slurm job 7 ended: TIMEOUT"))
    heard, session = carried_out(PLAN, lambda command: leave(command) if first(command) else lost(command))
    assert [(record.launch, record.lost) for record in heard.records] == [(0, False), (0, False), (1, True)]
    assert session.readied == 3, "before each launch, and after the last"


# Records -------------------------------------------------------------------------------------------------------------


def test_what_is_done_is_not_launched_again_and_known_records_are_not_written_again() -> None:
    heard, _ = carried_out(PLAN, only_first(lambda command: leave(command, cases=1)))
    kept = [record for record in heard.records if record.status == "ok"]
    (ready, session), again = prepared(PLAN), Heard()
    done = finished(ready.expanded, tuple(kept))
    assert done == {(ready.expanded.cells[0], 1)}
    known: Known = {(record.case, record.launch): None for record in kept}
    run_campaign(ready, again, done, known, lambda: None)
    assert again.found == [(0, 16, "ok")]
    assert ([opened.world.name for opened in session.worlds], session.readied) == (["cbfake-0"], 1)
    (ready, _), again = prepared(PLAN, raises(OSError("odd"))), Heard()
    run_campaign(ready, again, done, known, lambda: None)
    assert again.found == [(0, 16, "failed")]


def test_records_that_are_known_are_kept_once() -> None:
    launch = (ready := prepared(MULTI)[0]).expanded.order[0]
    of_cell = ready.expanded.expected[launch.cell]
    small, large = sorted(of_cell, key=lambda case: int(str(case["size"])))
    heard = Heard()
    known = frozenset({(placed_case(small, launch.cell), launch.number)})
    collector = RecordCollector(launch, of_cell, False, ("note",), heard, known)
    for case in (small, large, large):
        collector.add(CollectedRecord(good(case, notes=("own",)), None), "sm")
    collector.finish("sm", None)
    assert [(record.case["size"], record.notes, record.transport) for record in heard.records] == [
        (16, ("own", "note"), "sm")
    ]  # fmt: skip
    assert heard.said == [None]


def test_ranks_that_share_cores_are_marked() -> None:
    """A world that does not say whether its ranks share cores says it no more with its place."""
    launch = (ready := prepared(MULTI)[0]).expanded.order[0]
    (case, *_) = ready.expanded.expected[launch.cell]
    for own, crowded, marked in (
        (None, True, None), (False, True, True), (False, False, False), (True, False, True), (None, False, None),
    ):  # fmt: skip
        record = with_placement(good(case, oversubscribed=own), launch, None, crowded)
        assert record.oversubscribed is marked
    assert record.case == placed_case(case, launch.cell)
    assert with_placement(good(case, transport="own"), launch, "told", False).transport == "own"
    assert with_placement(good(case), launch, "told", False).transport == "told"
    on_gpus = case.having(backend="nccl")  # which no MPI moved
    assert with_placement(good(on_gpus), launch, "told", False).transport is None
    assert with_placement(good(on_gpus, transport="P2P/IPC"), launch, "told", False).transport == "P2P/IPC"


# The experiment ------------------------------------------------------------------------------------------------------


def held(sha256: str) -> dict[str, Contents]:
    library = Library(name="Open MPI", version="5.0.11", sha256=sha256)
    return {"openmpi": msgspec.structs.replace(contents(), libraries=(library,))}


def beside(
    plan: Plan, on_host: Mapping[str, Contents], inside: Mapping[str, Contents], **session: Any
) -> PreparedCampaign:
    """The host and a container of one image, each with its libraries."""
    sessions = {
        "fake": FakeEngineSession(leave, held=inside, **session),
        "host": FakeEngineSession(leave, held=on_host, title=""),
    }
    return prepare(plan, lambda: None, sessions)


#: With a step that the engine lacks.
TWO_ENGINES = plan(policies=("host", "single"), isolation=("strict", "limits"))


def test_two_builds_of_one_version_are_a_difference_besides_the_container() -> None:
    assert beside(TWO_ENGINES, held("ab"), held("ab")).stacks.differences == ()
    (difference,) = beside(TWO_ENGINES, held("ab"), held("cd")).stacks.differences
    assert {"openmpi", "5.0.11", "ab", "cd"} <= set(re.findall(r"[\w.]+", difference))


def test_a_run_holds_cells_of_several_engines() -> None:
    ready, heard = beside(TWO_ENGINES, held("ab"), held("ab"), ids={"openmpi": "sha256:4711"}), Heard()
    run_campaign(ready, heard, frozenset(), {}, lambda: None)
    wheres = [record.case.where for record in heard.records]
    assert {(where.engine, where.text) for where in wheres} == {("host", "host"), ("fake", "single strict")}
    assert [status for _, _, status in heard.found] == ["ok"] * 8
    for name, session in ready.sessions.items():
        assert isinstance(session, FakeEngineSession)
        assert {opened.world.cell.engine for opened in session.worlds} == {name}
    experiment = campaign_manifest(ready, ("collbench",)).experiment
    assert experiment is not None
    assert experiment.engine == "Fake Engine 1"
    assert experiment.left_out == ready.expanded.left_out != ()
    assert ([image.id for image in experiment.images], len(experiment.environments)) == (["sha256:4711"], 1)


def test_the_manifest_says_what_was_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_TLS", "tcp")  # of this shell, and of no image
    several = plan(title="a title", ranks=(3, 2), policies=("host", "single"), seed=9, launches=3, oversubscribe=True)
    mpi, nccl = (Library(name=name, version="1") for name in ("MPI", "NCCL"))
    on_host = {"openmpi": msgspec.structs.replace(contents(), libraries=(mpi,))}
    inside = {"openmpi": msgspec.structs.replace(contents(), libraries=(mpi, nccl))}
    manifest = campaign_manifest(beside(several, on_host, inside), ("launch", "caf\udce9"))
    assert (manifest.title, manifest.ranks, manifest.command, manifest.launcher) == (
        "a title", 3, ("launch", "caf\ufffd"), "collbench launch"
    )  # fmt: skip
    assert (manifest.collbench, manifest.simulated, manifest.packages) == (collbench.__version__, False, {})
    assert datetime.datetime.fromisoformat(manifest.created).utcoffset() == datetime.timedelta(0)
    assert "." not in manifest.created
    assert (manifest.libraries, manifest.protocol) == ((mpi, nccl), protocol(several, several.align, several.cadence))
    assert [of_host.ranks for of_host in manifest.hosts] == [(0, 1, 2)]
    assert manifest.thread_level == {"requested": "single"}
    assert manifest.environment == {}
    assert manifest.plan == several.document
    experiment = manifest.experiment
    assert experiment is not None
    assert (experiment.engine, experiment.seed, experiment.launches) == ("Fake Engine 1", 9, 3)
    assert [image.name for image in experiment.images] == ["openmpi"]
    assert [side.id for side in experiment.environments] == ["sha256:openmpi"]
    (difference,) = experiment.differences
    assert "openmpi" in difference and "NCCL" in difference


def test_a_variable_of_one_side_alone_is_a_difference(tmp_path: Path) -> None:
    """Of a user's shell, which reaches the host only; one that every launch sets anew is none."""
    inside = {"openmpi": msgspec.structs.replace(contents(), environment={"UCX_TLS": "tcp", "OMP_NUM_THREADS": "2"})}
    shell = {"GLIBC_TUNABLES": "glibc.pthread.rseq=0", "LD_PRELOAD": "/lib/a.so", "UCX_TLS": "tcp"}
    on_host = {"openmpi": msgspec.structs.replace(contents(), environment=shell)}
    (tmp_path / "b.so").write_bytes(Path(_loop.__file__).read_bytes())
    for preload, named in (((), {"GLIBC_TUNABLES", "LD_PRELOAD"}), ((str(tmp_path / "b.so"),), {"GLIBC_TUNABLES"})):
        ready = beside(plan(policies=("host", "single"), preload=preload), on_host, inside)
        experiment = campaign_manifest(ready, ("launch",)).experiment
        assert experiment is not None
        assert {line.partition("differ: ")[2].partition(" ")[0] for line in experiment.differences} == named
        assert [side.environment for side in experiment.environments] == [
            {name: value for name, value in shell.items() if name in {*named, "UCX_TLS"}}
        ]


STREAM = {"name": "stream", "arrays": "any", "size": ("8", "16")}
PROGRAMS = plan(collectives=(), benchmarks=(STREAM,), sizes=None, images=("bare",), launches=1)
BARE = {"bare": msgspec.structs.replace(contents(""), missing={"mpi": "mpi4py is not installed"})}


def test_programs_are_started_in_an_image_without_an_mpi() -> None:
    heard, session = carried_out(PROGRAMS, lambda command: leave(command, PROGRAMS), held=BARE)
    assert [status for _, _, status in heard.found] == ["ok"] * 8
    ((command,),) = (opened.commands for opened in session.worlds)
    assert command.argv == command.opened.program


def test_an_engine_that_starts_the_ranks_needs_no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake, "ENGINE", replace(fake.ENGINE, starts_ranks=True))

    def anywhere(command: FakeCommand) -> int:
        assert not command.world.folders.placement.exists(), "nobody knows where ranks will be"
        return leave(command)

    heard, session = carried_out(PLAN, anywhere)
    assert [status for _, _, status in heard.found] == ["ok"] * 4
    for opened in session.worlds:
        (command,) = opened.commands
        assert command.argv == opened.program


def test_every_engine_of_a_plan_is_connected_to_once(monkeypatch: pytest.MonkeyPatch) -> None:
    connected: list[Any] = []

    def connecting(name: str) -> Any:
        def connect_to(plan: Plan, check: Any) -> Any:
            connected.append((name, plan.docker_host, check))
            return name

        return connect_to

    monkeypatch.setattr(fake, "ENGINE", replace(fake.ENGINE, connect=connecting("fake")))
    monkeypatch.setattr(host, "ENGINE", replace(host.ENGINE, connect=connecting("host")))
    ready = beside(plan(policies=("host", "single", "multi"), docker_host="tcp://x"), {}, {})
    check: Any = object()
    sessions: Any = campaign.connect(ready.expanded, check)
    assert sessions == {"host": "host", "fake": "fake"}
    assert connected == [("host", "tcp://x", check), ("fake", "tcp://x", check)]
    assert ready.engine == "Fake Engine 1"
    assert PreparedCampaign(ready.expanded, {}, ready.stacks).engine == "none"


#: Values of the plan, what images hold (None: no engine is asked), and what names the fault.
REFUSED: dict[str, tuple[dict[str, Any], Mapping[str, Contents] | None, type[CollbenchError], str]] = {
    "for tests": ({}, None, PlanError, "engine fake"),
    "unknown engine": ({"engine": "dokcer"}, {}, PlanError, "'dokcer'"),
    "no containers": ({"engine": "host"}, {}, PlanError, "policy single"),
    "unknown step": ({"isolation": ("loose",)}, {}, PlanError, "'loose'"),
    "no such step": ({"isolation": ("limits",), "policies": ("multi",)}, {}, PlanError, "isolation limits"),
    "no backend": ({"images": ("bare",), "ranks": (1,)}, BARE, PlanError, "image bare: backend mpi"),
    "no library": ({"images": ("bare",), "ranks": (1,)}, {"bare": contents("")}, ImageMissing, "image bare: "),
}


def test_what_cannot_be_launched_is_refused(golden: Golden) -> None:
    lines = []
    for what, (values, holds, kind, named) in REFUSED.items():
        sessions = {"fake": FakeEngineSession(leave, held=holds)} if holds else None if holds is None else {}
        with pytest.raises(kind) as caught:
            prepare(plan(**values), lambda: None, sessions)
        assert named in str(caught.value), what
        lines.append(f"{what}: {caught.value}\n")
    golden("launches-refused.txt", "".join(lines))


def test_buffers_that_do_not_fit_are_refused_before_an_engine_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "available_bytes", lambda: 1)
    with pytest.raises(PlanError, match=r"^openmpi single strict, 2 ranks: bcast of 16 B "):
        prepare(PLAN, lambda: None, {})
