"""A plan from its check to its last record: which backends are measured, who is refused, what every rank raises."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import msgspec
import pytest
from tests.contract.test_fake import Kept
from tests.unit.made_measurements import Heard, case, method, on_ranks, preparing
from tests.unit.test_case import CASE

from collbench import backends
from collbench.backends.fake import FakeBackend
from collbench.bindings.spec import USABLE_SHARE, Operation, Roles, Session, WorldSettings
from collbench.collectives.row import CollectiveCase
from collbench.errors import (
    BackendUnavailable,
    CollbenchError,
    DoesNotFit,
    LibraryError,
    RequestError,
    RunWriteError,
    Unsupported,
    WorldMismatch,
)
from collbench.machine import cgroup, launcher
from collbench.machine.facts import rank_facts
from collbench.machine.launcher import Launcher
from collbench.run import experiment, facts_of_ranks
from collbench.run.cases import program_cases
from collbench.run.experiment import PlanRunner, does_not_fit, perform, plan_experiment, programs_do_not_fit
from collbench.run.failures import Unwatched
from collbench.schema.manifest import Library
from collbench.schema.plan import Plan

Change = Callable[[Any], None]


@dataclass(frozen=True)
class MadeBackend(FakeBackend):
    """The fake backend under another name; `why` is why it is missing, `late` what is found out when ranks meet."""

    name: str = "one"
    why: str | None = None
    late: str | None = None
    change: Change = lambda session: None
    given: list[WorldSettings] = field(default_factory=list)

    def missing(self) -> str | None:
        return self.why

    def run(self, options: WorldSettings, body: Callable[[Session], None]) -> None:
        self.given.append(options)
        if self.late is not None:
            raise BackendUnavailable(self.late)

        def changed(session: Any) -> None:
            self.change(session)
            body(session)

        super().run(options, changed)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`made(backend, ...)`: the only backends that there are."""

    def make(*there: MadeBackend) -> None:
        by_name = {one.name: one for one in there}
        monkeypatch.setattr(backends, "names", lambda: tuple(by_name))
        monkeypatch.setattr(backends, "get", by_name.__getitem__)

    return make


def plan(*names: str, **fields: Any) -> Plan:
    usual: dict[str, Any] = {"collectives": ("bcast",), "sizes": ("8", "16"), "iters": 2, "drivers": ("python",)}
    return Plan(**(usual | {"backends": names or ("one",)} | fields))


OPTIONS = WorldSettings(timeout=60.0, ranks=2)


class Begun(Kept):
    """And how many cases each run was begun with."""

    def __init__(self) -> None:
        super().__init__()
        self.began: list[int] = []

    def begin(self, manifest: Any, cases: int) -> None:
        super().begin(manifest, cases)
        self.began.append(cases)


def carried_out(whole: Plan, options: WorldSettings = OPTIONS, kept: Kept | None = None) -> Kept:
    kept = kept or Kept()
    perform(plan_experiment(whole, options, ("collbench", "bcast")), kept)
    return kept


def outcomes(kept: Kept) -> list[tuple[object, object, str, str | None]]:
    """(backend, bytes, status, reason) of each record."""
    return [(one.case["backend"], one.case["size"], one.status, one.reason) for one in kept.records]


# Which backends ------------------------------------------------------------------------------------------------------


def test_backends_are_measured_one_after_the_other(made: Callable[..., None]) -> None:
    made(MadeBackend(), MadeBackend("two"))
    kept = Begun()
    carried_out(plan("one", "two"), kept=kept)
    assert outcomes(kept) == [(name, size, "ok", None) for name in ("one", "two") for size in (8, 16)]
    assert kept.began == [4]
    assert kept.manifest is not None and kept.manifest.command == ("collbench", "bcast")
    assert [samples.shape for samples in kept.samples if samples is not None] == [(2, 2)] * 4
    runner = plan_experiment(plan("one", "two"), OPTIONS, ())
    assert isinstance(runner, PlanRunner) and runner.skipped == ()
    identities = [(identity["backend"], identity["size"]) for identity in runner.identities]
    assert identities == [(name, size) for name in ("one", "two") for size in (8, 16)]


def test_missing_backends_are_skipped(made: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 alone keeps what was skipped."""
    made(MadeBackend(why="no GPU"), MadeBackend("two"))
    with pytest.raises(BackendUnavailable, match="backend one: no GPU"):
        carried_out(plan("one", "two"))
    kept = carried_out(plan("one", "two", unusable="skip"))
    measured = [("two", 8, "ok", None), ("two", 16, "ok", None)]
    assert outcomes(kept) == [*measured, ("one", 8, "skipped", "no GPU"), ("one", 16, "skipped", "no GPU")]
    assert ([record.launch for record in kept.records], kept.samples[2:]) == ([0] * 4, [None, None])
    monkeypatch.setattr(launcher, "detect", lambda: Launcher("openmpi", rank=1, size=2))
    assert outcomes(carried_out(plan("one", "two", unusable="skip"))) == measured


def test_a_backend_that_is_found_to_be_unusable_when_the_ranks_meet(made: Callable[..., None]) -> None:
    """The first that can be used begins the run, whichever it is; where none can, all is refused."""
    made(MadeBackend(late="no GPU for rank 1"), MadeBackend("two"), MadeBackend("three", late="no link"))
    with pytest.raises(BackendUnavailable, match="no GPU for rank 1") as caught:
        carried_out(plan("one", "two"))
    assert caught.value.everywhere
    kept = carried_out(plan("one", "two", "three", sizes=("8",), unusable="skip"))
    assert kept.manifest is not None
    assert outcomes(kept) == [
        ("two", 8, "ok", None), ("one", 8, "skipped", "no GPU for rank 1"), ("three", 8, "skipped", "no link")
    ]  # fmt: skip
    with pytest.raises(BackendUnavailable, match="no link"):
        carried_out(plan("one", "three", unusable="skip"))


def test_a_fault_needs_simulated_ranks(made: Callable[..., None]) -> None:
    @dataclass(frozen=True)
    class Real(MadeBackend):
        simulated: bool = False

    made(Real())
    with pytest.raises(RequestError, match=r"--fault: .*fake"):
        plan_experiment(plan(), replace(OPTIONS, fault="hang:0"), ())
    made(MadeBackend())
    assert len(plan_experiment(plan(), replace(OPTIONS, fault="hang:0"), ()).identities) == 2


def test_backends_are_told_who_serves_and_whether_a_gpu_may_be_shared(made: Callable[..., None]) -> None:
    backend = MadeBackend()
    made(backend)
    carried_out(plan(collectives=("ps_bcast",), roots=(1,), share_gpu=True))
    assert backend.given == [replace(OPTIONS, roles=Roles(False, frozenset({1})), share_gpu=True)]


# Who is refused ------------------------------------------------------------------------------------------------------


def refused(made: Callable[..., None], whole: Plan, change: Change = lambda session: None) -> CollbenchError:
    """What all ranks raise; no record was kept before."""
    made(MadeBackend(change=change))
    kept = Kept()
    with pytest.raises(CollbenchError) as caught:
        carried_out(whole, kept=kept)
    assert (kept.manifest, kept.records, caught.value.everywhere) == (None, [], True)
    return caught.value


def test_ranks_of_two_programs(made: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    versions = iter("12")
    monkeypatch.setattr(MadeBackend, "libraries", lambda self: (Library(name="MPI", version=next(versions)),))
    error = refused(made, plan())
    assert isinstance(error, WorldMismatch)
    (named,) = re.findall(r"^rank 0 \w+ MPI (\d), rank 1 \w+ (\d);", str(error))
    assert set(named) == {"1", "2"}


def without_messages(session: Any) -> None:
    session.signals = replace(session.signals, messages=None)


def other_requests(session: Any) -> None:
    """As ranks that were started with two command lines: each tells what its own request is."""
    world, minmax = session.world, session.world.minmax

    def differ(values: list[int]) -> Any:
        is_request = len(values) == 1 and values[0] > world.size
        return minmax([values[0] + world.rank] if is_request else values)

    world.minmax = differ


def test_worlds_that_cannot_be_measured(
    made: Callable[..., None], monkeypatch: pytest.MonkeyPatch, golden: Callable[[str, str], None]
) -> None:
    """No common start without a common clock, ranks elsewhere than planned, ranks with two command lines, no memory."""
    too_large = refused(made, plan(sizes=("8", "1T")))
    assert isinstance(too_large, DoesNotFit) and "size 1.00 TiB" in str(too_large) and "2 ranks" in str(too_large)
    differing = refused(made, plan(), other_requests)
    monkeypatch.setattr("collbench.run.experiment.have_common_clock", lambda ranks: False)
    no_start = refused(made, plan(align="roundtime"), without_messages)
    made(MadeBackend())
    assert [record.status for record in carried_out(plan(align="barrier")).records] == ["ok", "ok"]
    with pytest.raises(WorldMismatch) as elsewhere:
        carried_out(plan(), replace(OPTIONS, places=()))
    assert (type(differing), type(no_start)) == (WorldMismatch, RequestError)
    golden("worlds-refused.txt", "".join(f"{error}\n" for error in (differing, no_start, elsewhere.value)))


# What is raised ------------------------------------------------------------------------------------------------------


def test_a_sink_that_fails_ends_all_ranks_together(made: Callable[..., None]) -> None:
    made(MadeBackend())
    kept = Kept()
    kept.add = Mock(side_effect=RunWriteError("no space left"))  # type: ignore[method-assign]
    with pytest.raises(RunWriteError, match="no space left") as caught:
        carried_out(plan(), kept=kept)
    assert caught.value.everywhere


def failing(error: Exception) -> Change:
    """The library refuses every operation."""

    def spoiled(rank: int, operation: Operation) -> Operation:
        stage = replace(operation.call.stages[0], python=Mock(side_effect=error))
        return replace(operation, call=replace(operation.call, stages=(stage,)))

    return preparing(spoiled)


@pytest.mark.parametrize(
    ("error", "words"),
    [(LibraryError("error 5"), "bcast 8 B on one: error 5"), (ValueError("what"), "ValueError: what")],
)
def test_what_a_rank_meets_alone_ends_the_job(
    made: Callable[..., None], capfd: pytest.CaptureFixture[str], error: Exception, words: str
) -> None:
    made(MadeBackend(change=failing(error)))
    with pytest.raises(SystemExit) as left:
        carried_out(plan(), replace(OPTIONS, ranks=1))
    message = capfd.readouterr().err
    assert (left.value.code, message.count("\n")) == (1, 1)
    assert message.startswith(f"collbench: rank 0: {words}. ")


def test_a_rank_imports_nothing_that_only_other_commands_need() -> None:
    program = ("import sys, collbench.run.experiment, collbench.backends.mpi; "
               "print(sorted({'argparse', 'importlib.metadata', 'torch', 'click'} & set(sys.modules)))")  # fmt: skip
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


# An error that one rank meets while it measures a case ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "words"),
    [(LibraryError("error 1"), "error 1; see its log"), (RuntimeError("NCCL"), "RuntimeError: NCCL; see its log"),
     (MemoryError("7 GiB of the host"), "out of memory (7 GiB of the host)")],
)  # fmt: skip
def test_an_error_of_one_rank_names_the_case(monkeypatch: pytest.MonkeyPatch, error: Exception, words: str) -> None:
    """But one of a lost rank stays what it is: a backend knows it by its kind and its words."""
    monkeypatch.setattr(experiment, "measure", Mock(side_effect=error))
    session: Any = SimpleNamespace(is_lost_rank=lambda error: False, explained=lambda error: f"{error}; see its log")
    with pytest.raises(LibraryError) as raised:
        experiment._measured_collective(case(), session, method(), Unwatched())
    assert str(raised.value) == f"bcast 16 B on fake: {words}"
    closed = RuntimeError("Connection closed by peer")
    session.is_lost_rank = lambda error: error is closed
    monkeypatch.setattr(experiment, "measure", Mock(side_effect=closed))
    with pytest.raises(RuntimeError) as of_lost_rank:
        experiment._measured_collective(case(), session, method(), Unwatched())
    assert of_lost_rank.value is closed


# Whether the buffers of all ranks fit into their machines ------------------------------------------------------------


HERE = replace(rank_facts(), kernel_id="here", host="node")
CASES = tuple(msgspec.structs.replace(CASE, size=size) for size in (8, 64))
NEED = 1000


ENOUGH = int(2 * NEED / USABLE_SHARE)


@pytest.mark.parametrize(
    ("reports", "host", "ranks"),
    [
        ((("a", ENOUGH + 2), ("a", ENOUGH + 2)), "", 0), ((("a", ENOUGH - 2), ("a", ENOUGH + 2)), "x", 2),
        ((("a", None), ("a", ENOUGH - 2)), "x", 2), ((("a", None), ("a", None)), "", 0),
        ((("a", ENOUGH - 2), ("b", ENOUGH - 2)), "", 0), ((("a", 2 * NEED), ("a", ENOUGH + 2), ("b", NEED)), "x", 2),
        ((("a", ENOUGH), ("b", ENOUGH - 2), ("b", ENOUGH)), "y", 2),
        ((("a", ENOUGH + 2), ("a", None), ("b", NEED)), "z", 1),
        ((("b", ENOUGH - 2), ("a", ENOUGH), ("b", ENOUGH)), "x", 2),
    ],
)  # fmt: skip
def test_the_ranks_of_a_machine_share_what_the_least_of_them_sees(
    monkeypatch: pytest.MonkeyPatch, reports: tuple[tuple[str, int | None], ...], host: str, ranks: int
) -> None:
    """All ranks need 1000 bytes; by rank its machine and free bytes. Each is in a container with its own hostname."""
    monkeypatch.setattr(experiment, "_needed_bytes", lambda session, case, size, watch: NEED * (size == 64))
    monkeypatch.setattr(experiment, "available_bytes", lambda: reports[0][1])

    def gather(mine: tuple[int, int | None]) -> list[tuple[int, int | None]]:
        assert mine == (NEED, reports[0][1])
        return [mine, *((NEED, left) for _, left in reports[1:])]

    session: Any = SimpleNamespace(world=SimpleNamespace(rank=0, gather=gather, bcast=lambda value: value))
    facts = tuple(replace(HERE, kernel_id=machine, host=name)
                  for (machine, _), name in zip(reports, "xyz", strict=False))  # fmt: skip
    refusal = str(does_not_fit(session, facts, CASES, Unwatched()) or "")
    need = "1000 B" if ranks == 1 else "1.95 KiB"
    assert bool(refusal) == bool(host)
    assert not host or all(name in refusal for name in ("size 64 B", f"{ranks} rank", f" on {host} ", need))


@pytest.mark.parametrize(("limit", "fits"), [(3 << 20, False), (4 << 20, True), (None, True)])
def test_a_program_has_to_fit_into_its_container(
    monkeypatch: pytest.MonkeyPatch, limit: int | None, fits: bool
) -> None:
    monkeypatch.setattr(cgroup, "memory_left", lambda: limit)
    stream = {"name": "stream", "arrays": "any", "size": ("8", "1M")}
    refused = programs_do_not_fit(program_cases(Plan(benchmarks=(stream,)), 1))
    assert (refused is None) == fits
    assert fits or all(name in str(refused) for name in ("stream size=1M", "arrays=any", "3.00 MiB"))
    stream["size"] = "4096T"  # of which no program is started
    with pytest.raises(DoesNotFit, match=r"stream size=4096T arrays=any threads=1: .*12288\.00 TiB"):
        perform(plan_experiment(Plan(benchmarks=(stream,), iters=1), WorldSettings(), ()), cast("Any", None))


@pytest.mark.parametrize(
    ("benchmark", "needed"),
    [({"name": "dd", "bs": "1M", "count": 100}, 100 << 20), ({"name": "fio", "size": ["4k", "100M"]}, 100 << 20),
     ({"name": "sysbench_fileio", "size": "100M"}, 100 << 20), ({"name": "sysbench_memory", "size": "100M"}, 0),
     ({"name": "ioping"}, 0)],
)  # fmt: skip
@pytest.mark.parametrize("blocks", [1000, 0])
def test_files_have_to_fit_into_what_is_free_in_their_folder(
    monkeypatch: pytest.MonkeyPatch, benchmark: dict[str, Any], needed: int, blocks: int
) -> None:
    """A file system without blocks does not tell what is free."""
    monkeypatch.setattr(experiment, "_missing", lambda case: None)
    cases, enough = program_cases(Plan(benchmarks=(benchmark,)), 1), int(needed / USABLE_SHARE) + 1
    for free, fits in ((enough, True), (max(enough - 2, 0), needed == 0 or blocks == 0)):
        disk = SimpleNamespace(f_blocks=blocks, f_bavail=free, f_frsize=1)
        monkeypatch.setattr("os.statvfs", lambda folder, disk=disk: disk)
        refused = programs_do_not_fit(cases, folder="/data")
        assert (refused is None) == fits
        assert refused is None or ("100.00 MiB" in str(refused) and "/data" in str(refused))


@pytest.mark.parametrize(
    ("here", "ranks", "room", "names"),
    [(2, 2, 2, ()), (2, 2, 1, ("ddp", "network=resnet50", "batch=1048576", "2 ranks")), (1, 2, 1, ()),
     (1, 1, 0.9, ("ddp", "batch=1048576"))],
)  # fmt: skip
def test_the_ranks_of_a_training_have_to_fit_into_their_machine(
    monkeypatch: pytest.MonkeyPatch, here: int, ranks: int, room: float, names: tuple[str, ...]
) -> None:
    monkeypatch.setattr(experiment, "_missing", lambda case: None)
    training = {"name": "ddp", "network": "resnet50", "batch": 1 << 20}
    cases = program_cases(Plan(benchmarks=(training,)), ranks)
    of_rank = cases[0].memory / ranks
    monkeypatch.setattr(experiment, "available_bytes", lambda: room * of_rank / USABLE_SHARE + 1)
    refused = programs_do_not_fit(cases, here)
    assert (refused is not None) == bool(names)
    assert all(name in str(refused) for name in names)


@pytest.mark.parametrize(("machines", "here"), [("aab", 2), ("abb", 1), ("aaa", 3)])
def test_ranks_elsewhere_need_none_of_this_machine(monkeypatch: pytest.MonkeyPatch, machines: str, here: int) -> None:
    monkeypatch.setattr(facts_of_ranks, "machine_id", lambda: "a")
    world: Any = SimpleNamespace(rank=0, size=3, bcast=lambda value: value)
    facts = tuple(replace(HERE, kernel_id=machine) for machine in machines)
    assert facts_of_ranks.ranks_here(world, facts) == here


# What a rank needs ---------------------------------------------------------------------------------------------------


def tried(
    monkeypatch: pytest.MonkeyPatch, free: int, *cases: CollectiveCase, watch: Unwatched | None = None,
    change: Change = lambda session: None,
) -> str:  # fmt: skip
    """What all ranks of the fake backend find on one machine with so much memory."""
    monkeypatch.setattr(experiment, "available_bytes", lambda: free)

    def body(session: Any) -> str:
        change(session)
        facts = (rank_facts(),) * session.world.size if session.world.rank == 0 else ()
        return str(does_not_fit(session, facts, cases, watch or Unwatched()) or "")

    of_ranks = set(on_ranks(2, body))
    assert len(of_ranks) == 1, "the same on all ranks of a machine"
    return of_ranks.pop()


#: Of a broadcast the root holds what it sends beside what it receives: three blocks of 1000 elements of 4 bytes.
BLOCKS = 3 * 4000


def room_for(needed: int) -> int:
    """The least that must be free."""
    return next(free for free in range(needed, 2 * needed) if free * USABLE_SHARE >= needed)


def test_the_buffers_of_all_ranks_are_counted_to_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place an all-reduce needs the larger buffer alone."""
    free = room_for(BLOCKS)
    assert tried(monkeypatch, free, case(size=4000)) == ""
    assert "11.72 KiB" in tried(monkeypatch, free - 1, case(size=4000))
    assert tried(monkeypatch, free, case(size=8000, dtype="float64")) != ""
    assert tried(monkeypatch, free, case(size=4000, dtype="float64")) == ""
    for in_place, blocks in ((True, 2), (False, 4)):
        allreduce, free = case("allreduce", size=4000, in_place=in_place), room_for(blocks * 4000)
        assert tried(monkeypatch, free, allreduce) == "" != tried(monkeypatch, free - 1, allreduce)


def test_the_largest_of_all_cases_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes of one kind are tried once, with one element a block; kinds that differ in anything else are tried each."""
    watch, counts = Heard(), list[int]()

    def counted(session: Any) -> None:
        prepare = session.prepare

        def prepared(case: CollectiveCase, row: Any, count: int) -> Any:
            counts.append(count)
            return prepare(case, row, count)

        session.prepare = prepared

    small, large = case(size=8), case(size=4000)
    assert tried(monkeypatch, room_for(BLOCKS), small, large, small, watch=watch, change=counted) == ""
    assert (counts, ["bcast on fake" in line for line in watch.said]) == ([1, 1], [True, True]), "once on each rank"
    for cases in ((small, large, case("barrier")), (case("barrier"), large, small)):
        assert "size 3.91 KiB" in tried(monkeypatch, room_for(BLOCKS) - 1, *cases)


@pytest.mark.parametrize("skipped", [case("ps_bcast", ranks=1, size=4000), case("ps_gather", size=4000, in_place=True)])
def test_what_will_be_skipped_needs_nothing(monkeypatch: pytest.MonkeyPatch, skipped: CollectiveCase) -> None:
    assert tried(monkeypatch, 1, skipped) == ""
    assert tried(monkeypatch, 1, msgspec.structs.replace(skipped, ranks=2, in_place=False)) != ""


@pytest.mark.parametrize("error", [Unsupported("no"), LibraryError("error 5"), MemoryError()])
def test_what_cannot_be_prepared_says_so_in_its_record(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(rank: int, operation: Operation) -> Operation:
        raise error

    assert tried(monkeypatch, 1, case(size=4000), change=preparing(refuse)) == ""
