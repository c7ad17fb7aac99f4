"""A session with an engine that speaks Docker's API: the worlds of launches as containers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from collbench.errors import EngineError, LaunchFailed
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.docker.connection import DOCKER, Service
from collbench.launch.engines.docker.containers import (
    Docker,
    Execution,
    ExitWatch,
    clear,
    killed_for_memory,
    remove_all,
    sweep,
)  # fmt: skip
from collbench.launch.engines.docker.look import look_at
from collbench.launch.engines.docker.specs import SEALED, program_of, reached, specs_for
from collbench.launch.engines.spec import Looks, WorldSpec
from collbench.launch.folders import remove_left
from collbench.launch.launchers import Argv
from collbench.launch.placement import Placement
from collbench.launch.rank_environment import sharing_of
from collbench.launch.waiting import Log, StopCheck
from collbench.schema.plan import LaunchPlan


@dataclass(frozen=True)
class Containers:
    """The containers of a world, which were created with the environment of the ranks. `names` are theirs, by host."""

    engine: Docker
    hosts: tuple[tuple[str, int], ...]
    names: Mapping[str, str]
    exits: ExitWatch
    program: Argv

    def execute(self, host: str, argv: Argv, environment: dict[str, str], log: Log) -> Execution:
        return self.engine.execute(self.names[host], argv, environment, log.add)

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

    def close(self, at_once: bool) -> None:
        remove_all(self.engine, at_once)

    def look(self, plan: LaunchPlan, placements: Mapping[LaunchCell, Placement], vendors: Mapping[str, str]) -> Looks:
        return look_at(self.engine, plan, placements)

    def ready(self) -> None:
        """Wait for the engine, and remove what an earlier launch could not."""
        self.engine.wait(self.engine.check)
        clear(self.engine)

    @contextlib.contextmanager
    def open(self, world: WorldSpec) -> Iterator[Containers]:
        """A network and its containers: removed at the end, or by `cleaned` where the engine does not answer then."""
        since = time.time()
        try:
            yield from self._opened(world)
        finally:
            if sharing_of(world.cell).host:
                remove_left(world.user[0], since)

    def _opened(self, world: WorldSpec) -> Iterator[Containers]:
        specs = specs_for(world)
        members = tuple(spec for spec in specs if not spec.donates)
        names = {host: spec.name for host, spec in zip(reached(members), members, strict=True)}
        hosts = tuple((host, len(box.ranks)) for host, box in zip(names, world.placement.boxes, strict=True))
        network = next((spec.network for spec in specs if spec.network is not None), None)
        labels = tuple(f"{name}={value}" for name, value in specs[0].labels)
        with self.engine.watch_exits(*labels) as exits:
            try:
                if network is not None:
                    self.engine.create_network(network, dict(specs[0].labels), SEALED in world.stack.grants)
                self.engine.check()
                for anchor in (spec for spec in specs if spec.donates):
                    self.engine.start(anchor)
                self.engine.check()
                self.engine.start_together(members)
                yield Containers(self.engine, hosts, names, exits, program_of(world))
            except LaunchFailed as error:
                killed = killed_for_memory(self.engine, tuple(names.values()))
                raise LaunchFailed(f"{error}{killed}", error.log) from error
            finally:
                exits.stop()
                with contextlib.suppress(EngineError):
                    self.engine.remove(self.engine.labelled(*labels), self.engine.networks(*labels))

    def sweep(self) -> tuple[list[str], list[str]]:
        return sweep(self.engine)
