"""Programs: the ranks that execute one, alone or together, and one case: executed in a folder, checked, and recorded.

Ranks of a program meet over gloo and agree on one outcome. Each measure of a program gets a record.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from collbench import workloads
from collbench.backends.torch_gloo import TorchSession, join, missing_torch
from collbench.bindings import spec
from collbench.bindings.spec import Session, World, WorldSettings, allgather, first_value
from collbench.errors import BackendUnavailable, Interrupted, RequestError
from collbench.machine import cgroup, launcher
from collbench.machine.facts import ContentionMeter, Stretch, machine_id
from collbench.run import facts_of_ranks
from collbench.run.child import Finished, ProgramFailed, ProgramSkipped, execute, working_folder
from collbench.run.facts_of_ranks import ranks_of
from collbench.run.failures import Watch
from collbench.run.measure import Measured
from collbench.run.sampling import Method
from collbench.schema.axes import Op, ThreadLevel
from collbench.schema.manifest import Library
from collbench.schema.plan import Plan
from collbench.schema.record import CpuTime, Record, ResultCheck, Samples, Status, summarise
from collbench.schema.world import VARIABLE
from collbench.timing.loop import Signals
from collbench.units import counted, format_duration
from collbench.workloads.program import Measure, Program, ProgramCase, SideCommand, Unreadable

ValueT = TypeVar("ValueT")


class WrongResult(Exception):
    """A program ran, and its result is wrong."""

    def __init__(self, name: str, wrong: int) -> None:
        super().__init__(f"wrong result: {name} counted {counted(wrong, 'wrong value')}")
        self.name, self.wrong = name, wrong

    def __reduce__(self) -> tuple[object, ...]:  # it is made of other arguments than its text
        return WrongResult, (self.name, self.wrong)


class FailedElsewhere(ProgramFailed):
    """What this rank did was given up, because another one has failed."""


#: Interval (s) at which a rank asks whether another one has failed.
EVERY = 1.0

#: What an execution may end with, on one rank and then on all.
_ENDS = (Interrupted, ProgramFailed, ProgramSkipped, WrongResult)


@dataclass(frozen=True)
class _End:
    """How an execution ended on a rank, at `clock` (s)."""

    clock: float
    error: Exception


@dataclass(frozen=True)
class Peers:
    """The ranks of a world, in the hands of one of them. Methods are collective; of one rank none communicates.

    `threads` are those of this rank's process where none are asked for: its part of the cores that it shares.
    """

    world: World
    watch: Watch
    failures: spec.Failures | None = None
    threads: int = 1

    def listening(self, doing: str) -> Callable[[], None]:
        """What is called now and then while this rank acts within `agreed`.

        It raises FailedElsewhere soon after another rank has failed, and Interrupted where this one was told to stop.
        """
        asked = time.monotonic()

        def go_on() -> None:
            nonlocal asked
            self.watch.beat(doing)
            if self.failures is not None and (now := time.monotonic()) >= asked + EVERY:
                asked = now
                if self.failures.announced():
                    raise FailedElsewhere("another rank has failed")
            if self.watch.stopped is not None:
                raise Interrupted("interrupted.")

        return go_on

    def agreed(self, act: Callable[[], ValueT]) -> ValueT:
        """The result of `act` on this rank, once it succeeded on all.

        Raises:
            Interrupted, ProgramFailed, ProgramSkipped, WrongResult: on all ranks what it raised on the rank where it
                ended first; an interruption comes before everything else.
        """
        if self.failures is not None:
            self.failures.begin()
        if self.world.size == 1:
            return act()
        end, value = None, None
        try:
            value = act()
        except _ENDS as error:
            end = _End(time.monotonic(), error)
            if self.failures is not None:
                self.failures.announce()
        self.watch.beat("waiting for the other ranks")
        ends = [end for end in allgather(self.world, end) if end is not None]
        if not ends:
            return value  # type: ignore[return-value]
        interrupted = [end for end in ends if isinstance(end.error, Interrupted)]
        first = [end for end in ends if not isinstance(end.error, FailedElsewhere)]
        raise min(interrupted or first or ends, key=lambda end: end.clock).error

    def decided(self, value: ValueT) -> ValueT:
        """That of rank 0, on all ranks."""
        return value if self.world.size == 1 else self.world.bcast(value)

    def variables(self) -> dict[str, str]:
        """The environment by which torch.distributed finds its world (`env://`), with a port that nobody uses yet."""
        if not (address := os.environ.get("MASTER_ADDR")):  # of rank 0; the loopback where all have one hostname
            names = allgather(self.world, socket.gethostname())
            address = "127.0.0.1" if len(set(names)) == 1 else str(names[0])
        rank, port = str(self.world.rank), ""
        if rank == "0":
            with socket.socket() as free:
                free.bind(("", 0))
                port = str(free.getsockname()[1])
        port = self.decided(port)
        machines = allgather(self.world, machine_id())
        here = [number for number, machine in enumerate(machines) if machine == machines[self.world.rank]]
        local = {"LOCAL_RANK": str(here.index(self.world.rank)), "LOCAL_WORLD_SIZE": str(len(here))}
        return {
            "RANK": rank, "WORLD_SIZE": str(self.world.size),
            **{name: os.environ.get(name, value) for name, value in local.items()},
            "MASTER_ADDR": address, "MASTER_PORT": port, "OMP_NUM_THREADS": str(self.threads),
            "TORCHELASTIC_USE_AGENT_STORE": "False",  # torchrun's store knows our ranks, not their processes
        }  # fmt: skip


class AloneWorld(World):
    """A control plane of one rank."""

    rank, size = 0, 1

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def bcast_from(self, value: Any, source: int) -> Any:
        return value

    def reduced(self, values: NDArray[np.int64], smallest: bool) -> NDArray[np.int64]:
        return values


class AloneSession(Session):
    """The only rank."""

    def __init__(self, thread_level: ThreadLevel) -> None:
        self.world: World = AloneWorld()
        self.thread_level = thread_level
        self.signals = Signals(lambda: None, lambda: None, np.zeros(1, np.int64), announces=True)

    def abort(self, code: int) -> NoReturn:
        os._exit(code)


class StoredFailures:
    """What ranks say of their failures in a store of torch's; a store that does not answer has lost its rank."""

    def __init__(self, store: Any) -> None:
        self._store, self._acts = store, 0

    def begin(self) -> None:
        self._acts += 1

    def announce(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._store.set(f"failed {self._acts}", "")

    def announced(self) -> bool:
        try:
            return bool(self._store.check([f"failed {self._acts}"]))
        except RuntimeError:
            return True


class ProgramStarter(spec.Backend):
    """Stands where a backend stands, and is none that a plan can name: one rank, or ranks that meet over gloo."""

    name, summary = "workloads", "ranks that start the processes of programs"
    ops: tuple[Op, ...] = ()

    def __init__(self, programs: tuple[str, ...], together: bool) -> None:
        self._programs, self._together = programs, together

    def missing(self) -> str | None:
        return missing_torch() if self._together else None

    def dtypes(self) -> tuple[str, ...]:
        return ()

    def libraries(self) -> tuple[Library, ...]:
        """What the workloads start or load."""
        return workloads.libraries(self._programs)

    def world_size(self, options: WorldSettings) -> int:
        """1, or together as many as the launcher started. RequestError: there are more where one is to start."""
        started = launcher.detect().size
        ranks = max(started, options.ranks or 1)
        if self._together or ranks == 1:
            return started
        names = dict.fromkeys(use.partition(" ")[0] for use in self._programs)  # of `train data=made-up` train
        alone = ", ".join(name for name in names if not workloads.get(name).distributed)
        several = ", ".join(name for name in names if workloads.get(name).distributed)
        what = f"benchmarks {alone}" if alone else "benchmarks"
        way_out = f", or name {several} alone, which run on several" if several else ""
        raise RequestError(f"{what}: run on one rank, and there are {ranks}. Start one rank{way_out}.")

    def run(self, options: WorldSettings, body: Callable[[Session], None]) -> None:
        """The body; together after a rendezvous. BackendUnavailable: there is no torch by which ranks could meet."""
        if not self._together:
            body(AloneSession(options.thread_level))
            return
        if (missing := self.missing()) is not None:
            raise BackendUnavailable(f"benchmarks of several ranks: {missing}")
        import torch

        level, store = join(self.name, torch.distributed, launcher.detect(), options)
        try:
            session = TorchSession(self, torch, level)
            session.failures = StoredFailures(store)
            body(session)
        finally:
            torch.distributed.destroy_process_group()


def world_for(benchmarks: tuple[str, ...], uses: tuple[str, ...]) -> ProgramStarter:
    """What starts these programs: ranks together where all of them take several and the launcher started several."""
    distributed = all(workloads.get(name).distributed for name in benchmarks)
    return ProgramStarter(uses, together=distributed and launcher.detect().size > 1)


# A case ---------------------------------------------------------------------------------------------------------------

_NO_TIME = CpuTime(user=0.0, system=0.0, wall=0.0)


@dataclass
class RankOutcome:
    """What the executions of a case gave on a rank: seconds by measure, the warm-up among them, and figures.

    `cpu` is what the timed executions took, and `all` what they and the steps beside them took. `storage` is the file
    system that its files were on, where it works in files. `stretch`: its slices, where it took turns with others.
    """

    samples: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    repeatable: dict[str, float] = field(default_factory=dict)
    messages: tuple[int, ...] = ()
    cpu: CpuTime = _NO_TIME
    all: CpuTime = _NO_TIME
    storage: str | None = None
    stretch: Stretch | None = None


@dataclass(frozen=True)
class ProgramRun:
    """One case of a program on its way to samples."""

    program: Program
    case: ProgramCase
    plan: Plan
    folder: Path | None
    doing: Callable[[str], None]
    peers: Peers
    turns: Path | None = None
    done: RankOutcome = field(default_factory=RankOutcome)

    def perform(self) -> RankOutcome:
        """Prepare, take every sample, verify.

        Raises:
            ProgramFailed, WrongResult: it gave no result, or a wrong one.
            ProgramSkipped: this machine or this folder cannot give what the case needs.
        """
        program, plan, title = self.program, self.plan, self.case.title
        self.peers.agreed(self._prepare)
        least = plan.warmup + (plan.floor if plan.iters is None else plan.iters)
        if program.repeated:  # an execution is a sample; beyond the least number until the time budget is spent
            most = least if plan.iters is not None else plan.warmup + plan.cap
            end = time.monotonic() + plan.budget_seconds
            for number in range(most):
                if number >= least and self.peers.decided(time.monotonic() > end):
                    break
                seconds = max(least - number, 1) * self.done.cpu.wall / number if number else 0.0  # by those before
                left = f", about {format_duration(seconds)} left" if seconds >= 1.0 else ""
                self.doing(f"{title}: execution {number + 1} of {max(number + 1, least)}{left}")
                self._execute(1)
        else:
            self.doing(f"{title}: one execution")
            self._execute(1 if program.once else least)
        self.doing(f"{title}: verifying")
        self.peers.agreed(lambda: self._untimed("after", program.after))
        return self.done

    def _prepare(self) -> None:
        lacks = self._ask("lacks", lambda: self.program.lacks(self.case.case, self.folder or Path.cwd()))
        if lacks is not None:
            raise ProgramSkipped(lacks)
        self.doing(f"{self.case.title}: preparing")
        self._untimed("prepare", self.program.prepare)

    def _execute(self, times: int) -> None:
        """One execution, which takes so many samples of every measure; if distributed, on all ranks at once."""
        variables = self.peers.variables() if self.program.distributed else {}
        if self.turns is not None and self.program.takes_turns(self.case.case):
            variables |= {VARIABLE: str(self.turns)}
        finished = self.peers.agreed(lambda: self._execute_here(times, variables))
        if (rank := self.program.reporter) is not None:
            finished = replace(finished, output=self.peers.world.bcast_from(finished.output, rank))
        self.peers.agreed(lambda: self._take(finished, times))

    def _execute_here(self, times: int, variables: Mapping[str, str]) -> Finished:
        self._untimed("before", self.program.before)
        self.doing(f"{self.case.title}: executing")
        return self._start(self._ask("argv", lambda: self.program.argv(self.case.case, times)), variables)

    def _take(self, finished: Finished, times: int) -> None:
        """What an execution gave, once it is verified."""
        program, case, done, output = self.program, self.case.case, self.done, finished.output
        done.cpu = _sum(done.cpu, finished)
        if wrong := self._read(lambda: program.verify(case, output)):
            raise WrongResult(program.name, wrong)
        for name, seconds in self._samples(finished, times).items():
            done.samples.setdefault(name, []).extend(seconds)
        done.notes |= dict.fromkeys(self._read(lambda: program.notes(output)))
        said = "exit code 0, but standard error ends with: "
        if program.notes_stderr and finished.error and not any(note.startswith(said) for note in done.notes):
            done.notes[said + finished.error] = None
        self._keep_largest(lambda: program.figures(case, output))
        done.repeatable |= self._finite(lambda: program.repeatable(case, output))
        done.messages = self._read(lambda: tuple(program.messages(case, output)))
        done.stretch = self._read(lambda: program.slices(output))

    def _untimed(self, name: str, steps: Callable[..., Sequence[SideCommand]]) -> None:
        """Run commands beside the timed one."""
        for step in self._ask(name, lambda: steps(self.case.case)):
            try:
                output = self._start(step.argv).output
            except ProgramFailed as error:
                raise ProgramFailed(f"{step.title}: {error}" if step.title else str(error)) from error
            self._keep_largest(lambda step=step, output=output: step.figures(output))  # type: ignore[misc]

    def _start(self, argv: Sequence[str], variables: Mapping[str, str] | None = None) -> Finished:
        go_on = self.peers.listening(self.case.title)
        finished = execute(argv, self.plan.timeout_seconds, go_on, self.folder, variables, self.program.own_threads)
        self.done.all = _sum(self.done.all, finished)
        return finished

    def _keep_largest(self, figures: Callable[[], Mapping[str, float]]) -> None:
        """Of several executions, each figure's largest value: a residual is judged by its worst."""
        for name, value in self._finite(figures).items():
            self.done.figures[name] = max(value, self.done.figures.get(name, -math.inf))

    def _finite(self, figures: Callable[[], Mapping[str, float]]) -> dict[str, float]:
        values = {name: float(value) for name, value in self._read(figures).items()}
        for name, value in values.items():
            if not math.isfinite(value):
                raise ProgramFailed(f"{self.program.name}: {name} is {value}")
        return values

    def _ask(self, name: str, ask: Callable[[], ValueT]) -> ValueT:
        try:
            return ask()
        except Exception as error:  # somebody else's function: whatever it raises
            raised = f"{type(error).__name__}: {error}"
            raise ProgramFailed(f"benchmark {self.case.title}: its {name} raised {raised}") from error

    def _read(self, read: Callable[[], ValueT]) -> ValueT:
        """The result of `read`, which reads what the program printed."""
        try:
            return read()
        except Unreadable as error:
            raise ProgramFailed(str(error)) from error
        except Exception as error:
            raised = f"{type(error).__name__}: {error}"
            raise ProgramFailed(f"cannot read the output of {self.program.name} ({raised})") from error

    def _samples(self, finished: Finished, times: int) -> Mapping[str, Sequence[float]]:
        """Seconds of `times` samples of every measure, unless they are too few, or longer than the execution."""
        name, output = self.program.name, finished.output
        read = self._read(lambda: self.program.read(self.case.case, output, finished.wall))
        parsed = self._read(lambda: {measure: [*map(float, values)] for measure, values in read.items()})
        measures = self.program.measures_of(self.case.case)
        for measure in measures:
            samples, expected = parsed.get(measure.name, []), 1 if measure.once else times
            if len(samples) != expected:
                raise ProgramFailed(f"{name} printed {len(samples)} times of {measure.name}; expected {expected}")
            for seconds in samples:
                if not (math.isfinite(seconds) and seconds > 0.0):
                    raise ProgramFailed(f"{name} printed {seconds} s as a time of {measure.name}")
        printed = self._read(lambda: self.program.elapsed(self.case.case, output))
        if printed is None:
            printed = max(sum(parsed[measure.name]) - times * measure.step for measure in measures)
        if printed > finished.wall:
            took = f"its execution took {finished.wall:.4g} s"
            raise ProgramFailed(f"{name} printed times of {printed:.4g} s, and {took}")
        return {measure: parsed[measure] for measure in self.case.measures}


def _sum(cpu: CpuTime, finished: Finished) -> CpuTime:
    return CpuTime(user=cpu.user + finished.user, system=cpu.system + finished.system, wall=cpu.wall + finished.wall)


#: Times of fewer steps of what their program prints cannot show a difference of 1 %.
FEWEST_STEPS = 100


def measure_program(
    case: ProgramCase, plan: Plan, session: Session, method: Method, watch: Watch,
    doing: Callable[[str], None] = lambda what: None, turns: Path | None = None,
) -> tuple[Measured, ...]:  # fmt: skip
    """Run the program of a case: for each measure a record, and on rank 0 its samples [ranks, n] in ns. Collective.

    `doing` is told what is executed next. `turns` has the pipes of a program whose world takes turns with others.

    There are `plan.iters` samples. Without them there are `plan.floor`, because their number is set at the start; a
    program that is executed for each sample gets more, up to `plan.cap`, until the time budget is spent.

    Raises:
        Interrupted: a rank was told to stop.
    """
    world, program = session.world, workloads.get(case.case.workload)

    def without_times(status: Status, reason: str, check: ResultCheck | None = None) -> tuple[Measured, ...]:
        blank = Record(case=case.case, launch=0, status=status, reason=reason, check=check)
        return tuple((msgspec.structs.replace(blank, case=identity), None) for identity in case.identities)

    if (missing := first_value(world, program.missing(program.choice(case.case)))) is not None:
        return without_times("skipped", missing)
    meter, before = ContentionMeter(session.clock), os.times()
    meter.start()
    facts = world.bcast(method.ranks)  # of the few ranks that programs have
    peers = Peers(world, watch, session.failures, facts_of_ranks.threads_of(facts, world.rank))
    try:
        done = _performed(program, case, plan, peers, doing, turns)
    except (ProgramSkipped, ProgramFailed, WrongResult) as error:
        check = ResultCheck(wrong=error.wrong) if isinstance(error, WrongResult) else None
        return without_times("skipped" if isinstance(error, ProgramSkipped) else "failed", str(error), check)
    meter.stop()
    if done.stretch is None:
        after = os.times()
        used = (done.all.user, done.all.system), (after.user - before.user, after.system - before.system)
        own_time = facts_of_ranks.own_time(
            facts, world.rank, allgather(world, used), program.files or program.distributed
        )
        contended, notes = facts_of_ranks.contended(meter.passed, world, own_time)
    else:
        contended, notes = facts_of_ranks.contended(done.stretch, world)
    if (by_rank := world.gather(done)) is None:
        return tuple((Record(case=identity, launch=0, status="ok"), None) for identity in case.identities)
    common = _common(case, method, by_rank, turns is not None)
    notes = (*notes, *facts_of_ranks.notes(facts), *method.siblings, *common.notes)
    common = msgspec.structs.replace(common, contended=contended, notes=notes)
    return tuple(
        _filled(common, measure, [rank.samples[measure.name] for rank in by_rank],
                0 if measure.once else plan.warmup, method)
        for measure in program.measures_of(case.case)
    )  # fmt: skip


def _performed(
    program: Program, case: ProgramCase, plan: Plan, peers: Peers, doing: Callable[[str], None], turns: Path | None
) -> RankOutcome:
    """`ProgramRun.perform`: in an empty folder, of the plan's where it works in files, else here."""
    place: contextlib.AbstractContextManager[Path | None] = contextlib.nullcontext()
    if program.files or program.scratch:
        place = working_folder((plan.folder or str(Path.cwd())) if program.files else None)
    with contextlib.ExitStack() as stack:
        folder = peers.agreed(lambda: stack.enter_context(place))
        storage = cgroup.under(folder).text if folder is not None and program.files else None
        done = ProgramRun(program, case, plan, folder, doing, peers, turns).perform()
        done.storage = storage
        return done


def _common(case: ProgramCase, method: Method, by_rank: Sequence[RankOutcome], in_turns: bool) -> Record:
    """What the records of all measures of a case have in common, from the outcomes of all ranks."""
    figures: dict[str, float] = {}  # of each the largest; of what must come out equal that of the first rank
    for rank in by_rank:
        figures |= {name: max(value, figures.get(name, value)) for name, value in rank.figures.items()}
    users, systems, walls = zip(*((rank.cpu.user, rank.cpu.system, rank.cpu.wall) for rank in by_rank), strict=True)
    repeatable = {name: value for rank in reversed(by_rank) for name, value in rank.repeatable.items()}
    return Record(
        case=case.case, launch=0, status="ok", clock="local",
        check=ResultCheck(wrong=0, figures=figures, repeatable=repeatable),
        confinement=method.confinement, oversubscribed=method.oversubscribed,
        notes=tuple(dict.fromkeys(note for rank in by_rank for note in rank.notes)),
        cpu=None if in_turns else CpuTime(user=sum(users), system=sum(systems), wall=max(walls)),  # it slept in turns
        transport=by_rank[0].storage, messages=by_rank[0].messages,
    )  # fmt: skip


def _filled(
    common: Record, measure: Measure, by_rank: Sequence[Sequence[float]], warmup: int, method: Method
) -> Measured:
    seconds = np.array(by_rank)[:, warmup:]
    matrix = np.maximum(np.rint(seconds * 1e9), 1).astype(np.int64)
    summary, notes = summarise(matrix.max(axis=0)), common.notes
    if summary.p50 < FEWEST_STEPS * measure.step:  # near the resolution of what the program prints
        steps = f"it prints times in steps of {format_duration(measure.step)}, of which {measure.name} takes fewer than"
        notes += (f"{steps} {FEWEST_STEPS}: differences of 1 % cannot be seen; make an execution longer",)
    samples = Samples(n=matrix.shape[1], invalid=0, warmup=warmup)
    ranks = ranks_of([summarise(rank).p50 for rank in matrix], method.ranks)
    return msgspec.structs.replace(
        common, case=common.case.having(measure=measure.name), work=measure.work(common.case), samples=samples,
        seconds=summary, notes=notes, ranks=ranks,
    ), matrix  # fmt: skip
