"""Slurm's own programs, each with a limit on its time, and what their messages mean."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from collbench.errors import EngineError, PlanError
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.slurm.options import RUNTIMES
from collbench.launch.engines.slurm.script import Resources
from collbench.launch.engines.slurm.site import SlurmSite
from collbench.schema.plan import LaunchPlan
from collbench.units import counted

#: Lines that only follow from others: advice to read the help, and how srun ends the tasks that are left. A hint on
#: hardware threads is kept without task/affinity, but for the binding of a task, which ranks do themselves.
_FOLLOWS = re.compile(
    r"^\s*$|^Try [\"'`]|_step_signal: Terminating|Force Terminated|Job step aborted|Exited with exit code"
    r"|\*\*\* (STEP|JOB) |: tasks? [\d,-]+: Terminated|lacks support for cpu binding"
)

#: Tasks that were killed: often because of another, sometimes all that is known.
_KILLED = re.compile(r": tasks? [\d,-]+: Killed")

#: A task whose program could not be started, as srun says it, and how the shell of a task (named so) says why.
_NOT_STARTED = re.compile(r"srun: error: (\S+: tasks? [\d,-]+: Exited with exit code 12[67])\b")
_OF_SHELL = re.compile(r"task: (?:(?:line )?\d+: )?(.+)")

_ERROR = re.compile(r"^\w+: (?:error|fatal): ")
_PROGRAM = re.compile(r"^\w+: (?:(?:error|fatal): )?")

#: Most lines that are quoted in a message.
_MOST = 3


def telling(lines: Iterable[str]) -> tuple[str, ...]:
    """Lines that do not merely follow from others."""
    left = tuple(line for line in lines if not _FOLLOWS.search(line))
    return tuple(line for line in left if not _KILLED.search(line)) or left


def first_cause(text: str) -> str:
    """Why a program of Slurm failed: its first errors; without any, its first lines."""
    lines = telling(text.splitlines())
    errors = [line for line in lines if _ERROR.match(line)] or lines
    return "; ".join(_PROGRAM.sub("", line) for line in errors[:_MOST])


def last_lines(text: str) -> str:
    """The end of a log."""
    return "; ".join(telling(text.splitlines())[-_MOST:])


def of_srun(lines: Iterable[str]) -> str:
    """What srun says of a step, in a log that the ranks print to as well: its first error, or its first words."""
    lines = tuple(lines)
    if cause := not_started(lines):
        return cause
    said = telling(line for line in lines if line.startswith("srun: "))
    first = next((line for line in said if _ERROR.match(line)), next(iter(said), ""))
    return first.removeprefix("srun: ")


def not_started(lines: Iterable[str]) -> str:
    """Node and cause where a program is not there, or cannot be executed; empty: every task has started its own."""
    lines = tuple(lines)
    where = next((match[1] for match in map(_NOT_STARTED.match, lines) if match), "")
    why = next((f" ({match[1]})" for match in map(_OF_SHELL.fullmatch, lines) if match), "")
    return f"{where}{why}" if where else ""


#: Longest wait for an answer (s).
ANSWER = 60.0

#: Longest wait (s) for what is asked for again and again, such as the state of a job, and at a second Ctrl-C.
STATE, MOMENT = 10.0, 0.3

#: States of a job that may still run (squeue(1)). A step of it can be lost in any.
ALIVE = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "REQUEUED", "REQUEUE_HOLD", "RESIZING",
         "SIGNALING")  # fmt: skip

#: GPUs of all kinds in a line of `scontrol show job`, which names each kind after it.
_GPUS = re.compile(r"\b(?:Alloc)?TRES=\S*?\bgres/gpu=(\d+)")

_FIELD = re.compile(r"(\w+)=(\S*)")


@dataclass(frozen=True)
class JobState:
    """What Slurm says of a job: its state and, where it gives one, the reason; nodes, partition, GPUs on all nodes.

    `others`: components of it are still there, after one has ended.
    """

    state: str
    reason: str = ""
    nodes: str = ""
    others: bool = False
    partition: str = ""
    gpus: int = 0

    @property
    def alive(self) -> bool:
        return self.state in ALIVE

    @property
    def there(self) -> bool:
        """Whether something of it is left."""
        return self.alive or self.state == "COMPLETING" or self.others

    @property
    def text(self) -> str:
        """`NODE_FAIL`, or `PENDING (Resources)`."""
        return self.state if self.reason in ("", "None") else f"{self.state} ({self.reason})"


def ask(*argv: str, limit: float = ANSWER, text: str = "") -> str:
    """What a program of Slurm prints.

    Raises:
        EngineError: it is not there, fails, or does not answer.
    """
    if shutil.which(argv[0]) is None:
        raise EngineError(f"engine slurm: there is no {argv[0]} here. Run this where jobs are submitted, a login node.")
    try:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=limit, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"engine slurm: {argv[0]} does not answer ({error}).") from error
    if done.returncode != 0:
        said = first_cause(done.stderr) or first_cause(done.stdout) or f"exit code {done.returncode}"
        raise EngineError(f"engine slurm: {argv[0]} says: {said}")
    return done.stdout


def version() -> str:
    """`slurm 22.05.8`."""
    return ask("srun", "--version").strip()


def submit(script: str) -> str:
    """Give a script to sbatch; returns the number of the job.

    Raises:
        EngineError: it is rejected; the message is Slurm's.
    """
    return ask("sbatch", "--parsable", text=script).strip().partition(";")[0]


def state_of(job: str) -> JobState:
    """What scontrol says of a job; it has ended if a component has, or if it is not known any more.

    Raises:
        EngineError: it does not answer.
    """
    try:
        said = ask("scontrol", "--oneliner", "show", "job", job, limit=STATE)
    except EngineError as error:
        if "Invalid job id" in str(error):
            return JobState("ENDED", "Slurm has forgotten it")
        raise
    lines = [dict(_FIELD.findall(line)) for line in said.splitlines() if line.strip()] or [{}]
    components = [JobState(fields.get("JobState", "UNKNOWN"), fields.get("Reason", "")) for fields in lines]
    worst = next((component for component in components if not component.alive), components[0])
    nodes = ",".join(filter(None, (fields.get("NodeList", "") for fields in lines)))
    partition = ",".join(dict.fromkeys(filter(None, (fields.get("Partition", "") for fields in lines))))
    gpus = sum(map(int, _GPUS.findall(said)))
    others = any(component.there for component in components)
    return replace(worst, nodes=nodes, others=others, partition=partition, gpus=gpus)


def cancel(job: str) -> None:
    """End a job, whatever it does; one that has ended is no error."""
    try:
        ask("scancel", job, limit=STATE)
    except EngineError as error:
        if "Invalid job id" not in str(error):
            raise


def cancelled(job: str) -> bool:
    """As `cancel`; whether Slurm has taken it."""
    try:
        cancel(job)
    except EngineError:
        return False
    return True


def cancel_soon(job: str) -> bool:
    """End a job without waiting for a controller that is away: scancel goes on alone. Whether it has succeeded yet."""
    nowhere = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            ("scancel", job), stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True
        )
    except OSError:
        return False
    try:
        return process.wait(MOMENT) == 0
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.returncode = 0  # nobody waits for it any more
        return False


def cancel_step(job: str, name: str, gently: bool = False) -> None:
    """End the step of that name, if it runs: by SIGKILL, or by SIGTERM."""
    for line in ask("squeue", "--steps", f"--jobs={job}", "--noheader", "--format=%i %j").splitlines():
        number, _, called = line.strip().partition(" ")
        if called == name:
            ask("scancel", *(["--signal=TERM"] if gently else []), number)


def refuse(plan: LaunchPlan, cells: Iterable[LaunchCell], site: SlurmSite) -> None:
    """What a site cannot do of a plan.

    Raises:
        PlanError: the first, with what would.
    """
    runtime = RUNTIMES[site.runtime]
    for cell in cells:
        contained = cell.isolation is not None
        if contained and cell.policy not in runtime.policies:
            able = f"with runtime {runtime.name} there is {', '.join(runtime.policies) or 'none'}"
            raise PlanError(f"policy {cell.policy}: {able}; {runtime.instead}.")
        if contained and cell.image not in site.images:
            raise PlanError(f"image {cell.image}: the site file does not say where it is. Add it to [slurm.images].")
        if cell.storage is not None:
            raise PlanError(f"{cell.title}: benchmarks of storage are for one machine; leave them out of a plan for "
                            "Slurm.")  # fmt: skip
        if plan.spare != "idle":
            raise PlanError(f'spare "{plan.spare}": all ranks of a node get as many cores from Slurm. Leave it out.')
        if plan.device == "gpu" and not site.gpus:
            raise PlanError('device "gpu": the nodes of the site have none. Say how many in the site file: gpus = 4.')


#: The number of the step in which salloc starts a shell, where the site has it do so (use_interactive_step).
_SHELL = ("4294967290", "interactive")


@dataclass(frozen=True)
class Allocated:
    """An allocation: the processors of each node, and the GPUs of all of them."""

    job: str
    cpus: tuple[int, ...]
    gpus: int


def allocated(environ: Mapping[str, str] = os.environ) -> Allocated | None:
    """The allocation that salloc or sbatch has put this process in; None: it is in none.

    Raises:
        EngineError: this process is a task of a step, or the allocation has ended.
    """
    job = environ.get("SLURM_JOB_ID")
    if not job:
        return None
    if environ.get("SLURM_STEP_ID", _SHELL[0]) not in _SHELL:
        raise EngineError(
            f"engine slurm: this is a task of srun, in job {job}, and its steps would wait for the processors of this "
            "one. Launch from the shell of salloc, from a script of sbatch, or from a login node."
        )
    state = state_of(job)
    if not state.alive:
        raise EngineError(f"engine slurm: SLURM_JOB_ID names job {job}, which has ended: {state.text}. Unset it.")
    return Allocated(job, _per_node(environ.get("SLURM_JOB_CPUS_PER_NODE", "")), state.gpus)


def _per_node(text: str) -> tuple[int, ...]:
    """(4, 4, 2) for `4(x2),2`."""
    cpus: list[int] = []
    for part in filter(None, text.split(",")):
        number, _, times = part.rstrip(")").partition("(x")
        cpus += [int(number)] * int(times or 1)
    return tuple(cpus)


def refuse_small(needs: Resources, given: Allocated) -> None:
    """What a plan needs, and an allocation does not have.

    Raises:
        EngineError: the first, with both numbers.
    """
    if needs.servers is not None:
        raise EngineError(
            f"engine slurm: job {given.job} is one allocation, and parameter servers with a node to themselves need a "
            "heterogeneous job. Launch from a login node, or take hosts = [1]."
        )
    cores = needs.tasks * needs.cores
    for what, needed, found in (
        ("node", needs.nodes, len(given.cpus)),
        ("core", cores, sorted(given.cpus, reverse=True)[: needs.nodes][-1] if given.cpus else 0),
        ("GPU", needs.gpus * needs.nodes, given.gpus),
    ):
        if needed > found:
            where = " of each node" if what == "core" else ""
            raise EngineError(
                f"engine slurm: the plan needs {counted(needed, what)}{where}, and the allocation of job {given.job} "
                f"has {found}. Allocate more, or launch from a login node, which submits a job."
            )
