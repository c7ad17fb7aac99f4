"""A program under the watchdog. `KIND TIMEOUT`: say `ready`, then do what KIND says; last words go to standard output.

Exit codes: 3 time-out or trouble, 130 told to stop and could not, 0 ended by itself.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from types import SimpleNamespace
from typing import NoReturn

from collbench.run import watchdog as watchdog_module
from collbench.run.watchdog import Watchdog


def last_words(kind: str, doing: str) -> NoReturn:
    os.write(1, f"{kind} in {doing}\n".encode())
    os._exit(3 if kind in ("timeout", "trouble") else 130)


def sleep_in_python() -> None:
    time.sleep(3600)


def never_return_from_c() -> None:
    """Locks a mutex twice: unlike a sleep, no signal ends that."""
    mutex = ctypes.create_string_buffer(128)
    libc = ctypes.CDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def move_on(watchdog: Watchdog, timeout: float, looks: list[float], clock: list[float]) -> None:
    """For longer than the time-out, by a clock of our own; between two moves the watchdog looks."""
    for _ in range(3):
        clock[0] += 0.9 * timeout
        watchdog.beat("the test")
        looked = len(looks)
        while len(looks) < looked + 2:
            time.sleep(0.01)


def main(kind: str, timeout: str) -> int:
    looks: list[float] = []
    clock = [0.0]
    if kind == "beating":
        vars(watchdog_module)["time"] = SimpleNamespace(monotonic=lambda: clock[0])

    def trouble() -> str | None:
        looks.append(clock[0])
        return "the library lost a rank" if kind == "trouble" and len(looks) == 2 else None

    with Watchdog(float(timeout), last_words, trouble=trouble) as watchdog:
        watchdog.beat("the test")
        os.write(1, b"ready\n")
        if kind in ("c", "trouble"):
            never_return_from_c()
        elif kind == "sleeping":
            sleep_in_python()
        elif kind == "polite":
            while watchdog.stopped is None:
                time.sleep(0.01)
            os.write(1, f"stopped by {watchdog.stopped}\n".encode())
        elif kind == "beating":
            move_on(watchdog, float(timeout), looks, clock)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
