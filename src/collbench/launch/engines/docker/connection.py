"""A connection to a container engine: made, lost and restored; the SDK's errors as ours."""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from collbench.errors import EngineError, to_install
from collbench.launch.engines.docker.specs import DRIVER_LABEL, RUN_LABEL
from collbench.launch.folders import driver_identity
from collbench.launch.waiting import StopCheck

#: Longest wait for a whole answer of the engine, and of an engine that may be gone (s).
ANSWER, PING = 60, 5

#: Longest wait for an engine that restarts (s).
RESTART = 30.0


@dataclass(frozen=True)
class Service:
    """A program that speaks Docker's API: its name in messages, where it listens, and how it is started.

    `variable` is the environment variable that names another address. `only_cdi`: it knows GPUs by CDI names alone.
    """

    title: str = "Docker Engine"
    host: str = "unix:///var/run/docker.sock"
    variable: str = "DOCKER_HOST"
    start: str = "systemctl start docker"
    access: str = "Add yourself to the group docker, or run this as root."
    only_cdi: bool = False


DOCKER = Service()


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Errors of the SDK and of the transport as ours, with what was being done; also answers that cannot be read."""
    import docker.errors
    import requests.exceptions

    try:
        yield
    except docker.errors.APIError as error:
        raise EngineError(f"{what}: {str(error.explanation or error).strip()}") from error
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
        raise EngineError(f"{what}: {_first_line(error)}") from error
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        cause = f"{type(error).__name__}: {_first_line(error)}"
        raise EngineError(f"{what}: the engine's answer cannot be read ({cause}).") from error


def objects(answer: Any) -> list[dict[str, Any]]:
    """A list of containers, networks or images as it came from an engine.

    Raises:
        TypeError, KeyError: it is not a list, or something in it has no identity.
    """
    if not isinstance(answer, list) or not all(isinstance(listed["Id"], str) for listed in answer):
        raise TypeError("not a list of objects with an Id")
    return answer


def _title(version: dict[str, Any]) -> str:
    """`Docker Engine 20.10.24`, or `Podman Engine 4.3.1`: either may listen on the same socket."""
    components = [str(component["Name"]) for component in version.get("Components") or ()]
    name = components[0] if components else "Engine"
    return f"{'Docker Engine' if name == 'Engine' else name} {version['Version']}"


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


class Connection:
    """An engine that answers. `title` is its name and version, `run` the name of what is made over this connection.

    `check` raises when we are to stop; it is called while nothing is being made.

    Raises:
        EngineError: it does not run, may not be used, or is not an engine.
    """

    def __init__(self, host: str = "", check: StopCheck = lambda: None, service: Service = DOCKER) -> None:
        try:
            import docker.errors
            import requests.exceptions

            from collbench.launch.engines.docker.client import Client
        except ImportError as error:
            missing = f"the Docker SDK for Python is not installed; {to_install('launch')}"
            raise EngineError(f"containers: {missing}") from error
        self.host, self.check = host or os.environ.get(service.variable) or service.host, check
        self.service = service
        self.run = f"cb{secrets.token_hex(4)}"
        try:
            self.client: Any = Client(check, base_url=self.host, timeout=ANSWER, tls=_tls(self.host))
            self.title = _title(self.client.version())
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            check()  # the SDK may have wrapped an interruption
            raise EngineError(_unreachable(service, self.host, error)) from error
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise EngineError(
                f"{service.title} at {self.host}: not a container engine, or not an address: {_first_line(error)}"
            ) from error

    @property
    def labels(self) -> dict[str, str]:
        """Labels of everything that is made over this connection: its run, and the process that drives it."""
        return {RUN_LABEL: self.run, DRIVER_LABEL: driver_identity()}

    @property
    def silent(self) -> bool:
        """Whether it failed to answer: only `wait` asks it again."""
        return bool(self.client.api.silent)

    def close(self) -> None:
        """Close all connections; the next call makes new ones."""
        self.client.close()

    def wait(self, check: StopCheck, limit: float = RESTART) -> None:
        """Wait until the engine answers: it may be restarting. `check` raises when we are to stop.

        Raises:
            EngineError: it does not within `limit` seconds.
        """
        until = time.monotonic() + limit
        while True:
            check()
            self.close()  # one that is shutting down answers on old connections and takes no new ones
            try:
                with translated(f"{self.service.title} at {self.host}"):
                    self.client.api.ping_within(PING, check)
                return
            except EngineError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)

    def describe(self) -> dict[str, Any]:
        """The answer of `docker info`."""
        with translated(f"{self.service.title} at {self.host}"):
            return dict(self.client.api.info())

    def now(self) -> float:
        """Its time, in s since 1970; this machine's where it does not say."""
        try:
            return datetime.datetime.fromisoformat(str(self.describe().get("SystemTime"))).timestamp()
        except ValueError:
            return time.time()


def _tls(host: str) -> Any:
    """TLS as DOCKER_TLS_VERIFY and DOCKER_CERT_PATH ask for it, like Docker's own client; False: none."""
    import docker.errors
    import docker.utils

    if not host.startswith(("tcp:", "http")):
        return False
    try:
        return docker.utils.kwargs_from_env().get("tls", False)
    except docker.errors.TLSParameterError as error:
        folder = os.environ.get("DOCKER_CERT_PATH") or "~/.docker"
        raise EngineError(
            f"Docker Engine at {host}: DOCKER_TLS_VERIFY or DOCKER_CERT_PATH asks for TLS; {folder} needs ca.pem, "
            "cert.pem and key.pem."
        ) from error


def _unreachable(service: Service, host: str, error: BaseException) -> str:
    """Why an engine does not answer, and what would help."""
    text, engine = str(error), f"{service.title} at {host}"
    if "Permission denied" in text or "PermissionError" in text:
        return f"{engine}: permission denied. {service.access}"
    absent = ("FileNotFoundError", "Connection refused", "ConnectionRefusedError", "No such file")
    if any(message in text for message in absent):
        return f"{engine}: not running. Start it ({service.start}), or name another: --docker-host."
    return f"{engine}: {_first_line(error)}"


Thing = TypeVar("Thing")

#: How often the waiting thread asks whether it is to stop (s).
JOIN_SLICE = 0.25


def each(act: Callable[[Thing], None], things: Iterable[Thing], at_once: int, check: Callable[[], None]) -> None:
    """Act on all things, at most `at_once` of them at a time, and wait. The first error ends it, and is raised.

    Where `check` raises, no further thing is begun, and those that were begun are waited for.
    """
    waiting, errors = deque(things), list[BaseException]()
    number = min(at_once, len(waiting))
    workers = [threading.Thread(target=_work, args=(act, waiting, errors), daemon=True) for _ in range(number)]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            while worker.is_alive():
                worker.join(JOIN_SLICE)
                check()
    except Exception:
        waiting.clear()
        for worker in workers:
            worker.join()
        raise
    if errors:
        raise errors[0]


def _work(act: Callable[[Thing], None], waiting: deque[Thing], errors: list[BaseException]) -> None:
    while waiting and not errors:
        with contextlib.suppress(IndexError):  # another thread took the last one
            thing = waiting.popleft()
            try:
                act(thing)
            except BaseException as error:
                errors.append(error)
