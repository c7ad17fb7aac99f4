"""One world, once started: a command in the first container, daemons in the others, and a wait that has a limit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from collbench.errors import LaunchFailed, RunReadError
from collbench.launch.log import Log
from collbench.launch.patience import Patience
from collbench.launch.plain_files import open_folder, open_plain
from collbench.launch.relay import LARGEST
from collbench.launch.starters.starter import Argv, Request, Starter

#: How often the waiting thread looks (s): often while daemons are asked for, seldom while something is measured.
OFTEN, SELDOM = 0.02, 0.25


class Running(Protocol):
    """A command that was started somewhere. `code` is None while it runs."""

    @property
    def code(self) -> int | None:
        """Its exit code."""


#: Starts a command in a container (None: on the host): container, argv, environment, log -> what runs.
Execute = Callable[[str | None, Argv, dict[str, str], Log], Running]


@dataclass(frozen=True)
class Job:
    """What is to be started. `hosts` are containers with their numbers of ranks; empty on the host.

    `relay` is the folder of the host that the first container sees as its relay folder.
    """

    starter: Starter
    hosts: tuple[tuple[str, int], ...]
    ranks: int
    crowded: bool
    program: Argv
    environment: dict[str, str]
    relay: Path | None

    @property
    def names(self) -> tuple[str, ...]:
        """Of the containers."""
        return tuple(name for name, _ in self.hosts)

    @property
    def starts(self) -> tuple[tuple[str | None, dict[str, str]], ...]:
        """Where the command runs at the beginning, and with which variables: once, or once for each rank."""
        if len(self.hosts) > 1 and self.starter.direct is not None:
            return tuple((name, self.environment | more) for name, more in self.starter.direct(self.hosts))
        return ((self.hosts[0][0] if self.hosts else None, self.environment),)

    @property
    def argv(self) -> Argv:
        """The first command."""
        if len(self.hosts) > 1:
            return self.starter.across(self.hosts, self.program)
        return self.starter.local(self.ranks, self.crowded, self.program)


def run_job(
    job: Job, execute: Execute, log: Log, died: Callable[[], str | None], check: Callable[[], None],
    patience: Patience, written: Callable[[], int],
) -> int:  # fmt: skip
    """Start a world and wait for its end; returns the exit code of its launcher.

    `died` says what is gone, a container or the engine; None while all are there. `check` raises when we are to stop.
    `written` says how many bytes of records there are.

    Raises:
        LaunchFailed: a container died, a daemon could not be started, or the world took too long.
    """
    asked = Daemons(job, log)
    head, *daemons = [execute(container, job.argv, more, log) for container, more in job.starts]
    while head.code is None:
        check()
        daemons.extend(execute(request.container, ("sh", "-c", request.shell), {}, log) for request in asked.new())
        if (lost := died()) is not None:
            raise LaunchFailed(lost, log.tail(job.starter.quiet))
        if (late := patience.ended(written())) is not None and head.code is None:
            raise LaunchFailed(late, log.tail(job.starter.quiet))
        time.sleep(SELDOM if asked.complete else OFTEN)
    if (lost := died()) is not None:  # the engine may say 0 of a command whose container was killed
        raise LaunchFailed(lost, log.tail(job.starter.quiet))
    return head.code


class Daemons:
    """The requests for daemons, each handed out once; only for containers of this world."""

    def __init__(self, job: Job, log: Log) -> None:
        self._job, self._names, self._log = job, job.names, log
        self._expected = len(self._names) if not job.starter.relays else len(self._names) - 1
        self._seen: set[str] = set()
        self._read = 0

    @property
    def complete(self) -> bool:
        """Whether every container that needs one has its daemon."""
        return len(self._names) <= 1 or self._job.starter.direct is not None or len(self._seen) >= self._expected

    def new(self) -> list[Request]:
        """Those that came since the last call.

        Raises:
            LaunchFailed: for a container that is none of this world's, or a request that cannot be read.
        """
        if self.complete:
            return []
        found = self._relayed() if self._job.starter.relays else self._printed()
        fresh = [request for request in found if request.container not in self._seen]
        for request in fresh:
            if request.container not in self._names:
                raise LaunchFailed(f"a daemon was asked for in {request.container!r}, which is not of this launch")
            self._seen.add(request.container)
        return fresh

    def _printed(self) -> list[Request]:
        lines = self._log.lines
        found = [self._job.starter.asks(line, self._names) for line in lines[self._read :]]
        self._read = len(lines)
        return [request for request in found if request is not None]

    def _relayed(self) -> list[Request]:
        assert self._job.relay is not None
        try:
            folder = open_folder(self._job.relay)
            try:
                names = [name for name in os.listdir(folder) if name.endswith(".request")]  # noqa: PTH208 - an open folder
                return [_taken(folder, name) for name in sorted(names)]
            finally:
                os.close(folder)
        except (RunReadError, OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise LaunchFailed(f"a request for a daemon cannot be read ({error})") from error


def _taken(folder: int, name: str) -> Request:
    """A request, taken out of the relay folder. Anything may lie there."""
    with open_plain(folder, name, LARGEST) as file:
        words = msgspec.json.decode(file.read(), type=list[str])
    os.unlink(name, dir_fd=folder)
    if len(words) < 2:
        raise LaunchFailed("a request for a daemon is not one")
    return Request(words[0], " ".join(words[1:]))
