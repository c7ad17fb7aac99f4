"""A client of a container engine, over the Docker SDK: each request has a limit, and the SDK's errors are ours.

Everything that is made has the labels of its run and its driver, by which it is found and removed. The SDK is imported
when a client connects: it may not be installed.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from collbench.errors import CollbenchError, EngineError, to_install
from collbench.launch.engines.docker.spec import DRIVER_LABEL, NETWORK_OPTIONS, RUN_LABEL, Spec, container_settings
from collbench.launch.folders import driver_identity
from collbench.launch.waiting import Lines, StopCheck

#: Longest waits (s): for a whole answer of the engine, of one that may be gone, and for one that restarts.
ANSWER, PING, RESTART = 60, 5, 30.0

#: How often a waiting thread asks whether it is to stop (s), and how many containers are started at once.
SLICE, STARTING = 0.25, 8

#: Receives a line of a running command: (is standard error, text).
OnLine = Callable[[bool, str], None]

#: What reading an answer of another shape raises.
_UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, RecursionError)


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

    try:
        yield
    except docker.errors.APIError as error:
        raise EngineError(f"{what}: {str(error.explanation or error).strip()}") from error
    except (docker.errors.DockerException, OSError) as error:  # those of requests are an OSError
        raise EngineError(f"{what}: {_first_line(error)}") from error
    except _UNREADABLE as error:
        cause = f"{type(error).__name__}: {_first_line(error)}"
        raise EngineError(f"{what}: the engine's answer cannot be read ({cause}).") from error


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def objects(answer: Any) -> list[dict[str, Any]]:
    """A list of containers, networks or images as it came from an engine; TypeError or KeyError: it is another."""
    if not isinstance(answer, list) or not all(isinstance(listed["Id"], str) for listed in answer):
        raise TypeError("not a list of objects with an Id")
    return answer


class Limit:
    """The limit of requests for whole answers. `silent`: one was not answered, so no other is sent until a ping is.

    A socket's time-out holds for each piece of an answer: one that comes byte by byte is never late. So requests are
    sent from threads of their own, and abandoned from outside. The threads are daemons: one that waits for ever does
    not keep the program from ending. `check` raises when we are to stop, and is called while an answer is waited for.
    """

    def __init__(self, check: StopCheck) -> None:
        self.silent, self.check = False, check

    def on(self, api: Any) -> Any:
        """The same client of the SDK, with this limit on its requests."""
        api.send = partial(self._send, api.send)
        return api

    def _send(self, send: Callable[..., Any], request: Any, **settings: Any) -> Any:
        """As the SDK's, within its time-out for the answer as a whole (of a stream: for its beginning)."""
        from requests import ReadTimeout

        if self.silent:
            raise ReadTimeout("it no longer answers.")
        answer: Future[Any] = Future()

        def fetch() -> None:
            try:
                answer.set_result(send(request, **settings))
            except BaseException as error:
                answer.set_exception(error)

        limit = float(settings.get("timeout") or ANSWER)
        threading.Thread(target=fetch, daemon=True).start()
        until = time.monotonic() + limit
        try:
            while not wait((answer,), max(0.0, min(SLICE, until - time.monotonic()))).done:
                if time.monotonic() >= until:
                    raise ReadTimeout
                self.check()
            return answer.result()
        except ReadTimeout as error:  # ours, or the socket's own
            self.silent = True
            raise ReadTimeout(f"no answer within {limit:g} s.") from error


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
        if self._pid == 0:
            self._pid = self.locate()
        return self._pid or None

    @property
    def how(self) -> str:
        return f"ended with exit code {self.code}"


class ExitWatch:
    """Watches the engine's events for containers that end, until `stop`; a call says what died first, if any did."""

    def __init__(self, events: Any) -> None:
        self._events, self._stopped = events, False
        self._first: str | None = None
        threading.Thread(target=self._follow, daemon=True).start()

    def __call__(self) -> str | None:
        return self._first

    def _follow(self) -> None:
        end = "the engine is gone"
        try:
            for event in self._events:
                if self._stopped:
                    return
                name = event["Actor"]["Attributes"].get("name", event["Actor"]["ID"][:12])
                self._first = self._first or f"container {name} died"
        except Exception as error:  # the engine went away, in one of many ways
            end = f"the engine is gone ({type(error).__name__})"
        if not self._stopped:
            self._first = self._first or end

    def stop(self) -> None:
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


class Docker:
    """A container engine that answers, else EngineError. `title` is its name and version, `run` names what is made.

    `check` raises when we are to stop; it is called while nothing is being made.
    """

    def __init__(self, host: str = "", check: StopCheck = lambda: None, service: Service = DOCKER) -> None:
        try:
            import docker
            import docker.constants
        except ImportError as error:
            missing = f"the Docker SDK for Python is not installed; {to_install('launch')}"
            raise EngineError(f"containers: {missing}") from error
        self.host, self.check = host or os.environ.get(service.variable) or service.host, check
        self.service, self.run, self.limit = service, f"cb{secrets.token_hex(4)}", Limit(check)
        client = partial(docker.APIClient, base_url=self.host, timeout=ANSWER, tls=_tls(self.host))
        try:
            # One that is told a version asks for nothing while it is made, when it has no limit yet.
            with self.limit.on(client(version=docker.constants.DEFAULT_DOCKER_API_VERSION)) as first:
                version = first.version(api_version=False)
            self.api: Any = self.limit.on(client(version=version["ApiVersion"]))
            components = [str(component["Name"]) for component in version.get("Components") or ()]
            name = components[0] if components else "Engine"  # Podman's may listen on the same socket
            self.title = f"{'Docker Engine' if name == 'Engine' else name} {version['Version']}"
        except (docker.errors.DockerException, OSError) as error:
            check()
            raise EngineError(_unreachable(service, self.host, error)) from error
        except _UNREADABLE as error:
            what = f"{service.title} at {self.host}: not a container engine, or not an address"
            raise EngineError(f"{what}: {_first_line(error)}") from error
        self.limit.check = _no_safe_point

    @property
    def labels(self) -> dict[str, str]:
        """Labels of everything that is made by this client: its run, and the process that drives it."""
        return {RUN_LABEL: self.run, DRIVER_LABEL: driver_identity()}

    def close(self) -> None:
        self.api.close()

    def wait(self, check: StopCheck, limit: float = RESTART) -> None:
        """Wait until the engine answers, for it may be restarting; EngineError: it does not within `limit` seconds."""
        until = time.monotonic() + limit
        while True:
            check()
            self.close()  # one that is shutting down answers on old connections and takes no new ones
            self.limit.silent, self.limit.check, self.api.timeout = False, check, PING
            try:
                with translated(f"{self.service.title} at {self.host}"):
                    self.api.ping()
                return
            except EngineError:
                if time.monotonic() > until:
                    raise
            finally:
                self.limit.check, self.api.timeout = _no_safe_point, ANSWER
            time.sleep(0.5)

    def describe(self) -> dict[str, Any]:
        """The answer of `docker info`."""
        with translated(f"{self.service.title} at {self.host}"):
            return dict(self.api.info())

    def now(self) -> float:
        """Its time, in s since 1970; this machine's where it does not say."""
        try:
            return datetime.datetime.fromisoformat(str(self.describe().get("SystemTime"))).timestamp()
        except ValueError:
            return time.time()

    def create_network(self, name: str, labels: dict[str, str], sealed: bool = True) -> None:
        """A network without a way out, which has names; `sealed`: nor an address of the host, where others listen."""
        with translated(f"network {name}"):
            self.api.create_network(name, driver="bridge", internal=True, labels=labels, check_duplicate=True,
                                    options=NETWORK_OPTIONS if sealed else None)  # fmt: skip

    def start(self, spec: Spec) -> None:
        with translated(f"container {spec.name}"):
            self.api.start(self.api.create_container(**container_settings(self.api, spec))["Id"])

    def start_together(self, specs: tuple[Spec, ...]) -> None:
        each(self.start, specs, STARTING, self.check)

    def execute(self, container: str, argv: tuple[str, ...], environment: dict[str, str], on_line: OnLine) -> Execution:
        """Start a command in a container; its lines go to `on_line` from another thread."""
        with translated(f"container {container}: cannot execute {argv[0]}"):
            number = self.api.exec_create(container, list(argv), environment=environment)["Id"]
            stream = self.api.exec_start(number, stream=True, demux=True)
        execution = Execution(container, locate=partial(self._locate, number))

        def follow() -> None:
            code = -1
            with contextlib.suppress(Exception):
                for is_error, line in lines(stream):
                    on_line(is_error, line)
                exit_code = self.api.exec_inspect(number)["ExitCode"]
                code = -1 if exit_code is None else int(exit_code)
            execution.code = code
            execution.finished.set()

        threading.Thread(target=follow, daemon=True).start()
        return execution

    def _locate(self, number: str) -> int | None:
        """The process of a command; None where its control group says that the engine's numbers are not ours."""
        with contextlib.suppress(Exception):
            state = self.api.exec_inspect(number)
            pid = int(state["Pid"])
            if pid == 0 or state["ContainerID"] in Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii"):
                return pid
        return None

    def watch_exits(self, *labels: str) -> ExitWatch:
        with translated("watching containers"):
            return ExitWatch(self.api.events(decode=True, filters={"label": list(labels), "event": "die"}))

    def labelled(self, *labels: str) -> list[dict[str, Any]]:
        """Containers with all these labels (`NAME` or `NAME=VALUE`), as the engine lists them; by default all runs'."""
        with translated("listing containers"):
            return objects(self.api.containers(all=True, filters={"label": list(labels or (RUN_LABEL,))}))

    def networks(self, *labels: str) -> list[dict[str, Any]]:
        with translated("listing networks"):
            return objects(self.api.networks(filters={"label": list(labels or (RUN_LABEL,))}))

    def remove(self, containers: list[dict[str, Any]], networks: list[dict[str, Any]]) -> None:
        """Remove containers, all at once, then networks. Does not raise: what could not be removed is still listed."""

        def kill(container: dict[str, Any]) -> None:
            with contextlib.suppress(Exception):
                self.api.remove_container(container["Id"], force=True, v=True)

        each(kill, containers, len(containers), lambda: None)
        for network in networks:
            with contextlib.suppress(Exception):
                self.api.remove_network(network["Id"])


def _no_safe_point() -> None:
    """Between a request and its answer: the engine is making something."""


_ADVICE = "collbench launch --sweep removes them."


def remove_all(engine: Docker, at_once: bool) -> None:
    """Remove everything of this run; EngineError: something is left, or may be. `at_once`: ask the engine nothing."""
    if at_once:
        raise EngineError(f"Containers may be left; {_ADVICE}")
    try:
        if engine.limit.silent:  # it is asked once more, and for no more than a ping
            engine.wait(lambda: None, limit=0)
        number = clear(engine)
    except CollbenchError as error:
        raise EngineError(f"Containers may be left ({str(error).rstrip('.')}); {_ADVICE}") from error
    if number:
        raise EngineError(f"{number} containers and networks are left; {_ADVICE}")


def clear(engine: Docker) -> int:
    """Remove all containers and networks of this run; how many remain. EngineError: the engine does not answer."""
    labels = tuple(f"{name}={value}" for name, value in engine.labels.items())
    engine.remove(engine.labelled(*labels), engine.networks(*labels))
    return len(engine.labelled(*labels)) + len(engine.networks(*labels))


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
        raise EngineError(f"Docker Engine at {host}: DOCKER_TLS_VERIFY or DOCKER_CERT_PATH asks for TLS; {folder} "
                          "needs ca.pem, cert.pem and key.pem.") from error  # fmt: skip


def _unreachable(service: Service, host: str, error: BaseException) -> str:
    text, engine = str(error), f"{service.title} at {host}"
    if "Permission denied" in text or "PermissionError" in text:
        return f"{engine}: permission denied. {service.access}"
    if re.search("FileNotFoundError|Connection refused|ConnectionRefusedError|No such file", text):
        start = f"Start it ({service.start})"
        return f"{engine}: not running. {start}, or name another: --docker-host or {service.variable}."
    return f"{engine}: {_first_line(error)}"


Thing = TypeVar("Thing")


def each(act: Callable[[Thing], None], things: Iterable[Thing], at_once: int, check: StopCheck) -> None:
    """Act on all things, at most `at_once` of them at a time, and wait. The first error ends it, and is raised.

    Where `check` raises, no further thing is begun, and those that were begun are waited for.
    """
    waiting, errors = deque(things), list[BaseException]()

    def work() -> None:
        while waiting and not errors:
            with contextlib.suppress(IndexError):  # another thread took the last one
                thing = waiting.popleft()
                try:
                    act(thing)
                except BaseException as error:
                    errors.append(error)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(min(at_once, len(waiting)))]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            while worker.is_alive():
                worker.join(SLICE)
                check()
    except Exception:
        waiting.clear()
        for worker in workers:
            worker.join()
        raise
    if errors:
        raise errors[0]
