"""One world, once started: a command in the first container, daemons in the others, and a wait that has a limit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from collbench.errors import LaunchFailed, RunReadError
from collbench.launch.engines.spec import OpenWorld
from collbench.launch.folders.plain_files import open_folder, open_plain
from collbench.launch.log import Log
from collbench.launch.patience import Patience
from collbench.launch.relay import LARGEST
from collbench.launch.starters.starter import Argv, Request, Starter
from collbench.launch.stopping import StopCheck

#: How often the waiting thread looks (s): often while daemons are asked for, seldom while something is measured.
OFTEN, SELDOM = 0.02, 0.25


@dataclass(frozen=True)
class Job:
    """What is to be started in an open world. `relay` is the folder that its first box sees as its relay folder."""

    world: OpenWorld
    starter: Starter
    ranks: int
    crowded: bool
    relay: Path

    @property
    def hosts(self) -> tuple[tuple[str, int], ...]:
        """Of the world: boxes with their numbers of ranks."""
        return self.world.hosts

    @property
    def names(self) -> tuple[str, ...]:
        """Of the boxes."""
        return tuple(name for name, _ in self.hosts)

    @property
    def starts(self) -> tuple[tuple[str, dict[str, str]], ...]:
        """Where the command runs at the beginning, and with which variables: once, or once for each rank."""
        if len(self.hosts) > 1 and self.starter.direct is not None:
            return tuple((name, self.world.environment | more) for name, more in self.starter.direct(self.hosts))
        return ((self.names[0], self.world.environment),)

    @property
    def argv(self) -> Argv:
        """The first command."""
        if len(self.hosts) > 1:
            return self.starter.across(self.hosts, self.world.program)
        return self.starter.local(self.ranks, self.crowded, self.world.program)


def run_job(job: Job, log: Log, check: StopCheck, patience: Patience, written: Callable[[], int]) -> None:
    """Start the ranks of a world and wait for their end. With exit code 1 a case failed, which is recorded beside.

    `check` raises when we are to stop. `written` says how many bytes of records there are.

    Raises:
        LaunchFailed: a box died, a daemon could not be started, the world took too long, or did not end well.
    """
    world, asked = job.world, Daemons(job, log)
    head, *daemons = [world.execute(host, job.argv, more, log) for host, more in job.starts]
    while head.code is None:
        check()
        daemons.extend(world.execute(request.host, ("sh", "-c", request.shell), {}, log) for request in asked.new())
        if (lost := world.died()) is not None:
            raise LaunchFailed(lost, log.tail(job.starter.quiet))
        if (late := patience.ended(written())) is not None and head.code is None:
            raise LaunchFailed(late, log.tail(job.starter.quiet))
        time.sleep(SELDOM if asked.complete else OFTEN)
    if (lost := world.died()) is not None:  # the engine may say 0 of a command whose container was killed
        raise LaunchFailed(lost, log.tail(job.starter.quiet))
    if head.code != 0:
        raise LaunchFailed(head.how, log.tail(job.starter.quiet))


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
        fresh = [request for request in found if request.host not in self._seen]
        for request in fresh:
            if request.host not in self._names:
                raise LaunchFailed(f"a daemon was asked for in {request.host!r}, which is not of this launch")
            self._seen.add(request.host)
        return fresh

    def _printed(self) -> list[Request]:
        lines = self._log.lines
        found = [self._job.starter.asks(line, self._names) for line in lines[self._read :]]
        self._read = len(lines)
        return [request for request in found if request is not None]

    def _relayed(self) -> list[Request]:
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
