"""Engine `host`: no containers: commands of an environment on this machine that holds the same library as an image."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from collbench.launch import job
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.host.environments import look_beside
from collbench.launch.engines.spec import Engine, Looks, WorldSpec
from collbench.launch.folders import Folders, sweep_folders
from collbench.launch.job import HostProcess
from collbench.launch.launchers import Argv
from collbench.launch.placement import Placement
from collbench.launch.rank_environment import variables
from collbench.launch.waiting import Log, StopCheck
from collbench.schema.plan import LaunchPlan


def commands(world: WorldSpec) -> tuple[str, ...]:
    """The command that a person would type. Pure."""
    stack, cell = world.stack, world.cell
    program = ("collbench", *_run(world.folders))
    variables = shlex.join(f"{name}={value}" for name, value in environment_of(world).items())
    argv = shlex.join(stack.launcher.local(cell.ranks, world.placement.crowded, program))
    links = stack.overrides.links(_libraries(world))
    return (*links, f"env PATH={stack.reference}/bin:$PATH {variables} {argv}")


@dataclass(frozen=True)
class HostSession:
    """The environments of this machine. `check` raises when we are to stop."""

    check: StopCheck
    title: str = ""
    run: str = "host"
    folder: Path | None = None

    def close(self, at_once: bool) -> None:
        """Processes end with their world, or with the driver: nothing can be left."""

    def look(self, plan: LaunchPlan, placements: Mapping[LaunchCell, Placement], vendors: Mapping[str, str]) -> Looks:
        """What the environment beside each image holds.

        Raises:
            PlanError: it holds another library than the image, or none.
        """
        looks = {}
        for image in dict.fromkeys(cell.image for cell in placements):
            self.check()
            looks[image] = look_beside(plan, image, vendors.get(image, ""))
        return Looks(looks)

    def ready(self) -> None:
        """It always is."""

    @contextlib.contextmanager
    def open(self, world: WorldSpec) -> Iterator[HostWorld]:
        """Processes on this machine; all of them are ended."""
        given, folder = world.stack.overrides, _libraries(world)
        if given.libraries:
            given.link(folder)
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
        return (("localhost", self.world.cell.ranks),)

    @property
    def program(self) -> Argv:
        """The environment's own interpreter, whatever PATH says."""
        python = str(Path(self.world.stack.reference) / "bin" / "python")
        return (python, "-m", "collbench", *_run(self.world.folders), "--style", "csv")

    def execute(self, host: str, argv: Argv, environment: dict[str, str], log: Log) -> HostProcess:
        programs = Path(self.world.stack.reference) / "bin"
        path = f"{programs}:{os.environ.get('PATH', '')}"
        program = shutil.which(argv[0], path=path) or argv[0]  # an MPI of the system has its launcher elsewhere
        process = job.execute((program, *argv[1:]), {**environment_of(self.world), **environment, "PATH": path}, log)
        self.started.append(process)
        return process

    def died(self) -> str | None:
        """The host does not die alone: this process would be gone too."""
        return None


def _run(folders: Folders) -> Argv:
    """What a rank runs."""
    turns = () if folders.turns is None else ("--turns", str(folders.turns))
    return ("run", str(folders.plan), "--placement", str(folders.placement), "--out", str(folders.out), *turns)


def environment_of(world: WorldSpec) -> dict[str, str]:
    """Variables of the ranks.

    What the library keeps while it runs (Open MPI's session folder stays when its daemon is killed) goes to the
    launch's folder, which is removed with it. Open MPI's mpirun starts something for root only where told to.
    """
    temporary = {"TMPDIR": str(world.folders.plan.parent)}
    in_front = world.stack.overrides.on_host(_libraries(world))
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.getuid() == 0 else {}
    return variables(world.cell, world.placement, world.stack) | root | temporary | in_front


def _libraries(world: WorldSpec) -> Path:
    """The folder of links to the plan's libraries, which is removed with the launch."""
    return world.folders.plan.parent / "lib"


#: `start_seconds` were seen on two cores.
ENGINE = Engine("host", lambda plan, check: HostSession(check), (0.7, 0.0), local=True, commands=commands)
