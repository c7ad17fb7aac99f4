"""Processes of one job, found by a variable that they were started with, whatever became of their parents.

A launcher and its ranks have process groups and sessions of their own, so that no signal to a group ends them all.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mark:
    """The variable `name` with a `value` that no other job has."""

    name: str
    value: str

    @property
    def environment(self) -> dict[str, str]:
        """What the first process of the job gets, and hands on to all others."""
        return {self.name: self.value}

    def processes(self) -> list[int]:
        """Process IDs of the job, but for this process; those that ended and wait for their parent do not count."""
        wanted, found = f"{self.name}={self.value}".encode(), []
        for place in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if wanted in place.read_bytes().split(b"\0"):
                    found.append(int(place.parent.name))
        return [one for one in found if one != os.getpid()]

    def end(self, limit: float = 10.0) -> list[int]:
        """Kill what there is, and what it starts meanwhile; returns what is still there after `limit` seconds."""
        until = time.monotonic() + limit
        while (found := self.processes()) and time.monotonic() < until:
            for one in found:
                with contextlib.suppress(OSError):
                    os.kill(one, signal.SIGKILL)
            time.sleep(0.05)
        return found
