"""A plan, carried out by the ranks that were started: one backend after the other, one case after the other.

Rank 0 hands every record to a sink as soon as it is there. An error that all ranks know of is raised on all of them;
an error that one rank meets alone ends the job at once, because the others wait for that rank.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from collbench import backends, collectives
from collbench.backends.parts import launcher
from collbench.backends.parts.host_buffers import available_bytes, needed_bytes
from collbench.backends.parts.interface import Backend, Options, Session, allgather
from collbench.errors import CollbenchError, DoesNotFit, Interrupted, LostRankError, RequestError, WorldMismatch
from collbench.run import describe
from collbench.run.expand import cases_of
from collbench.run.facts import RankFacts, have_common_clock, is_oversubscribed, rank_facts
from collbench.run.measure import measure
from collbench.run.sampling import Method, Watch
from collbench.run.watchdog import DEFERENCE, Unwatched, Watchdog
from collbench.schema.case import Case, Gate
from collbench.schema.manifest import Manifest
from collbench.schema.plan import Plan
from collbench.schema.record import Record
from collbench.timing.stops import Budget, Fixed, StopRule
from collbench.units import format_bytes, format_duration

#: Of the memory that the kernel calls available, this share may be asked for.
USABLE_SHARE = 0.95


#: A rank that met an error alone waits this long per rank below it before it speaks (s).
TURN = 0.3


class Sink(Protocol):
    """Where rank 0's records go. May raise CollbenchError: then all ranks leave."""

    def begin(self, manifest: Manifest, cases: int) -> None:
        """Before the first case."""

    def add(self, record: Record, samples: NDArray[np.int64] | None) -> None:
        """A record and its samples [ranks, n] in ns."""

    def rescue(self) -> str:
        """Print what was held back, and say what is safe on disk: called when everything ends now."""


@dataclass(frozen=True)
class Experiment:
    """A plan with everything that is known before a world exists."""

    plan: Plan
    options: Options
    command: tuple[str, ...]
    backends: tuple[Backend, ...]
    cases: tuple[tuple[Case, ...], ...]

    @property
    def all_cases(self) -> tuple[Case, ...]:
        """Of all backends."""
        return tuple(case for cases in self.cases for case in cases)


def plan_experiment(plan: Plan, options: Options, command: tuple[str, ...]) -> Experiment:
    """Check names and numbers, expand the cases. Starts nothing.

    Raises:
        RequestError: something asked for does not exist, or is not usable here.
    """
    chosen = tuple(backends.usable(name) for name in plan.backends or (default_backend(),))
    if plan.cadence == "streaming":
        raise RequestError(
            "cadence streaming (-z 0): the backends on host memory complete every call before it returns; "
            "leave the flag out."
        )
    cases = tuple(cases_of(plan, backend.name, backend.world_size(options)) for backend in chosen)
    return Experiment(plan, options, command, chosen, cases)


def default_backend() -> str:
    """`torch-gloo` under torchrun, else `mpi`."""
    return "torch-gloo" if launcher.detect().kind == "torchrun" else "mpi"


def perform(experiment: Experiment, sink: Sink) -> None:
    """Measure every case. Collective over the processes that a launcher started.

    Raises:
        CollbenchError: known to every rank; anything else ends the job from inside.
    """
    for number, backend in enumerate(experiment.backends):

        def body(session: Session, number: int = number) -> None:
            _guarded(experiment, number, session, sink)

        backend.run(experiment.options, body)


def _guarded(experiment: Experiment, number: int, session: Session, sink: Sink) -> None:
    rank = session.world.rank
    try:
        if rank != 0 and experiment.backends[number].simulated:
            _measure_backend(experiment, number, session, sink, Unwatched())
            return
        deference = 0.0 if rank == 0 else DEFERENCE
        with Watchdog(experiment.options.timeout, _last_words(rank, sink, experiment), deference) as watchdog:
            _measure_backend(experiment, number, session, sink, watchdog)
    except Everywhere as known:
        raise known.error from None
    except LostRankError:
        raise
    except Exception as error:  # met by this rank alone: say so, and take the others along
        alone(session, error, sink)


class Everywhere(Exception):
    """Carries an error that every rank raises together."""

    def __init__(self, error: CollbenchError) -> None:
        super().__init__(str(error))
        self.error = error


def alone(session: Session, error: Exception, sink: Sink) -> NoReturn:
    """One message from the rank that knows, then the end of the job."""
    rank = session.world.rank
    code = error.exit_code if isinstance(error, CollbenchError) else 1
    if session.is_lost_rank(error):
        code = LostRankError.exit_code
        error = LostRankError(f"another rank is gone ({_first_line(error)})")
    # Often all ranks meet the same error: the lowest speaks first, and its abort silences the others.
    time.sleep(min(TURN * rank, DEFERENCE))
    name = "" if isinstance(error, CollbenchError) else f"{type(error).__name__}: "
    if os.environ.get("COLLBENCH_TRACEBACK"):
        traceback.print_exception(error)
    say(f"rank {rank}: {name}{_first_line(error)}. The job ends here.{sink.rescue()}")
    session.abort(code)
    raise SystemExit(code)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def say(text: str) -> None:
    """One line to standard error, whole even when the interpreter is about to be left."""
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"collbench: {text}\n".encode())


def _last_words(rank: int, sink: Sink, experiment: Experiment) -> Callable[[str, str], None]:
    def last_words(kind: str, doing: str) -> None:
        if kind == "timeout":
            limit = format_duration(experiment.options.timeout)
            say(
                f"rank {rank}: no progress for {limit} in {doing}: a rank hangs, or one batch takes longer "
                f"(-T sets the limit).{sink.rescue()}"
            )
            os._exit(3)
        why = "interrupted" if kind == "interrupted" else "ended by SIGTERM (a rank was lost, or the job was stopped)"
        if rank == 0:
            say(f"{why} in {doing}.{sink.rescue()}")
        os._exit(130)

    return last_words


def _measure_backend(experiment: Experiment, number: int, session: Session, sink: Sink, watch: Watch) -> None:
    backend, cases = experiment.backends[number], experiment.cases[number]
    watch.beat(f"starting {backend.name}")
    ranks = tuple(allgather(session.world, rank_facts()))
    _together(session, _refuse(experiment, session, ranks, cases))
    method = choose_method(experiment.plan, ranks, backend.simulated)
    if number == 0:
        manifest = describe.manifest(experiment.plan, experiment.command, experiment.backends, session, ranks, method)
        _on_rank_0(session, lambda: sink.begin(manifest, len(experiment.all_cases)))
    for case in cases:
        record, samples = measured(case, session, method, watch)
        _on_rank_0(session, lambda record=record, samples=samples: sink.add(record, samples))  # type: ignore[misc]


def measured(case: Case, session: Session, method: Method, watch: Watch) -> tuple[Record, NDArray[np.int64] | None]:
    """`measure`, with an interruption raised as known to all."""
    try:
        return measure(case, collectives.get(case.collective), session, method, watch)
    except Interrupted as error:
        raise Everywhere(error) from None


def _on_rank_0(session: Session, action: Callable[[], None]) -> None:
    """Do something on rank 0; if it raises a CollbenchError, all ranks do."""
    failed: CollbenchError | None = None
    if session.world.rank == 0:
        try:
            action()
        except CollbenchError as error:
            failed = error
    known: CollbenchError | None = session.world.bcast(failed)
    if known is not None:
        raise Everywhere(known)


def _together(session: Session, error: CollbenchError | None) -> None:
    """Raise an error of any rank on all ranks."""
    first = next((found for found in allgather(session.world, error) if found is not None), None)
    if first is not None:
        raise Everywhere(first)


def _refuse(
    experiment: Experiment, session: Session, ranks: tuple[RankFacts, ...], cases: tuple[Case, ...]
) -> CollbenchError | None:
    """Why this world cannot carry out these cases; the same answer on all ranks, or an answer on some."""
    request = hashlib.blake2b(msgspec.json.encode((experiment.plan, cases)), digest_size=8).hexdigest()
    if len(set(allgather(session.world, request))) != 1:
        return WorldMismatch("the ranks were given different requests; start them all with the same command line.")
    if experiment.plan.gate == "roundtime" and not have_common_clock(ranks):
        return RequestError("gate roundtime: the ranks do not share a clock (several hosts, or a time namespace). "
                            "Use --gate barrier.")  # fmt: skip
    return _does_not_fit(session, ranks, cases)


def _does_not_fit(session: Session, ranks: tuple[RankFacts, ...], cases: tuple[Case, ...]) -> DoesNotFit | None:
    rank = session.world.rank
    needs = [(needed_bytes(collectives.get(case.collective), case, rank), case) for case in cases]
    needed, _ = max(needs, key=lambda need: need[0], default=(0, None))
    reports = allgather(session.world, (ranks[rank].kernel_id, needed, available_bytes()))
    for machine in dict.fromkeys(found for found, _, _ in reports):
        total = sum(need for found, need, _ in reports if found == machine)
        free = min((left for found, _, left in reports if found == machine and left is not None), default=None)
        if free is not None and total > free * USABLE_SHARE:
            there = sum(found == machine for found, _, _ in reports)
            largest = max(case.bytes for case in cases)
            return DoesNotFit(
                f"size {format_bytes(largest)}: the buffers of {there} ranks on {ranks[0].host} need "
                f"{format_bytes(total)}, and {format_bytes(free)} are free. Lower -e/--maxbytes or the ranks per host."
            )
    return None


def choose_method(plan: Plan, ranks: tuple[RankFacts, ...], simulated: bool) -> Method:
    """The gate that fits the machine, and the plan's stop rule."""
    common = have_common_clock(ranks)
    oversubscribed = not simulated and is_oversubscribed(list(ranks))
    automatic: Gate = "roundtime" if common and not oversubscribed else "barrier"
    stop: StopRule = Budget(plan.budget_seconds, plan.floor, plan.cap) if plan.iters is None else Fixed(plan.iters)
    return Method(
        gate=automatic if plan.gate == "auto" else _gate(plan.gate),
        gate_may_change=plan.gate == "auto",
        clock="common" if common else "local",
        stop=stop,
        warmup=plan.warmup,
        check=plan.check,
        cadence="isolated",
        ranks=ranks,
        oversubscribed=oversubscribed,
    )


def _gate(name: str) -> Gate:
    gates: dict[str, Gate] = {"roundtime": "roundtime", "barrier": "barrier", "none": "none"}
    return gates[name]
