"""What starts containers on the nodes of a cluster: a table. All of them share everything but files and user IDs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from collbench.launch.starters.starter import Argv


@dataclass(frozen=True)
class Runtime:
    """How a runtime starts a task in a container.

    `flags(image, folder, name)` are given to srun, `prefix(image, folder, ranks)` stands before the command of every
    task; `ranks` are those of a node that share the container, 1: none do. `policies` are those that it can do, and
    `instead` says what can do the others. `lacks` are variables without which ranks in several containers of a node
    fail, by library.
    """

    name: str
    policies: tuple[str, ...]
    flags: Callable[[str, str, str], Argv] = lambda image, folder, name: ()
    prefix: Callable[[str, str, int], Argv] = lambda image, folder, ranks: ()
    instead: str = ""


def _pyxis(image: str, folder: str, name: str) -> Argv:
    """One container for each node and step; its name keeps the unpacked image for the other steps of the job."""
    return (f"--container-image={image}", f"--container-mounts={folder}:{folder}", f"--container-name={name}",
            "--no-container-mount-home")  # fmt: skip


def _charliecloud(image: str, folder: str, ranks: int) -> Argv:
    join = () if ranks == 1 else ("--join", f"--join-ct={ranks}")
    return ("ch-run", *join, f"--bind={folder}", "--set-env", image, "--")


def _apptainer(image: str, folder: str, ranks: int) -> Argv:
    return ("apptainer", "exec", "--bind", folder, image)


RUNTIMES = {
    runtime.name: runtime
    for runtime in (
        Runtime("none", (), instead="set runtime in the site file: pyxis, charliecloud or apptainer"),
        Runtime(
            "pyxis", ("multi",), flags=_pyxis,
            instead="pyxis gives all tasks of a node one container; charliecloud and apptainer give each its own",
        ),
        Runtime(
            "charliecloud", ("multi", "single"), prefix=_charliecloud,
            instead="it makes one container for each rank, or one for all of a node",
        ),
        Runtime(
            "apptainer", ("single",), prefix=_apptainer,
            instead="apptainer exec makes a container for each rank; pyxis and charliecloud share one on a node",
        ),
    )
}  # fmt: skip

#: Without it UCX opens the shared memory of another rank through /proc, which containers with user namespaces of their
#: own refuse: MPICH 5.0.2 prints errors, and aborts with two ranks on each of two nodes.
WITHOUT_PROC_LINKS = {"UCX_POSIX_USE_PROC_LINK": "n"}


def names() -> tuple[str, ...]:
    return tuple(RUNTIMES)
