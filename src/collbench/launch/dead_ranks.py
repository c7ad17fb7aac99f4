"""Ranks that have ended while their launcher still runs: it has a moment to end too, then the launch has failed.

Open MPI's prterun sometimes waits for ever after a rank has died in MPI_Init (5.0.11: in PMIx_server_finalize, without
having waited for all its children).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from collbench.launch.engines.spec import Running
from collbench.launch.patience import LONGEST_PASS
from collbench.launch.starters.starter import Argv
from collbench.machine.children import children, command_line

#: How long a launcher whose ranks have ended has to end by itself (s).
ENDING = 10.0

#: Intervals at which processes are looked at (s): until the ranks have met, or while one is missing; and while they
#: measure and write nothing. 64 ranks take about 5 ms.
OFTEN, SELDOM = 0.5, 5.0

#: Exit codes of a rank whose run is over: all is measured, a case failed, or the request was refused on all ranks.
ORDERLY = (0, 1, 2)


@dataclass(frozen=True)
class Seen:
    """Ranks at one moment: numbers of those that run, and statuses of those that nobody has waited for."""

    running: frozenset[int]
    ended: tuple[int, ...]


def ranks_below(launchers: Iterable[int], program: Argv) -> Seen:
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
    return Seen(frozenset(running), tuple(ended))


class DeadRanks:
    """Looks at the processes of a world. `launcher` is its first command, `program` what it starts on every rank.

    Where they are the same nothing starts the ranks but the commands of the world themselves. Some of the `ranks` may
    be out of sight, below a daemon that left its command.
    """

    def __init__(self, launcher: Argv, program: Argv, ranks: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._launcher, self._program, self._ranks, self._clock = launcher, program, ranks, clock
        self._known = frozenset[int]()
        self._problem: str | None = None
        self._written, self._since, self._last, self._looked = 0, 0.0, clock(), clock()

    def ended(self, started: Sequence[Running], written: int) -> str | None:
        """Called in each pass of the waiting loop: why the wait ends, if it does.

        `started` are the commands of the world, the first one first; `written` are the bytes that the ranks have
        written: while these become more, a rank is at work.
        """
        now = self._clock()
        self._since += min(now - self._last, LONGEST_PASS)
        self._last = now
        if written > self._written:
            self._written, self._since = written, 0.0
            if self._problem is None:
                self._looked = now
        often = self._written == 0 or self._problem is not None
        if now - self._looked >= (OFTEN if often else SELDOM):
            self._looked, before = now, self._problem
            self._problem = self._look(started)
            if before is None:
                self._since = 0.0
        if self._problem is None or self._since < ENDING:
            return None
        return f"{self._problem}, and {self._others} did not end within {ENDING:g} s of it"

    @property
    def _others(self) -> str:
        return "the others" if self._launcher == self._program else Path(self._launcher[0]).name

    def _look(self, started: Sequence[Running]) -> str | None:
        met = self._written > 0
        for command in started[1:]:
            if (command.code or 0) > 0 and _too_early(command.code or 0, met):
                return f"what was started beside rank 0 {command.how}"
        if self._launcher == self._program:
            return None
        launchers = [command.pid for command in started if command.code is None]
        seen = ranks_below([pid for pid in launchers if pid is not None], self._program)
        self._known |= seen.running
        codes = [os.waitstatus_to_exitcode(status) for status in seen.ended]
        dead, gone = [code for code in codes if _too_early(code, met)], self._known - seen.running
        if not seen.running and (dead or len(gone) >= (self._ranks if met else 1)):
            return "all ranks have ended"
        if dead:
            return _how(dead[0])
        return "a rank ended before the ranks had met" if gone and not met else None


def _too_early(code: int, met: bool) -> bool:
    """Before the ranks have met, none of them ends well but all together."""
    return code not in (ORDERLY if met else (0,))


def _how(code: int) -> str:
    if code >= 0:
        return f"a rank ended with exit code {code}"
    return f"a rank was ended by signal {-code} ({signal.strsignal(-code)})"
