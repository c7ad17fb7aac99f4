"""Engine `host`: no containers: commands of an environment on this machine that holds the same library as an image."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from collbench import workloads
from collbench.errors import PlanError
from collbench.launch import job, launchers
from collbench.launch.cells import LaunchCell, communicates
from collbench.launch.engines.spec import Engine, Look, Looks, WorldSpec
from collbench.launch.expansion import variables
from collbench.launch.folders import Folders, signed_folder, sweep_folders
from collbench.launch.job import HostProcess, end_with_parent
from collbench.launch.launchers import Argv
from collbench.launch.overrides import LIBRARY_PATH, NO_OVERRIDES, Overrides, overrides_of
from collbench.launch.placement import Placement
from collbench.launch.probe import Contents
from collbench.launch.waiting import Log, StopCheck
from collbench.registry import dockerfiles, source_tree
from collbench.schema.plan import Plan, named_sides

#: Where the environment beside an image is, under the image's name, from the working directory.
ENVIRONMENTS = Path(".venvs")

#: Longest wait for an environment to say what it holds (s).
ANSWER = 60.0


def commands(world: WorldSpec) -> tuple[str, ...]:
    stack, program = world.stack, ("collbench", *_run(world.folders))
    variables = shlex.join(f"{name}={value}" for name, value in environment_of(world).items())
    argv = shlex.join(stack.launcher.local(world.cell.ranks, world.placement.crowded, program))
    path = f"PATH={shlex.quote(stack.reference)}/bin:$PATH"
    return (*stack.overrides.links(_libraries(world)), f"env {path} {variables} {argv}")


@dataclass(frozen=True)
class HostSession:
    """The environments of this machine. `check` raises when we are to stop."""

    check: StopCheck
    title: str = ""
    run: str = "host"
    folder: Path | None = None

    def look(self, plan: Plan, placements: Mapping[LaunchCell, Placement], vendors: Mapping[str, str]) -> Looks:
        looks = {}
        for image in dict.fromkeys(cell.image for cell in placements):
            self.check()
            with named_sides([*dict.fromkeys(cell.side for cell in placements if cell.image == image)]):
                looks[image] = look_beside(plan, image, vendors.get(image, ""))
        return Looks(looks, remarks=tuple(filter(None, (_foreign(plan, look) for look in looks.values()))))

    def ready(self) -> None: ...

    @contextlib.contextmanager
    def open(self, world: WorldSpec) -> Iterator[HostWorld]:
        """Processes on this machine; all of them are ended."""
        world.stack.overrides.link(_libraries(world))
        python = _python_of(Path(world.stack.reference))
        program = (python, "-m", "collbench", *_run(world.folders), "--style", "csv")
        opened = HostWorld(world, (("localhost", world.cell.ranks),), program)
        try:
            yield opened
        finally:
            for process in opened.started:
                process.end()

    def close(self, at_once: bool) -> None:
        """Processes end with their world, or with the driver: nothing can be left."""

    def sweep(self) -> tuple[list[str], list[str]]:
        """Temporary folders: processes end with their driver."""
        return sweep_folders(set()), []


@dataclass(frozen=True)
class HostWorld:
    """All ranks in one place, started by the environment's own interpreter, whatever PATH says."""

    world: WorldSpec
    hosts: tuple[tuple[str, int], ...]
    program: Argv
    started: list[HostProcess] = field(default_factory=list)

    def execute(self, host: str, argv: Argv, environment: dict[str, str], log: Log) -> HostProcess:
        variables = {**environment_of(self.world), **environment}
        path = f"{Path(self.world.stack.reference) / 'bin'}:{variables.get('PATH', os.environ.get('PATH', ''))}"
        program = shutil.which(argv[0], path=path) or argv[0]  # an MPI of the system has its launcher elsewhere
        process = job.execute((program, *argv[1:]), variables | {"PATH": path}, log)
        self.started.append(process)
        return process

    def died(self) -> str | None:
        """The host does not die alone: this process would be gone too."""
        return None


def _run(folders: Folders) -> Argv:
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


def look_beside(plan: Plan, image: str, in_image: str) -> Look:
    """What the environment beside an image holds. `in_image` is the library in the image; empty: nobody looked.

    Raises:
        PlanError: it holds another library than the image, or it is not known which one the image holds. Behind MPI's
            ABI another one may stand: ranks are then started as that one's are, by the environment's own mpirun.
    """
    environment, before = find_environment(image, plan.environments.get(image)), os.environ.get(LIBRARY_PATH, "")
    vendor = in_image if communicates(plan) else ""
    if communicates(plan) and not in_image:  # no engine was asked, so that the image's name has to say it
        vendor = next((vendor for vendor in launchers.names() if vendor in image), "")
        if not vendor:
            raise PlanError(f"image {image!r}: the plan has no containers, so the image's name must say which library "
                            f"the host is to use: {', '.join(launchers.names())}.")  # fmt: skip
    contents = probe(environment, vendor, workloads.uses(plan.benchmarks), overrides_of(plan, before))
    if vendor and contents.vendor != vendor and not replaces_abi(plan):
        own = image not in plan.environments and not (ENVIRONMENTS / image).exists()
        lacking = f". There is no {ENVIRONMENTS / image} in this folder, and collbench's own" if own else ", and the"
        make = f"; or make one (collbench image build {image} --with-environment)" if image in dockerfiles() else ""
        raise PlanError(
            f"policy host: image {image} stands for {vendor}{lacking} environment {environment} holds "
            f"{contents.vendor or 'no library that can be started'}. Name one that holds the same: "
            f'environments = {{ "{image}" = "PATH" }}{make}; or leave host out.'
        )
    return Look(contents, str(environment), f"the environment beside {image} ({environment})", library_path=before)


def _foreign(plan: Plan, look: Look) -> str:
    """That ranks of an environment load the MPI of another one, as where mpi4py was built there; empty: they do not."""
    path = Path(next((library.path for library in look.contents.libraries if library.path), "/"))
    home = next((folder for folder in path.parents if (folder / "pyvenv.cfg").exists()), None)
    given = {Path(file).resolve() for file in (*plan.libraries, *plan.preload)}
    if home is None or home.resolve() == Path(look.reference).resolve() or path.resolve() in given:
        return ""
    return f"{look.title}: its library is {path}, of another environment"


def replaces_abi(plan: Plan) -> bool:
    """Whether a library that the plan puts in front is an MPI with the ABI of MPI 5, in place of the environment's."""
    return any(Path(path).name.startswith("libmpi_abi.so") for path in (*plan.libraries, *plan.preload))


def find_environment(image: str, folder: str | None) -> Path:
    """The environment beside an image: the plan's, else `.venvs/IMAGE`, else the one that this program runs in."""
    if folder is not None:
        named = Path(folder).expanduser()
        if not (named / "bin" / "python").exists():
            raise PlanError(f"environments: {image}: {folder} has no bin/python. Name a virtual environment.")
        return named.absolute()
    beside = ENVIRONMENTS / image
    return beside.absolute() if (beside / "bin" / "python").exists() else Path(sys.prefix)


def _python_of(environment: Path) -> str:
    """The one that runs this program in its own environment: a system may have python3 alone."""
    return sys.executable if environment == Path(sys.prefix) else str(environment / "bin" / "python")


def probe(
    environment: Path, vendor: str = "", benchmarks: tuple[str, ...] = (), overrides: Overrides = NO_OVERRIDES
) -> Contents:
    """What an environment holds; with vendor `torch`, what torch ranks use there, though there be an MPI too.

    `overrides` is what a plan sets for its ranks, and so for this. PlanError: no collbench there, or no answer.
    """
    clone = source_tree()
    source = shlex.quote(str(clone)) if (clone / "src").is_dir() else "WHEEL"
    install = f"Install this collbench there: {environment}/bin/pip install --force-reinstall --no-deps {source}"
    flags = ("--torch",) if vendor == "torch" else ()
    argv = (_python_of(environment), "-m", "collbench.launch.probe", *flags, *benchmarks)
    try:
        with signed_folder(None) as folder:
            overrides.link(folder / "lib")
            variables = {**os.environ, **overrides.variables, **overrides.on_host(folder / "lib")}
            done = subprocess.run(
                argv, capture_output=True, timeout=ANSWER, check=False, cwd="/", env=variables,
                start_new_session=True, preexec_fn=end_with_parent,  # Ctrl-C ends the driver, at a safe point
            )  # fmt: skip
        contents = msgspec.json.decode(done.stdout, type=Contents)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlanError(f"environment {environment}: {error}.") from error
    except msgspec.DecodeError as error:
        why = (done.stderr.decode("utf-8", "replace").strip().splitlines() or [str(error)])[-1]
        raise PlanError(f"environment {environment}: does not say what it holds ({why}). {install}") from error
    if contents.another is not None:
        raise PlanError(f"environment {environment}: {contents.another}. {install}")
    return contents


#: `start_seconds` were seen on two cores.
ENGINE = Engine("host", lambda plan, check: HostSession(check), (0.7, 0.0), local=True, commands=commands)
