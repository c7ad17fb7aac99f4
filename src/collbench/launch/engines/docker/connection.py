"""A connection to a container engine: made, lost and found again; the SDK's errors as ours."""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from collbench.errors import EngineError
from collbench.launch.engines.docker.specs import DRIVER_LABEL, RUN_LABEL
from collbench.launch.folders.signature import driver_identity
from collbench.launch.stopping import StopCheck

#: Longest wait for one whole answer of the engine, and for that of one that may be gone (s).
ANSWER, PING = 60, 5

#: Longest wait for an engine that was there a moment ago (s).
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
    """SDK and transport errors as ours, with what was being done; and answers of a shape that no engine gives."""
    import docker.errors
    import requests.exceptions

    try:
        yield
    except docker.errors.APIError as error:
        raise EngineError(f"{what}: {str(error.explanation or error).strip()}") from error
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
        raise EngineError(f"{what}: {_gist(error)}") from error
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(f"{what}: the engine's answer is none ({type(error).__name__}: {_gist(error)}).") from error


def objects(found: Any) -> list[dict[str, Any]]:
    """A list of containers or networks as it came from an engine.

    Raises:
        TypeError, KeyError: it is none, or something in it has no identity.
    """
    if not isinstance(found, list) or not all(isinstance(one["Id"], str) for one in found):
        raise TypeError("not a list of things with an Id")
    return found


def _title(version: dict[str, Any]) -> str:
    """`Docker Engine 20.10.24`, or `Podman Engine 4.3.1`: another one may stand behind the same socket."""
    parts = [str(part["Name"]) for part in version.get("Components") or ()]
    first = parts[0] if parts else "Engine"
    return f"{'Docker Engine' if first == 'Engine' else first} {version['Version']}"


def _gist(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


class Connection:
    """An engine that answers. `title` is its name and version, `run` what is made over this connection is called.

    `check` raises when we are to stop; it is asked where nothing is being made.

    Raises:
        EngineError: it does not run, may not be used, or is none.
    """

    def __init__(self, host: str = "", check: StopCheck = lambda: None, service: Service = DOCKER) -> None:
        try:
            import docker.errors
            import requests.exceptions

            from collbench.launch.engines.docker.client import Client
        except ImportError as error:
            missing = "the Docker SDK for Python is not installed; pip install 'collbench[launch]'"
            raise EngineError(f"containers: {missing}") from error
        self.host, self.check = host or os.environ.get(service.variable) or service.host, check
        self.service = service
        self.run = f"cb{secrets.token_hex(4)}"
        try:
            self.client: Any = Client(check, base_url=self.host, timeout=ANSWER, tls=_tls(self.host))
            self.title = _title(self.client.version())
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            check()  # the SDK may have taken it for the engine's error
            raise EngineError(_unreachable(service, self.host, error)) from error
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise EngineError(
                f"{service.title} at {self.host}: no engine, or no address of one: {_gist(error)}"
            ) from error

    @property
    def labels(self) -> dict[str, str]:
        """On everything that is made over this connection: whose it is, and which process drives it."""
        return {RUN_LABEL: self.run, DRIVER_LABEL: driver_identity()}

    @property
    def silent(self) -> bool:
        """Whether an answer did not come: nothing but `wait` asks it any more."""
        return bool(self.client.api.silent)

    def close(self) -> None:
        """Close all connections; the next call makes new ones."""
        self.client.close()

    def wait(self, check: StopCheck, limit: float = RESTART) -> None:
        """Until the engine answers: it may be restarting. `check` raises when we are to stop.

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
        """What it says of itself (docker info)."""
        with translated(f"{self.service.title} at {self.host}"):
            found: dict[str, Any] = dict(self.client.api.info())
            return found

    def now(self) -> float:
        """Its time, in s since 1970; ours, where it does not say."""
        try:
            return datetime.datetime.fromisoformat(str(self.describe().get("SystemTime"))).timestamp()
        except ValueError:
            return time.time()


def _tls(host: str) -> Any:
    """What DOCKER_TLS_VERIFY and DOCKER_CERT_PATH ask for, as Docker's own client takes them; False: nothing."""
    import docker.errors
    import docker.utils

    try:
        return docker.utils.kwargs_from_env().get("tls", False) if host.startswith(("tcp:", "http")) else False
    except docker.errors.TLSParameterError as error:
        where = os.environ.get("DOCKER_CERT_PATH") or "~/.docker"
        asked = "DOCKER_TLS_VERIFY or DOCKER_CERT_PATH asks for TLS"
        raise EngineError(f"Docker Engine at {host}: {asked}; {where} needs ca.pem, cert.pem and key.pem.") from error


def _unreachable(service: Service, host: str, error: BaseException) -> str:
    """Why an engine does not answer, and what would help."""
    text, where = str(error), f"{service.title} at {host}"
    if "Permission denied" in text or "PermissionError" in text:
        return f"{where}: permission denied. {service.access}"
    if any(
        sign in text for sign in ("FileNotFoundError", "Connection refused", "ConnectionRefusedError", "No such file")
    ):
        return f"{where}: not running. Start it ({service.start}), or name another: --docker-host."
    return f"{where}: {_gist(error)}"
