"""What would spoil a measurement on this machine: checks, what they may look at, and what they say.

A check is a function with the decorator `check`, of a `Machine`, in processors.py, gpus.py or mpi.py. It returns a
`Finding`: what it saw, and each problem with its cause, its effect on a measurement and its fix. `clusters.py` has the
checks of a cluster, from where jobs are submitted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from collbench.errors import RequestError, suggestion
from collbench.machine.cgroup import status_of, text_of
from collbench.machine.facts import container, thread_siblings
from collbench.machine.launcher import Launcher, detect
from collbench.units import parse_spans

if TYPE_CHECKING:
    from collbench.analysis.planning import Cost

Severity = Literal["unknown", "warn", "fail"]
CheckStatus = Literal["ok", "unknown", "warn", "fail"]

#: From harmless to worst. `warn`: a measurement works, and may mislead. `fail`: it does not work, or measures the wrong
#: thing.
STATUSES: tuple[CheckStatus, ...] = ("ok", "unknown", "warn", "fail")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. `fix` begins with a command or flag that can be typed as it is."""

    severity: Severity
    cause: str
    effect: str
    fix: str


@dataclass(frozen=True)
class Finding:
    """What one check observed, in one line, and what is wrong with it. `cost`: launches that this may cost."""

    observed: str
    problems: tuple[Problem, ...] = ()
    cost: Cost | None = None

    @property
    def status(self) -> CheckStatus:
        """That of the worst problem; `ok` where there is none."""
        return max((problem.severity for problem in self.problems), key=STATUSES.index, default="ok")


def finding(observed: str, *problems: Problem | None) -> Finding:
    """A finding with those problems that are not None."""
    return Finding(observed, tuple(problem for problem in problems if problem is not None))


#: Variables in which launchers say how many ranks they started on this machine.
_LOCAL_SIZE = ("OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE")

#: How the names of processes begin that start ranks.
_LAUNCHERS = ("mpirun", "mpiexec", "prte", "orte", "hydra_", "slurmstepd", "torchrun", "pt_elastic")

_CPUS_ONLINE = "sys/devices/system/cpu/online"


@dataclass(frozen=True)
class ProgramOutput:
    """What a program left: exit code, and standard output and error together."""

    code: int
    text: str


def execute(argv: tuple[str, ...], limit: float = 10.0) -> ProgramOutput:
    """Run a program in a session of its own (else OSError); after the limit (s) it is killed with all its children."""
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            text, _ = process.communicate(timeout=limit)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise TimeoutError(f"{argv[0]} did not end within {limit:g} s") from error
            raise
    return ProgramOutput(process.returncode, text.decode("utf-8", "replace"))


@dataclass(frozen=True)
class Machine:
    """What a check may look at: `here`, or a folder in tests. `user`: effective id; `container`: None on a host."""

    root: Path
    environ: Mapping[str, str]
    launcher: Launcher
    user: int
    container: str | None
    execute: Callable[[tuple[str, ...]], ProgramOutput] = execute

    def path(self, name: str) -> Path:
        """Where `name`, given from the root without a leading slash, is."""
        return self.root / name

    def read(self, name: str) -> str | None:
        """A file's text without surrounding blanks; None where it cannot be read."""
        return text_of(self.path(name))

    def which(self, program: str) -> str | None:
        """The program's path, by this machine's PATH."""
        return shutil.which(program, path=self.environ.get("PATH", ""))

    @property
    def ranks(self) -> int | None:
        """Ranks that the launcher started on this machine (in this container); None without a launcher."""
        if self.launcher.kind == "none":
            return None
        sizes = (self.environ.get(name, "") for name in _LOCAL_SIZE)
        return next((int(size) for size in sizes if size.isdecimal()), self.launcher.size)

    @property
    def online(self) -> frozenset[int]:
        """The cores of the machine that are online; OSError where the kernel does not say."""
        if (text := self.read(_CPUS_ONLINE)) is None:
            raise OSError(f"/{_CPUS_ONLINE} cannot be read")
        return parse_spans(text)

    @property
    def cpu_flags(self) -> frozenset[str]:
        """What the first processor can do, as the kernel calls it (`avx2`); empty where it does not say."""
        lines = (line.partition(":") for line in (self.read("proc/cpuinfo") or "").splitlines())
        flags = (value for name, _, value in lines if name.strip() in ("flags", "Features"))
        return frozenset(next(flags, "").split())

    def status(self, process: str = "self") -> dict[str, str]:
        """What the kernel says of a process, by name; empty where it does not say."""
        return status_of(self.read(f"proc/{process}/status"))

    def allowed(self, process: str = "self") -> frozenset[int]:
        """The online ones of those cores that the kernel allows a process (others may be listed), else OSError."""
        if (text := self.status(process).get("Cpus_allowed_list")) is None:
            raise OSError(f"/proc/{process}/status does not say which cores may be used")
        return parse_spans(text) & self.online

    @property
    def launcher_cores(self) -> frozenset[int] | None:
        """The cores of the process that started this rank and bound it; None where that process cannot be seen."""
        process = self.status().get("PPid", "0")
        while process not in ("", "0"):
            status = self.status(process)
            if status.get("Name", "").startswith(_LAUNCHERS):
                return self.allowed(process)
            process = status.get("PPid", "0")
        return None

    def physical(self, cores: frozenset[int]) -> int:
        """The number of physical cores among `cores`, which may be hardware threads."""
        return len({thread_siblings(core, self.root)[0] for core in cores})


def here() -> Machine:
    """The machine that this process runs on."""
    return Machine(Path("/"), dict(os.environ), detect(), os.geteuid(), container())


# Checks ---------------------------------------------------------------------------------------------------------------

Check = Callable[[Machine], Finding]
Function = TypeVar("Function", bound=Check)

CHECKS: dict[str, Check] = {}  #: Every check that has been imported, by the name of its function.


def check(function: Function) -> Function:
    """A check of the machine; its name is that of the function. What it measures may be given to it instead."""
    CHECKS[function.__name__] = function
    return function


def checks() -> dict[str, Check]:
    """Every check by its name, in alphabetical order."""
    for module in ("gpus", "mpi", "processors"):
        import_module(f"{__name__}.{module}")
    return dict(sorted(CHECKS.items()))


def examine(machine: Machine, without: tuple[str, ...] = ()) -> Iterator[tuple[str, Finding]]:
    """Every check by name with its finding; one that raises is `unknown`. RequestError of others in `without`."""
    every = checks()
    for name in without:
        if name not in every:
            raise RequestError(f"doctor --without {name}: no such check. {suggestion(name, tuple(every))}")
    for name in sorted(every.keys() - without):
        try:
            seen = every[name](machine)
        except Exception as error:
            cause = f"{type(error).__name__}: {error}".strip().rstrip(":")
            effect = "not known: what this check looks at may spoil a measurement, or not"
            program = f"from collbench.doctor import checks, here; checks()['{name}'](here())"
            fix = f'python -c "{program}" shows where it failed'
            seen = finding("the check itself failed", Problem("unknown", cause, effect, fix))
        yield name, seen


@dataclass(frozen=True)
class BackendHere:
    """A backend that measures, with name and version of its libraries; `missing` says why it cannot be used here."""

    name: str
    libraries: tuple[str, ...] = ()
    missing: str | None = None
    needs_gpu: bool = False


def backends_here() -> tuple[BackendHere, ...]:
    """Every backend but those that simulate."""
    from collbench import backends
    from collbench.machine import nvml

    rows = []
    for backend in (backend for backend in backends.every() if not backend.simulated):
        on_gpu, libraries, reason = backend.device == "gpu", tuple[str, ...](), backends.missing(backend.name)
        if reason is None and on_gpu and not nvml.gpus()[0]:  # of several ranks others may have one
            reason = "no NVIDIA GPU on this machine"
        try:
            if reason is None:
                libraries = tuple(f"{library.name} {library.version}" for library in backend.libraries())
        except Exception as error:  # some libraries are missed only when they are loaded
            reason = f"{type(error).__name__}: {error}"
        rows.append(BackendHere(backend.name, libraries, reason, on_gpu))
    return tuple(rows)
