"""A program under the watchdog. `KIND TIMEOUT [SECONDS ...]`: say `ready`, then do what KIND says.

Last words go to standard output.

Exit codes: 3 time-out or async_error, 1 failed, 130 told to stop and could not, 0 ended by itself.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from types import SimpleNamespace
from typing import NoReturn

from collbench.run import failures
from collbench.run.failures import Watchdog


def last_words(kind: str, doing: str) -> NoReturn:
    os.write(1, f"{kind} in {doing}\n".encode())
    os._exit({"timeout": 3, "async_error": 3, "failed": 1}.get(kind, 130))


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
        wait_on(looks)


def wait_on(looks: list[float]) -> None:
    """Until the watchdog has looked again, from the beginning to the end."""
    looked = len(looks)
    while len(looks) < looked + 2:
        time.sleep(0.01)


def grow_old(watchdog: Watchdog, graces: list[float], looks: list[float], clock: list[float]) -> None:
    """Do not stop when told to. After that, by a clock of our own, each of these seconds passes: then say so."""
    while watchdog.stopped is None:
        time.sleep(0.01)
    wait_on(looks)
    for grace in graces:
        clock[0] = grace
        wait_on(looks)
        os.write(1, f"alive after {grace:g} s\n".encode())


def main(kind: str, timeout: str, *graces: str) -> int:
    looks: list[float] = []
    clock = [0.0]
    if kind in ("beating", "deaf"):
        vars(failures)["time"] = SimpleNamespace(monotonic=lambda: clock[0])

    def async_error() -> str | None:
        looks.append(clock[0])
        if kind == "async_error" and len(looks) == 2:
            raise RuntimeError("the library cannot be asked now")
        return "the library lost a rank" if kind == "async_error" and len(looks) == 3 else None

    with Watchdog(float(timeout), last_words, async_error=async_error, parent=os.getppid()) as watchdog:
        watchdog.beat("the test")
        os.write(1, b"ready\n")
        if kind in ("c", "async_error", "failed", "lost"):
            watchdog.failed("no memory." if kind in ("failed", "lost") else None, lost=kind == "lost")
            never_return_from_c()
        elif kind == "sleeping":
            sleep_in_python()
        elif kind == "polite":
            while watchdog.stopped is None:
                time.sleep(0.01)
            os.write(1, f"stopped by {watchdog.stopped}\n".encode())
        elif kind == "beating":
            move_on(watchdog, float(timeout), looks, clock)
        elif kind == "deaf":
            grow_old(watchdog, [float(grace) for grace in graces], looks, clock)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
