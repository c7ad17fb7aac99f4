"""Slurm's own programs, and with them the job of one experiment: submitted, waited for, given steps, and ended.

Within an allocation the job's script is a process of the driver, and ends with it; the allocation is left as it was.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from collbench.errors import EngineError
from collbench.launch.engines.slurm.script import MOST_LINES, Resources, first_cause, of_srun, telling
from collbench.launch.folders import remove_folder
from collbench.launch.waiting import Lines, Log, StopCheck
from collbench.units import counted

#: Longest waits (s): for an answer, for one that is asked for again and again (the state of a job), at a second Ctrl-C.
ANSWER, STATE, MOMENT = 60.0, 10.0, 0.3

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
        return self.alive or self.state == "COMPLETING" or self.others

    @property
    def text(self) -> str:
        """`NODE_FAIL`, or `PENDING (Resources)`."""
        return self.state if self.reason in ("", "None") else f"{self.state} ({self.reason})"


def ask(*argv: str, limit: float = ANSWER, text: str = "") -> str:
    """What a program of Slurm prints; EngineError: it is not there, fails with this message, or does not answer.

    In a session of its own: Ctrl-C is for this process, at a safe point.
    """
    if shutil.which(argv[0]) is None:
        raise EngineError(f"engine slurm: there is no {argv[0]} here. Run this where jobs are submitted, a login node.")
    try:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, errors="replace", timeout=limit,
                              check=False, start_new_session=True)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"engine slurm: {argv[0]} does not answer ({error}).") from error
    if done.returncode != 0:
        cause = first_cause(done.stderr) or first_cause(done.stdout) or f"exit code {done.returncode}"
        raise EngineError(f"engine slurm: {argv[0]} says: {cause}")
    return done.stdout


def version() -> str:
    """`slurm 22.05.8`."""
    return ask("srun", "--version").strip()


def state_of(job: str) -> JobState:
    """What scontrol says of a job; it has ended if a component has, or if it is not known any more."""
    try:
        text = ask("scontrol", "--oneliner", "show", "job", job, limit=STATE)
    except EngineError as error:
        if "Invalid job id" in str(error):
            return JobState("ENDED", "Slurm has forgotten it")
        raise
    lines = [dict(_FIELD.findall(line)) for line in text.splitlines() if line.strip()] or [{}]
    components = [JobState(fields.get("JobState", "UNKNOWN"), fields.get("Reason", "")) for fields in lines]
    worst = next((component for component in components if not component.alive), components[0])
    nodes, partitions = ([fields[name] for fields in lines if fields.get(name)] for name in ("NodeList", "Partition"))
    return replace(worst, nodes=",".join(nodes), partition=",".join(dict.fromkeys(partitions)),
                   others=any(component.there for component in components),
                   gpus=sum(map(int, _GPUS.findall(text))))  # fmt: skip


def cancel(job: str) -> bool:
    """End a job, whatever it does; one that has ended is no error. Whether Slurm has taken it."""
    try:
        ask("scancel", job, limit=STATE)
    except EngineError as error:
        return "Invalid job id" in str(error)
    return True


def cancel_soon(job: str) -> bool:
    """End a job without waiting for a controller that is away: scancel goes on alone. Whether it has succeeded yet."""
    nowhere = subprocess.DEVNULL
    with contextlib.suppress(OSError):
        process = subprocess.Popen(
            ("scancel", job), stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True
        )
        try:
            return process.wait(MOMENT) == 0
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.returncode = 0  # nobody waits for it any more
    return False


#: The number of the step in which salloc starts a shell, where the site has it do so (use_interactive_step).
_SHELL = ("4294967290", "interactive")


@dataclass(frozen=True)
class Allocated:
    """An allocation: the processors of each node, and the GPUs of all of them."""

    job: str
    cpus: tuple[int, ...]
    gpus: int


def allocated(environ: Mapping[str, str] = os.environ) -> Allocated | None:
    """The allocation that salloc or sbatch has put this process in; None: in none. EngineError: in a step of one."""
    if not (job := environ.get("SLURM_JOB_ID")):
        return None
    if environ.get("SLURM_STEP_ID", _SHELL[0]) not in _SHELL:
        raise EngineError(f"engine slurm: this is a task of srun, in job {job}, and its steps would wait for the "
                          "processors of this one. Launch from the shell of salloc, from a script of sbatch, or from "
                          "a login node.")  # fmt: skip
    state = state_of(job)
    if not state.alive:
        raise EngineError(f"engine slurm: SLURM_JOB_ID names job {job}, which has ended: {state.text}. Unset it.")
    cpus: list[int] = []  # 4, 4, 2 for `4(x2),2`
    for part in filter(None, environ.get("SLURM_JOB_CPUS_PER_NODE", "").split(",")):
        number, _, times = part.rstrip(")").partition("(x")
        cpus += [int(number)] * int(times or 1)
    return Allocated(job, tuple(cpus), state.gpus)


def refuse_small(needs: Resources, allocation: Allocated) -> None:
    """EngineError for the first thing that a plan needs, and an allocation does not have, with both numbers."""
    if needs.servers is not None:
        raise EngineError(f"engine slurm: job {allocation.job} is one allocation, and parameter servers with a node to "
                          "themselves need a heterogeneous job. Launch from a login node, or take "
                          "hosts = [1].")  # fmt: skip
    cores = sorted(allocation.cpus, reverse=True)[: needs.nodes][-1] if allocation.cpus else 0
    for what, where, needed, available in (
        ("node", "", needs.nodes, len(allocation.cpus)),
        ("core", " of each node", needs.tasks * needs.cores, cores),
        ("GPU", "", needs.gpus * needs.nodes, allocation.gpus),
    ):
        if needed > available:
            raise EngineError(f"engine slurm: the plan needs {counted(needed, what)}{where}, and the allocation of job "
                              f"{allocation.job} has {available}. Allocate more, or launch from a login node, which "
                              "submits a job.")  # fmt: skip


#: Intervals (s) at which Slurm is asked for the job, the driver shows that it lives, and a wait is shown as it is.
ASK, SIGN, REMIND = 2.0, 15.0, 300.0

#: How long Slurm may be silent (s); a cancelled step or job may take to be gone, whose ranks end within moments, or are
#: killed after KillWait; and the nodes of an ended job to be cleared, until which Slurm does not say how it ended.
SILENT, GONE, CLEARED = 300.0, 90.0, 40.0

#: A job that runs ends by itself within this time (s), the ranks of a step by SIGTERM; else they are killed.
BY_ITSELF, GENTLY = 2.0, 10.0


@dataclass
class SlurmJob:
    """A job and its folder. `with_servers`: parameter servers have nodes in it.

    `process` performs its script, where the job is an allocation that was there before; None: Slurm does.
    `state` is what Slurm said last, in the last of so many `answers`.
    """

    number: str
    folder: Path
    with_servers: bool = False
    process: subprocess.Popen[bytes] | None = None
    state: JobState = field(default_factory=lambda: JobState("PENDING"))
    steps: int = 0
    answers: int = 0
    _asked: float = 0.0
    _answered: float = field(default_factory=time.monotonic)
    _signed: float = 0.0
    _signs: int = 0
    _silent: bool = False

    def look(self, at_once: bool = False) -> JobState:
        """The state of the job, of which Slurm is asked at most every 2 s; EngineError: it is silent for minutes."""
        now = time.monotonic()
        if now - self._signed > SIGN:
            self._signed, self._signs = now, self._signs + 1
            with contextlib.suppress(OSError):
                (self.folder / "driver").write_text(f"{self._signs}\n", encoding="ascii")
        if at_once or now - self._asked > ASK:
            self._asked = now
            try:
                self.state = state_of(self.number)
            except EngineError as error:
                if now - self._answered > SILENT:
                    raise
                if not self._silent:  # said once for each time of silence
                    again = f"does not answer, and is asked again for {SILENT / 60:.0f} min"
                    sys.stderr.write(f"# Slurm {again}. {error}\n")
                self._silent = True
            else:
                if self._silent:
                    sys.stderr.write("# Slurm answers again\n")
                self._silent = False
                self._answered, self.answers = time.monotonic(), self.answers + 1
        if self.process is not None and self.process.poll() is not None:
            self.state = replace(self.state, state="ENDED", reason=f"exit code {self.process.returncode}", others=False)
        return self.state

    def outcome(self, check: StopCheck) -> JobState:
        """How it ended, once Slurm knows: a job in its last moments is RUNNING beyond its limit, then COMPLETING."""
        began = time.monotonic()
        while (state := self.look(at_once=True)).there:
            if time.monotonic() - began > (GONE if state.alive else CLEARED):
                break
            check()
            time.sleep(0.5)
        return state

    def start(self, text: str, name: str, log: Log) -> SlurmStep:
        """Give it the next step."""
        path = self.folder / f"step-{self.steps}"
        try:
            path.with_suffix(".part").write_text(text, encoding="utf-8")
            path.with_suffix(".part").rename(path)
        except OSError as error:
            raise EngineError(f"engine slurm: {path}: {error.strerror}.") from error
        step = SlurmStep(self, self.steps, name, log)
        self.steps += 1
        return step

    def end(self) -> None:
        """End it, wait until it is gone, and remove its folder; EngineError: it is still there."""
        with contextlib.suppress(OSError):
            (self.folder / "end").touch()
        began, cancelled = time.monotonic(), False
        try:
            while True:
                with contextlib.suppress(EngineError):
                    self.look(at_once=True)
                if not self.state.there:
                    break
                waited = time.monotonic() - began
                if not cancelled and (waited > BY_ITSELF or self.state.state != "RUNNING"):
                    cancelled = self.cancel()
                if waited > GONE:
                    raise EngineError(f"engine slurm: job {self.number} is still {self.state.text}. {self._left}")
                time.sleep(0.2)
        except KeyboardInterrupt as error:
            note = f" Slurm does not answer. {self._left}"
            if self.process is not None:
                self.cancel()
                note = f" Its folder may be left: {self.folder}."
            elif cancel_soon(self.number):
                note = f" Slurm job {self.number} was cancelled; its folder may be left: {self.folder}."
            error.add_note(note)
            raise
        if self.process is not None:
            self.cancel()  # it is left where the allocation ended first
        remove_folder(self.folder)

    def cancel(self) -> bool:
        """End it, whatever it does; within an allocation its script alone. Whether that has been taken."""
        if self.process is None:
            return cancel(self.number)
        with contextlib.suppress(OSError):  # srun ends the step that it waits for
            os.killpg(self.process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(BY_ITSELF)
        return True

    @property
    def _left(self) -> str:
        if self.process is not None:
            return f"End it: kill {self.process.pid}. Its folder is left: {self.folder}."
        return (f"Job {self.number} may be left, and its folder {self.folder}. End it: scancel {self.number}. Without "
                "its driver it ends by itself within minutes; launch --sweep removes the folder.")  # fmt: skip


@dataclass
class SlurmStep:
    """The command that starts a world: a file for the job, which answers with files."""

    job: SlurmJob
    number: int
    name: str
    log: Log
    pid: None = None  # on other machines
    _read: int = 0
    _lines: Lines = field(init=False)
    _code: int | None = None

    def __post_init__(self) -> None:
        self._lines = Lines(self.log.longest)

    @property
    def code(self) -> int | None:
        """Its exit code, once it has ended; its output so far goes to the log."""
        self.job.look()
        if self._code is None:
            with contextlib.suppress(OSError, ValueError):
                self._code = int((self.job.folder / f"code-{self.number}").read_text(encoding="ascii"))
        self._follow(last=self._code is not None)
        return self._code

    @property
    def ended(self) -> bool:
        return self._code is not None

    @property
    def how(self) -> str:
        cause = of_srun(self.log.lines)
        return f"srun ended with exit code {self._code}{f': {cause}' if cause else ''}"

    def _follow(self, last: bool) -> None:
        with contextlib.suppress(OSError), (self.job.folder / f"log-{self.number}").open("rb") as file:
            file.seek(self._read)
            while chunk := file.read(1 << 20):
                self._read += len(chunk)
                self.log.add(True, *self._lines.of(chunk))
        if last:
            self.log.add(True, *self._lines.last())

    def end(self) -> None:
        """Cancel what runs of it, and wait until the job says that it has ended; else the job is cancelled."""
        began = time.monotonic()
        while self.code is None and self.job.look().alive:
            waited = time.monotonic() - began
            with contextlib.suppress(EngineError):
                steps = ask("squeue", "--steps", f"--jobs={self.job.number}", "--noheader", "--format=%i %j")
                for number, _, name in (line.strip().partition(" ") for line in steps.splitlines()):
                    if name == self.name:
                        ask("scancel", *(["--signal=TERM"] if waited < GENTLY else []), number)
            if waited > GONE:
                self.job.cancel()
                return
            time.sleep(0.2)


def submitted(script: str, folder: Path, with_servers: bool = False) -> SlurmJob:
    """A job that waits in Slurm's queue; EngineError: Slurm rejects it, or the folder cannot be made."""
    _furnish(script, folder)
    try:
        number = ask("sbatch", "--parsable", text=script).strip().partition(";")[0]  # ID, or ID;CLUSTER
    except EngineError:
        remove_folder(folder)
        raise
    (folder / "number").write_text(number, encoding="ascii")
    return SlurmJob(number, folder, with_servers)


def in_allocation(script: str, folder: Path, number: str) -> SlurmJob:
    """The allocation of this number, in which the script begins at once. `sweep` finds no number, and cancels none."""
    _furnish(script, folder)
    try:
        with (folder / "job.log").open("wb") as log:
            process = subprocess.Popen(("bash", str(folder / "job.sh")), stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=log, start_new_session=True)  # fmt: skip
    except OSError as error:
        remove_folder(folder)
        raise EngineError(f"engine slurm: bash: {error.strerror}.") from error
    return SlurmJob(number, folder, process=process)


def _furnish(script: str, folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True)
        (folder / "driver").write_text("0\n", encoding="ascii")
        (folder / "job.sh").write_text(script, encoding="utf-8")
    except OSError as error:
        raise EngineError(f"engine slurm: folder {folder}: {error.strerror}. Name another in the site file.") from error


#: Ends every message on a folder that is not the same everywhere.
SHARED = "Is folder in the site file one that every node sees under this path?"

#: Reasons for which a job waits until somebody changes it, or the cluster, and what would help (names: squeue(1)).
_NEVER = {
    r"PartitionNodeLimit|PartitionConfig": "the partition does not have so many nodes for a job: see sinfo",
    r"PartitionTimeLimit": "time in the site file is more than the partition allows: see sinfo --format='%P %l'",
    r"JobHeld(User|Admin)": "the job is held: options in the site file, or who runs the site, can say why",
    r"BadConstraints": "no nodes have what options in the site file ask for",
    r"DependencyNeverSatisfied": "what it depends on has failed: see options in the site file",
    r"(Account|QOS)NotAllowed|InvalidAccount|InvalidQOS": "see --account and --qos in options of the site file",
    r"(Assoc|QOS)\w*PerJob\w*|QOSTimeLimit": "a job of this account may not have so much: see sacctmgr show assoc, qos",
}


def wait_for_nodes(job: SlurmJob, check: StopCheck) -> None:
    """Until the job runs and has seen its folder; what Slurm says meanwhile is printed. EngineError: it never will.

    A reason for which it would wait for ever is one that Slurm gives twice: the first is often a provisional one.
    """
    last, began, shown, running, first = "", time.monotonic(), time.monotonic(), 0.0, 0
    while not (job.folder / "nodes").exists():
        check()
        os.listdir(job.folder)  # noqa: PTH208 - a folder over a network then shows what is new
        state, now = job.look(), time.monotonic()
        if state.text != last or now - shown > REMIND:
            waited = f", after {(now - began) / 60:.0f} min" if state.text == last else ""
            sys.stderr.write(f"# Slurm job {job.number}: {state.text}{waited}\n")
            first = first if state.text == last else job.answers
            last, shown = state.text, now
        what = f"engine slurm: job {job.number}"
        if not state.alive:
            raise EngineError(f"{what} ended before it began: {state.text}{_end_of_log(job, state)}")
        if job.answers > first and state.state == "PENDING":
            for reason, advice in _NEVER.items():
                if re.fullmatch(reason, state.reason):
                    raise EngineError(f"{what} will not begin: {state.text}: {advice}.")
        running = running or (now if state.state == "RUNNING" else 0.0)
        if running and now - running > GONE:
            raise EngineError(f"{what} runs, and nothing comes from it in {job.folder}. {SHARED}")
        time.sleep(0.1)


def _end_of_log(job: SlurmJob, state: JobState) -> str:
    """What the job printed; one that failed and has no log did not find its folder."""
    try:
        lines = telling((job.folder / "job.log").read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return f" in {job.folder}. {SHARED}" if state.state == "FAILED" else ""
    return f": {'; '.join(lines[-MOST_LINES:])}" if lines else ""
