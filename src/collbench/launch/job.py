"""The processes of one world: a command in the first box, daemons in the others, and a wait with a limit."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from collbench.errors import LaunchFailed, RunReadError
from collbench.launch.dead_ranks import DeadRanks
from collbench.launch.engines.spec import OpenWorld
from collbench.launch.folders.plain_files import open_folder, open_plain
from collbench.launch.log import Log
from collbench.launch.patience import Patience
from collbench.launch.relay import LARGEST
from collbench.launch.starters.starter import Argv, Request, Starter

#: Intervals at which the waiting thread looks (s): short while daemons may be asked for, long while ranks measure.
OFTEN, SELDOM = 0.02, 0.25


@dataclass(frozen=True)
class Job:
    """What is to be started in an open world. `relay` is the folder in which its first box leaves requests."""

    world: OpenWorld
    starter: Starter
    ranks: int
    crowded: bool
    relay: Path

    @property
    def hosts(self) -> tuple[tuple[str, int], ...]:
        """Names of the boxes, with their numbers of ranks."""
        return self.world.hosts

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.hosts)

    @property
    def starts(self) -> tuple[tuple[str, dict[str, str]], ...]:
        """Boxes in which the first command is started, with its variables: one, or one for each rank."""
        if len(self.hosts) > 1 and self.starter.direct is not None:
            direct = self.starter.direct(self.hosts)
            return tuple((name, self.world.environment | variables) for name, variables in direct)
        return ((self.names[0], self.world.environment),)

    @property
    def argv(self) -> Argv:
        """The first command."""
        if len(self.hosts) > 1:
            return self.starter.across(self.hosts, self.world.program)
        return self.starter.local(self.ranks, self.crowded, self.world.program)


class StartedJob:
    """The ranks of a world from their start on. `written` says how many bytes of records there are.

    Raises:
        CollbenchError: the launcher cannot be started.
    """

    def __init__(self, job: Job, log: Log, patience: Patience, written: Callable[[], int]) -> None:
        self._job, self._log, self._patience, self._written = job, log, patience, written
        self._requests, self._dead = Daemons(job, log), DeadRanks(job.argv, job.world.program, job.ranks)
        self._started = [job.world.execute(host, job.argv, variables, log) for host, variables in job.starts]

    @property
    def pause(self) -> float:
        """How long to wait before the next look (s)."""
        return SELDOM if self._requests.complete else OFTEN

    def look(self) -> bool:
        """One pass of the wait for its end; whether it still runs.

        Raises:
            LaunchFailed: a box died, a daemon could not be started, it took too long, or its exit code is not 0.
        """
        world, head, reason = self._job.world, self._started[0], None
        if (code := head.code) is None:
            for request in self._requests.new():
                self._started.append(world.execute(request.host, ("sh", "-c", request.shell), {}, self._log))
            size = self._written()
            reason = world.died() or self._dead.ended(self._started, size) or self._patience.ended(size)
            code = None if reason is None else head.code  # it may have ended meanwhile
        if code is not None:  # an engine may report 0 for a command whose container was killed
            reason = world.died() or (head.how if code != 0 else None)
        if reason is not None:
            raise LaunchFailed(reason, self._log.tail(self._job.starter.quiet))
        return code is None


class Daemons:
    """The requests for daemons, each returned once."""

    def __init__(self, job: Job, log: Log) -> None:
        self._job, self._names, self._log = job, job.names, log
        self._expected = len(self._names) if not job.starter.relays else len(self._names) - 1
        self._seen: set[str] = set()
        self._read = 0

    @property
    def complete(self) -> bool:
        """Whether every box that needs a daemon has one."""
        return len(self._names) <= 1 or self._job.starter.direct is not None or len(self._seen) >= self._expected

    def new(self) -> list[Request]:
        """Those that came since the last call.

        Raises:
            LaunchFailed: a request is for a box of another world, or cannot be read.
        """
        if self.complete:
            return []
        requests = self._relayed() if self._job.starter.relays else self._printed()
        fresh = [request for request in requests if request.host not in self._seen]
        for request in fresh:
            if request.host not in self._names:
                raise LaunchFailed(f"a daemon was requested in {request.host!r}, which is not part of this launch")
            self._seen.add(request.host)
        return fresh

    def _printed(self) -> list[Request]:
        lines = self._log.lines
        requests = [self._job.starter.asks(line, self._names) for line in lines[self._read :]]
        self._read = len(lines)
        return [request for request in requests if request is not None]

    def _relayed(self) -> list[Request]:
        try:
            folder = open_folder(self._job.relay)
            try:
                names = [name for name in os.listdir(folder) if name.endswith(".request")]  # noqa: PTH208 - an open folder
                return [_take(folder, name) for name in sorted(names)]
            finally:
                os.close(folder)
        except (RunReadError, OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise LaunchFailed(f"a request for a daemon cannot be read ({error})") from error


def _take(folder: int, name: str) -> Request:
    """Read a request and remove it from the relay folder, in which a container may have written anything."""
    with open_plain(folder, name, LARGEST) as file:
        words = msgspec.json.decode(file.read(), type=list[str])
    os.unlink(name, dir_fd=folder)
    if len(words) < 2:
        raise LaunchFailed("a request for a daemon has no command")
    return Request(words[0], " ".join(words[1:]))
