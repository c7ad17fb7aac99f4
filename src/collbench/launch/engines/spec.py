"""What an engine is. A launch knows ranks, places and records; an engine starts commands in boxes and removes these.

A box is a container, a pod, or the host itself. A ladder lists the steps of isolation that boxes of an engine can have.

`Engine` is what is known without connecting to it, `LaunchSession` an engine that answers, `OpenWorld` the boxes of one
launch.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from collbench.errors import EngineError, PlanError, suggestion
from collbench.launch import launchers
from collbench.launch.cells import Launch, LaunchCell
from collbench.launch.folders import Folders, Storage
from collbench.launch.launchers import Argv, RankLauncher
from collbench.launch.overrides import NO_OVERRIDES, Overrides
from collbench.launch.placement import Placement
from collbench.launch.probe import Contents
from collbench.launch.waiting import Log, StopCheck
from collbench.machine.facts import Core, Topology, TopologyGpu, topology_here
from collbench.schema.axes import STEPS
from collbench.schema.files import read_toml
from collbench.schema.manifest import Allocation, Host
from collbench.schema.plan import CLUSTERS, Plan, mistake_in


@dataclass(frozen=True)
class Sharing:
    """What the boxes of a world share: the IPC namespace, the network with its hostname, all GPUs.

    `host`: they share it with the host too, whose IPC, PID, network and UTS namespaces they are in. `shm_bytes` is the
    size of a box's /dev/shm; None where it is the host's.
    """

    ipc: bool = True
    net: bool = True
    all_gpus: bool = True
    host: bool = True
    shm_bytes: int | None = None


@dataclass(frozen=True)
class LadderStep:
    """A step of an engine's ladder: `adds` says what it adds to the steps before, `sharing` what is shared then.

    `between`: it adds nothing to a single box, which is at the step before instead.
    """

    name: str
    adds: str
    sharing: Sharing
    between: bool = False


Ladder = tuple[LadderStep, ...]

#: Size of /dev/shm from the step `limits` on, and that of a container otherwise (bytes).
LARGE_SHM, USUAL_SHM = 1 << 30, 64 << 20

_NOTHING = Sharing(ipc=False, net=False, all_gpus=False, host=False, shm_bytes=LARGE_SHM)

#: What containers share at each step.
SHARING = {
    "strict": replace(_NOTHING, shm_bytes=USUAL_SHM),
    "limits": _NOTHING,
    "ipc": replace(_NOTHING, ipc=True),
    "net": replace(_NOTHING, ipc=True, net=True),
    "visible": replace(_NOTHING, ipc=True, net=True, all_gpus=True),
    "files": Sharing(),
}


def ladder_of(*steps: LadderStep) -> Ladder:
    """The ladder with these steps, in the order of `schema.axes.STEPS`, by which runs are read too."""
    return tuple(sorted(steps, key=lambda step: STEPS.index(step.name), reverse=True))


def steps_of(ladder: Ladder, boxes: int, wanted: tuple[str, ...]) -> tuple[str | None, ...]:
    """The steps that differ in worlds of so many boxes, each once; a single None where boxes isolate nothing.

    Where none is wanted it is the most isolated. Those that the ladder lacks are left out.
    """
    if not ladder:
        return (None,)
    steps = [step for name in wanted for step in ladder if step.name == name] if wanted else [ladder[0]]
    if boxes == 1:
        steps = [next(before for before in reversed(ladder[: ladder.index(step) + 1]) if not before.between)
                 for step in steps]  # fmt: skip
    return tuple(dict.fromkeys(step.name for step in steps))


def lacking(ladder: Ladder, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The steps that are wanted and that the ladder lacks; PlanError: no other engine's has them either."""
    steps = tuple(step.name for step in ladder)
    for name in wanted:
        if name not in (*STEPS[1:], *steps):
            raise PlanError(f"isolation {name!r}: unknown. {suggestion(name, steps)}")
    return tuple(dict.fromkeys(name for name in wanted if name not in steps))


@dataclass(frozen=True)
class Stack:
    """The software that a cell runs, by the engine's reference to it: an image's id, an environment's folder.

    `refused`: calls that the library needs to read another rank's memory, and that the engine does not allow without
    SYS_PTRACE. `nccl`: a backend uses NCCL. `grants`: what the engine can give, in its own words.
    `storage_devices`: by storage, where the engine keeps it. `overrides`: what the plan sets for every rank.
    """

    launcher: RankLauncher
    reference: str
    refused: frozenset[str] = frozenset()
    nccl: bool = False
    grants: frozenset[str] = frozenset()
    storage_devices: Mapping[str, str] = field(default_factory=dict)
    overrides: Overrides = NO_OVERRIDES


@dataclass(frozen=True)
class WorldSpec:
    """One launch as an engine is to open it: complete, so that it can also be printed.

    `run` names what one experiment makes, `name` what this launch of it makes, `driver` the process that drives both.
    `storage` lies under the files of its programs; None where they need none.
    """

    run: str
    name: str
    driver: str
    cell: LaunchCell
    placement: Placement
    stack: Stack
    folders: Folders
    user: tuple[int, int]
    storage: Storage | None = None


class Running(Protocol):
    """A command that was started in a box. `code` is None while it runs."""

    @property
    def code(self) -> int | None: ...

    @property
    def how(self) -> str:
        """How it ended, for a message: `ended with exit code 1`."""

    @property
    def pid(self) -> int | None:
        """Its process on this machine, while it runs; None where that is elsewhere or not known."""


class OpenWorld(Protocol):
    """The boxes of a launch while they are there.

    What ranks write must appear in `WorldSpec.folders` while they run, because that is how progress is seen; all of it
    once the world is closed.
    """

    @property
    def hosts(self) -> tuple[tuple[str, int], ...]:
        """Boxes by name, as ranks reach them, with their numbers of ranks, as in the placement; or one name for all."""

    @property
    def program(self) -> Argv:
        """The command of a rank."""

    def execute(self, host: str, argv: Argv, environment: dict[str, str], log: Log) -> Running:
        """Start a command in a box, with variables beside those of the ranks; its lines go to the log."""

    def died(self) -> str | None:
        """Which box died, or that the engine did, for a message; None while all are running."""


@dataclass(frozen=True)
class Look:
    """What an engine knows of an image: its contents, and the reference by which it is started (an id, a folder).

    `title` names it in messages. `id`, `digests` and `labels` go into the manifest. `refused` are calls by which its
    library reads another rank's memory, and that ranks may not make. `grants` are the engine's own words for what it
    can give to boxes; only the engine reads them. `library_path` is the LD_LIBRARY_PATH that ranks find there.
    """

    contents: Contents
    reference: str
    title: str
    id: str | None = None
    digests: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    grants: frozenset[str] = frozenset()
    library_path: str = ""


@dataclass(frozen=True)
class Looks:
    """What is known of each image, and remarks on what the engine cannot give, for readers of the numbers.

    `storage_devices`: by storage, the file system and device that the engine keeps it on. `hosts` are the machines
    that ranks will run on; none: the driver's. `environments` are those beside images, where an engine with
    containers also starts ranks without. `variables` are set for every rank because the site says so. `allocation`:
    what a resource manager gave.
    """

    by_image: dict[str, Look]
    remarks: tuple[str, ...] = ()
    hosts: tuple[Host, ...] = ()
    storage_devices: Mapping[str, str] = field(default_factory=dict)
    environments: Mapping[str, Look] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    allocation: Allocation | None = None


class LaunchSession(Protocol):
    """An engine that answers. What it cannot do raises EngineError."""

    @property
    def title(self) -> str:
        """Its name and version; empty where it makes no containers."""

    @property
    def run(self) -> str:
        """A name for everything that is made over this session."""

    @property
    def folder(self) -> Path | None:
        """Where folders of launches are to be made; None: where this machine has temporary files."""

    def look(self, plan: Plan, placements: Mapping[LaunchCell, Placement], vendors: Mapping[str, str]) -> Looks:
        """Ask every image of these cells what it holds, and try what the engine can give, GPUs too where they get some.

        `vendors` say what other engines found in an image. ImageMissing, PlanError: an image or environment is not
        there, or holds something else.
        """

    def ready(self) -> None:
        """Before a launch: wait for an engine that restarts, remove what an earlier launch could not."""

    def open(self, world: WorldSpec) -> AbstractContextManager[OpenWorld]:
        """Make the boxes of a world; they are removed at the end. A `LaunchFailed` gets what the boxes know of it."""

    def close(self, at_once: bool) -> None:
        """Remove everything that was made over this session; `at_once`: wait for nothing. See `cleaned`."""

    def sweep(self) -> tuple[list[str], list[str]]:
        """Remove what dead drivers left: names of what was removed, and of what remains."""


@contextlib.contextmanager
def cleaned(close: Callable[[bool], None]) -> Iterator[None]:
    """A session is closed at the end, at once by a second signal; an error that ends this gets as note what is left."""
    try:
        yield
    except BaseException as error:
        try:
            close(isinstance(error, KeyboardInterrupt))
        except EngineError as left:
            error.add_note(f"{'' if str(error)[-1:] in ('', '.') else '.'} {left}")
        raise
    close(False)


@dataclass(frozen=True)
class Site:
    """What ranks run on: the processors and GPUs of each host.

    All launches of a plan may take so many `seconds` together; None: any time. `cautions` are what somebody who is
    about to measure there must know.
    """

    machine: Topology
    seconds: float | None = None
    cautions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Engine:
    """What is known of an engine before it is connected to.

    `name` is as plans spell it. `ladder` (see `ladder_of`) begins with the most isolated step; empty where boxes
    isolate nothing. `starts_ranks`: it starts a command on every rank by itself, as a resource manager does, and no
    launcher of an MPI is needed. `bare`: it also starts ranks without containers. `local`: ranks run on the driver's
    machine, on the cores of their slots. `overlaps`: two worlds can run on the same processors of another machine.
    `start_seconds` are estimates for a world's first box, and for each further one.

    `connect` raises EngineError where it does not answer; its second argument raises when we are to stop. `site` raises
    PlanError where the description of a site cannot be read. What a person would type is pure text: `commands` of one
    world or, where it is given one script for all launches, `script`; that raises PlanError for what it cannot do.
    """

    name: str
    connect: Callable[[Plan, StopCheck], LaunchSession]
    start_seconds: tuple[float, float]
    ladder: Ladder = ()
    starts_ranks: bool = False
    bare: bool = False
    local: bool = False
    overlaps: bool = False
    site: Callable[[Plan], Site] = lambda plan: Site(topology_here())
    commands: Callable[[WorldSpec], tuple[str, ...]] | None = None
    script: Callable[[Plan, Sequence[Launch], Mapping[LaunchCell, Placement]], str] | None = None

    @property
    def makes_containers(self) -> bool:
        """Whether each box is a container, named so, which the driver makes for a user of its own choice."""
        return bool(self.ladder) and not self.starts_ranks


# A site file: what somebody who knows a cluster says of it once. It says where, never what is measured ----------------

#: Most cores and GPUs of a node that a site file may name: above every machine, so that a slip does not fill memory.
MOST_CORES, MOST_GPUS = 16_384, 1_024

#: Names of variables, and those that collbench gives ranks itself.
_VARIABLE, _OURS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*"), "COLLBENCH_"


class Cluster(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every engine needs to know of a cluster.

    `cores` and `gpus` are those of a node that ranks may have. `images` are references by the names in plans,
    `libraries` the library by image where its name does not say it. `variables` are set for every rank.
    """

    cores: int
    gpus: int = 0
    images: dict[str, str] = {}
    libraries: dict[str, str] = {}
    variables: dict[str, str] = {}

    @property
    def node(self) -> Topology:
        """A node: its processors are numbered, which of them ranks get the cluster decides."""
        gpus = tuple(TopologyGpu(f"GPU {number} of the node") for number in range(self.gpus))
        why_none = "" if gpus else "gpus in the site file"
        return Topology(tuple(map(Core, range(self.cores))), gpus, why_none, "a node of the site", of_cluster=True)


ClusterT = TypeVar("ClusterT", bound=Cluster)


def read_site(path: str, engine: str, kind: type[ClusterT]) -> ClusterT:
    """The table of an engine in a site file, or PlanError: there is none, or it says what cannot be."""
    if not path:
        raise PlanError(f"engine {engine}: needs a site file, which describes the cluster. Name it: --site site.toml.")
    document = read_toml(Path(path), "site")
    for name, value in document.items():
        if not isinstance(value, dict):
            raise PlanError(f"site {path}: {name}: stands in no table. Write it below [{engine}].")
        if name not in CLUSTERS:
            raise PlanError(f"site {path}: unknown table [{name}]. {suggestion(name, CLUSTERS)}")
    if engine not in document:
        raise PlanError(f"site {path}: has no table [{engine}]. docs/cluster.md shows one.")
    site = _described(document[engine], f"site {path}: [{engine}]", kind)
    _refuse_nonsense(f"site {path}", site)
    return site


def _refuse_nonsense(where: str, site: Cluster) -> None:
    for name, number, least, most in (("cores", site.cores, 1, MOST_CORES), ("gpus", site.gpus, 0, MOST_GPUS)):
        if not least <= number <= most:
            shown = str(number) if number.bit_length() < 64 else "that"
            raise PlanError(f"{where}: {name} = {shown}: must be {least} or more, and at most {most}: of one node.")
    refuse_libraries(f"{where}: libraries", site.libraries.values())
    for name in site.variables:
        if _VARIABLE.fullmatch(name) is None:
            raise PlanError(f"{where}: variables: {name!r} is no name of a variable: letters, digits and _.")
        if name.startswith(_OURS):
            raise PlanError(f"{where}: variables: {name} is set by collbench itself. Leave it out.")


def _described(table: dict[str, Any], where: str, kind: type[ClusterT]) -> ClusterT:
    _refuse_unknown(table, where, kind)
    fields = msgspec.structs.fields(kind)
    if absent := [field.name for field in fields if field.required and field.name not in table]:
        raise PlanError(f"{where}: lacks {', '.join(absent)}. docs/cluster.md says what they are.")
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise PlanError(f"{where}: {mistake_in(table, kind) or error}.") from error


def _refuse_unknown(table: dict[str, Any], where: str, kind: type[msgspec.Struct]) -> None:
    for key, value in table.items():
        if key not in kind.__struct_fields__:
            raise PlanError(f"{where}: unknown key {key!r}. {suggestion(key, kind.__struct_fields__)}")
        of = next(field.type for field in msgspec.structs.fields(kind) if field.name == key)
        if isinstance(value, dict) and isinstance(of, type) and issubclass(of, msgspec.Struct):
            _refuse_unknown(value, f"{where} {key}", of)


def refuse_libraries(where: str, libraries: Iterable[str]) -> None:
    """Raises PlanError for the first of these libraries that no launcher has."""
    for library in libraries:
        if library not in launchers.names():
            raise PlanError(f"{where}: library {library!r}: unknown. {suggestion(library, launchers.names())}")
