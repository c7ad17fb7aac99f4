"""A plan on the ranks that were started: its cases, with names checked before anything runs; then one after the other.

Rank 0 passes every record to a sink as soon as it is complete. `run/failures.py` says how errors end the job.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from collbench import backends, collectives, errors, workloads
from collbench.bindings.spec import USABLE_SHARE, Backend, Roles, Session, WorldSettings, available_bytes
from collbench.collectives.row import CollectiveCase
from collbench.errors import BackendUnavailable, CollbenchError, DoesNotFit, LibraryError, PlanError, WorldMismatch
from collbench.machine import launcher
from collbench.machine.facts import RankFacts, have_common_clock, rank_facts
from collbench.run import facts_of_ranks, failures
from collbench.run.cases import cases_of, how_to_fit, program_cases, refuse_cadence
from collbench.run.child import remove_held
from collbench.run.facts_of_ranks import by_key, facts_of_all, ranks_here
from collbench.run.failures import AgreedError, Failure, Watch, on_rank_0, raise_on_all
from collbench.run.host_clocks import host_clocks
from collbench.run.measure import Measured, measure
from collbench.run.program import measure_program, world_for
from collbench.run.sampling import Method, StopRule, agreed_method
from collbench.run.turns import Turns
from collbench.schema.axes import DTYPES
from collbench.schema.case import Case
from collbench.schema.manifest import Manifest
from collbench.schema.plan import Chosen, Plan
from collbench.schema.record import Record
from collbench.units import counted, format_bytes
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
        raise PlanError(f"backends: the times of {', '.join(simulated)} are simulated; measure them in a separate run.")
    may_lack = names if plan.unusable == "skip" else ()
    absent = {name: reason for name in may_lack if (reason := backends.missing(name)) is not None}
    if len(absent) == len(names):
        absent = {}
    return tuple(backends.usable(name) for name in names if name not in absent), absent


def roles_of(cases: tuple[tuple[CollectiveCase, ...], ...]) -> Roles:
    """Who is a parameter server in which cases, and whether there are cases without one."""
    served = [(case, collectives.get(case.collective).has_server) for group in cases for case in group]
    servers = frozenset(case.root or 0 for case, has_server in served if has_server)
    return Roles(not all(has_server for _, has_server in served), servers)


# Measuring ------------------------------------------------------------------------------------------------------------


class RecordSink(failures.Rescue, Protocol):
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
    options: WorldSettings
    command: tuple[str, ...]
    backends: tuple[Backend, ...]
    cases: tuple[tuple[CollectiveCase | ProgramCase, ...], ...]
    skipped: tuple[Record, ...] = ()
    chosen: Chosen = field(default_factory=Chosen)

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
        return max(filter(self.executed, range(len(self.backends))), default=-1)


def plan_experiment(plan: Plan, options: WorldSettings, command: tuple[str, ...]) -> PlanRunner:
    """Check names and numbers, expand the cases. RequestError: something does not exist, or is not usable here."""
    usable, unusable = chosen_backends(plan)
    starting = (world_for(plan.workloads, workloads.uses(plan.benchmarks)),) if plan.workloads else ()
    if options.fault is not None and not all(backend.simulated for backend in (*usable, *starting)):
        raise errors.RequestError("--fault: only the fake backend has faults on demand; add --backend fake.")
    refuse_cadence(plan, (backend.name for backend in usable))
    programs = program_cases(plan, max((backend.world_size(options) for backend in starting), default=1))
    in_files = [name for name in plan.workloads if workloads.get(name).files]
    if in_files and not Path(plan.folder or ".").is_dir():
        reason = f"there is no such folder, and {in_files[0]} works in files. Name another."
        raise PlanError(f"folder {plan.folder}: {reason}")
    cases = tuple(cases_of(plan, backend.name, backend.world_size(options)) for backend in usable)
    options, chosen = replace(options, roles=roles_of(cases), share_gpu=plan.share_gpu), plan.chosen
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


def perform(experiment: PlanRunner, sink: RecordSink) -> None:
    """Measure every case. Collective over the processes that a launcher started.

    CollbenchError is known to every rank; any other error aborts the job.
    """
    refused, started = list[Record](), False
    for number in filter(experiment.executed, range(len(experiment.backends))):
        try:
            _run_backend(experiment, number, sink, begins=not started)
            started = True
        except BackendUnavailable as error:  # raised after the ranks had met; all of them know
            last = number == experiment.executed_last
            error.everywhere = True
            if experiment.plan.unusable == "refuse" or (last and not started):
                raise
            measured = (case for case in experiment.cases[number] if experiment.chosen.measures(case.identities))
            refused += [record for case in measured for record in _skip(case, str(error))]
    if launcher.detect().rank == 0:
        for record in (*experiment.skipped, *refused):
            sink.add(record, None)


def _skip(case: CollectiveCase | ProgramCase, reason: str) -> Iterable[Record]:
    return (Record(case=identity, launch=0, status="skipped", reason=reason) for identity in case.identities)


def _run_backend(experiment: PlanRunner, number: int, sink: RecordSink, begins: bool) -> None:
    """Measure one backend's cases under a watchdog. An error is raised on all ranks, or aborts the job."""
    backend, options = experiment.backends[number], experiment.options
    launched_by = None if launcher.detect().kind == "none" else os.getppid()  # without which the rank ends

    def guarded(session: Session) -> None:
        rank, reporter = session.world.rank, failures.FirstReporter(session.world)
        with contextlib.ExitStack() as stack:
            watch: Watch = failures.Unwatched()
            if rank == 0 or not backend.simulated:  # signals reach only the main thread
                on_end = failures.on_watchdog(rank, reporter, sink, options.timeout, session.abort_call, remove_held)
                deference = 0.0 if rank == 0 else failures.DEFERENCE
                watchdog = failures.Watchdog(options.timeout, on_end, deference, session.async_error, launched_by)
                watch = stack.enter_context(watchdog)
            start.reached()  # the watchdog takes over
            try:
                _measure_backend(experiment, number, session, sink, watch, begins)
            except AgreedError as agreed:
                agreed.error.everywhere = True
                raise agreed.error from None
            except errors.LostRankError:
                raise
            except Exception as error:
                failures.abort_job(session, error, reporter, sink)

    with failures.StartLimit(options.timeout, backend.name) as start:
        backend.run(options, guarded)


def _measure_backend(
    experiment: PlanRunner, number: int, session: Session, sink: RecordSink, watch: Watch, begins: bool
) -> None:
    backend, cases, world = experiment.backends[number], experiment.cases[number], session.world
    watch.beat(f"starting {backend.name}")
    raise_on_all(session, _refuse_other_software(session, backend))
    raise_on_all(session, _refuse_other_request(experiment, session, cases))
    facts = rank_facts(None if session.gpu is None else session.gpu.uuid, session.clock_id)
    ranks, messages = facts_of_all(world, facts), session.signals.messages is not None
    raise_on_all(session, _refuse(experiment, ranks, messages) if world.rank == 0 else None)
    programs, here = tuple(case for case in cases if isinstance(case, ProgramCase)), ranks_here(world, ranks)
    raise_on_all(session, programs_do_not_fit(programs, here, experiment.plan.folder or "."))
    collective = tuple(case for case in cases if isinstance(case, CollectiveCase))
    raise_on_all(session, does_not_fit(session, ranks, collective, watch))
    clocks = host_clocks(session, ranks, facts.clock_id)
    method = agreed_method(world, experiment.plan, ranks, backend.simulated, clocks)
    if begins:
        manifest = facts_of_ranks.manifest(
            experiment.plan, experiment.command, experiment.backends, session, ranks, method.align, method.cadence
        )
        on_rank_0(session, lambda: sink.begin(manifest, len(experiment.identities)))
    folder = experiment.options.turns  # of all ranks, or of none
    turns = None if folder is None else Turns(folder, world.rank)
    reports = {} if turns is None else reports_in_turns(experiment, number)
    for position, case in enumerate((*experiment.executed(number), None)):
        if turns is not None and position in reports:
            try:
                turns.stands(reports[position], world, watch)
            except errors.Interrupted as error:
                raise AgreedError(error) from None
        if case is None:
            break
        if not experiment.chosen.measures(case.identities):
            _measured(case, experiment.plan, session, replace(method, stop=StopRule.fixed(1)), watch, sink)
            continue
        measured = _measured(case, experiment.plan, session, method, watch, sink, turns)
        notes = facts_of_ranks.notes_on_loaded(world)
        for record, samples in measured:
            record = msgspec.structs.replace(record, notes=(*notes, *record.notes))
            on_rank_0(session, lambda record=record, samples=samples: sink.add(record, samples))  # type: ignore[misc]
    watch.beat(f"ending {backend.name}")
    if turns is not None:
        turns.close()
    session.close()


def reports_in_turns(experiment: PlanRunner, number: int) -> dict[int, Case | None]:
    """Where a world in turns stands, by the position in the backend's executed cases before which it says so.

    It stands before each case that is measured, or before the first of those that lead up to it. None: the last one is
    over, which of several backends the last one says.
    """
    executed, reports = experiment.executed(number), dict[int, Case | None]()
    for position in range(len(executed) + 1):
        later = (case.identities for case in executed[position:])
        following = next((identities[0] for identities in later if experiment.chosen.measures(identities)), None)
        if following is None and experiment.executed_last != number:
            break
        if following not in reports.values():
            reports[position] = following
    return reports


def _measured(
    case: CollectiveCase | ProgramCase, plan: Plan, session: Session, method: Method, watch: Watch, sink: RecordSink,
    turns: Turns | None = None,
) -> tuple[Measured, ...]:  # fmt: skip
    if isinstance(case, CollectiveCase):
        return (_measured_collective(case, session, method, watch, turns),)
    try:
        doing = sink.doing if session.world.rank == 0 else lambda what: None
        return measure_program(case, plan, session, method, watch, doing, None if turns is None else turns.folder)
    except errors.Interrupted as error:
        raise AgreedError(error) from None


def _measured_collective(
    case: CollectiveCase, session: Session, method: Method, watch: Watch, turns: Turns | None = None
) -> Measured:
    """`measure`, with an interruption raised on all ranks, and the case named in errors of this rank alone."""
    doing = f"{case.collective} {format_bytes(case.size)} on {case.backend}"
    try:
        return measure(case, collectives.get(case.collective), session, method, watch, turns)
    except errors.Interrupted as error:
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
    by_rank = session.world.gather(facts_of_ranks.software(backend))
    differs = session.world.bcast(None if by_rank is None else facts_of_ranks.software_difference(by_rank))
    return None if differs is None else WorldMismatch(f"{differs}; install the same on every host.")


def _refuse_other_request(
    experiment: PlanRunner, session: Session, cases: tuple[CollectiveCase | ProgramCase, ...]
) -> WorldMismatch | None:
    lowest, highest = session.world.minmax([zlib.crc32(msgspec.json.encode((experiment.plan, cases)))])
    if lowest[0] == highest[0]:
        return None
    return WorldMismatch("the ranks were given different requests; start them all with the same command line.")


def _refuse(experiment: PlanRunner, ranks: tuple[RankFacts, ...], messages: bool) -> CollbenchError | None:
    """Why a world of such ranks cannot run this plan; None where it can. `messages`: two ranks can exchange some."""
    if experiment.plan.align == "roundtime" and not messages and not have_common_clock(ranks):
        reason = "the ranks do not share a clock, and this backend has no messages by which hosts could compare theirs"
        return errors.RequestError(f"align roundtime: {reason}. Use align barrier.")
    if (differs := facts_of_ranks.place_difference(ranks, experiment.options.places)) is not None:
        return WorldMismatch(f"{differs}.")
    return None


# Whether it fits ------------------------------------------------------------------------------------------------------


def programs_do_not_fit(cases: tuple[ProgramCase, ...], here: int = 1, folder: str = ".") -> DoesNotFit | None:
    """Why the program that allocates or writes the most does not fit on this machine, which has so many of the ranks.

    Programs run one by one, with their files in `folder`. One that cannot run here is skipped later, with the reason.
    """
    able = [case for case in cases if _missing(case) is None]
    on_machine = ((case.memory * here // case.case.where.ranks, case) for case in able)
    needed, largest = max(on_machine, key=lambda item: item[0], default=(0, None))
    free = available_bytes()
    if largest is not None and free is not None and needed > free * USABLE_SHARE:
        ranks = f" for the {here} ranks on this machine" if here > 1 else ""
        lacks = f"needs {format_bytes(needed)} of memory{ranks}, and {format_bytes(free)} are free"
        return DoesNotFit(f"{largest.title}: {lacks}. {how_to_fit(largest)}")
    needed, largest = max(((case.disk, case) for case in able), key=lambda item: item[0], default=(0, None))
    if largest is None or needed == 0:
        return None
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if not disk.f_blocks or needed <= free * USABLE_SHARE:  # some file systems do not tell
        return None
    lacks = f"needs {format_bytes(needed)} in the folder {folder}, and {format_bytes(free)} are free"
    return DoesNotFit(f"{largest.title}: {lacks}. Lower the size of its files, or name a folder on another device.")


def _missing(case: ProgramCase) -> str | None:
    program = workloads.get(case.case.workload)
    return program.missing(program.choice(case.case))


def does_not_fit(
    session: Session, ranks: tuple[RankFacts, ...], cases: tuple[CollectiveCase, ...], watch: Watch
) -> DoesNotFit | None:
    """Why they do not fit; None where they do. Collective: all ranks get the answer of rank 0, which has the facts."""
    largest: dict[CollectiveCase, int] = {}  # of cases that differ only in size
    for case in cases:
        kind = msgspec.structs.replace(case, size=0)
        largest[kind] = max(largest.get(kind, 0), case.size)
    needed = max((_needed_bytes(session, kind, size, watch) for kind, size in largest.items()), default=0)
    reports, size = session.world.gather((needed, available_bytes())), max(largest.values(), default=0)
    answer: DoesNotFit | None = session.world.bcast(None if reports is None else _too_small(ranks, reports, size))
    return answer


def _too_small(ranks: Sequence[RankFacts], reports: Sequence[tuple[int, int | None]], size: int) -> DoesNotFit | None:
    """The first machine that is too small, where one is; `reports` are needed and free bytes by rank."""
    for members in by_key(rank.kernel_id for rank in ranks).values():
        total = sum(reports[number][0] for number in members)
        free = min((free for number in members if (free := reports[number][1]) is not None), default=None)
        if free is not None and total > free * USABLE_SHARE:
            buffers = f"the buffers of {counted(len(members), 'rank')} on {ranks[members[0]].host}"
            lacks = f"{buffers} need {format_bytes(total)}, and {format_bytes(free)} are free"
            return DoesNotFit(f"size {format_bytes(size)}: {lacks}. Lower the sizes or the ranks per host.")
    return None


def _needed_bytes(session: Session, case: CollectiveCase, size: int, watch: Watch) -> int:
    """Bytes of a rank's buffers for a case of that size, found by preparing it with one element per block.

    The library's own memory is not included. 0 for a case that will be skipped or will fail: its record says why.
    Collective: the next case is tried when all ranks have come out of this one.
    """
    watch.beat(f"trying {case.collective} on {case.backend} with one element")
    row, itemsize = collectives.get(case.collective), DTYPES[case.dtype]
    if case.ranks < row.min_ranks or (case.in_place and not row.has_in_place):
        return 0
    held, failure = 0, None
    try:
        held = session.prepare(case, row, 1).blocks_held
    except LibraryError as error:
        failure = Failure.of(session, error)
    except (errors.Unsupported, CollbenchError, MemoryError):
        pass
    failures.cause(session, failure, watch)
    return held * row.count(size, itemsize, case.ranks) * itemsize
