"""The Docker Engine, as far as a launch needs it. With settings.py the only file that imports the SDK.

Every call has a limit. What is created carries the run's label, so that it can be found and removed by it alone.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from collbench.errors import EngineError, ImageMissing
from collbench.launch.following import Deaths, Execution, Listener, lines
from collbench.launch.identity import driver_identity
from collbench.launch.settings import host_settings
from collbench.launch.specs import DRIVER_LABEL, RUN_LABEL, Spec

#: Longest wait for one answer of the engine (s), and for the next line of a build.
ANSWER, BUILD_SILENCE = 60, 600

#: Containers that are started side by side.
STARTING = 8

#: Longest wait for an engine that was there a moment ago (s).
RESTART = 30.0

#: Lines of a failed build that its message holds.
BUILD_LINES = 8

DEFAULT_HOST = "unix:///var/run/docker.sock"


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    """SDK and transport errors as ours, with what was being done."""
    import docker.errors
    import requests.exceptions

    try:
        yield
    except docker.errors.APIError as error:
        raise EngineError(f"{what}: {str(error.explanation or error).strip()}") from error
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
        raise EngineError(f"{what}: {_gist(error)}") from error


def _title(version: dict[str, Any]) -> str:
    """`Docker Engine 20.10.24`, or `Podman Engine 4.3.1`: another one may stand behind the same socket."""
    parts = [str(part["Name"]) for part in version.get("Components") or ()]
    first = parts[0] if parts else "Engine"
    return f"{'Docker Engine' if first == 'Engine' else first} {version['Version']}"


def _gist(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


class Engine:
    """An engine that answers. `title` is its name and version.

    Raises:
        EngineError: it does not run, may not be used, or is none.
    """

    def __init__(self, host: str = "") -> None:
        try:
            import docker
            import docker.errors
            import requests.exceptions
        except ImportError as error:
            missing = "the Docker SDK for Python is not installed; in a clone: pip install '.[launch]'"
            raise EngineError(f"containers: {missing}") from error
        self.host = host or os.environ.get("DOCKER_HOST") or DEFAULT_HOST
        try:
            self._client: Any = docker.DockerClient(base_url=self.host, timeout=ANSWER)
            self.title = _title(self._client.version())
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            raise EngineError(_unreachable(self.host, error)) from error

    def close(self) -> None:
        """Close all connections; the next call makes new ones."""
        self._client.close()

    def wait(self, limit: float = RESTART) -> None:
        """Until the engine answers: it may be restarting.

        Raises:
            EngineError: it does not within `limit` seconds.
        """
        until = time.monotonic() + limit
        while True:
            self.close()  # one that is shutting down answers on old connections and takes no new ones
            try:
                with _translated(f"Docker Engine at {self.host}"):
                    self._client.api.ping()
                return
            except EngineError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)

    # Images --------------------------------------------------------------------------------------------------------

    def image(self, reference: str) -> dict[str, Any]:
        """What the engine knows of an image: id, digests, labels.

        Raises:
            ImageMissing: it is not there.
        """
        import docker.errors

        try:
            found: dict[str, Any] = self._client.api.inspect_image(reference)
        except docker.errors.ImageNotFound as error:
            raise ImageMissing(f"image {reference}: not on this engine ({self.host}).") from error
        except docker.errors.APIError as error:
            raise EngineError(f"image {reference}: {error.explanation}") from error
        return found

    def images(self, label: str) -> list[dict[str, Any]]:
        """Images with a label, as the engine lists them."""
        with _translated("listing images"):
            found: list[dict[str, Any]] = self._client.api.images(filters={"label": label})
            return found

    def build(
        self, context: bytes, dockerfile: str, tag: str, arguments: dict[str, str], no_cache: bool,
        labels: dict[str, str], hear: Callable[[str], None],
    ) -> None:  # fmt: skip
        """Build and tag an image from a context in a tar; the builder's lines go to `hear`.

        Raises:
            EngineError: it failed; the builder's last lines are in the message.
        """
        said: deque[str] = deque(maxlen=BUILD_LINES)
        with _translated(f"image {tag}"):
            stream = self._client.api.build(
                fileobj=io.BytesIO(context), custom_context=True, dockerfile=dockerfile, tag=tag, buildargs=arguments,
                nocache=no_cache, labels=labels, rm=True, forcerm=True, decode=True, timeout=BUILD_SILENCE,
            )  # fmt: skip
            for piece in stream:
                if "error" in piece:
                    last = " | ".join(line.strip() for line in said)
                    raise EngineError(f"image {tag}: the build failed: {piece['error'].strip()} Last lines: {last}")
                for line in str(piece.get("stream", "")).splitlines():
                    if line.strip():
                        said.append(line)
                        hear(line)

    def untag(self, tag: str) -> None:
        """Take a tag away from an image."""
        with _translated(f"image {tag}"):
            self._client.api.remove_image(tag, noprune=True)

    def run_once(self, reference: str, argv: tuple[str, ...], **settings: Any) -> tuple[int, str]:
        """A command in a container of its own: exit code, and what it printed. The container is removed."""
        with _translated(f"image {reference}: cannot run {argv[0]}"):
            labels = {RUN_LABEL: "probe", DRIVER_LABEL: driver_identity()}  # to be swept if we are killed
            made = self._client.containers.create(reference, list(argv), init=True, labels=labels, **settings)
        try:
            with _translated(f"image {reference}: cannot run {argv[0]}"):
                made.start()
                code = int(made.wait(timeout=ANSWER)["StatusCode"])
                return code, made.logs().decode("utf-8", "replace")
        finally:
            with contextlib.suppress(Exception):
                made.remove(force=True)

    def describe(self) -> dict[str, Any]:
        """What it says of itself (docker info)."""
        with _translated(f"Docker Engine at {self.host}"):
            found: dict[str, Any] = self._client.api.info()
            return found

    # Containers ----------------------------------------------------------------------------------------------------

    def create_network(self, name: str, labels: dict[str, str]) -> None:
        """A network without a way out, in which containers resolve each other's names."""
        with _translated(f"network {name}"):
            self._client.networks.create(name, driver="bridge", internal=True, labels=labels, check_duplicate=True)

    def start(self, spec: Spec) -> None:
        """Create and start a container."""
        with _translated(f"container {spec.name}"):
            api = self._client.api
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
        with _translated(f"container {container}: cannot execute {argv[0]}"):
            api = self._client.api
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
            found = self._client.api.exec_inspect(number)["ExitCode"]
            code = -1 if found is None else int(found)
        execution.code = code
        execution.finished.set()

    @contextlib.contextmanager
    def watch_deaths(self, label: str) -> Iterator[Deaths]:
        """Hear of containers with a label that end. Calling what is yielded gives the first one's name, or None."""
        with _translated("watching containers"):
            events = self._client.api.events(decode=True, filters={"label": label, "event": "die"})
        deaths = Deaths(events)
        try:
            yield deaths
        finally:
            deaths.stop()

    # What is left ----------------------------------------------------------------------------------------------------

    def labelled(self, label: str = RUN_LABEL) -> list[dict[str, Any]]:
        """Containers with a label (`NAME` or `NAME=VALUE`), as the engine lists them; without one, all of collbench."""
        with _translated("listing containers"):
            found: list[dict[str, Any]] = self._client.api.containers(all=True, filters={"label": label})
            return found

    def networks(self, label: str = RUN_LABEL) -> list[dict[str, Any]]:
        """Networks with a label, as `labelled`."""
        with _translated("listing networks"):
            found: list[dict[str, Any]] = self._client.api.networks(filters={"label": label})
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
            with contextlib.suppress(docker.errors.NotFound), _translated(f"network {network['Name']}"):
                self._client.api.remove_network(network["Id"])

    def _kill(self, number: str) -> None:
        with contextlib.suppress(Exception):
            self._client.api.remove_container(number, force=True, v=True)


def _unreachable(host: str, error: BaseException) -> str:
    """Why an engine does not answer, and what would help."""
    text = str(error)
    if "Permission denied" in text or "PermissionError" in text:
        return f"Docker Engine at {host}: permission denied. Add yourself to the group docker, or run this as root."
    if any(
        sign in text for sign in ("FileNotFoundError", "Connection refused", "ConnectionRefusedError", "No such file")
    ):
        return (
            f"Docker Engine at {host}: not running. Start it (systemctl start docker), or set docker_host in the plan."
        )
    return f"Docker Engine at {host}: {_gist(error)}"
