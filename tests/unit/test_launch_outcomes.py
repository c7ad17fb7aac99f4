"""Experiments on the fake engine: what is recorded of each launch, what its failures say, what the manifest holds."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.made_worlds import Heard, good
from tests.unit.test_launch_campaign import PLAN, first, leave

import collbench
from collbench import backends
from collbench.errors import EngineError, Interrupted, PlanError
from collbench.launch import expansion
from collbench.launch.campaign import PreparedCampaign, campaign_manifest, connect, finished, prepare, run_campaign
from collbench.launch.collect import CollectedRecord, RecordCollector, placed_case, with_placement
from collbench.launch.engines import fake, host
from collbench.launch.engines.fake import FakeCommand, FakeEngineSession, Play, contents
from collbench.launch.folders import driver_identity, user_inside
from collbench.machine import facts
from collbench.run.facts_of_ranks import protocol
from collbench.schema import record as records
from collbench.schema.manifest import Library
from collbench.schema.plan import Plan
from collbench.schema.record import Record

MULTI = msgspec.structs.replace(PLAN, policies=("multi",), launches=1)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


def prepared(
    plan: Plan, play: Play = leave, check: Callable[[], None] = lambda: None, **session: Any
) -> tuple[PreparedCampaign, FakeEngineSession]:
    made = FakeEngineSession(play, **session)
    return prepare(plan, check, {"fake": made}), made


def carried_out(plan: Plan, play: Play = leave, **session: Any) -> tuple[Heard, FakeEngineSession]:
    ready, made = prepared(plan, play, **session)
    heard = Heard()
    run_campaign(ready, heard, frozenset(), {}, lambda: None)
    return heard, made


# A launch ------------------------------------------------------------------------------------------------------------


def test_a_world_is_told_its_names_its_driver_and_its_user() -> None:
    _, session = carried_out(PLAN)
    for number, opened in enumerate(session.worlds):
        world = opened.world
        assert (world.run, world.name, world.driver) == ("cbfake", f"cbfake-{number}", driver_identity())
        assert (world.user, world.cell.image, world.stack.reference) == (user_inside(), "openmpi", "openmpi")


def test_others_can_read_which_cores_are_taken() -> None:
    seen: list[str] = []

    def look(command: FakeCommand) -> int:
        seen.append((command.world.folders.plan.parent / "cores").read_text())
        return leave(command, MULTI)

    carried_out(MULTI, look)
    assert seen == ["0-1"]


def test_a_world_is_given_the_plan_of_its_image() -> None:
    plan = msgspec.structs.replace(MULTI, image_backends={"openmpi": ("mpi",)}, backends=("torch-gloo",))
    seen: list[Any] = []

    def look(command: FakeCommand) -> int:
        seen.append(msgspec.json.decode(command.world.folders.plan.read_bytes()))
        return leave(command, plan)

    carried_out(plan, look)
    assert [(one["backends"], one["collectives"], one["sizes"]) for one in seen] == [(["mpi"], ["bcast"], ["8", "16"])]


def said(*lines: str, code: int = 0, good: bool = True) -> Play:
    def play(command: FakeCommand) -> int:
        for line in lines:
            command.log.add(True, line)
        if good:
            leave(command, MULTI)
        return code

    return play


def test_the_transport_that_the_library_told_of_stands_in_every_record() -> None:
    heard, _ = carried_out(MULTI, said("mca: bml: Using sm btl for send to x"))
    assert [record.transport for record in heard.records] == ["ob1: sm"] * 2
    heard, _ = carried_out(MULTI, said("mca: bml: Using sm btl for send to x", code=3, good=False))
    assert [(record.status, record.transport) for record in heard.records] == [("failed", "ob1: sm")]


def test_a_failure_keeps_the_last_lines_that_are_not_the_librarys_chatter() -> None:
    heard, _ = carried_out(MULTI, said("[c0:1] mca: chatter", "a reason", "collbench: words", code=4, good=False))
    (record,) = heard.records
    assert record.reason == "ended with exit code 4: words"
    assert record.notes == ("a reason", "collbench: words")
    assert heard.said == ["failed: ended with exit code 4: words"]


@pytest.mark.parametrize(
    ("error", "reason"), [(EngineError("the engine is gone"), "the engine is gone"), (OSError("odd"), "OSError: odd")]
)
@pytest.mark.parametrize("traced", ["", "1"])
def test_whatever_goes_wrong_in_a_launch_is_its_failure_and_no_other_launchs(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str, traced: str
) -> None:
    monkeypatch.setenv("COLLBENCH_TRACEBACK", traced)

    def fail(command: FakeCommand) -> int:
        if not first(command):
            return leave(command)
        command.log.add(True, "words")
        raise error

    heard, _ = carried_out(PLAN, fail)
    assert heard.found == [(0, 8, "failed"), (1, 8, "ok"), (1, 16, "ok")]
    assert (heard.records[0].reason, heard.records[0].notes) == (reason, ("words",))
    assert ("Traceback" in capfd.readouterr().err) == (bool(traced) and isinstance(error, OSError))


def test_a_launch_that_measured_every_case_and_ends_oddly_is_a_note_of_its_last_record() -> None:
    heard, _ = carried_out(MULTI, said(code=3))
    assert [(record.status, record.notes) for record in heard.records] == [
        ("ok", ()), ("ok", ("every case was measured, and then: ended with exit code 3",))
    ]  # fmt: skip
    assert heard.said == ["measured every case, and then: ended with exit code 3"]


def test_a_case_that_failed_inside_explains_the_exit_code() -> None:
    """With exit code 1 a case failed, which is recorded beside: the records need no more. A line says so at once."""

    def play(command: FakeCommand) -> int:
        leave(command, MULTI)
        path = command.world.folders.out / "records.jsonl"
        one, other = (records.decode(line) for line in path.read_bytes().splitlines())
        wrong = Record(case=one.case, launch=0, status="failed", reason="wrong result")
        path.write_bytes(b"".join(records.encode(each) + b"\n" for each in (wrong, other)))
        return 1

    heard, _ = carried_out(MULTI, play)
    assert [(record.status, record.reason, record.notes) for record in heard.records] == [
        ("failed", "wrong result", ()), ("ok", None, ())
    ]  # fmt: skip
    assert heard.said == ["failed in 1 of 2 cases: wrong result"]


def test_a_record_that_cannot_be_read_ends_the_launch_unless_it_had_failed_before() -> None:
    def play(code: int) -> Play:
        def spoil(command: FakeCommand) -> int:
            leave(command, MULTI, cases=1)
            with (command.world.folders.out / "records.jsonl").open("ab") as file:
                file.write(b"nothing\n")
            return code

        return spoil

    heard, _ = carried_out(MULTI, play(0))
    assert heard.found == [(0, 8, "ok"), (0, 16, "failed")]
    assert (heard.records[1].reason or "").startswith("wrote a run that cannot be read further: records.jsonl line 2: ")
    heard, _ = carried_out(MULTI, play(9))
    assert heard.records[1].reason == "ended with exit code 9"


def test_a_library_that_dies_of_a_small_shm_gets_the_advice() -> None:
    plan = msgspec.structs.replace(MULTI, images=("mpich",), ranks=(13,), sizes=("8",))
    heard, _ = carried_out(plan, said(code=7, good=False))
    assert heard.records[0].reason == (
        "ended with exit code 7; 13 ranks of mpich need about 67.60 MiB of shared memory, and /dev/shm at the step "
        "strict has 64.00 MiB. Use the step visible, or fewer ranks per container"
    )
    heard, _ = carried_out(msgspec.structs.replace(plan, ranks=(12,)), said(code=7, good=False))
    assert heard.records[0].reason == "ended with exit code 7"


def test_ranks_that_share_cores_are_marked() -> None:
    """A world that does not say whether its ranks share cores says it no more with its place."""
    launch = prepared(MULTI)[0].expanded.order[0]
    (case, *_) = prepared(MULTI)[0].expanded.expected[launch.cell]
    for own, crowded, marked in (
        (None, True, None), (False, True, True), (False, False, False), (True, False, True), (None, False, None),
    ):  # fmt: skip
        record = with_placement(good(case, oversubscribed=own), launch, None, crowded)
        assert record.oversubscribed is marked
    assert record.case == placed_case(case, launch.cell)
    assert with_placement(good(case, transport="own"), launch, "told", False).transport == "own"
    assert with_placement(good(case), launch, "told", False).transport == "told"


def test_the_first_case_that_was_not_measured_is_the_failed_one() -> None:
    """By its workload, then by its size."""
    plan = msgspec.structs.replace(MULTI, collectives=("reduce", "bcast"), sizes=("16", "8", "1K"))
    heard, _ = carried_out(plan, said(code=7, good=False))
    assert [(record.case.workload, record.case["size"], record.launch) for record in heard.records] == [("bcast", 8, 0)]


def test_of_words_without_end_a_part_is_kept() -> None:
    heard, _ = carried_out(MULTI, said("x" * 1990, "collbench: " + "y" * 5000, code=7, good=False))
    (record,) = heard.records
    assert record.reason == f"ended with exit code 7: {'y' * 1976} ..."
    assert [len(note) for note in record.notes] == [1990, 2000]


# The experiment ------------------------------------------------------------------------------------------------------


def test_before_each_launch_its_engine_is_made_ready_and_after_each_one_may_stop() -> None:
    did: list[str] = []

    def play(command: FakeCommand) -> int:
        did.append("launch")
        return leave(command)

    ready, session = prepared(PLAN, play)
    assert (session.cleanings, session.readied) == (1, 0), "to look at images is cleaned up too"

    def check() -> None:
        if did[-1:] == ["launch"] and session.left == []:
            raise Interrupted("interrupted.")

    with pytest.raises(Interrupted):
        run_campaign(ready, Heard(), frozenset(), {}, check)
    assert (did, session.readied, session.cleanings) == (["launch"], 1, 2)


def test_what_is_done_is_not_launched_again() -> None:
    ready, session = prepared(PLAN)
    done = frozenset({(ready.expanded.cells[0], 1)})
    heard = Heard()
    run_campaign(ready, heard, done, {}, lambda: None)
    assert {record.launch for record in heard.records} == {0}
    assert session.readied == 1


def test_every_engine_of_a_plan_is_connected_to_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def connecting(name: str) -> Any:
        def connect_to(plan: Plan, check: Any) -> Any:
            asked.append((name, plan.docker_host, check))
            return name

        return connect_to

    monkeypatch.setattr(fake, "ENGINE", replace(fake.ENGINE, connect=connecting("fake")))
    monkeypatch.setattr(host, "ENGINE", replace(host.ENGINE, connect=connecting("host")))
    plan = msgspec.structs.replace(PLAN, policies=("host", "single", "multi"), docker_host="tcp://x")
    sessions: Mapping[str, Any] = {"fake": FakeEngineSession(leave), "host": FakeEngineSession(leave, title="")}
    ready = prepare(plan, lambda: None, sessions)
    check: Any = object()
    found: Any = connect(ready.expanded, check)
    assert found == {"host": "host", "fake": "fake"}
    assert asked == [("host", "tcp://x", check), ("fake", "tcp://x", check)]
    assert ready.engine == "Fake Engine 1"
    assert PreparedCampaign(ready.expanded, {}, ready.stacks).engine == "none"


def test_buffers_that_do_not_fit_are_refused_before_an_engine_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "available_bytes", lambda: 1)
    with pytest.raises(PlanError, match=r"^openmpi single strict, 2 ranks: bcast of 16 B needs"):
        prepare(PLAN, lambda: None, {})


def test_the_manifest_says_what_was_compared() -> None:
    plan = msgspec.structs.replace(PLAN, title="a title", ranks=(3, 2), policies=("host", "single"), seed=9, launches=3,
                                 oversubscribe=True)  # fmt: skip
    one, other = (Library(name=name, version="1") for name in ("MPI", "NCCL"))
    held = {"openmpi": msgspec.structs.replace(contents(), libraries=(one,))}
    more = {"openmpi": msgspec.structs.replace(contents(), libraries=(one, other))}
    sessions = {"fake": FakeEngineSession(leave, held=more), "host": FakeEngineSession(leave, held=held, title="")}
    found = campaign_manifest(prepare(plan, lambda: None, sessions), ("launch", "caf\udce9"))
    assert (found.title, found.ranks, found.command, found.launcher) == (
        "a title", 3, ("launch", "caf\ufffd"), "collbench launch"
    )  # fmt: skip
    assert (found.collbench, found.simulated, found.packages) == (collbench.__version__, False, {})
    assert datetime.datetime.fromisoformat(found.created).utcoffset() == datetime.timedelta(0)
    assert "." not in found.created
    assert (found.libraries, found.protocol) == ((one, other), protocol(plan, plan.gate, plan.cadence))
    (host,) = found.hosts
    assert host.ranks == (0, 1, 2)
    assert (found.thread_level, found.environment) == (
        {"requested": "single"},
        facts.environment(backends.variables()),
    )
    assert found.plan == plan.document
    experiment = found.experiment
    assert experiment is not None
    assert (experiment.engine, experiment.seed, experiment.launches) == ("Fake Engine 1", 9, 3)
    assert ([image.name for image in experiment.images], [one.id for one in experiment.environments]) == (
        ["openmpi"], ["sha256:openmpi"]
    )  # fmt: skip
    assert experiment.differences == (
        "openmpi: apart from the container, host and image differ: NCCL missing on the host, 1 in the image",
    )


def test_a_variable_of_one_side_alone_is_a_difference(tmp_path: Path) -> None:
    """Of a user's shell, which reaches the host only; one that every launch sets anew is none."""
    held = {"openmpi": msgspec.structs.replace(contents(), environment={"UCX_TLS": "tcp", "OMP_NUM_THREADS": "2"})}
    shell = {"GLIBC_TUNABLES": "glibc.pthread.rseq=0", "LD_PRELOAD": "/lib/a.so", "UCX_TLS": "tcp"}
    beside = {"openmpi": msgspec.structs.replace(contents(), environment=shell)}
    (tmp_path / "b.so").touch()
    for preload, named in (((), {"GLIBC_TUNABLES", "LD_PRELOAD"}), ((str(tmp_path / "b.so"),), {"GLIBC_TUNABLES"})):
        plan = msgspec.structs.replace(PLAN, policies=("host", "single"), preload=preload)
        sessions = {
            "fake": FakeEngineSession(leave, held=held),
            "host": FakeEngineSession(leave, held=beside, title=""),
        }
        experiment = campaign_manifest(prepare(plan, lambda: None, sessions), ("launch",)).experiment
        assert experiment is not None
        assert {line.partition("differ: ")[2].partition(" ")[0] for line in experiment.differences} == named
        assert [side.environment for side in experiment.environments] == [
            {name: value for name, value in shell.items() if name in {*named, "UCX_TLS"}}
        ]


def test_a_launch_is_finished_by_its_own_number() -> None:
    ready, _ = prepared(PLAN)
    (cell,) = ready.expanded.cells
    whole = tuple(Record(case=placed_case(case, cell), launch=1, status="ok") for case in ready.expanded.expected[cell])
    assert finished(ready.expanded, whole) == {(cell, 1)}
    assert finished(ready.expanded, whole[:1]) == frozenset()


def test_records_that_are_known_are_kept_once() -> None:
    ready, _ = prepared(MULTI)
    launch = ready.expanded.order[0]
    asked = ready.expanded.expected[launch.cell]
    one, other = sorted(asked, key=lambda case: int(str(case["size"])))
    heard = Heard()
    keeper = RecordCollector(
        launch, asked, False, ("note",), heard, frozenset({(placed_case(one, launch.cell), launch.number)})
    )
    for case in (one, other, other):
        keeper.add(CollectedRecord(good(case, notes=("own",)), None), "sm")
    keeper.finish("sm", None)
    assert [(record.case["size"], record.notes, record.transport) for record in heard.records] == [
        (16, ("own", "note"), "sm")
    ]  # fmt: skip
    assert heard.said == [None]
