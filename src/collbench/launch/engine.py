"""What runs on a container engine: networks, containers, commands in them, and what is left of them.

Every call has a limit. What is created carries the run's label, so that it can be found and removed by it alone.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from collbench.launch.connection import ANSWER, Connection, translated
from collbench.launch.following import Deaths, Execution, Listener, lines
from collbench.launch.settings import host_settings
from collbench.launch.specs import RUN_LABEL, Spec

#: Containers that are started side by side.
STARTING = 8


class Engine(Connection):
    """An engine, and what of a launch is on it."""

    def create_network(self, name: str, labels: dict[str, str]) -> None:
        """A network without a way out, in which containers resolve each other's names."""
        with translated(f"network {name}"):
            self.client.networks.create(name, driver="bridge", internal=True, labels=labels, check_duplicate=True)

    def start(self, spec: Spec) -> None:
        """Create and start a container."""
        with translated(f"container {spec.name}"):
            api = self.client.api
            settings = api.create_host_config(**host_settings(spec))
            network = None
            if spec.joins_net is None:
                end = api.create_endpoint_config(aliases=list(spec.aliases))
                network = api.create_networking_config({spec.network: end})
            made = api.create_container(
                spec.image,
                list(spec.command),
                name=spec.name,
                hostname=spec.hostname,
                user=spec.user,
                labels=dict(spec.labels),
                environment=dict(spec.environment),
                host_config=settings,
                networking_config=network,
            )
            api.start(made["Id"])

    def start_together(self, specs: tuple[Spec, ...]) -> None:
        """Create and start containers side by side."""
        with ThreadPoolExecutor(STARTING) as pool:
            for started in [pool.submit(self.start, spec) for spec in specs]:
                started.result()

    def execute(self, container: str, argv: tuple[str, ...], environment: dict[str, str], hear: Listener) -> Execution:
        """Start a command in a container; its lines go to `hear` from another thread."""
        with translated(f"container {container}: cannot execute {argv[0]}"):
            api = self.client.api
            number = api.exec_create(container, list(argv), environment=environment)["Id"]
            stream = api.exec_start(number, stream=True, demux=True)
        found = Execution(container)
        threading.Thread(target=self._follow, args=(number, stream, found, hear), daemon=True).start()
        return found

    def _follow(self, number: str, stream: Any, execution: Execution, hear: Listener) -> None:
        code = -1
        with contextlib.suppress(Exception):
            for is_error, line in lines(stream):
                hear(is_error, line)
            found = self.client.api.exec_inspect(number)["ExitCode"]
            code = -1 if found is None else int(found)
        execution.code = code
        execution.finished.set()

    @contextlib.contextmanager
    def watch_deaths(self, label: str) -> Iterator[Deaths]:
        """Hear of containers with a label that end. Calling what is yielded gives the first one's name, or None."""
        with translated("watching containers"):
            events = self.client.api.events(decode=True, filters={"label": label, "event": "die"})
        deaths = Deaths(events)
        try:
            yield deaths
        finally:
            deaths.stop()

    def labelled(self, label: str = RUN_LABEL) -> list[dict[str, Any]]:
        """Containers with a label (`NAME` or `NAME=VALUE`), as the engine lists them; without one, all of collbench."""
        with translated("listing containers"):
            found: list[dict[str, Any]] = self.client.api.containers(all=True, filters={"label": label})
            return found

    def networks(self, label: str = RUN_LABEL) -> list[dict[str, Any]]:
        """Networks with a label, as `labelled`."""
        with translated("listing networks"):
            found: list[dict[str, Any]] = self.client.api.networks(filters={"label": label})
            return found

    def remove(self, containers: list[dict[str, Any]], networks: list[dict[str, Any]]) -> None:
        """Remove containers, at once and all together, then networks. What is gone already is no error."""
        workers = [threading.Thread(target=self._kill, args=(found["Id"],), daemon=True) for found in containers]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(ANSWER)
        import docker.errors

        for network in networks:
            with contextlib.suppress(docker.errors.NotFound), translated(f"network {network['Name']}"):
                self.client.api.remove_network(network["Id"])

    def _kill(self, number: str) -> None:
        with contextlib.suppress(Exception):
            self.client.api.remove_container(number, force=True, v=True)
