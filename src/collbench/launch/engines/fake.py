"""Engine `fake`: worlds in which a function of the test plays every command. It starts nothing.

For tests of launches: `campaign.prepare(plan, check, {"fake": FakeSession(play)})`, with `engine = "fake"` in the plan.
`play` gets each command as it is started. It returns the exit code, or is a generator that yields while the command
runs and then returns its exit code; it is resumed whenever the command's `code` is asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import collbench
from collbench.errors import LaunchFailed, PlanError
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.spec import SHARING, Engine, LadderStep, Look, Looks, Sharing, Site, WorldSpec, ladder_of
from collbench.launch.launchers import Argv
from collbench.launch.placement import Placement
from collbench.launch.probe import Contents, sources
from collbench.launch.waiting import Log, StopCheck
from collbench.machine.facts import Core, Topology
from collbench.schema.plan import Plan
from collbench.schema.record import SCHEMA

Playing = Generator[None, None, int]

LADDER = ladder_of(
    LadderStep("strict", "nothing shared", SHARING["strict"]),
    LadderStep("visible", "everything shared", Sharing(host=False), between=True),
    LadderStep("files", "everything shared with the host", Sharing()),
)

#: Processors of its machine, half of them on each of two memory nodes.
CORES = 16


#: A machine that does not exist, without a GPU.
MACHINE = Topology(tuple(Core(number, number * 2 // CORES) for number in range(CORES)))


def commands(world: WorldSpec) -> tuple[str, ...]:
    step = world.cell.isolation or "no step"
    return tuple(
        f"fake {world.name} {step} {box.name} ranks={','.join(map(str, box.ranks))} cores={box.cores}"
        for box in world.placement.boxes
    )


def _connect(plan: Plan, check: StopCheck) -> FakeEngineSession:
    """Tests make their session themselves."""
    raise PlanError("engine fake: is for tests and starts no ranks. Name an engine of this machine: docker.")


@dataclass
class FakeCommand:
    """A command that was started in a box of a world. Asking for `code` resumes it; None until it has ended."""

    opened: FakeEngineWorld
    host: str
    argv: Argv
    environment: dict[str, str]
    log: Log
    ended: int | None = None
    playing: Playing | None = None

    @property
    def world(self) -> WorldSpec:
        return self.opened.world

    @property
    def code(self) -> int | None:
        if self.playing is not None and self.ended is None:
            try:
                next(self.playing)
            except StopIteration as stop:
                self.ended = int(stop.value or 0)
        return self.ended

    @property
    def how(self) -> str:
        return f"ended with exit code {self.ended}"

    @property
    def pid(self) -> None:
        """It is played."""


Play = Callable[[FakeCommand], "Playing | int"]


@dataclass
class FakeEngineWorld:
    """Boxes of a world. `gone`, once it is set, is the box that died."""

    world: WorldSpec
    play: Play
    hosts: tuple[tuple[str, int], ...]
    commands: list[FakeCommand] = field(default_factory=list)
    gone: str | None = None

    @property
    def program(self) -> Argv:
        return ("collbench", "run", str(self.world.folders.plan), "--out", str(self.world.folders.out))

    def execute(self, host: str, argv: Argv, environment: dict[str, str], log: Log) -> FakeCommand:
        command = FakeCommand(self, host, argv, environment, log)
        self.commands.append(command)
        played = self.play(command)
        if isinstance(played, int):
            command.ended = played
        else:
            command.playing = played
        return command

    def died(self) -> str | None:
        return None if self.gone is None else f"box {self.gone} died"


@dataclass
class FakeEngineSession:
    """An engine that answers as the test says.

    `held` says what an image holds, where that is not `contents()`. `worlds` are all that were opened, `left` those
    that are open: none, after a launch. `remark`, where it is set, is added to a failure.
    """

    play: Play
    held: Mapping[str, Contents] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    title: str = "Fake Engine 1"
    run: str = "cbfake"
    folder: Path | None = None
    remark: str = ""
    worlds: list[FakeEngineWorld] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    cleanings: int = 0
    readied: int = 0

    def close(self, at_once: bool) -> None:
        self.cleanings += 1

    def look(self, plan: Plan, placements: Mapping[LaunchCell, Placement], vendors: Mapping[str, str]) -> Looks:
        names = dict.fromkeys(cell.image for cell in placements)
        return Looks({name: Look(self.held.get(name) or contents(name), name, f"image {name}",
                                 self.ids.get(name, f"sha256:{name}")) for name in names})  # fmt: skip

    def ready(self) -> None:
        self.readied += 1

    @contextlib.contextmanager
    def open(self, world: WorldSpec) -> Iterator[FakeEngineWorld]:
        """A world that is `left` until it is closed."""
        hosts = tuple((f"{world.name}-{box.name}", len(box.ranks)) for box in world.placement.boxes)
        opened = FakeEngineWorld(world, self.play, hosts)
        self.worlds.append(opened)
        self.left.append(world.name)
        try:
            yield opened
        except LaunchFailed as error:
            raise error.saying(f"{error}{self.remark}") from error
        finally:
            self.left.remove(world.name)

    def sweep(self) -> tuple[list[str], list[str]]:
        return [], []


def contents(vendor: str = "openmpi") -> Contents:
    """An image with an MPI of that kind, and with every backend."""
    return Contents(
        collbench=collbench.__version__, python="3.11", vendor=vendor, libraries=(), packages={}, native=True,
        missing={}, schema=SCHEMA, sources=sources(),
    )  # fmt: skip


ENGINE = Engine("fake", _connect, (0.0, 0.0), LADDER, site=lambda plan: Site(MACHINE), commands=commands)
