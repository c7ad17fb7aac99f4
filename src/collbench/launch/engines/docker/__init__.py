"""Engine `docker`: containers of Docker Engine, or of another engine with its API.

A session opens worlds of containers, and removes what is left of them.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from collbench.errors import EngineError, LaunchFailed
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.docker.client import DOCKER, Docker, Execution, ExitWatch, Service, clear, remove_all
from collbench.launch.engines.docker.images import look_at
from collbench.launch.engines.docker.spec import DRIVER_LABEL, LADDER, SEALED, layout_of, program_of, world_commands
from collbench.launch.engines.spec import Engine, Looks, WorldSpec
from collbench.launch.expansion import sharing_of
from collbench.launch.folders import YOUNG, is_dead, locks, namespace, remove_left, sweep_folders, user_inside
from collbench.launch.launchers import Argv
from collbench.launch.placement import Placement
from collbench.launch.waiting import Log, StopCheck
from collbench.schema.plan import Plan


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
    """An engine with Docker's API that answers; else EngineError is raised."""

    folder: Path | None = None

    def __init__(self, address: str, check: StopCheck, service: Service = DOCKER) -> None:
        self.engine = Docker(address, check, service)
        self.title, self.run = self.engine.title, self.engine.run

    def look(self, plan: Plan, placements: Mapping[LaunchCell, Placement], vendors: Mapping[str, str]) -> Looks:
        return look_at(self.engine, plan, placements)

    def ready(self) -> None:
        self.engine.wait(self.engine.check)
        clear(self.engine)

    @contextlib.contextmanager
    def open(self, world: WorldSpec) -> Iterator[Containers]:
        """A network and its containers: removed at the end, or by `close` where the engine does not answer then."""
        engine, layout, since = self.engine, layout_of(world), time.time()
        labels = layout.members[0].labels
        filters = tuple(f"{name}={value}" for name, value in labels.items())
        with contextlib.ExitStack() as stack:
            if sharing_of(world.cell).host:
                stack.callback(remove_left, world.user[0], since)
            exits = engine.watch_exits(*filters)
            try:
                if layout.network is not None:
                    engine.create_network(layout.network, labels, SEALED in world.stack.grants)
                engine.check()
                if layout.anchor is not None:
                    engine.start(layout.anchor)
                engine.check()
                engine.start_together(layout.members)
                yield Containers(engine, layout.hosts, layout.names, exits, program_of(world))
            except LaunchFailed as error:
                killed = killed_for_memory(engine, tuple(layout.names.values()))
                raise error.saying(f"{error}{killed}") from error
            finally:
                exits.stop()
                with contextlib.suppress(EngineError):
                    engine.remove(engine.labelled(*filters), engine.networks(*filters))

    def close(self, at_once: bool) -> None:
        remove_all(self.engine, at_once)

    def sweep(self) -> tuple[list[str], list[str]]:
        return sweep(self.engine)


#: Where a control group counts processes that the kernel ended, in its second version and in its first.
COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
_KILLED = re.compile(r"oom_kill ([0-9]{1,18})")

#: Longest wait for a container to answer (s).
ANSWER = 5.0


def killed_for_memory(engine: Docker, containers: tuple[str, ...]) -> str:
    """The end of a failure's reason: where it happened, of the containers before one that does not answer; or empty."""
    affected: list[str] = []
    with contextlib.suppress(EngineError):
        for name in containers:
            log = Log()
            engine.execute(name, ("cat", *COUNTERS), {}, log.add).finished.wait(ANSWER)
            if any(int(count[1]) > 0 for count in map(_KILLED.fullmatch, log.lines) if count is not None):
                affected.append(name)
    return f"; the kernel ended processes in {', '.join(affected)} for lack of memory" if affected else ""


#: A container in one of these states does nothing; `created` will, where it is young.
IDLE = frozenset({"created", "exited", "dead"})


def sweep(engine: Docker) -> tuple[list[str], list[str]]:
    """Remove what dead drivers left: names of what was removed, and of what remains, of drivers that may be alive."""
    containers, networks, now = engine.labelled(), engine.networks(), engine.now()
    busy = {_driver(container) for container in containers if container.get("State") not in IDLE}
    busy |= {_driver(made) for made in (*containers, *networks) if is_young(made, now)}
    held = locks()
    old_containers, old_networks = (
        [made for made in listed if is_dead(_driver(made), held.get(_driver(made)), _driver(made) in busy)]
        for listed in (containers, networks)
    )
    engine.remove(old_containers, old_networks)
    kept = [_name(made) for made in (*engine.labelled(), *engine.networks())]
    removed = [name for name in map(_name, (*old_containers, *old_networks)) if name not in kept]
    # What their ranks left in the host's /dev/shm goes, too, where they had its network and so its namespaces. Their
    # driver was in the host's PID namespace: from another one cannot see what is in use.
    of_host = [made for made in old_containers if (made.get("HostConfig") or {}).get("NetworkMode") == "host"]
    created = [_created(made) for made in of_host if f"/{namespace('pid')}/" in _driver(made)]
    since = min((moment for moment in created if moment is not None), default=None)
    shared_memory = [] if since is None else remove_left(user_inside()[0], since)
    return [*removed, *shared_memory, *sweep_folders(busy)], kept


def is_young(made: dict[str, Any], now: float) -> bool:
    """Whether a container or network was made less than `YOUNG` before `now`, both by the engine's clock."""
    created = _created(made)
    return created is None or now - created < YOUNG


def _created(made: dict[str, Any]) -> float | None:
    """When, in seconds since the epoch; None where the engine says that in a form of its own."""
    created = made.get("Created")
    try:
        if isinstance(created, str):
            return datetime.datetime.fromisoformat(created).timestamp()
        return float(created or 0)
    except (TypeError, ValueError):
        return None


def _driver(made: dict[str, Any]) -> str:
    return str((made.get("Labels") or {}).get(DRIVER_LABEL, ""))


def _name(made: dict[str, Any]) -> str:
    names = made.get("Names") or [made.get("Name", "?")]
    return str(names[0]).lstrip("/")


def docker_engine(name: str, service: Service) -> Engine:
    """An engine with Docker's API on this machine, by the name of the command that people use."""
    return Engine(
        name, lambda plan, check: DockerSession(plan.docker_host, check, service),
        (1.0, 0.4),  # seen with Docker Engine 20.10 on two cores
        LADDER, local=True, commands=partial(world_commands, program=name),
    )  # fmt: skip


ENGINE = docker_engine("docker", DOCKER)
