"""What a world prints: kept within bounds, its last lines for messages."""

from __future__ import annotations

import re
import threading
from collections import deque

#: Lines that are kept; of each at most so many characters.
MOST_LINES, LONGEST_LINE = 20_000, 2_000

#: Lines of the end that go into a failed record.
TAIL = 12

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Log:
    """Filled from the threads that follow a world's processes, read by the thread that waits for it."""

    def __init__(self) -> None:
        self._lines: deque[tuple[bool, str]] = deque(maxlen=MOST_LINES)
        self._lock = threading.Lock()

    def add(self, is_error: bool, line: str) -> None:
        """A line of standard output or error. Control characters, which would steer a terminal, are taken out."""
        with self._lock:
            self._lines.append((is_error, _CONTROL.sub("", line)[:LONGEST_LINE]))

    @property
    def lines(self) -> tuple[str, ...]:
        """Everything, in the order in which it came."""
        with self._lock:
            return tuple(line for _, line in self._lines)

    @property
    def own_words(self) -> str:
        """What the ranks' own last message says, to be added to a reason; empty where there is none."""
        said = [line.partition("collbench: ")[2] for line in self.lines if line.startswith("collbench: ")]
        return f": {said[-1]}" if said else ""

    def tail(self, quiet: object = None) -> tuple[str, ...]:
        """The last lines of standard error, or of standard output where that is empty.

        Without those that `quiet`, a predicate, knows as harmless.
        """
        with self._lock:
            said = [line for is_error, line in self._lines if is_error and line.strip()]
            said = said or [line for _, line in self._lines if line.strip()]
        if callable(quiet):
            said = [line for line in said if not quiet(line)]
        return tuple(said[-TAIL:])
