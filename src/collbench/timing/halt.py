"""A stop for the thread that calls a library, set by another one that is about to take the library down."""

from __future__ import annotations

import time

#: How often a halted thread looks again (s).
_NAP = 0.02
#: What the flag holds: nothing, that no further call is to be made, and that the thread which makes them stays.
_GOES, _HALTED, _STAYS = 0, 1, 2


class Halt:
    """Not set at first. `flag` is an int32, which the native loop reads before each call of the library."""

    def __init__(self) -> None:
        self.flag = bytearray(4)

    @property
    def is_set(self) -> bool:
        """Whether the library is being taken down."""
        return bool(self.flag[0])

    def set(self) -> None:
        """From now on nobody who looks goes on. Whoever sets it ends the process."""
        self.flag[0] = _HALTED

    def wait_for_caller(self, limit: float) -> bool:
        """After `set`: wait until the thread that calls the library stays, or for `limit` seconds. Whether it does.

        It may have looked just before the flag was set, and be about to call. One that is inside a call which waits for
        another rank does not come; taking the library down is what lets it out.
        """
        deadline = time.monotonic() + limit
        while self.flag[0] != _STAYS and time.monotonic() < deadline:
            time.sleep(_NAP / 10)
        return self.flag[0] == _STAYS

    def stay_if_set(self) -> None:
        """Return at once, or not before the end of the process: a caller would free what is still in use."""
        if self.is_set:
            self.flag[0] = _STAYS
        while self.is_set:
            time.sleep(_NAP)
