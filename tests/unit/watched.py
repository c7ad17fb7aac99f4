"""A program under the watchdog. `KIND TIMEOUT`: say `ready`, then do what KIND says; last words go to standard output.

Exit codes: 3 time-out or trouble, 130 told to stop and could not, 0 ended by itself.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import NoReturn

from collbench.run.watchdog import Watchdog


def last_words(kind: str, doing: str) -> NoReturn:
    os.write(1, f"{kind} in {doing}\n".encode())
    os._exit(3 if kind in ("timeout", "trouble") else 130)


def sleep_in_python() -> None:
    time.sleep(60)


def never_return_from_c() -> None:
    """Locks a mutex twice: unlike a sleep, no signal ends that."""
    mutex = ctypes.create_string_buffer(128)
    libc = ctypes.CDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def main(kind: str, timeout: str) -> int:
    asked = iter([None, "the library lost a rank"] if kind == "trouble" else [])
    with Watchdog(float(timeout), last_words, trouble=lambda: next(asked, None)) as watchdog:
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
            for _ in range(25):
                time.sleep(0.1)
                watchdog.beat("the test")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
