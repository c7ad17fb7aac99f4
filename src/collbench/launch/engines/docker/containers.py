"""What runs on a container engine: networks, containers and commands in them, followed, and removed when left behind.

Every call has a limit. What is created has the labels of its run and its driver, by which it is found and removed.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from collbench.errors import CollbenchError, EngineError
from collbench.launch.engines.docker.connection import Connection, each, objects, translated
from collbench.launch.engines.docker.specs import DRIVER_LABEL, NETWORK_OPTIONS, RUN_LABEL, Spec, container_settings
from collbench.launch.folders import YOUNG, is_dead, locks, namespace, remove_left, sweep_folders, user_inside
from collbench.launch.waiting import Lines, Log

#: Receives a line of a running command: (is standard error, text).
OnLine = Callable[[bool, str], None]


@dataclass
class Execution:
    """A command in a container. `code` is None while it runs; -1 when the engine lost it.

    `locate` asks the engine for its process on this machine, when somebody wants to know: 0 until it has one.
    """

    container: str
    code: int | None = None
    finished: threading.Event = field(default_factory=threading.Event)
    locate: Callable[[], int | None] = lambda: None

    _pid: int | None = 0

    @property
    def pid(self) -> int | None:
        """Its process on this machine; None where the engine is on another one."""
        if self._pid == 0:
            self._pid = self.locate()
        return self._pid or None

    @property
    def how(self) -> str:
        return f"ended with exit code {self.code}"


class ExitWatch:
    """Watches the engine's events for containers that end, until `stop`: after that they are removed."""

    def __init__(self, events: Any) -> None:
        self._events = events
        self._first: str | None = None
        self._stopped = False
        threading.Thread(target=self._follow, daemon=True).start()

    def __call__(self) -> str | None:
        """What died first, if anything did."""
        return self._first

    def _follow(self) -> None:
        try:
            for event in self._events:
                if self._stopped:
                    return
                name = event["Actor"]["Attributes"].get("name", event["Actor"]["ID"][:12])
                self._first = self._first or f"container {name} died"
        except Exception as error:  # the engine went away, in one of many ways
            if not self._stopped:
                self._first = self._first or f"the engine is gone ({type(error).__name__})"
                return
        if not self._stopped:
            self._first = self._first or "the engine is gone"

    def stop(self) -> None:
        """Ignore what ends from now on."""
        if not self._stopped:
            self._stopped = True
            with contextlib.suppress(Exception):
                self._events.close()


def lines(stream: Any) -> Iterator[tuple[bool, str]]:
    """(is standard error, line) of a stream of pairs: pieces of standard output and of standard error."""
    outputs = (Lines(), Lines())
    for pieces in stream:
        for which, piece in enumerate(pieces):
            yield from ((bool(which), line) for line in outputs[which].of(piece or b""))
    yield from ((bool(which), line) for which, output in enumerate(outputs) for line in output.last())


#: Containers that are started at once.
STARTING = 8


class Docker(Connection):
    """A container engine."""

    def create_network(self, name: str, labels: dict[str, str], sealed: bool = True) -> None:
        """A network without a way out, in which containers resolve each other's names.

        `sealed`: the host has no address in it, so that containers cannot reach what listens on the host.
        """
        with translated(f"network {name}"):
            self.client.api.create_network(
                name, driver="bridge", internal=True, labels=labels, check_duplicate=True,
                options=NETWORK_OPTIONS if sealed else None,
            )  # fmt: skip

    def start(self, spec: Spec) -> None:
        """Create and start a container."""
        with translated(f"container {spec.name}"):
            api = self.client.api
            api.start(api.create_container(**container_settings(api, spec))["Id"])

    def start_together(self, specs: tuple[Spec, ...]) -> None:
        """Create and start several containers at once."""
        each(self.start, specs, STARTING, self.check)

    def execute(self, container: str, argv: tuple[str, ...], environment: dict[str, str], on_line: OnLine) -> Execution:
        """Start a command in a container; its lines go to `on_line` from another thread."""
        with translated(f"container {container}: cannot execute {argv[0]}"):
            api = self.client.api
            number = api.exec_create(container, list(argv), environment=environment)["Id"]
            stream = api.exec_start(number, stream=True, demux=True)
        execution = Execution(container, locate=partial(self._locate, number))
        threading.Thread(target=self._follow, args=(number, stream, execution, on_line), daemon=True).start()
        return execution

    def _follow(self, number: str, stream: Any, execution: Execution, on_line: OnLine) -> None:
        code = -1
        with contextlib.suppress(Exception):
            for is_error, line in lines(stream):
                on_line(is_error, line)
            exit_code = self.client.api.exec_inspect(number)["ExitCode"]
            code = -1 if exit_code is None else int(exit_code)
        execution.code = code
        execution.finished.set()

    def _locate(self, number: str) -> int | None:
        """The process of a command; None where its control group says that the engine's numbers are not ours."""
        with contextlib.suppress(Exception):
            told = self.client.api.exec_inspect(number)
            pid = int(told["Pid"])
            if pid == 0 or told["ContainerID"] in Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii"):
                return pid
        return None

    @contextlib.contextmanager
    def watch_exits(self, *labels: str) -> Iterator[ExitWatch]:
        """Watch for the end of containers with all these labels."""
        with translated("watching containers"):
            events = self.client.api.events(decode=True, filters={"label": list(labels), "event": "die"})
        exits = ExitWatch(events)
        try:
            yield exits
        finally:
            exits.stop()

    def labelled(self, *labels: str) -> list[dict[str, Any]]:
        """Containers with all these labels (`NAME` or `NAME=VALUE`), as the engine lists them; by default all runs'."""
        with translated("listing containers"):
            return objects(self.client.api.containers(all=True, filters={"label": list(labels or (RUN_LABEL,))}))

    def networks(self, *labels: str) -> list[dict[str, Any]]:
        """Networks, likewise."""
        with translated("listing networks"):
            return objects(self.client.api.networks(filters={"label": list(labels or (RUN_LABEL,))}))

    def remove(self, containers: list[dict[str, Any]], networks: list[dict[str, Any]]) -> None:
        """Remove containers, all at once, then networks. Does not raise: what could not be removed is still listed."""
        each(self._kill, containers, len(containers), lambda: None)
        for network in networks:
            with contextlib.suppress(Exception):
                self.client.api.remove_network(network["Id"])

    def _kill(self, container: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):
            self.client.api.remove_container(container["Id"], force=True, v=True)


#: Where a control group counts such kills, in its second version and in its first.
COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")

#: Longest wait for a container to answer (s).
ANSWER = 5.0

_KILLED = re.compile(r"oom_kill ([0-9]{1,18})")


class Executes(Protocol):
    """An engine that can run a command in a container."""

    def execute(self, container: str, argv: tuple[str, ...], environment: dict[str, str], on_line: OnLine) -> Execution:
        """Start a command in a container."""


def killed_for_memory(engine: Executes, containers: tuple[str, ...]) -> str:
    """The end of a failure's reason: the containers in which it happened; empty where it happened in none.

    Stops asking at the first container that does not answer.
    """
    affected: list[str] = []
    with contextlib.suppress(EngineError):
        affected.extend(name for name in containers if _has_kills(engine, name))
    return f"; the kernel ended processes in {', '.join(affected)} for lack of memory" if affected else ""


def _has_kills(engine: Executes, container: str) -> bool:
    log = Log()
    answer = engine.execute(container, ("cat", *COUNTERS), {}, log.add)
    answer.finished.wait(ANSWER)
    counts = map(_KILLED.fullmatch, log.lines)
    return any(int(count[1]) > 0 for count in counts if count is not None)


#: A container in one of these states does nothing; `created` will, where it is young.
IDLE = frozenset({"created", "exited", "dead"})


def sweep(engine: Docker) -> tuple[list[str], list[str]]:
    """Remove what dead drivers left; returns the names that were removed, and those that remain.

    Those are of drivers that may be alive, or the engine does not remove them.
    """
    containers, networks, now = engine.labelled(), engine.networks(), engine.now()
    busy = {_driver(container) for container in containers if container.get("State") not in IDLE}
    busy |= {_driver(made) for made in (*containers, *networks) if is_young(made, now)}
    held = locks()

    def orphaned(made: dict[str, Any]) -> bool:
        driver = _driver(made)
        return is_dead(driver, held.get(driver), driver in busy)

    old = ([*filter(orphaned, containers)], [*filter(orphaned, networks)])
    engine.remove(*old)
    kept = [_name(made) for made in (*engine.labelled(), *engine.networks())]
    removed = [_name(made) for made in (*old[0], *old[1]) if _name(made) not in kept]
    return [*removed, *_shared_memory(old[0]), *sweep_folders(busy)], kept


def _shared_memory(containers: list[dict[str, Any]]) -> list[str]:
    """Remove what the ranks of such containers left in the host's /dev/shm; they have its network too.

    Their driver was in the host's PID namespace. From another it cannot be seen what is in use.
    """
    of_host = (
        made
        for made in containers
        if (made.get("HostConfig") or {}).get("NetworkMode") == "host" and f"/{namespace('pid')}/" in _driver(made)
    )
    since = min((created for made in of_host if (created := _created(made)) is not None), default=None)
    return [] if since is None else remove_left(user_inside()[0], since)


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


_ADVICE = "collbench launch --sweep removes them."


def remove_all(engine: Docker, at_once: bool) -> None:
    """Remove everything of this run, which a launch cannot do while the engine is away; `at_once`: ask for nothing.

    Raises:
        EngineError: something is left, or may be.
    """
    if at_once:
        raise EngineError(f"Containers may be left; {_ADVICE}")
    try:
        if engine.silent:  # it is asked once more, and for no more than a ping
            engine.wait(lambda: None, limit=0)
        number = clear(engine)
    except CollbenchError as error:
        raise EngineError(f"Containers may be left ({str(error).rstrip('.')}); {_ADVICE}") from error
    if number:
        raise EngineError(f"{number} containers and networks are left; {_ADVICE}")


def clear(engine: Docker) -> int:
    """Remove all containers and networks of this run; how many remain.

    Raises:
        EngineError: the engine does not answer.
    """
    labels = tuple(f"{name}={value}" for name, value in engine.labels.items())
    engine.remove(engine.labelled(*labels), engine.networks(*labels))
    return len(engine.labelled(*labels)) + len(engine.networks(*labels))
