"""A plan from its check to its last record: which backends are measured, who is refused, what every rank raises."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.contract.test_fake import Kept

from collbench import backends
from collbench.backends.fake import FakeBackend
from collbench.bindings.spec import Roles, Session, WorldSettings
from collbench.errors import (
    BackendUnavailable,
    CollbenchError,
    DoesNotFit,
    LibraryError,
    RequestError,
    RunWriteError,
    WorldMismatch,
)
from collbench.machine import launcher
from collbench.machine.launcher import Launcher
from collbench.run.experiment import PlanRunner, perform, plan_experiment
from collbench.schema.manifest import Library
from collbench.schema.plan import Plan
from collbench.schema.record import Record

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


def carried_out(asked: Plan, options: WorldSettings = OPTIONS, kept: Kept | None = None) -> Kept:
    kept = kept or Kept()
    perform(plan_experiment(asked, options, ("collbench", "bcast")), kept)
    return kept


def found(records: list[Record]) -> list[tuple[object, object, str, str | None]]:
    """(backend, bytes, status, reason) of each."""
    return [(one.case["backend"], one.case["size"], one.status, one.reason) for one in records]


# Which backends ------------------------------------------------------------------------------------------------------


def test_backends_are_measured_one_after_the_other_and_the_manifest_comes_once(made: Callable[..., None]) -> None:
    made(MadeBackend(), MadeBackend("two"))
    kept = Kept()
    began: list[int] = []

    class Begun(Kept):
        def begin(self, manifest: Any, cases: int) -> None:
            super().begin(manifest, cases)
            began.append(cases)

    kept = carried_out(plan("one", "two"), kept=Begun())
    assert found(kept.records) == [(name, size, "ok", None) for name in ("one", "two") for size in (8, 16)]
    assert began == [4]
    assert kept.manifest is not None and kept.manifest.command == ("collbench", "bcast")
    assert [samples.shape for samples in kept.samples if samples is not None] == [(2, 2)] * 4


def test_what_is_missing_is_skipped_where_the_plan_says_so(made: Callable[..., None]) -> None:
    made(MadeBackend(why="no GPU"), MadeBackend("two"))
    with pytest.raises(BackendUnavailable, match="backend one: no GPU"):
        carried_out(plan("one", "two"))
    kept = carried_out(plan("one", "two", unusable="skip"))
    assert found(kept.records) == [
        ("two", 8, "ok", None), ("two", 16, "ok", None),
        ("one", 8, "skipped", "no GPU"), ("one", 16, "skipped", "no GPU"),
    ]  # fmt: skip
    assert [record.launch for record in kept.records] == [0] * 4
    assert kept.samples[2:] == [None, None]


def test_a_backend_that_is_found_to_be_unusable_when_the_ranks_meet(made: Callable[..., None]) -> None:
    """The first that can be used begins the run, whichever it is; where none can, all is refused."""
    made(MadeBackend(late="no GPU for rank 1"), MadeBackend("two"), MadeBackend("three", late="no link"))
    with pytest.raises(BackendUnavailable, match="no GPU for rank 1") as caught:
        carried_out(plan("one", "two"))
    assert caught.value.everywhere
    kept = carried_out(plan("one", "two", "three", sizes=("8",), unusable="skip"))
    assert kept.manifest is not None
    assert found(kept.records) == [
        ("two", 8, "ok", None), ("one", 8, "skipped", "no GPU for rank 1"), ("three", 8, "skipped", "no link")
    ]  # fmt: skip
    with pytest.raises(BackendUnavailable, match="no link"):
        carried_out(plan("one", "three", unusable="skip"))


def test_only_rank_0_keeps_what_was_skipped(made: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    made(MadeBackend(why="no GPU"), MadeBackend("two"))
    monkeypatch.setattr(launcher, "detect", lambda: Launcher("openmpi", rank=1, size=2))
    kept = carried_out(plan("one", "two", unusable="skip"))
    assert {record.status for record in kept.records} == {"ok"}


def test_a_fault_needs_simulated_ranks(made: Callable[..., None]) -> None:
    @dataclass(frozen=True)
    class Real(MadeBackend):
        simulated: bool = False

    made(Real())
    with pytest.raises(RequestError, match="--fault: only the fake backend has faults on demand; add "):
        plan_experiment(plan(), replace(OPTIONS, fault="hang:0"), ())
    made(MadeBackend())
    assert len(plan_experiment(plan(), replace(OPTIONS, fault="hang:0"), ()).identities) == 2


def test_backends_are_told_who_serves_and_whether_a_gpu_may_be_shared(made: Callable[..., None]) -> None:
    backend = MadeBackend()
    made(backend)
    carried_out(plan(collectives=("ps_bcast",), roots=(1,), share_gpu=True))
    assert backend.given == [replace(OPTIONS, roles=Roles(False, frozenset({1})), share_gpu=True)]


def test_identities_are_those_of_all_backends(made: Callable[..., None]) -> None:
    made(MadeBackend(), MadeBackend("two"))
    asked = plan_experiment(plan("one", "two"), OPTIONS, ())
    assert [(one["backend"], one["size"]) for one in asked.identities] == [
        ("one", 8), ("one", 16), ("two", 8), ("two", 16)
    ]  # fmt: skip
    assert isinstance(asked, PlanRunner) and asked.skipped == ()


# Who is refused ------------------------------------------------------------------------------------------------------


def refused(made: Callable[..., None], asked: Plan, change: Change = lambda session: None) -> CollbenchError:
    """What all ranks raise; no record was kept before."""
    made(MadeBackend(change=change))
    kept = Kept()
    with pytest.raises(CollbenchError) as caught:
        carried_out(asked, kept=kept)
    assert (kept.manifest, kept.records, caught.value.everywhere) == (None, [], True)
    return caught.value


def test_ranks_of_two_programs(made: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    versions = iter("12")
    monkeypatch.setattr(MadeBackend, "libraries", lambda self: (Library(name="MPI", version=next(versions)),))
    error = refused(made, plan())
    assert isinstance(error, WorldMismatch)
    assert str(error) in {f"rank 0 has MPI {one}, rank 1 has {other}; install the same on every host."
                          for one, other in ("12", "21")}  # fmt: skip


def test_ranks_that_do_not_share_a_clock_have_no_common_start(
    made: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collbench.run.experiment.have_common_clock", lambda ranks: False)

    def without_messages(session: Any) -> None:
        session.signals = replace(session.signals, messages=None)

    error = refused(made, plan(gate="roundtime"), without_messages)
    assert isinstance(error, RequestError)
    assert str(error) == (
        "gate roundtime: the ranks do not share a clock, and this backend has no messages by which hosts could compare "
        "theirs. Use gate barrier."
    )
    made(MadeBackend())
    assert [record.status for record in carried_out(plan(gate="barrier")).records] == ["ok", "ok"]


def test_ranks_elsewhere_than_planned(made: Callable[..., None]) -> None:
    made(MadeBackend())
    with pytest.raises(WorldMismatch) as caught:
        carried_out(plan(), replace(OPTIONS, places=()))
    assert str(caught.value) == "0 ranks were planned and 2 met."


def test_buffers_that_do_not_fit(made: Callable[..., None]) -> None:
    error = refused(made, plan(sizes=("8", "1T")))
    assert isinstance(error, DoesNotFit) and str(error).startswith("size 1.00 TiB: the buffers of 2 ranks on ")


def test_ranks_that_were_given_other_requests(made: Callable[..., None]) -> None:
    """As ranks that were started with two command lines: each tells what its own request is."""

    def tell(session: Any) -> None:
        world = session.world
        minmax = world.minmax

        def differ(values: list[int]) -> Any:
            is_request = len(values) == 1 and values[0] > world.size
            return minmax([values[0] + world.rank] if is_request else values)

        world.minmax = differ

    error = refused(made, plan(), tell)
    assert isinstance(error, WorldMismatch)
    assert str(error) == "the ranks were given different requests; start them all with the same command line."


# What is raised ------------------------------------------------------------------------------------------------------


def test_a_sink_that_fails_ends_all_ranks_together(made: Callable[..., None]) -> None:
    made(MadeBackend())

    class Full(Kept):
        def add(self, record: Record, samples: Any) -> None:
            raise RunWriteError("no space left")

    with pytest.raises(RunWriteError, match="no space left") as caught:
        carried_out(plan(), kept=Full())
    assert caught.value.everywhere


def failing(error: Exception) -> Change:
    """The library of rank 0 refuses every operation."""

    def make(session: Any) -> None:
        prepare = session.prepare

        def prepared(case: Any, row: Any, count: int) -> Any:
            operation = prepare(case, row, count)
            stage = replace(operation.call.stages[0], python=fail)
            return replace(operation, call=replace(operation.call, stages=(stage,)))

        def fail() -> None:
            raise error

        session.prepare = prepared

    return make


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (LibraryError("error 5"), 1, "rank 0: bcast 8 B on one: error 5. The job ends here."),
        (ValueError("what"), 1, "rank 0: ValueError: what. The job ends here."),
    ],
)
def test_what_a_rank_meets_alone_ends_the_job_with_one_message(
    made: Callable[..., None], capfd: pytest.CaptureFixture[str], error: Exception, code: int, said: str
) -> None:
    made(MadeBackend(change=failing(error)))
    with pytest.raises(SystemExit) as left:
        carried_out(plan(), replace(OPTIONS, ranks=1))
    assert (left.value.code, capfd.readouterr().err) == (code, f"collbench: {said}\n")


def test_a_rank_imports_nothing_that_only_other_commands_need() -> None:
    program = (
        "import sys, collbench.run.experiment, collbench.backends.mpi; "
        "print(sorted({'argparse', 'importlib.metadata', 'torch', 'click'} & set(sys.modules)))"
    )
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
