"""Blocks the thread that calls a library, once another thread is about to shut the library down."""

from __future__ import annotations

import time

#: How often a blocked thread looks again (s).
_NAP = 0.02
#: Values of the flag: make no further call; the thread that makes them is blocked.
_HALTED, _BLOCKED = 1, 2


class Halt:
    """Not set at first. `flag` is an int32 that the native loop reads before each call of the library."""

    def __init__(self) -> None:
        self.flag = bytearray(4)

    @property
    def is_set(self) -> bool:
        """Whether the library is being shut down."""
        return bool(self.flag[0])

    def set(self) -> None:
        """From now on, a thread that checks the flag blocks. Whoever sets it must end the process."""
        self.flag[0] = _HALTED

    def wait_for_caller(self, limit: float) -> bool:
        """After `set`: wait up to `limit` seconds until the thread that calls the library is blocked; whether it is.

        It may have checked just before the flag was set, and be about to call. A thread inside a call that waits for
        another rank never blocks here; only shutting the library down lets it out.
        """
        deadline = time.monotonic() + limit
        while self.flag[0] != _BLOCKED and time.monotonic() < deadline:
            time.sleep(_NAP / 10)
        return self.flag[0] == _BLOCKED

    def block_if_set(self) -> None:
        """Return at once, or, once set, not before the process ends: the caller would free what is still in use."""
        if self.is_set:
            self.flag[0] = _BLOCKED
        while self.is_set:
            time.sleep(_NAP)
