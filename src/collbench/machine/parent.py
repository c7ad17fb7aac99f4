"""A process that ends with its parent, however that ends."""

from __future__ import annotations

import ctypes
import signal

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """In the child, before it becomes the program: the kernel sends it a signal when its parent is gone (prctl(2))."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, number)
