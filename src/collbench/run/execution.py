"""The executions of a program that give the samples of a case, with what is done before, between and after them."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from collbench.machine import mounts
from collbench.run.child import Finished, ProgramFailed, ProgramSkipped, execute
from collbench.run.peers import Peers, WrongResult
from collbench.run.working_folder import working_folder
from collbench.schema.plan import Plan
from collbench.schema.record import CpuTime
from collbench.schema.turns import VARIABLE
from collbench.units import format_duration
from collbench.workloads.case import ProgramCase
from collbench.workloads.program import Program, Step

Value = TypeVar("Value")


_NO_TIME = CpuTime(user=0.0, system=0.0, wall=0.0)


@dataclass
class Executed:
    """What the executions of a case gave on a rank: seconds by measure, the warm-up among them, and figures.

    `cpu` is what the timed executions took, and `all` what they and the steps beside them took. `beneath` is the file
    system that its files were on, where it works in files.
    """

    samples: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    repeatable: dict[str, float] = field(default_factory=dict)
    messages: tuple[int, ...] = ()
    cpu: CpuTime = _NO_TIME
    all: CpuTime = _NO_TIME
    beneath: str | None = None


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
        beneath = mounts.under(folder).text if folder is not None and program.files else None
        done = Execution(program, case, plan, folder, doing, peers, turns).all()
        done.beneath = beneath
        return done


def _place(program: Program, plan: Plan) -> contextlib.AbstractContextManager[Path | None]:
    """Where a program runs: in a folder of the plan's, in a temporary one, or (None) here."""
    if program.files:
        return working_folder(plan.folder or str(Path.cwd()))
    return working_folder(None) if program.scratch else contextlib.nullcontext()
