"""The processes of one world: started and ended on this machine or in boxes, and found when they have died.

Open MPI's prterun sometimes waits for ever after a rank has died in MPI_Init (5.0.11: in PMIx_server_finalize, without
having waited for all its children).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import msgspec

from collbench.errors import CollbenchError, LaunchFailed, RunReadError
from collbench.launch.engines.spec import OpenWorld, Running
from collbench.launch.folders import open_folder, open_plain
from collbench.launch.launchers import LARGEST, Argv, RankLauncher, Request
from collbench.launch.waiting import LONGEST_PASS, Lines, Log, Timeouts

#: Fields of /proc/PID/stat from the state on: state, number of threads, time of the start, and status for wait(2).
_STATE, _THREADS, _STARTED, _STATUS = 0, 17, 19, 49


@dataclass(frozen=True)
class Child:
    """A child process. `ended`: with all its threads, and its parent has not waited for it yet (a zombie).

    `status` is then what wait(2) will tell; 0 also where this user may not know it. `started` (clock ticks since boot)
    distinguishes it from a later process of the same number.
    """

    number: int
    ended: bool
    status: int
    started: int


def children(number: int) -> Iterator[Child]:
    """The children of a process; none where it is gone, or where the kernel does not list them."""
    with contextlib.suppress(OSError):
        for listed in Path(f"/proc/{number}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                yield from filter(None, map(_child, listed.read_text(encoding="ascii").split()))


def descendants(number: int) -> list[Child]:
    """The children of a process, their children, and so on."""
    below = list(children(number))
    for child in below:  # which becomes longer meanwhile
        below.extend(children(child.number))
    return below


def runs(child: Child) -> bool:
    """Whether a process that was seen before is there, whatever its parent is now."""
    now = _child(str(child.number))
    return now is not None and now.started == child.started and not now.ended


def _child(number: str) -> Child | None:
    try:
        fields = Path(f"/proc/{number}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:  # it is gone meanwhile
        return None
    ended = fields[_STATE] in "ZX" and int(fields[_THREADS]) <= 1  # a leader whose threads still run is a zombie too
    return Child(int(number), ended, int(fields[_STATUS]) if ended else 0, int(fields[_STARTED]))


def command_line(number: int) -> bytes:
    """The words of its command, each with a NUL behind it; empty where it is gone or has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{number}/cmdline").read_bytes()
    return b""


def how_ended(code: int) -> str:
    """By an exit code of `subprocess`, which is negative for a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was ended by signal {-code} ({signal.strsignal(-code)})"


#: How long a launcher whose ranks have ended has to end by itself (s).
ENDING = 10.0

#: Intervals at which processes are looked at (s): until the ranks have met, or while one is missing; and while they
#: measure and write nothing. 64 ranks take about 5 ms.
LOOK_OFTEN, LOOK_SELDOM = 0.5, 5.0

#: Exit codes of a rank whose run is over: all is measured, a case failed, or the request was refused on all ranks.
ORDERLY = (0, 1, 2)


@dataclass(frozen=True)
class RankStates:
    """Ranks at one moment: numbers of those that run, and statuses of those that nobody has waited for."""

    running: frozenset[int]
    ended: tuple[int, ...]


def ranks_below(launchers: Iterable[int], program: Argv) -> RankStates:
    """The ranks that these processes, or their children, have started: those whose command ends as the program does.

    A rank's own children are none. Where a container starts the program by its interpreter, its first word differs. A
    launcher's command ends so too, and that of a child that it has just forked, which may become a daemon or a rank.
    """
    end = "".join(f"{word}\0" for word in program[1:]).encode()
    running, ended, unseen = set[int](), list[int](), list(launchers)
    while unseen:
        parent = unseen.pop()
        its_own = command_line(parent)
        for child in children(parent):
            if child.ended:
                ended.append(child.status)
            elif (line := command_line(child.number)).endswith(end) and line != its_own:
                running.add(child.number)
            else:
                unseen.append(child.number)
    return RankStates(frozenset(running), tuple(ended))


class DeadRanks:
    """Looks at the processes of a world. `launcher` is its first command, `program` what it starts on every rank.

    Where they are the same the commands of the world are the ranks. Some may be below a daemon that left its command.
    """

    def __init__(self, launcher: Argv, program: Argv, ranks: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._launcher, self._program, self._ranks, self._clock = launcher, program, ranks, clock
        self._known = frozenset[int]()
        self._problem: str | None = None
        self._written, self._since, self._last, self._looked = 0, 0.0, clock(), clock()

    def ended(self, started: Sequence[Running], written: int) -> str | None:
        """Called in each pass of the waiting loop: why the wait ends, if it does.

        `started` are the commands of the world, in order; while more bytes are `written` by ranks, one is at work.
        """
        now = self._clock()
        self._since, self._last = self._since + min(now - self._last, LONGEST_PASS), now
        if written > self._written:
            self._written, self._since = written, 0.0
            if self._problem is None:
                self._looked = now
        often = self._written == 0 or self._problem is not None
        if now - self._looked >= (LOOK_OFTEN if often else LOOK_SELDOM):
            self._looked, before = now, self._problem
            self._problem = self._look(started)
            if before is None:
                self._since = 0.0
        if self._problem is None or self._since < ENDING:
            return None
        others = "the others" if self._launcher == self._program else Path(self._launcher[0]).name
        return f"{self._problem}, and {others} did not end within {ENDING:g} s of it"

    def _look(self, started: Sequence[Running]) -> str | None:
        met = self._written > 0
        orderly = ORDERLY if met else (0,)  # before the ranks have met, none of them ends well but all together
        for command in started[1:]:
            if (command.code or 0) > 0 and command.code not in orderly:
                return f"what was started beside rank 0 {command.how}"
        if self._launcher == self._program:
            return None
        launchers = [command.pid for command in started if command.code is None]
        seen = ranks_below([pid for pid in launchers if pid is not None], self._program)
        self._known |= seen.running
        codes = [os.waitstatus_to_exitcode(status) for status in seen.ended]
        dead, gone = [code for code in codes if code not in orderly], self._known - seen.running
        if not seen.running and (dead or len(gone) >= (self._ranks if met else 1)):
            return "all ranks have ended"
        if dead:
            return f"a rank {how_ended(dead[0])}"
        return "a rank ended before the ranks had met" if gone and not met else None


#: Intervals at which the waiting thread looks (s): short while daemons may be asked for, long while ranks measure.
OFTEN, SELDOM = 0.02, 0.25


class Job:
    """The ranks of a world from their start on, or CollbenchError: the launcher cannot be started.

    `relay` is the folder in which its first box leaves requests. `written` says how many bytes of records there are.
    """

    def __init__(
        self, world: OpenWorld, launcher: RankLauncher, ranks: int, crowded: bool, relay: Path, log: Log,
        timeouts: Timeouts, written: Callable[[], int],
    ) -> None:  # fmt: skip
        self._world, self._quiet, self._log = world, launcher.quiet, log
        self._timeouts, self._written = timeouts, written
        self._daemons = Daemons(tuple(name for name, _ in world.hosts), launcher, relay, log)
        argv = launcher.local(ranks, crowded, world.program)
        starts: Iterable[tuple[str, dict[str, str]]] = ((world.hosts[0][0], {}),)
        if len(world.hosts) > 1:
            argv = launcher.across(world.hosts, world.program)
            starts = launcher.direct(world.hosts) if launcher.direct is not None else starts
        self._dead = DeadRanks(argv, world.program, ranks)
        self._started = [world.execute(host, argv, variables, log) for host, variables in starts]

    @property
    def pause(self) -> float:
        """How long to wait before the next look (s)."""
        return SELDOM if self._daemons.complete else OFTEN

    def look(self) -> bool:
        """One pass of the wait for its end; whether it still runs, or LaunchFailed."""
        world, head, reason = self._world, self._started[0], None
        if (code := head.code) is None:
            for request in self._daemons.new():
                self._started.append(world.execute(request.host, ("sh", "-c", request.shell), {}, self._log))
            size = self._written()
            reason = world.died() or self._dead.ended(self._started, size) or self._timeouts.ended(size)
            code = None if reason is None else head.code  # it may have ended meanwhile
        if code is not None:  # an engine may report 0 for a command whose container was killed
            reason = world.died() or (head.how if code != 0 else None)
        if reason is not None:
            raise LaunchFailed(reason, self._log.tail(self._quiet))
        return code is None


class Daemons:
    """The requests of a launcher for daemons in the boxes of these names, each returned once."""

    def __init__(self, boxes: tuple[str, ...], launcher: RankLauncher, relay: Path, log: Log) -> None:
        self._boxes, self._launcher, self._relay, self._log = boxes, launcher, relay, log
        needs_none = len(boxes) <= 1 or launcher.direct is not None
        self._expected = 0 if needs_none else len(boxes) - launcher.relays
        self._seen, self._read = set[str](), 0

    @property
    def complete(self) -> bool:
        """Whether every box that needs a daemon has one."""
        return len(self._seen) >= self._expected

    def new(self) -> list[Request]:
        """Those that came since the last call; LaunchFailed: one is for a box of another world, or cannot be read."""
        if self.complete:
            return []
        requests = self._relayed() if self._launcher.relays else self._printed()
        fresh = [request for request in requests if request.host not in self._seen]
        for request in fresh:
            if request.host not in self._boxes:
                raise LaunchFailed(f"a daemon was requested in {request.host!r}, which is not part of this launch")
            self._seen.add(request.host)
        return fresh

    def _printed(self) -> list[Request]:
        lines, before = self._log.lines, self._read
        self._read = len(lines)
        return [request for line in lines[before:] if (request := self._launcher.asks(line, self._boxes)) is not None]

    def _relayed(self) -> list[Request]:
        """Those of the relay folder, in which a container may have written anything; they are removed from it."""
        requests: list[Request] = []
        try:
            with open_folder(self._relay) as folder:
                for name in sorted(name for name in os.listdir(folder) if name.endswith(".request")):  # noqa: PTH208 - an open folder
                    with open_plain(folder, name, LARGEST) as file:
                        host, *words = msgspec.json.decode(file.read(), type=list[str]) or ("",)
                    os.unlink(name, dir_fd=folder)
                    if not words:
                        raise LaunchFailed("a request for a daemon has no command")
                    requests.append(Request(host, " ".join(words)))
        except (RunReadError, OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise LaunchFailed(f"a request for a daemon cannot be read ({error})") from error
        return requests


#: Longest wait for a process to end when told to (s), and for the last lines of one that has ended: a grandchild may
#: hold its pipes open.
STOP, DRAIN = 3.0, 1.0

#: Most bytes of an output that are read at once.
PIECE = 1 << 16

_LIBC, _PR_SET_PDEATHSIG = ctypes.CDLL(None), 1


def end_with_parent(number: int = 9) -> None:
    """Called in the child before exec: the kernel sends it this signal when its parent ends (prctl(2))."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, number)


@dataclass
class HostProcess:
    """A command on the host, with its children in a session of their own."""

    name: str
    process: subprocess.Popen[bytes]
    readers: tuple[threading.Thread, ...] = ()

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs. Then its output has been read."""
        if self.process.poll() is not None:
            for reader in self.readers:
                reader.join(DRAIN)
        return self.process.poll()

    @property
    def how(self) -> str:
        """How it ended, for a message."""
        code = self.code or 0
        return f"{'' if code >= 0 else f'{self.name} '}{how_ended(code)}"

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self) -> None:
        """End it with all its children: by SIGTERM, then by SIGKILL; those too that have a session of their own."""
        below = descendants(self.pid) if self.process.poll() is None else []
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(self.process.pid, number)
                self.process.wait(STOP)
        until = time.monotonic() + STOP
        while (left := [child for child in below if runs(child)]) and time.monotonic() < until:
            time.sleep(0.02)
        for child in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child.number, signal.SIGKILL)


def execute(argv: Argv, environment: dict[str, str], log: Log) -> HostProcess:
    """Start a command whose lines go to the log, or CollbenchError: it cannot be started."""
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            env={**os.environ, **environment}, preexec_fn=partial(end_with_parent, signal.SIGTERM),
        )  # fmt: skip
    except OSError as error:
        raise CollbenchError(f"host: cannot start {argv[0]}: {error.strerror}.") from error

    def follow(stream: IO[bytes], is_error: bool) -> None:
        lines = Lines(log.longest)
        with stream:
            while piece := os.read(stream.fileno(), PIECE):
                log.add(is_error, *lines.of(piece))
        log.add(is_error, *lines.last())

    streams = ((process.stdout, False), (process.stderr, True))
    readers = tuple(threading.Thread(target=follow, args=stream, daemon=True) for stream in streams)
    for reader in readers:
        reader.start()
    return HostProcess(Path(argv[0]).name, process, readers)
