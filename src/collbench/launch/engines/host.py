"""Engine `host`: no containers: commands of an environment on this machine that holds the same library as an image."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from collbench.errors import PlanError
from collbench.launch import processes, starters
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.ladder import Ladder
from collbench.launch.engines.spec import Look, Looks, WorldSpec
from collbench.launch.log import Log
from collbench.launch.placing import Placement
from collbench.launch.probe import Contents
from collbench.launch.processes import HostProcess
from collbench.launch.rank_environment import variables
from collbench.launch.starters.starter import Argv
from collbench.launch.stopping import StopCheck
from collbench.launch.sweep import sweep_folders
from collbench.machine import facts, topology
from collbench.machine.topology import Topology
from collbench.schema.launch_plan import LaunchPlan

#: Longest wait for an environment to say what it holds (s).
ANSWER = 60.0


@dataclass(frozen=True)
class HostEngine:
    """The machine that the driver is on."""

    name: str = "host"
    ladder: Ladder = ()
    starts_ranks: bool = False
    start_seconds: tuple[float, float] = (0.7, 0.0)  # seen on two cores

    def machine(self) -> Topology:
        """What this process may use of it."""
        return topology.here()

    def container(self, box: str) -> str | None:
        """The one that this process is in, if it is in one."""
        return facts.container()

    def user(self) -> tuple[int, int]:
        """The driver's own."""
        return os.getuid(), os.getgid()

    def render(self, world: WorldSpec) -> tuple[str, ...]:
        """The launcher's command."""
        folders, stack, cell = world.folders, world.stack, world.cell
        program = ("collbench", "run", str(folders.plan), "--out", str(folders.out))
        told = shlex.join(f"{name}={value}" for name, value in environment_of(world).items())
        argv = shlex.join(stack.starter.local(cell.ranks, world.placement.crowded, program))
        return (f"env PATH={stack.reference}/bin:$PATH {told} {argv}",)

    def connect(self, address: str, check: StopCheck) -> HostSession:
        """It is there."""
        return HostSession(check)


@dataclass(frozen=True)
class HostSession:
    """The environments of a machine, asked. `check` raises when we are to stop."""

    check: StopCheck
    title: str = ""
    run: str = "host"

    def cleaned(self) -> contextlib.AbstractContextManager[None]:
        """Processes end with their world, or with the driver: nothing is left to be looked for."""
        return contextlib.nullcontext()

    def look(self, plan: LaunchPlan, placements: Mapping[LaunchCell, Placement], vendors: Mapping[str, str]) -> Looks:
        """What the environment beside each image holds: the library that the image does, or that its name says.

        Raises:
            PlanError: it holds another, or none.
        """
        looks = {}
        for image in dict.fromkeys(cell.image for cell in placements):
            self.check()
            looks[image] = _beside(plan, image, vendors.get(image) or _vendor_in(image))
        return Looks(looks)

    def ready(self) -> None:
        """Always."""

    @contextlib.contextmanager
    def open(self, world: WorldSpec) -> Iterator[HostWorld]:
        """Processes on this machine; all of them are ended."""
        opened = HostWorld(world)
        try:
            yield opened
        finally:
            for process in opened.started:
                process.end()

    def sweep(self) -> tuple[list[str], list[str]]:
        """Temporary folders: processes end with their driver."""
        return sweep_folders(set()), []


@dataclass(frozen=True)
class HostWorld:
    """All ranks in one place."""

    world: WorldSpec
    started: list[HostProcess] = field(default_factory=list)

    @property
    def hosts(self) -> tuple[tuple[str, int], ...]:
        """One."""
        return (("localhost", self.world.cell.ranks),)

    @property
    def program(self) -> Argv:
        """The environment's own interpreter, whatever PATH says."""
        folders = self.world.folders
        python = str(Path(self.world.stack.reference) / "bin" / "python")
        return (python, "-m", "collbench", "run", str(folders.plan), "--out", str(folders.out), "--style", "csv")

    @property
    def environment(self) -> dict[str, str]:
        """What ranks are told."""
        return environment_of(self.world)

    def execute(self, host: str, argv: Argv, environment: dict[str, str], log: Log) -> HostProcess:
        """Start a program of the environment."""
        programs = Path(self.world.stack.reference) / "bin"
        path = f"{programs}:{os.environ.get('PATH', '')}"
        found = processes.execute((str(programs / argv[0]), *argv[1:]), {**environment, "PATH": path}, log)
        self.started.append(found)
        return found

    def died(self) -> str | None:
        """Never: this process would be gone too."""
        return None


def environment_of(world: WorldSpec) -> dict[str, str]:
    """What ranks are told, and as root Open MPI wants to be told twice.

    What the library keeps while it runs (Open MPI's session folder stays when its daemon is killed) goes to the
    launch's folder, which is removed with it.
    """
    told = variables(world.cell, world.placement, world.stack)
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.getuid() == 0 else {}
    temporary = {"TMPDIR": str(world.folders.plan.parent)}
    return told | root | temporary


def _beside(plan: LaunchPlan, image: str, wanted: str) -> Look:
    where = find_environment(image, plan.environments.get(image))
    found = probe(where, wanted)
    if found.vendor != wanted:
        raise PlanError(
            f"policy host: image {image} stands for {wanted}, and the environment {where} holds "
            f"{found.vendor or 'no library that can be started'}. Name one that holds the same: "
            f'environments = {{ {image} = "PATH" }}; or make one (python3 -m venv .venvs/{image} && '
            f".venvs/{image}/bin/pip install 'collbench[{wanted}]', in a clone '.[{wanted}]'); or leave host out."
        )
    return Look(found, str(where), f"the environment beside {image} ({where})")


def _vendor_in(image: str) -> str:
    """Which library an image stands for where no engine is asked: its name has to say it."""
    found = [vendor for vendor in starters.names() if vendor in image]
    if not found:
        raise PlanError(
            f"image {image!r}: no container is asked for, so its name must say which library the host is to use: "
            f"{', '.join(starters.names())}."
        )
    return found[0]


def find_environment(image: str, given: str | None) -> Path:
    """The environment beside an image: the plan's, else `.venvs/IMAGE`, else the one that this program runs in.

    Raises:
        PlanError: the plan names one that is none.
    """
    if given is not None:
        found = Path(given).expanduser()
        if not (found / "bin" / "python").exists():
            raise PlanError(f"environments: {image}: {given} has no bin/python. Name a virtual environment.")
        return found.absolute()
    beside = Path(".venvs") / image
    return beside.absolute() if (beside / "bin" / "python").exists() else Path(sys.prefix)


def probe(environment: Path, vendor: str = "") -> Contents:
    """What an environment holds; with vendor `torch`, what torch ranks use there, though there be an MPI too.

    Raises:
        PlanError: collbench is not installed there, or it does not answer.
    """
    more = ("--torch",) if vendor == "torch" else ()
    argv = (str(environment / "bin" / "python"), "-m", "collbench.launch.probe", *more)
    try:
        done = subprocess.run(argv, capture_output=True, timeout=ANSWER, check=False, cwd="/")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlanError(f"environment {environment}: {error}.") from error
    try:
        found = msgspec.json.decode(done.stdout, type=Contents)
    except msgspec.DecodeError as error:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise PlanError(
            f"environment {environment}: does not say what it holds ({said[-1] if said else error}). "
            "Install collbench of this version there."
        ) from error
    if found.another is not None:
        raise PlanError(f"environment {environment}: {found.another}. Install collbench of this version there.")
    return found


ENGINE = HostEngine()
