"""Who started this process, the signals that may end it, and the variables that it sets; before any library begins."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from collbench.errors import RequestError

LauncherKind = Literal["openmpi", "mpich", "intelmpi", "torchrun", "slurm", "none"]

_TITLE: dict[LauncherKind, str] = {"openmpi": "Open MPI's mpirun", "mpich": "MPICH's mpiexec",
                                   "intelmpi": "Intel MPI's mpiexec", "torchrun": "torchrun", "slurm": "srun",
                                   "none": "no launcher"}  # fmt: skip

#: Those of an MPI: see `starts`.
OF_MPI = ("openmpi", "mpich", "intelmpi")

#: The type of PMI (`srun --mpi=`) by which each library joins the tasks of srun. Wheels have no other.
PMI = {"openmpi": "pmix", "mpich": "pmi2", "intelmpi": "pmi2"}

#: rank, size, local rank: the variables that each launcher sets. mpirun in a Slurm allocation comes before srun.
_VARIABLES: dict[LauncherKind, tuple[str, str, str]] = {
    "openmpi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    "intelmpi": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    "mpich": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    "slurm": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
}


def starts(of_launcher: str, of_library: str) -> bool:
    """Whether one MPI's launcher starts ranks of another's library: both speak one PMI, as MPICH and Intel MPI do."""
    return of_launcher == of_library or PMI.get(of_launcher, of_launcher) == PMI.get(of_library)


@dataclass(frozen=True)
class Launcher:
    """The launcher and the rank that it gave this process. Without a launcher: rank 0 of 1."""

    kind: LauncherKind
    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def title(self) -> str:
        return _TITLE[self.kind]


def detect(environ: Mapping[str, str] = os.environ) -> Launcher:
    """Who started this process, by the variables that each launcher sets."""
    order: tuple[LauncherKind, ...] = tuple(_VARIABLES)
    if "TORCHELASTIC_RUN_ID" in environ:
        order = ("torchrun", *order)  # which mpirun may have started
    if "SLURM_STEP_ID" in environ and "PMI_RANK" in environ and "MPI_LOCALRANKID" not in environ:
        order = ("slurm",)  # srun --mpi=pmi2; hydra, which srun may have started, says the local rank
    for kind in order:
        if kind == "torchrun" and "MASTER_ADDR" not in environ:
            continue  # job scripts set RANK and WORLD_SIZE for other purposes
        if kind == "intelmpi" and "HYDRA_BSTRAP_PROXY_ID" not in environ:
            continue  # MPICH's hydra has the same variables of ranks
        rank, size, local = _VARIABLES[kind]
        with contextlib.suppress(KeyError, ValueError):
            return Launcher(kind, int(environ[rank]), int(environ[size]), int(environ.get(local, "0")))
    return Launcher("none")


def contradiction(environ: Mapping[str, str] = os.environ) -> str | None:
    """How Slurm and its PMI disagree on the rank of this process, which hangs MPI_Init; None where they agree."""
    pmi, slurm = environ.get("PMI_RANK"), environ.get("SLURM_PROCID")
    if detect(environ).kind != "slurm" or pmi is None or pmi == slurm:
        return None
    return (f"PMI_RANK is {pmi} and SLURM_PROCID is {slurm}: what starts the container gives every task the PMI_RANK "
            "of the node's first (enroot's hook 50-slurm-pmi.sh does). Set it in the task: sh -c 'export "
            "PMI_RANK=$SLURM_PROCID; exec \"$@\"' x PROGRAM")  # fmt: skip


_END_ALL = ("openmpi", "torchrun")  #: They end the job when a rank fails; others do so after MPI_Init.


def rank_0_lives(us: Launcher) -> bool:
    """Whether rank 0 is known to run; `us` is another rank. False where rank 0 may be on another machine.

    Rank 0 is searched among the processes that the same parent started. Where the launcher ends the job with its first
    failed rank, any of these is enough: the launcher would have ended them and us.
    """
    if us.rank == 0 or us.kind == "none":
        return False
    siblings = map(detect, _siblings())
    return any(sibling.kind == us.kind and (sibling.rank == 0 or us.kind in _END_ALL) for sibling in siblings)


def _siblings() -> Iterator[dict[str, str]]:
    """The environments of the processes that our parent started, as far as they can be read."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            status = (process / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            if status[0] == "Z" or int(status[1]) != os.getppid() or int(process.name) == os.getpid():
                continue
            variables = (process / "environ").read_bytes().decode("utf-8", "replace").split("\0")
            yield dict(variable.split("=", 1) for variable in variables if "=" in variable)


def started_ranks(backend: str, requested: int | None, how: str) -> int:
    """The number of ranks that the launcher started; RequestError, with `how` to start them, of another number."""
    size = detect().size
    if requested not in (None, size):
        raise RequestError(f"--ranks {requested}: {backend} has as many ranks as its launcher starts ({size} here). "
                           f"Use: {how}")  # fmt: skip
    return size


# Signals and variables ------------------------------------------------------------------------------------------------

#: A terminal that closes, and Ctrl-\\, where the system has them. They stay ignored where they were (by nohup, or a
#: shell).
_MAY_BE_IGNORED = tuple(Signal for Signal in signal.Signals if Signal.name in ("SIGHUP", "SIGQUIT"))
SIGNALS = (signal.SIGINT, signal.SIGTERM, *_MAY_BE_IGNORED)  #: Ctrl-C, kill, and these.
THREADS = "OMP_NUM_THREADS"
OWN = "COLLBENCH_OWN_VARIABLES"  #: Variables that a backend set, not the user; with commas.


def to_handle() -> tuple[signal.Signals, ...]:
    """Those of `SIGNALS` that nobody asked to ignore; Ctrl-C and kill always."""
    ignored = {number for number in _MAY_BE_IGNORED if signal.getsignal(number) is signal.SIG_IGN}
    return tuple(number for number in SIGNALS if number not in ignored)


def own_names(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    return frozenset(filter(None, environ.get(OWN, "").split(",")))


def set_own(variables: Mapping[str, str]) -> None:
    """Set variables, and record that it was not the user."""
    if variables:
        os.environ.update({**variables, OWN: ",".join(sorted(own_names(os.environ) | variables.keys()))})
