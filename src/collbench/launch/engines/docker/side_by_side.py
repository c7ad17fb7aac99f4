"""A function called on several objects at once, in daemon threads."""

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
    """Act on all things, at most `at_once` of them at a time, and wait. The first error ends it, and is raised.

    Where `check` raises, no further thing is begun, and those that were begun are waited for.
    """
    waiting, errors = deque(things), list[BaseException]()
    number = min(at_once, len(waiting))
    workers = [threading.Thread(target=_work, args=(act, waiting, errors), daemon=True) for _ in range(number)]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            while worker.is_alive():
                worker.join(SLICE)
                check()
    except Exception:
        waiting.clear()
        for worker in workers:
            worker.join()
        raise
    if errors:
        raise errors[0]


def _work(act: Callable[[Thing], None], waiting: deque[Thing], errors: list[BaseException]) -> None:
    while waiting and not errors:
        with contextlib.suppress(IndexError):  # another thread took the last one
            thing = waiting.popleft()
            try:
                act(thing)
            except BaseException as error:
                errors.append(error)
