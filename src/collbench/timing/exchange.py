"""Questions for another rank's clock: who asks learns how far its own is ahead."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from collbench.errors import LibraryError
from collbench.timing.clocks import EXCHANGES, Offset, interval
from collbench.timing.gates import Messages
from collbench.timing.loop import error_in_words, native_loop

Clock = Callable[[], int]
Times = NDArray[np.int64] | None


def ask(messages: Messages, other: int, clock: Clock, n: int = EXCHANGES) -> Offset:
    """Ask another rank `n` times for its clock, while it answers. How far this one is ahead of it.

    Raises:
        LibraryError: the library returned an error.
    """
    before, theirs, after = (np.zeros(n, np.int64) for _ in range(3))
    if not _in_c(messages, other, clock, n, before, theirs, after):
        for i in range(n):
            before[i] = clock()
            messages.send(other)
            messages.receive(other)
            after[i] = clock()
            theirs[i] = messages.cell[0]
    return interval(before, theirs, after)


def answer(messages: Messages, other: int, clock: Clock, n: int = EXCHANGES) -> None:
    """Tell another rank this clock, while it asks `n` times.

    Raises:
        LibraryError: as `ask`.
    """
    if not _in_c(messages, other, clock, n, None, None, None):
        for _ in range(n):
            messages.receive(other)
            messages.cell[0] = clock()
            messages.send(other)


def _in_c(messages: Messages, other: int, clock: Clock, n: int, before: Times, theirs: Times, after: Times) -> bool:
    """Exchange in C, where that is possible; whether it was."""
    loop, send, receive = native_loop(), messages.native_send(other), messages.native_receive(other)
    if loop is None or send is None or receive is None or clock is not time.monotonic_ns:
        return False
    done, code = loop.exchange(send, receive, messages.cell, n, before, theirs, after)
    if code:
        error = error_in_words(code, messages.explain)
        raise LibraryError(f"the library returned {error} in message {done + 1} of {n} to rank {other}")
    return True
