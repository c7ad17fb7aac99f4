"""A connection to a container engine: made, lost and found again; the SDK's errors as ours."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from collbench.errors import EngineError

#: Longest wait for one answer of the engine (s).
ANSWER = 60

#: Longest wait for an engine that was there a moment ago (s).
RESTART = 30.0

DEFAULT_HOST = "unix:///var/run/docker.sock"


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
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


class Connection:
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
            self.client: Any = docker.DockerClient(base_url=self.host, timeout=ANSWER)
            self.title = _title(self.client.version())
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            raise EngineError(_unreachable(self.host, error)) from error

    def close(self) -> None:
        """Close all connections; the next call makes new ones."""
        self.client.close()

    def wait(self, check: Callable[[], None], limit: float = RESTART) -> None:
        """Until the engine answers: it may be restarting. `check` raises when we are to stop.

        Raises:
            EngineError: it does not within `limit` seconds.
        """
        until = time.monotonic() + limit
        while True:
            check()
            self.close()  # one that is shutting down answers on old connections and takes no new ones
            try:
                with translated(f"Docker Engine at {self.host}"):
                    self.client.api.ping()
                return
            except EngineError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)

    def describe(self) -> dict[str, Any]:
        """What it says of itself (docker info)."""
        with translated(f"Docker Engine at {self.host}"):
            found: dict[str, Any] = self.client.api.info()
            return found


def _unreachable(host: str, error: BaseException) -> str:
    """Why an engine does not answer, and what would help."""
    text = str(error)
    if "Permission denied" in text or "PermissionError" in text:
        return f"Docker Engine at {host}: permission denied. Add yourself to the group docker, or run this as root."
    if any(
        sign in text for sign in ("FileNotFoundError", "Connection refused", "ConnectionRefusedError", "No such file")
    ):
        advice = "Start it (systemctl start docker), or name another: --docker-host."
        return f"Docker Engine at {host}: not running. {advice}"
    return f"Docker Engine at {host}: {_gist(error)}"
