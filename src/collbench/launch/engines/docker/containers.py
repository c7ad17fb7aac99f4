"""What runs on a container engine: networks, containers, and commands in them.

Every call has a limit. What is created has the labels of its run and its driver, by which it is found and removed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from collbench.launch.engines.docker.connection import Connection, objects, translated
from collbench.launch.engines.docker.host_config import NETWORK_OPTIONS, container_settings
from collbench.launch.engines.docker.side_by_side import each
from collbench.launch.engines.docker.specs import RUN_LABEL, Spec
from collbench.launch.engines.docker.streams import Execution, ExitWatch, OnLine, lines

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
