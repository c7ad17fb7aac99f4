"""The output of a world: a bounded number of lines, the last of which are quoted in messages."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable
from itertools import takewhile

#: The most lines that are kept, and characters of each; and of one that is an answer in JSON.
MOST_LINES, LONGEST_LINE, LONGEST_ANSWER = 20_000, 2_000, 1 << 20

#: Last lines that go into a failed record.
TAIL = 12

#: Of how many last lines of standard error a library's message is made, and how many characters it has at most.
MESSAGE_LINES, LONGEST_MESSAGE = 40, 450

#: What differs from launch to launch where the cause is one: the rank that says it first, addresses in its memory, and
#: where its records were, a folder that is gone with the launch. The lines themselves stay among the last ones.
_OF_A_LAUNCH = re.compile(r"^rank \d+: |(?<=\b0x)[0-9a-f]{4,}|\.? \d+ records? (?:is|are) in \S+: collbench show \S+$")

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

#: A line between two messages of Open MPI or MPICH, and how a launcher begins that a rank has ended. What torchrun says
#: of it are pages, the last in its output.
_RULE = re.compile(r"[-=]{20,}")
_LAUNCHER = re.compile(r"(prterun|mpirun|mpiexec) (detected|noticed)")
_TORCHRUN = re.compile(r"[WE]\d{4} .*torch/distributed/elastic/")


class Lines:
    """Lines of an output that comes in pieces. Of each line the first `longest` bytes are kept."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest, self._begun = longest, b""

    def of(self, piece: bytes) -> list[str]:
        """The lines that this piece ends."""
        *ended, rest = piece.split(b"\n")
        lines = []
        for line in ended:
            lines.append(self._begun + line[: self._longest - len(self._begun)])
            self._begun = b""
        self._begun += rest[: self._longest - len(self._begun)]
        return [line.decode("utf-8", "replace") for line in lines]

    def last(self) -> list[str]:
        """The line that nothing ended, if there is one."""
        line, self._begun = self._begun, b""
        return [line.decode("utf-8", "replace")] if line else []


class Log:
    """Filled from the threads that follow a world's processes, read by the thread that waits for it.

    Of each line `longest` characters are kept.
    """

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self.longest = longest
        self._lines: deque[tuple[bool, str]] = deque(maxlen=MOST_LINES)
        self._lock = threading.Lock()

    def add(self, is_error: bool, line: str) -> None:
        """A line of standard output or error. Control characters, which act on a terminal, are removed."""
        with self._lock:
            self._lines.append((is_error, _CONTROL.sub("", line)[: self.longest]))

    @property
    def lines(self) -> tuple[str, ...]:
        """All lines, in the order in which they came."""
        with self._lock:
            return tuple(line for _, line in self._lines)

    @property
    def message(self) -> str:
        """The last message of the ranks, as the end of a reason, equal for equal causes; empty where there is none."""
        messages = [line.partition("collbench: ")[2] for line in self.lines if line.startswith("collbench: ")]
        return f": {_OF_A_LAUNCH.sub('', messages[-1])}" if messages else ""

    def library_message(self, quiet: Callable[[str], bool] = lambda line: False) -> str:
        """What standard error tells last, in one line, as the end of a reason: without `quiet` lines, each once.

        What a launcher says of ranks that ended is left out where there is anything else.
        """
        with self._lock:
            lines = [line for is_error, line in self._lines if is_error and line.strip() and not quiet(line)]
        before = list(takewhile(lambda line: not _TORCHRUN.match(line), lines))
        messages: list[list[str]] = [[]]
        for line in (before or lines)[-MESSAGE_LINES:]:
            if _RULE.match(line):
                messages.append([])
            else:
                messages[-1].append(line.strip(" *"))
        own = [message for message in messages if message and not _LAUNCHER.match(message[0])]
        text = " ".join(" ".join(dict.fromkeys(line for message in own or messages for line in message)).split())
        if not text:
            return ""
        return f": {text}" if len(text) <= LONGEST_MESSAGE else f": {whole_words(text, LONGEST_MESSAGE)} ..."

    def tail(self, quiet: Callable[[str], bool] = lambda line: False) -> tuple[str, ...]:
        """The last lines of standard error, or of standard output where that is empty; without `quiet` lines."""
        with self._lock:
            lines = [(is_error, line) for is_error, line in self._lines if line.strip()]
        errors = [line for is_error, line in lines if is_error] or [line for _, line in lines]
        return tuple([line for line in errors if not quiet(line)][-TAIL:])


def whole_words(text: str, most: int) -> str:
    """The beginning of a text, of at most so many characters, that does not end within a word (of less than 80)."""
    if len(text) <= most:
        return text
    end = max(text.rfind(" ", 0, most + 1), text.rfind("\n", 0, most + 1))
    return text[: end if end > max(0, most - 80) else most].rstrip()
