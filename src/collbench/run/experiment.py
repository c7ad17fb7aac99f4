"""Runs a plan on the ranks that were started: one backend after the other, one case after the other.

Rank 0 passes every record to a sink as soon as it is complete. `run/failures.py` says how errors end the job.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from collbench import backends, collectives, workloads
from collbench.bindings.spec import Backend, Options, Roles, Session
from collbench.collectives.case import CollectiveCase
from collbench.errors import (
    BackendUnavailable,
    CollbenchError,
    Interrupted,
    LibraryError,
    LostRankError,
    PlanError,
    RequestError,
    WorldMismatch,
)
from collbench.machine import launcher
from collbench.machine.facts import RankFacts, have_common_clock, rank_facts
from collbench.run import binding, describe
from collbench.run.describe import agreed_method
from collbench.run.expand import cases_of, program_cases, refuse_cadence
from collbench.run.facts_of_ranks import facts_of_all, notes_on_loaded, ranks_here, software, software_difference
from collbench.run.failures import (
    AgreedError,
    FirstReporter,
    Rescue,
    StartLimit,
    abort_job,
    on_rank_0,
    on_watchdog,
    raise_on_all,
)
from collbench.run.host_clocks import host_clocks
from collbench.run.measure import measure
from collbench.run.memory_check import does_not_fit, programs_do_not_fit
from collbench.run.program import measure_program
from collbench.run.results import Measured
from collbench.run.sampling import Method, Watch
from collbench.run.turns import Turns
from collbench.run.watchdog import DEFERENCE, Unwatched, Watchdog
from collbench.run.worlds_of_programs import world_for
from collbench.schema.case import Case
from collbench.schema.manifest import Manifest
from collbench.schema.plan import ALL_CASES, Chosen, Plan, chosen_of
from collbench.schema.record import Record
from collbench.timing.gates import Fixed
from collbench.units import format_bytes
from collbench.workloads.program import ProgramCase

_DEFAULT = {("cpu", True): "torch-gloo", ("cpu", False): "mpi", ("gpu", True): "torch-nccl", ("gpu", False): "nccl"}


def default_backend(device: str = "cpu") -> str:
    """`mpi`, and on GPUs `nccl`; under torchrun `torch-gloo` and `torch-nccl`."""
    return _DEFAULT[device, launcher.detect().kind == "torchrun"]


def chosen_backends(plan: Plan) -> tuple[tuple[Backend, ...], dict[str, str]]:
    """The backends to measure, none without collectives, and of those that the plan allows to be missing the reason.

    Raises:
        PlanError: simulated and real ones are mixed, whether they are usable here or not.
        BackendUnavailable: one is missing that must not be, or all are.
    """
    if not plan.collectives:
        return (), {}
    names = tuple(dict.fromkeys(plan["backends"] or (default_backend(),)))
    simulated = [name for name in names if backends.get(name).simulated]
    if simulated and (plan.workloads or len(simulated) < len(names)):
        made_up = ", ".join(simulated)
        raise PlanError(f"backends: the times of {made_up} are simulated; measure them in a separate run.")
    absent: dict[str, str] = {}
    if plan.unusable == "skip":
        absent = {name: reason for name in names if (reason := backends.missing(name)) is not None}
    if len(absent) == len(names):
        absent = {}
    return tuple(backends.usable(name) for name in names if name not in absent), absent


def roles_of(cases: tuple[tuple[CollectiveCase, ...], ...]) -> Roles:
    """Who is a parameter server in which cases, and whether there are cases without one."""
    servers = {case.root or 0 for group in cases for case in group if collectives.get(case.collective).has_server}
    plain = any(not collectives.get(case.collective).has_server for group in cases for case in group)
    return Roles(plain, frozenset(servers))


class RecordSink(Rescue, Protocol):
    """Where rank 0's records go. A CollbenchError from it is raised on all ranks."""

    def begin(self, manifest: Manifest, cases: int) -> None:
        """Called before the first case."""

    def add(self, record: Record, samples: NDArray[np.int64] | None) -> None:
        """Take a record and its samples [ranks, n] in ns."""

    def doing(self, what: str) -> None:
        """Called before each execution of a program, which may take minutes without a record."""


@dataclass(frozen=True)
class PlanRunner:
    """A plan with everything that is known before a world exists.

    `backends` and `cases` belong together; programs come last, with `world_for` as their backend. `skipped` are the
    records of backends that are not usable here, where the plan allows that. `chosen` are the cases that are
    executed; the others are part of the world, which is what it would be if they were executed too.
    """

    plan: Plan
    options: Options
    command: tuple[str, ...]
    backends: tuple[Backend, ...]
    cases: tuple[tuple[CollectiveCase | ProgramCase, ...], ...]
    skipped: tuple[Record, ...] = ()
    chosen: Chosen = ALL_CASES

    @property
    def identities(self) -> tuple[Case, ...]:
        """The cases of all records to come."""
        measured = (case for cases in self.cases for case in cases if self.chosen.measures(case.identities))
        return tuple(identity for case in measured for identity in case.identities)

    def executed(self, number: int) -> tuple[CollectiveCase | ProgramCase, ...]:
        """The cases of a backend that are executed."""
        return tuple(case for case in self.cases[number] if self.chosen.executes(case.identities))

    @property
    def executed_last(self) -> int:
        """The number of the last backend of which a case is executed."""
        return max((number for number in range(len(self.backends)) if self.executed(number)), default=-1)


def plan_experiment(plan: Plan, options: Options, command: tuple[str, ...]) -> PlanRunner:
    """Check names and numbers, expand the cases. Starts nothing.

    Raises:
        RequestError: something in the plan does not exist, or is not usable here.
    """
    usable, unusable = chosen_backends(plan)
    uses = workloads.uses(plan.benchmarks)
    starting: tuple[Backend, ...] = (world_for(plan.workloads, uses),) if plan.workloads else ()
    if options.fault is not None and not all(backend.simulated for backend in (*usable, *starting)):
        raise RequestError("--fault: only the fake backend has faults on demand; add --backend fake.")
    refuse_cadence(plan, (backend.name for backend in usable))
    ranks = max((backend.world_size(options) for backend in starting), default=1)
    programs = program_cases(plan, ranks)
    _refuse_folder(plan)
    cases = tuple(cases_of(plan, backend.name, backend.world_size(options)) for backend in usable)
    options, chosen = replace(options, roles=roles_of(cases), share_gpu=plan.share_gpu), chosen_of(plan)
    skipped = tuple(
        record
        for name, reason in unusable.items()
        for case in cases_of(plan, name, backends.get(name).world_size(options))
        for record in _skip(case, reason)
        if chosen.measures((record.case,))
    )
    return PlanRunner(
        plan, options, command, (*usable, *starting), (*cases, programs) if starting else cases, skipped, chosen
    )


def _refuse_folder(plan: Plan) -> None:
    """Raise where programs that work in files have no folder to make theirs in.

    Raises:
        PlanError: it is none.
    """
    in_files = [name for name in plan.workloads if workloads.get(name).files]
    if in_files and not Path(plan.folder or ".").is_dir():
        raise PlanError(
            f"folder {plan.folder}: there is no such folder, and {in_files[0]} works in files. Name another."
        )


def perform(experiment: PlanRunner, sink: RecordSink) -> None:
    """Measure every case. Collective over the processes that a launcher started.

    Raises:
        CollbenchError: known to every rank; any other error aborts the job.
    """
    refused: list[Record] = []
    begun = False
    asked = [number for number in range(len(experiment.backends)) if experiment.executed(number)]
    for number in asked:
        try:
            _run_backend(experiment, number, sink, begins=not begun)
            begun = True
        except BackendUnavailable as error:  # raised after the ranks had met; all of them know
            last = number == asked[-1]
            error.everywhere = True
            if experiment.plan.unusable == "refuse" or (last and not begun):
                raise
            measured = (case for case in experiment.cases[number] if experiment.chosen.measures(case.identities))
            refused += [record for case in measured for record in _skip(case, str(error))]
    if launcher.detect().rank == 0:
        for record in (*experiment.skipped, *refused):
            sink.add(record, None)


def _run_backend(experiment: PlanRunner, number: int, sink: RecordSink, begins: bool) -> None:
    backend, options = experiment.backends[number], experiment.options
    parent = None if launcher.detect().kind == "none" else os.getppid()
    with StartLimit(options.timeout, backend.name) as start:
        backend.run(options, lambda session: _guarded(experiment, number, session, sink, begins, start, parent))


def _skip(case: CollectiveCase | ProgramCase, reason: str) -> Iterable[Record]:
    return (Record(case=identity, launch=0, status="skipped", reason=reason) for identity in case.identities)


def _guarded(
    experiment: PlanRunner, number: int, session: Session, sink: RecordSink, begins: bool, start: StartLimit,
    parent: int | None,
) -> None:  # fmt: skip
    """Measure one backend's cases under a watchdog. An error is raised on all ranks, or aborts the job.

    `parent` is the launcher's process that started this rank, without which the rank ends.
    """
    rank = session.world.rank
    reporter = FirstReporter(session.world)
    with contextlib.ExitStack() as stack:
        watch: Watch = Unwatched()
        if rank == 0 or not experiment.backends[number].simulated:  # signals reach only the main thread
            timeout = experiment.options.timeout
            on_end = on_watchdog(rank, reporter, sink, timeout, session.break_off)
            deference = 0.0 if rank == 0 else DEFERENCE
            watch = stack.enter_context(Watchdog(timeout, on_end, deference, session.trouble, parent))
        start.reached()  # the watchdog takes over
        try:
            _measure_backend(experiment, number, session, sink, watch, begins)
        except AgreedError as agreed:
            agreed.error.everywhere = True
            raise agreed.error from None
        except LostRankError:
            raise
        except Exception as error:
            abort_job(session, error, reporter, sink)


def _measure_backend(
    experiment: PlanRunner, number: int, session: Session, sink: RecordSink, watch: Watch, begins: bool
) -> None:
    backend, cases = experiment.backends[number], experiment.cases[number]
    watch.beat(f"starting {backend.name}")
    raise_on_all(session, _refuse_other_software(session, backend))
    raise_on_all(session, _refuse_other_request(experiment, session, cases))
    facts = rank_facts(None if session.gpu is None else session.gpu.uuid, session.clock_id)
    ranks, messages = facts_of_all(session.world, facts), session.signals.messages is not None
    raise_on_all(session, _refuse(experiment, ranks, messages) if session.world.rank == 0 else None)
    programs = tuple(case for case in cases if isinstance(case, ProgramCase))
    here = ranks_here(session.world, ranks)
    raise_on_all(session, programs_do_not_fit(programs, here, experiment.plan.folder or "."))
    collective = tuple(case for case in cases if isinstance(case, CollectiveCase))
    raise_on_all(session, does_not_fit(session, ranks, collective, watch))
    clocks = host_clocks(session, ranks, facts.clock_id)
    method = agreed_method(session.world, experiment.plan, ranks, backend.simulated, clocks)
    if begins:
        manifest = describe.manifest(experiment.plan, experiment.command, experiment.backends, session, ranks, method)
        on_rank_0(session, lambda: sink.begin(manifest, len(experiment.identities)))
    folder = experiment.options.turns  # of all ranks, or of none
    turns = None if folder is None else Turns(folder, session.world.rank)
    before = _Before(experiment, number, session, watch, turns)
    for case in experiment.executed(number):
        before(case)
        if not experiment.chosen.measures(case.identities):
            _measured(case, experiment.plan, session, replace(method, stop=Fixed(1)), watch, sink)
            continue
        measured = _measured(case, experiment.plan, session, method, watch, sink, turns)
        notes = notes_on_loaded(session.world)
        for record, samples in measured:
            record = msgspec.structs.replace(record, notes=(*notes, *record.notes)) if notes else record
            on_rank_0(session, lambda record=record, samples=samples: sink.add(record, samples))  # type: ignore[misc]
    before(None)
    watch.beat(f"ending {backend.name}")
    if turns is not None:
        turns.close()
    session.close()


@dataclass
class _Before:
    """Waits for the world's turn before each case that is measured, and before those that lead up to it.

    Called with the case that is executed next; None: the last one is over. Of several backends the last one says so.
    """

    experiment: PlanRunner
    number: int
    session: Session
    watch: Watch
    turns: Turns | None
    stands: Case | None = None
    over: bool = False

    def __call__(self, case: CollectiveCase | ProgramCase | None) -> None:
        following = self._following(case)
        ends = following is None and self.experiment.executed_last == self.number and not self.over
        if self.turns is not None and (ends or following not in (None, self.stands)):
            self.stands, self.over = following, ends
            try:
                self.turns.stands(following, self.session.world, self.watch)
            except Interrupted as error:
                raise AgreedError(error) from None

    def _following(self, case: CollectiveCase | ProgramCase | None) -> Case | None:
        """The first identity of the next case that is measured, from this one on."""
        executed = self.experiment.executed(self.number)
        later = () if case is None else executed[executed.index(case) :]
        measured = (one.identities[0] for one in later if self.experiment.chosen.measures(one.identities))
        return next(measured, None)


def _measured(
    case: CollectiveCase | ProgramCase, plan: Plan, session: Session, method: Method, watch: Watch, sink: RecordSink,
    turns: Turns | None = None,
) -> tuple[Measured, ...]:  # fmt: skip
    if isinstance(case, CollectiveCase):
        return (_measured_collective(case, session, method, watch, turns),)
    try:
        doing = sink.doing if session.world.rank == 0 else lambda what: None
        return measure_program(case, plan, session, method, watch, doing, None if turns is None else turns.folder)
    except Interrupted as error:
        raise AgreedError(error) from None


def _measured_collective(
    case: CollectiveCase, session: Session, method: Method, watch: Watch, turns: Turns | None = None
) -> Measured:
    """`measure`, with an interruption raised on all ranks, and the case named in errors of this rank alone."""
    doing = f"{case.collective} {format_bytes(case.size)} on {case.backend}"
    try:
        return measure(case, collectives.get(case.collective), session, method, watch, turns)
    except Interrupted as error:
        # Its frames would keep buffers and graphs alive, for which a communicator waits when it is freed.
        raise AgreedError(error.with_traceback(None)) from None
    except LibraryError as error:
        raise LibraryError(f"{doing}: {session.explained(error)}") from error
    except MemoryError as error:
        raise LibraryError(f"{doing}: out of memory ({error})") from error
    except RuntimeError as error:
        if session.is_lost_rank(error):
            raise
        raise LibraryError(f"{doing}: {type(error).__name__}: {session.explained(error)}") from error


def _refuse_other_software(session: Session, backend: Backend) -> WorldMismatch | None:
    """Compared first, because another version might exchange other messages."""
    by_rank = session.world.gather(software(backend))
    differs = session.world.bcast(None if by_rank is None else software_difference(by_rank))
    return None if differs is None else WorldMismatch(f"{differs}; install the same on every host.")


def _refuse_other_request(
    experiment: PlanRunner, session: Session, cases: tuple[CollectiveCase | ProgramCase, ...]
) -> WorldMismatch | None:
    lowest, highest = session.world.extremes([zlib.crc32(msgspec.json.encode((experiment.plan, cases)))])
    if lowest[0] == highest[0]:
        return None
    return WorldMismatch("the ranks were given different requests; start them all with the same command line.")


def _refuse(experiment: PlanRunner, ranks: tuple[RankFacts, ...], messages: bool) -> CollbenchError | None:
    """Why a world of such ranks cannot run this plan; None where it can. `messages`: two ranks can exchange some."""
    if experiment.plan.gate == "roundtime" and not messages and not have_common_clock(ranks):
        reason = "the ranks do not share a clock, and this backend has no messages by which hosts could compare theirs"
        return RequestError(f"gate roundtime: {reason}. Use gate barrier.")
    if (differs := binding.difference(ranks, experiment.options.places)) is not None:
        return WorldMismatch(f"{differs}.")
    return None
