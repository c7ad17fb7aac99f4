"""A stop for the thread that calls a library, set by another one that is about to take the library down."""

from __future__ import annotations

import time

#: How often a halted thread looks again (s).
_NAP = 0.02


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
        self.flag[0] = 1

    def stay_if_set(self) -> None:
        """Return at once, or not before the end of the process: a caller would free what is still in use."""
        while self.is_set:
            time.sleep(_NAP)
