"""Whether the kernel ended a process in a container for lack of memory: the launcher inside only sees it gone."""

from __future__ import annotations

import contextlib
import re
from typing import Protocol

from collbench.errors import EngineError
from collbench.launch.engines.docker.streams import Execution, Listener
from collbench.launch.log import Log

#: Where a control group counts such ends, in its second version and in its first.
COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")

#: Longest wait for a container to answer (s).
ANSWER = 5.0

_KILLED = re.compile(r"oom_kill ([0-9]{1,18})")


class Executes(Protocol):
    """What of an engine is used here."""

    def execute(self, container: str, argv: tuple[str, ...], environment: dict[str, str], hear: Listener) -> Execution:
        """Start a command in a container."""


def killed_for_memory(engine: Executes, containers: tuple[str, ...]) -> str:
    """What to add to the reason of a failure: the containers in which it happened; empty where it did in none.

    Asks no further where a container, or the engine, does not answer.
    """
    hit: list[str] = []
    with contextlib.suppress(EngineError):
        hit.extend(name for name in containers if _kills(engine, name))
    return f"; the kernel ended processes in {', '.join(hit)} for lack of memory" if hit else ""


def _kills(engine: Executes, container: str) -> bool:
    log = Log()
    answer = engine.execute(container, ("cat", *COUNTERS), {}, log.add)
    answer.finished.wait(ANSWER)
    return any(int(found[1]) > 0 for line in log.lines if (found := _KILLED.fullmatch(line)) is not None)
