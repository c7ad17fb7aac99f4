"""Events in containers, followed from threads: lines of running commands, and containers that end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from collbench.launch.log import Lines

#: Receives a line of a running command: (is standard error, text).
OnLine = Callable[[bool, str], None]


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
        """Its process on this machine; None where the engine is on another one."""
        if self._pid == 0:
            self._pid = self.locate()
        return self._pid or None

    @property
    def how(self) -> str:
        return f"ended with exit code {self.code}"


class ExitWatch:
    """Watches the engine's events for containers that end, until `stop`: after that they are removed."""

    def __init__(self, events: Any) -> None:
        self._events = events
        self._first: str | None = None
        self._stopped = False
        threading.Thread(target=self._follow, daemon=True).start()

    def __call__(self) -> str | None:
        """What died first, if anything did."""
        return self._first

    def _follow(self) -> None:
        try:
            for event in self._events:
                if self._stopped:
                    return
                name = event["Actor"]["Attributes"].get("name", event["Actor"]["ID"][:12])
                self._first = self._first or f"container {name} died"
        except Exception as error:  # the engine went away, in one of many ways
            if not self._stopped:
                self._first = self._first or f"the engine is gone ({type(error).__name__})"
                return
        if not self._stopped:
            self._first = self._first or "the engine is gone"

    def stop(self) -> None:
        """Ignore what ends from now on."""
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
