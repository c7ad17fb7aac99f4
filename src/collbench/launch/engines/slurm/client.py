"""Slurm's own programs, each with a limit on its time, and what they say of a job."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, replace

from collbench.errors import EngineError
from collbench.launch.engines.slurm.messages import first_cause

#: Longest wait for an answer (s).
ANSWER = 60.0

#: Longest wait (s) for what is asked for again and again, such as the state of a job, and at a second Ctrl-C.
STATE, MOMENT = 10.0, 0.3

#: States of a job that may still run (squeue(1)). A step of it can be lost in any.
ALIVE = (
    "PENDING",
    "CONFIGURING",
    "RUNNING",
    "SUSPENDED",
    "STOPPED",
    "REQUEUED",
    "REQUEUE_HOLD",
    "RESIZING",
    "SIGNALING",
)

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


def cancel_step(job: str, name: str) -> None:
    """End the step of that name, if it runs."""
    for line in ask("squeue", "--steps", f"--jobs={job}", "--noheader", "--format=%i %j").splitlines():
        number, _, called = line.strip().partition(" ")
        if called == name:
            ask("scancel", number)
