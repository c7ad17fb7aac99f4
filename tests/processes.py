"""What a test started and left running: found by a variable that every process inherits, ended, and named.

A process of the session's own fixtures is started `unmarked`, or before the test begins.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")

#: No launcher's variable, so that nothing takes it out of an environment.
VARIABLE = "STARTED_BY_TESTS"

#: Longest wait of a test for something that comes in seconds on an idle machine (s). Only what hangs meets it.
LIMIT = 600.0

#: What is ending when a test is over has this long to do so (s).
ENDS = 30.0


def wait_for(what: Callable[[], Found], limit: float = LIMIT) -> Found:
    """What is asked for, once it is true."""
    until = time.monotonic() + limit
    while not (found := what()):
        assert time.monotonic() < until, f"not within {limit:g} s"
        time.sleep(0.02)
    return found


def mark() -> None:
    """From now on what this process starts can be found."""
    os.environ[VARIABLE] = f"{os.getpid()}.{time.time_ns()}"


def unmarked() -> dict[str, str]:
    """An environment for processes that outlive the test that starts them."""
    return {name: value for name, value in os.environ.items() if name != VARIABLE}


def running() -> frozenset[int]:
    """The numbers of all processes of this machine."""
    return frozenset(int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - names, not paths


def started_since(before: frozenset[int]) -> dict[int, str]:
    """Number and command line of ours that were not there before; what waits to be reaped does not count."""
    ours, found = f"{VARIABLE}={os.environ[VARIABLE]}".encode(), {}
    for number in running() - before:
        with contextlib.suppress(OSError):
            if ours in Path(f"/proc/{number}/environ").read_bytes().split(b"\0"):
                words = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
                found[number] = b" ".join(words).decode(errors="replace").strip()
    return found


def end_what_is_left(before: frozenset[int], limit: float = ENDS) -> list[str]:
    """The command lines of those that did not end by themselves within the limit; they are killed."""
    until = time.monotonic() + limit
    while (left := started_since(before)) and time.monotonic() < until:
        time.sleep(0.05)
    for number in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    return sorted(left.values())
