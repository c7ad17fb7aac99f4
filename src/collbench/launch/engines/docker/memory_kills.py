"""Whether the kernel killed a process in a container for lack of memory: the launcher there only sees that it ended."""

from __future__ import annotations

import contextlib
import re
from typing import Protocol

from collbench.errors import EngineError
from collbench.launch.engines.docker.streams import Execution, OnLine
from collbench.launch.log import Log

#: Where a control group counts such kills, in its second version and in its first.
COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")

#: Longest wait for a container to answer (s).
ANSWER = 5.0

_KILLED = re.compile(r"oom_kill ([0-9]{1,18})")


class Executes(Protocol):
    """An engine that can run a command in a container."""

    def execute(self, container: str, argv: tuple[str, ...], environment: dict[str, str], on_line: OnLine) -> Execution:
        """Start a command in a container."""


def killed_for_memory(engine: Executes, containers: tuple[str, ...]) -> str:
    """The end of a failure's reason: the containers in which it happened; empty where it happened in none.

    Stops asking at the first container that does not answer.
    """
    affected: list[str] = []
    with contextlib.suppress(EngineError):
        affected.extend(name for name in containers if _has_kills(engine, name))
    return f"; the kernel ended processes in {', '.join(affected)} for lack of memory" if affected else ""


def _has_kills(engine: Executes, container: str) -> bool:
    log = Log()
    answer = engine.execute(container, ("cat", *COUNTERS), {}, log.add)
    answer.finished.wait(ANSWER)
    counts = map(_KILLED.fullmatch, log.lines)
    return any(int(count[1]) > 0 for count in counts if count is not None)
