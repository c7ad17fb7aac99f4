"""One case of a program: executed on its ranks in a folder of its own, checked, and made a record of each measure.

A process that is killed leaves its folder, which the next one removes: a folder is locked while its process lives.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from collbench import workloads
from collbench.bindings.spec import Session, World, allgather, first_value
from collbench.machine import cgroup
from collbench.machine.facts import ContentionMeter, Stretch
from collbench.run import contention, facts_of_ranks
from collbench.run.child import Finished, ProgramFailed, ProgramSkipped, execute
from collbench.run.contention import OwnTime
from collbench.run.facts_of_ranks import ranks_of
from collbench.run.results import Measured
from collbench.run.sampling import Method, Watch
from collbench.run.worlds_of_programs import Peers, WrongResult
from collbench.schema.plan import Plan
from collbench.schema.record import CpuTime, Record, ResultCheck, Samples, summarise
from collbench.schema.world import VARIABLE
from collbench.units import format_duration
from collbench.workloads.program import Measure, Program, ProgramCase, Step

#: How names of such folders begin, and that of one which is not locked yet.
PREFIX, DRAFT = "collbench-files-", "collbench-new-"

#: The folders of this process, for a thread that ends it.
_HELD: set[Path] = set()

#: How often removal is tried again, while the program that works there may still make files.
_TRIES = 3


def prefix() -> str:
    """Names have this machine's in them: where several machines share a folder, one may not see another's locks."""
    return f"{PREFIX}{re.sub(r'[^A-Za-z0-9.-]', '_', os.uname().nodename)}-"


@contextlib.contextmanager
def working_folder(parent: str | None) -> Iterator[Path]:
    """An empty folder in `parent` (None: where temporary files are). It and what killed processes left is removed.

    Raises:
        ProgramFailed: it cannot be made.
    """
    try:
        remove_abandoned(Path(parent or tempfile.gettempdir()))
        folder, lock = _made(parent)
    except OSError as error:
        where, name = (parent, "name") if parent else ("of temporary files", "set TMPDIR to")
        raise ProgramFailed(f"folder {where}: {error.strerror}; {name} one in which files can be made") from error
    _HELD.add(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _HELD.discard(folder)
        os.close(lock)


def remove_held() -> None:
    """Remove the folders of this process, which ends without leaving their contexts."""
    for folder in tuple(_HELD):
        for _ in range(_TRIES):
            shutil.rmtree(folder, ignore_errors=True)


def _made(parent: str | None) -> tuple[Path, int]:
    """A folder, and the open file whose lock says that this process lives.

    It gets its name when it is locked, so that nobody meets an unlocked folder of a living process.
    """
    import fcntl  # Unix has it

    draft = Path(tempfile.mkdtemp(prefix=DRAFT, dir=parent))
    lock = os.open(draft, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks, where nothing is removed either
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return draft.rename(draft.with_name(prefix() + draft.name.removeprefix(DRAFT))), lock
    except BaseException:
        os.close(lock)
        draft.rmdir()
        raise


def remove_abandoned(parent: Path) -> None:
    """Remove this user's folders in `parent` whose process is gone."""
    import fcntl

    for folder in parent.glob(f"{prefix()}*"):
        with contextlib.suppress(OSError):  # of a living process, or of one that removed it meanwhile
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(opened).st_uid == os.getuid():
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(opened)


Value = TypeVar("Value")


_NO_TIME = CpuTime(user=0.0, system=0.0, wall=0.0)


@dataclass
class Executed:
    """What the executions of a case gave on a rank: seconds by measure, the warm-up among them, and figures.

    `cpu` is what the timed executions took, and `all` what they and the steps beside them took. `beneath` is the file
    system that its files were on, where it works in files. `stretch`: its slices, where it took turns with others.
    """

    samples: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    repeatable: dict[str, float] = field(default_factory=dict)
    messages: tuple[int, ...] = ()
    cpu: CpuTime = _NO_TIME
    all: CpuTime = _NO_TIME
    beneath: str | None = None
    stretch: Stretch | None = None


@dataclass(frozen=True)
class Execution:
    """One case of a program on its way to samples."""

    program: Program
    case: ProgramCase
    plan: Plan
    folder: Path | None
    doing: Callable[[str], None]
    peers: Peers
    turns: Path | None = None
    done: Executed = field(default_factory=Executed)

    def all(self) -> Executed:
        """Prepare, take every sample, verify.

        Raises:
            ProgramFailed: it gave no result.
            ProgramSkipped: this machine or this folder cannot give what the case needs.
            WrongResult: it gave a wrong one.
        """
        program = self.program
        self.peers.agreed(self._prepare)
        least = self.plan.warmup + (self.plan.floor if self.plan.iters is None else self.plan.iters)
        if program.repeated:
            self.repeatedly(least)
        else:
            self.doing(f"{self.case.title}: one execution")
            self.execute(1 if program.once else least)
        self.doing(f"{self.case.title}: verifying")
        self.peers.agreed(lambda: self.steps("after", program.after))
        return self.done

    def _prepare(self) -> None:
        program, case = self.program, self.case.case
        lacks = self._told("lacks", lambda: program.lacks(case, self.folder or Path.cwd()))
        if lacks is not None:
            raise ProgramSkipped(lacks)
        self.doing(f"{self.case.title}: preparing")
        self.steps("prepare", program.prepare)

    def repeatedly(self, least: int) -> None:
        """An execution is a sample; beyond the least number until the time budget is spent."""
        most = least if self.plan.iters is not None else self.plan.warmup + self.plan.cap
        end = time.monotonic() + self.plan.budget_seconds
        for taken in range(most):
            if taken >= least and self.peers.decided(time.monotonic() > end):
                break
            self.doing(f"{self.case.title}: execution {taken + 1} of {max(taken + 1, least)}{self._left(taken, least)}")
            self.execute(1)

    def _left(self, taken: int, least: int) -> str:
        """About how long the executions take that are still to come, by those before."""
        seconds = max(least - taken, 1) * self.done.cpu.wall / taken if taken else 0.0
        return f", about {format_duration(seconds)} left" if seconds >= 1.0 else ""

    def execute(self, times: int) -> None:
        """One execution, which takes so many samples of every measure; if distributed, on all ranks at once."""
        variables = self.peers.variables() if self.program.distributed else {}
        if self.turns is not None and self.program.takes_turns:
            variables |= {VARIABLE: str(self.turns)}
        self.peers.agreed(lambda: self._execute(times, variables))

    def _execute(self, times: int, variables: Mapping[str, str]) -> None:
        program, case, done = self.program, self.case.case, self.done
        self.steps("before", program.before)
        finished = self._run(self._told("argv", lambda: program.argv(case, times)), variables)
        done.cpu = _more(done.cpu, finished)
        output = finished.output
        if wrong := self._read(lambda: program.verify(case, output)):
            raise WrongResult(program.name, wrong)
        for name, seconds in self._samples(finished, times).items():
            done.samples.setdefault(name, []).extend(seconds)
        done.notes |= dict.fromkeys(self._read(lambda: program.notes(output)))
        self._keep(lambda: program.figures(case, output))
        done.repeatable |= self._finite(lambda: program.repeatable(case, output))
        done.messages = self._read(lambda: tuple(program.messages(case, output)))
        done.stretch = self._read(lambda: program.slices(output))

    def steps(self, name: str, steps: Callable[..., Sequence[Step]]) -> None:
        """The commands that are not timed."""
        for step in self._told(name, lambda: steps(self.case.case)):
            output = self._run(step.argv).output
            self._keep(lambda step=step, output=output: step.figures(output))  # type: ignore[misc]

    def _keep(self, figures: Callable[[], Mapping[str, float]]) -> None:
        """Of several executions, each figure's largest value: a residual is judged by its worst."""
        for name, value in self._finite(figures).items():
            self.done.figures[name] = max(value, self.done.figures.get(name, -math.inf))

    def _finite(self, figures: Callable[[], Mapping[str, float]]) -> dict[str, float]:
        """The result of `figures`.

        Raises:
            ProgramFailed: the output cannot be read, or a figure is no number.
        """
        found = {name: float(value) for name, value in self._read(figures).items()}
        for name, value in found.items():
            if not math.isfinite(value):
                raise ProgramFailed(f"{self.program.name}: {name} is {value}")
        return found

    def _run(self, argv: Sequence[str], variables: Mapping[str, str] | None = None) -> Finished:
        finished = execute(
            argv, self.plan.timeout_seconds, self.peers.listening(), self.case.title, self.folder, variables
        )  # fmt: skip
        self.done.all = _more(self.done.all, finished)
        return finished

    def _told(self, name: str, tell: Callable[[], Value]) -> Value:
        try:
            return tell()
        except Exception as error:  # somebody else's function: whatever it raises
            raised = f"raised {type(error).__name__}: {error}"
            raise ProgramFailed(f"benchmark {self.case.title}: its {name} {raised}") from error

    def _read(self, read: Callable[[], Value]) -> Value:
        """The result of `read`, which reads what the program printed.

        Raises:
            ProgramFailed: the output cannot be read.
        """
        try:
            return read()
        except Exception as error:
            raise ProgramFailed(
                f"cannot read the output of {self.program.name} ({type(error).__name__}: {error})"
            ) from error

    def _samples(self, finished: Finished, times: int) -> Mapping[str, Sequence[float]]:
        """Seconds of `times` samples of every measure.

        Raises:
            ProgramFailed: the output cannot be read, lacks samples, or has times that are longer than the execution.
        """
        name, output = self.program.name, finished.output
        parsed = self._read(
            lambda: {measure: [float(s) for s in values] for measure, values in self.program.parse(output).items()}
        )
        for measure in self.program.measures:
            samples, expected = parsed.get(measure.name, []), 1 if measure.once else times
            if len(samples) != expected:
                raise ProgramFailed(f"{name} printed {len(samples)} times of {measure.name}; expected {expected}")
            for seconds in samples:
                if not (math.isfinite(seconds) and seconds > 0.0):
                    raise ProgramFailed(f"{name} printed {seconds} s as a time of {measure.name}")
        printed = self._read(lambda: self.program.elapsed(self.case.case, output))
        if printed is None:
            printed = max(sum(parsed[measure.name]) - times * measure.step for measure in self.program.measures)
        if printed > finished.wall:
            took = f"its execution took {finished.wall:.4g} s"
            raise ProgramFailed(f"{name} printed times of {printed:.4g} s, and {took}")
        return {measure: parsed[measure] for measure in self.case.measures}


def _more(cpu: CpuTime, finished: Finished) -> CpuTime:
    return CpuTime(user=cpu.user + finished.user, system=cpu.system + finished.system, wall=cpu.wall + finished.wall)


def executed(
    program: Program, case: ProgramCase, plan: Plan, peers: Peers, doing: Callable[[str], None],
    turns: Path | None = None,
) -> Executed:  # fmt: skip
    """The samples of a case: `Execution.all`, in an empty folder where the program works in files."""
    with contextlib.ExitStack() as stack:
        folder = peers.agreed(lambda: stack.enter_context(_place(program, plan)))
        beneath = cgroup.under(folder).text if folder is not None and program.files else None
        done = Execution(program, case, plan, folder, doing, peers, turns).all()
        done.beneath = beneath
        return done


def _place(program: Program, plan: Plan) -> contextlib.AbstractContextManager[Path | None]:
    """Where a program runs: in a folder of the plan's, in a temporary one, or (None) here."""
    if program.files:
        return working_folder(plan.folder or str(Path.cwd()))
    return working_folder(None) if program.scratch else contextlib.nullcontext()


#: Times of fewer steps of what their program prints cannot show a difference of 1 %.
FEWEST_STEPS = 100


def measure_program(
    case: ProgramCase, plan: Plan, session: Session, method: Method, watch: Watch,
    doing: Callable[[str], None] = lambda what: None, turns: Path | None = None,
) -> tuple[Measured, ...]:  # fmt: skip
    """Run the program of a case. Returns on rank 0 for each measure a record, and its samples [ranks, n] in ns.

    On the other ranks as many records, without numbers. Collective.

    `doing` is told what is executed next. `turns` has the pipes of a program whose world takes turns with others.

    There are `plan.iters` samples. Without them there are `plan.floor`, because their number is set at the start; a
    program that is executed for each sample gets more, up to `plan.cap`, until the time budget is spent.

    Raises:
        Interrupted: a rank was told to stop.
    """
    program = workloads.get(case.case.workload)
    missing = first_value(session.world, program.missing(program.choice(case.case)))
    if missing is not None:
        return _without_times(case, "skipped", missing)
    meter = ContentionMeter(session.clock)
    meter.start()
    facts = session.world.bcast(method.ranks)  # of the few ranks that programs have
    peers = Peers(session.world, watch, session.failures, facts_of_ranks.threads_of(facts, session.world.rank))
    try:
        done = executed(program, case, plan, peers, doing, turns)
    except ProgramSkipped as error:
        return _without_times(case, "skipped", str(error))
    except WrongResult as error:
        return _without_times(case, "failed", str(error), ResultCheck(wrong=error.wrong))
    except ProgramFailed as error:
        return _without_times(case, "failed", str(error))
    meter.stop()
    if done.stretch is None:
        sharing = facts_of_ranks.sharing(facts, session.world.rank)
        own = _own_time(session.world, done, sharing, program.files or program.distributed)
        contended, notes = contention.contended(meter.passed, session.world, own)
    else:
        contended, notes = contention.contended(done.stretch, session.world)
    by_rank = session.world.gather(done)
    if by_rank is None:
        return tuple((Record(case=identity, launch=0, status="ok"), None) for identity in case.identities)
    figures: dict[str, float] = {}  # of each the largest; of what must come out equal that of the first rank
    for rank in by_rank:
        figures |= {name: max(value, figures.get(name, value)) for name, value in rank.figures.items()}
    users, systems, walls = zip(*((rank.cpu.user, rank.cpu.system, rank.cpu.wall) for rank in by_rank), strict=True)
    cpu = CpuTime(user=sum(users), system=sum(systems), wall=max(walls))
    repeatable = {name: value for rank in reversed(by_rank) for name, value in rank.repeatable.items()}
    common = Record(
        case=case.case,
        launch=0,
        status="ok",
        check=ResultCheck(wrong=0, figures=figures, repeatable=repeatable),
        clock="local",
        confinement=method.confinement,
        contended=contended,
        oversubscribed=method.oversubscribed,
        notes=(
            *notes,
            *facts_of_ranks.notes(facts),
            *method.siblings,
            *dict.fromkeys(note for rank in by_rank for note in rank.notes),
        ),
        transport=done.beneath,
        cpu=None if turns is not None else cpu,  # it slept in its turns
        messages=by_rank[0].messages,
    )
    return tuple(
        _filled(common, case, measure, [rank.samples[measure.name] for rank in by_rank],
                0 if measure.once else plan.warmup, method)
        for measure in program.measures
    )  # fmt: skip


def _own_time(world: World, done: Executed, sharing: Sequence[int], kernel: bool) -> OwnTime:
    """The processor time of this rank's program, and of those of other ranks that share a core with it."""
    by_rank = allgather(world, (done.all.user, done.all.system))
    used = [by_rank[rank] for rank in sharing]
    return OwnTime(sum(user for user, _ in used), sum(system for _, system in used), kernel)


def _without_times(
    case: ProgramCase, status: str, reason: str, check: ResultCheck | None = None
) -> tuple[Measured, ...]:
    blank = {"launch": 0, "status": status, "reason": reason, "check": check}
    return tuple((Record(case=identity, **blank), None) for identity in case.identities)  # type: ignore[arg-type]


def _filled(
    common: Record, case: ProgramCase, measure: Measure, by_rank: Sequence[Sequence[float]], warmup: int, method: Method
) -> Measured:
    seconds = np.array(by_rank)[:, warmup:]
    matrix = np.maximum(np.rint(seconds * 1e9), 1).astype(np.int64)
    summary = summarise(matrix.max(axis=0))
    return msgspec.structs.replace(
        common,
        case=case.case.having(measure=measure.name),
        work=measure.work(case.case),
        samples=Samples(n=matrix.shape[1], invalid=0, warmup=warmup),
        seconds=summary,
        notes=(*common.notes, *_few_steps(measure, summary.p50)),
        ranks=ranks_of([summarise(rank).p50 for rank in matrix], method.ranks),
    ), matrix


def _few_steps(measure: Measure, median: float) -> tuple[str, ...]:
    """What a reader must know of a time (s) near the resolution of what its program prints."""
    if median >= FEWEST_STEPS * measure.step:
        return ()
    return (f"it prints times in steps of {format_duration(measure.step)}, of which {measure.name} takes fewer than "
            f"{FEWEST_STEPS}: differences of 1 % cannot be seen; make an execution longer",)  # fmt: skip
