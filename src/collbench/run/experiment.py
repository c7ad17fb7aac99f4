"""A plan, carried out by the ranks that were started: one backend after the other, one case after the other.

Rank 0 hands every record to a sink as soon as it is there. An error that all ranks know of is raised on all of them;
an error that one rank meets alone ends the job at once, because the others wait for that rank.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from collbench import backends, collectives
from collbench.bindings.spec import Backend, Options, Session, allgather
from collbench.collectives.case import CollectiveCase
from collbench.errors import (
    BackendUnavailable,
    CollbenchError,
    Interrupted,
    LibraryError,
    LostRankError,
    RequestError,
    WorldMismatch,
)
from collbench.machine import launcher
from collbench.machine.facts import RankFacts, have_common_clock, rank_facts
from collbench.run import binding as placed
from collbench.run import describe
from collbench.run.alone import Alone
from collbench.run.choosing import chosen_backends, roles_of
from collbench.run.expand import cases_of, refuse_cadence
from collbench.run.expand_programs import program_cases
from collbench.run.failures import AgreedError, Rescue, StartLimit, abort_job, on_rank_0, on_watchdog, raise_on_all
from collbench.run.measure import measure
from collbench.run.memory_check import does_not_fit, programs_do_not_fit
from collbench.run.method import choose_method
from collbench.run.one_message import FirstReporter
from collbench.run.program import Measured, measure_program
from collbench.run.sampling import Method, Watch
from collbench.run.software import difference, software
from collbench.run.watchdog import DEFERENCE, Unwatched, Watchdog
from collbench.schema.case import Case
from collbench.schema.manifest import Manifest
from collbench.schema.plan import Plan
from collbench.schema.record import Record
from collbench.units import format_bytes
from collbench.workloads.case import ProgramCase


class MeasuredCase(Protocol):
    """What all kinds of cases have in common: the cases that it gives records of."""

    @property
    def identities(self) -> tuple[Case, ...]:
        """As they are recorded."""


class RecordSink(Rescue, Protocol):
    """Where rank 0's records go. May raise CollbenchError: then all ranks leave."""

    def begin(self, manifest: Manifest, cases: int) -> None:
        """Before the first case."""

    def add(self, record: Record, samples: NDArray[np.int64] | None) -> None:
        """A record and its samples [ranks, n] in ns."""


@dataclass(frozen=True)
class PlanRunner:
    """A plan with everything that is known before a world exists.

    `skipped` are the records of backends that are not usable here, where the plan allows that. Programs come last, on
    what stands in the place of a backend there.
    """

    plan: Plan
    options: Options
    command: tuple[str, ...]
    backends: tuple[Backend, ...]
    cases: tuple[tuple[CollectiveCase | ProgramCase, ...], ...]
    skipped: tuple[Record, ...] = ()

    @property
    def identities(self) -> tuple[Case, ...]:
        """Of which there will be a record, from all backends."""
        return tuple(identity for cases in self.cases for case in cases for identity in case.identities)


def plan_experiment(plan: Plan, options: Options, command: tuple[str, ...]) -> PlanRunner:
    """Check names and numbers, expand the cases. Starts nothing.

    Raises:
        RequestError: something asked for does not exist, or is not usable here.
    """
    chosen, absent = chosen_backends(plan)
    programs: tuple[Backend, ...] = (Alone(),) if plan.workloads else ()
    if options.fault is not None and not all(backend.simulated for backend in (*chosen, *programs)):
        raise RequestError("--fault: only the fake backend has faults on demand; add --backend fake.")
    refuse_cadence(plan, (backend.name for backend in chosen))
    own = program_cases(plan, max((one.world_size(options) for one in programs), default=1))
    cases = tuple(cases_of(plan, backend.name, backend.world_size(options)) for backend in chosen)
    options = replace(options, roles=roles_of(cases), share_gpu=plan.share_gpu)
    skipped = tuple(
        record
        for name, reason in absent.items()
        for case in cases_of(plan, name, backends.get(name).world_size(options))
        for record in _skip(case, reason)
    )
    return PlanRunner(plan, options, command, (*chosen, *programs), (*cases, own) if programs else cases, skipped)


def perform(experiment: PlanRunner, sink: RecordSink) -> None:
    """Measure every case. Collective over the processes that a launcher started.

    Raises:
        CollbenchError: known to every rank; anything else ends the job from inside.
    """
    refused: list[Record] = []
    begun = False
    for number, backend in enumerate(experiment.backends):
        with StartLimit(experiment.options.timeout, backend.name) as start:

            def body(
                session: Session, number: int = number, start: StartLimit = start, begins: bool = not begun
            ) -> None:
                _guarded(experiment, number, session, sink, begins, start)

            try:
                backend.run(experiment.options, body)
                begun = True
            except BackendUnavailable as error:  # found out when the ranks had met; all of them know
                last = number == len(experiment.backends) - 1
                error.everywhere = True
                if experiment.plan.unusable == "refuse" or (last and not begun):
                    raise
                refused += [record for case in experiment.cases[number] for record in _skip(case, str(error))]
    if launcher.detect().rank == 0:
        for record in (*experiment.skipped, *refused):
            sink.add(record, None)


def _skip(case: MeasuredCase, reason: str) -> Iterable[Record]:
    return (Record(case=identity, launch=0, status="skipped", reason=reason) for identity in case.identities)


def _guarded(
    experiment: PlanRunner, number: int, session: Session, sink: RecordSink, begins: bool, start: StartLimit
) -> None:
    """Measure one backend's cases under a watchdog; what goes wrong ends here in one of two ways."""
    rank = session.world.rank
    voice = FirstReporter(session.world)
    with contextlib.ExitStack() as stack:
        watch: Watch = Unwatched()
        if rank == 0 or not experiment.backends[number].simulated:  # signals belong to the main thread
            timeout = experiment.options.timeout
            words = on_watchdog(rank, voice, sink, timeout, session.break_off)
            watch = stack.enter_context(Watchdog(timeout, words, 0.0 if rank == 0 else DEFERENCE, session.trouble))
        start.reached()  # from here on the watchdog watches
        try:
            _measure_backend(experiment, number, session, sink, watch, begins)
        except AgreedError as known:
            known.error.everywhere = True
            raise known.error from None
        except LostRankError:
            raise
        except Exception as error:
            abort_job(session, error, voice, sink)


def _measure_backend(
    experiment: PlanRunner, number: int, session: Session, sink: RecordSink, watch: Watch, begins: bool
) -> None:
    backend, cases = experiment.backends[number], experiment.cases[number]
    watch.beat(f"starting {backend.name}")
    raise_on_all(session, _refuse_other_software(session, backend))
    ranks = tuple(allgather(session.world, rank_facts(None if session.gpu is None else session.gpu.uuid)))
    raise_on_all(session, _refuse(experiment, session, ranks, cases, watch))
    method = choose_method(experiment.plan, ranks, backend.simulated)
    if begins:
        manifest = describe.manifest(experiment.plan, experiment.command, experiment.backends, session, ranks, method)
        on_rank_0(session, lambda: sink.begin(manifest, len(experiment.identities)))
    for case in cases:
        for record, samples in _measured(case, experiment.plan, session, method, watch):
            on_rank_0(session, lambda record=record, samples=samples: sink.add(record, samples))  # type: ignore[misc]


def _measured(
    case: CollectiveCase | ProgramCase, plan: Plan, session: Session, method: Method, watch: Watch
) -> tuple[Measured, ...]:
    if isinstance(case, CollectiveCase):
        return (measured(case, session, method, watch),)
    try:
        return measure_program(case, plan, session, method, watch)
    except Interrupted as error:
        raise AgreedError(error) from None


def measured(
    case: CollectiveCase, session: Session, method: Method, watch: Watch
) -> tuple[Record, NDArray[np.int64] | None]:
    """`measure`, with an interruption raised as known to all, and the case named where the library refused it."""
    try:
        return measure(case, collectives.get(case.collective), session, method, watch)
    except Interrupted as error:
        # Its frames would keep buffers and graphs alive, and a communicator waits for its graphs when it is left.
        raise AgreedError(error.with_traceback(None)) from None
    except LibraryError as error:
        raise LibraryError(f"{case.collective} {format_bytes(case.size)} on {case.backend}: {error}") from error


def _refuse_other_software(session: Session, backend: Backend) -> WorldMismatch | None:
    """Before anything else is exchanged, which another version might spell differently."""
    found = difference(allgather(session.world, software(backend)))
    return None if found is None else WorldMismatch(f"{found}; install the same on every host.")


def _refuse(
    experiment: PlanRunner,
    session: Session,
    ranks: tuple[RankFacts, ...],
    cases: tuple[CollectiveCase | ProgramCase, ...],
    watch: Watch,
) -> CollbenchError | None:
    """Why this world cannot carry out these cases; the same answer on all ranks, or an answer on some."""
    request = zlib.crc32(msgspec.json.encode((experiment.plan, cases)))
    if len(set(allgather(session.world, request))) != 1:
        return WorldMismatch("the ranks were given different requests; start them all with the same command line.")
    if experiment.plan.gate == "roundtime" and not have_common_clock(ranks):
        return RequestError("gate roundtime: the ranks do not share a clock (several hosts, or a time namespace). "
                            "Use --gate barrier.")  # fmt: skip
    if (differs := placed.difference(ranks)) is not None:
        return WorldMismatch(f"{differs}.")
    programs = tuple(case for case in cases if isinstance(case, ProgramCase))
    collective = tuple(case for case in cases if isinstance(case, CollectiveCase))
    return programs_do_not_fit(programs) or does_not_fit(session, ranks, collective, watch)
