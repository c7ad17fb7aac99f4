"""Processes that end when their parent ends."""

from __future__ import annotations

import ctypes

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def end_with_parent(number: int = 9) -> None:
    """Called in the child before exec: the kernel sends it this signal when its parent ends (prctl(2))."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, number)
