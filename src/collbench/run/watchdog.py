"""A thread that ends this process when it makes no progress, or when it was told to stop and cannot.

The main thread may be inside a C call that never returns; signals still reach the watchdog through the wake-up pipe.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from collbench.machine.process import SIGNALS, to_handle

#: After a signal the main thread has so long to finish its batch and agree with the other ranks (s). Open MPI's mpirun
#: sends SIGTERM when it ends a job (Ctrl-C, a lost rank) and SIGKILL 0.4 s later; MPICH's forwards Ctrl-C as SIGINT.
_GRACE = {int(number): 0.1 if number == signal.SIGTERM else 0.8 for number in SIGNALS}
#: Ranks other than 0 wait this much longer (s), so that rank 0 reports first.
DEFERENCE = 2.0
#: A rank whose call has failed waits so long for the others to come out of theirs (s), but no longer than half of the
#: time-out, so that it reports before those who only wait.
PATIENCE = 15.0

#: Called with a kind and what the process was doing; ends the process.
OnEnd = Callable[[str, str], None]


class Watchdog:
    """Watches one process. Use as a context manager in the main thread; `beat` from anywhere.

    `on_end(kind, doing)` is called from the watchdog's thread with kind `timeout`, `interrupted` (SIGINT, SIGHUP,
    SIGQUIT), `terminated` (SIGTERM), `orphaned`, when `parent` is no longer the parent of this process, `trouble`,
    where `doing` includes the text of `trouble()`, or `failed`, where it includes why a call has failed on this rank
    alone. It must end the process.
    """

    def __init__(
        self,
        timeout: float,
        on_end: OnEnd,
        deference: float = 0.0,
        trouble: Callable[[], str | None] = lambda: None,
        parent: int | None = None,
    ) -> None:
        self._parent = parent
        self._timeout = timeout
        self._trouble = trouble
        self._deference = deference
        self._on_end = on_end
        self._doing = "starting"
        self._beat = time.monotonic()
        self._failure: tuple[str, str, float] | None = None
        self._finished = threading.Event()
        self._previous: dict[int, Any] = {}
        self.stopped: int | None = None

    def beat(self, doing: str) -> None:
        """The process makes progress; `doing` is what comes next."""
        self._doing = doing
        self._beat = time.monotonic()

    def failed(self, reason: str | None, lost: bool = False) -> None:
        """A call has failed on this rank, and others may wait inside theirs; None: they have come out of it.

        `lost`: the reason is that another rank is gone.
        """
        limit = time.monotonic() + min(PATIENCE, self._timeout / 2)
        kind, doing = "trouble" if lost else "failed", self._doing
        self._failure = None if reason is None else (kind, f"{doing}: {reason.strip().rstrip('.')}", limit)

    def __enter__(self) -> Watchdog:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        os.set_blocking(self._read, False)
        self._previous_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._previous = {number: signal.signal(number, self._note) for number in to_handle()}
        self._beat = time.monotonic()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._finished.set()
        signal.set_wakeup_fd(self._previous_fd)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.write(self._write, b"\0")
        self._thread.join(timeout=1.0)
        os.close(self._write)
        os.close(self._read)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.stopped = number

    def _watch(self) -> None:
        deadline, kind = float("inf"), "interrupted"
        while not self._finished.is_set():
            ready, _, _ = select.select([self._read], [], [], 0.5 if deadline == float("inf") else 0.02)
            now = time.monotonic()
            for number in os.read(self._read, 64) if ready else b"":
                deadline = min(deadline, now + _GRACE.get(number, float("inf")))
                kind = "terminated" if number == signal.SIGTERM else "interrupted"
            if now > deadline:
                self._end(kind)
            elif (failure := self._failure) is not None and now > failure[2]:
                self._end(*failure[:2])
            elif self._parent is not None and os.getppid() != self._parent:
                self._end("orphaned")
            elif now > self._beat + self._timeout + self._deference:
                self._end("timeout")
            elif (text := self._trouble_text()) is not None:
                self._end("trouble", f"{self._doing}: {text}")

    def _trouble_text(self) -> str | None:
        """The library's own error; an error of asking does not end the watch."""
        try:
            return self._trouble()
        except Exception:
            return None

    def _end(self, kind: str, doing: str | None = None) -> None:
        if not self._finished.is_set():
            self._on_end(kind, self._doing if doing is None else doing)


class Unwatched:
    """Stands in for a watchdog on ranks that another thread's watchdog covers."""

    stopped: int | None = None

    def beat(self, doing: str) -> None:
        pass

    def failed(self, reason: str | None, lost: bool = False) -> None:
        pass
