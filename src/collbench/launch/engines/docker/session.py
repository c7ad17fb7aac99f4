"""A session with an engine that speaks Docker's API: the worlds of launches as containers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from collbench.errors import EngineError, LaunchFailed
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.docker.cleanup import clear, nothing_left
from collbench.launch.engines.docker.connection import DOCKER, Service
from collbench.launch.engines.docker.containers import Docker
from collbench.launch.engines.docker.look import look_at
from collbench.launch.engines.docker.memory_kills import killed_for_memory
from collbench.launch.engines.docker.specs import INSIDE, SEALED, specs_for
from collbench.launch.engines.docker.streams import Execution, ExitWatch
from collbench.launch.engines.docker.sweep import sweep
from collbench.launch.engines.spec import Looks, WorldSpec
from collbench.launch.log import Log
from collbench.launch.placing import Placement
from collbench.launch.starters.starter import Argv
from collbench.launch.stopping import StopCheck
from collbench.schema.launch_plan import LaunchPlan


@dataclass(frozen=True)
class Containers:
    """The containers of a world, which were created with the environment of the ranks."""

    engine: Docker
    hosts: tuple[tuple[str, int], ...]
    exits: ExitWatch
    program: Argv = INSIDE

    @property
    def environment(self) -> dict[str, str]:
        return {}

    def execute(self, host: str, argv: Argv, environment: dict[str, str], log: Log) -> Execution:
        return self.engine.execute(host, argv, environment, log.add)

    def died(self) -> str | None:
        return self.exits()


class DockerSession:
    """An engine with Docker's API that answers.

    Raises:
        EngineError: it does not.
    """

    def __init__(self, address: str, check: StopCheck, service: Service = DOCKER) -> None:
        self.engine = Docker(address, check, service)
        self.title, self.run = self.engine.title, self.engine.run

    folder: Path | None = None

    def cleaned(self) -> AbstractContextManager[None]:
        return nothing_left(self.engine)

    def look(self, plan: LaunchPlan, placements: Mapping[LaunchCell, Placement], vendors: Mapping[str, str]) -> Looks:
        return look_at(self.engine, plan, placements)

    def ready(self) -> None:
        """Wait for the engine, and remove what an earlier launch could not."""
        self.engine.wait(self.engine.check)
        clear(self.engine)

    @contextlib.contextmanager
    def open(self, world: WorldSpec) -> Iterator[Containers]:
        """A network and its containers: removed at the end, or by `cleaned` where the engine does not answer then."""
        specs = specs_for(world)
        members = tuple(spec for spec in specs if not spec.donates)
        boxes = world.placement.boxes
        hosts = tuple((spec.name, len(box.ranks)) for spec, box in zip(members, boxes, strict=True))
        network = next(spec.network for spec in specs if spec.network is not None)
        labels = tuple(f"{name}={value}" for name, value in specs[0].labels)
        with self.engine.watch_exits(*labels) as exits:
            try:
                self.engine.create_network(network, dict(specs[0].labels), SEALED in world.stack.grants)
                self.engine.check()
                for anchor in (spec for spec in specs if spec.donates):
                    self.engine.start(anchor)
                self.engine.check()
                self.engine.start_together(members)
                yield Containers(self.engine, hosts, exits)
            except LaunchFailed as error:
                names = tuple(name for name, _ in hosts)
                raise LaunchFailed(f"{error}{killed_for_memory(self.engine, names)}", error.log) from error
            finally:
                exits.stop()
                with contextlib.suppress(EngineError):
                    self.engine.remove(self.engine.labelled(*labels), self.engine.networks(*labels))

    def sweep(self) -> tuple[list[str], list[str]]:
        return sweep(self.engine)
