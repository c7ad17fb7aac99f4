"""The same for several things at once, in threads that keep no program from ending."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

Thing = TypeVar("Thing")

#: How often the waiting thread asks whether it is to stop (s).
SLICE = 0.25


def each(act: Callable[[Thing], None], things: Iterable[Thing], at_once: int, check: Callable[[], None]) -> None:
    """Act on all things, at most `at_once` of them together, and wait; an error ends it, and is raised.

    Where `check` raises, no further thing is begun, and those that were begun are waited for.
    """
    left, errors = deque(things), list[BaseException]()

    def work() -> None:
        while left and not errors:
            with contextlib.suppress(IndexError):  # another took the last one
                thing = left.popleft()
                try:
                    act(thing)
                except BaseException as error:
                    errors.append(error)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(min(at_once, len(left)))]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            while worker.is_alive():
                worker.join(SLICE)
                check()
    except Exception:
        left.clear()
        for worker in workers:
            worker.join()
        raise
    if errors:
        raise errors[0]
