"""A barrier is checked with a straggler: first the last rank, then rank 0, so that whoever leaves early is seen."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.made_pairs import Pair

from collbench.bindings.spec import Numbers
from collbench.run.verify import BARRIER_DELAY, _checked_barrier
from collbench.timing.loop import Stamps


class Clock:
    """Moves 1 us each time it is read."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 1_000
        return self.now


def one(entered: int, left: int) -> Stamps:
    return Stamps(np.array([entered]), np.array([left]), np.zeros(1, bool), np.zeros((1, 0), np.int64))


class Three(Pair):
    """One rank of three; the other two entered and left as told, in one round after the other."""

    size = 3

    def __init__(self, rank: int, rounds: Iterator[list[Stamps]]) -> None:
        super().__init__(rank=rank)
        self._rounds, self._others = rounds, list[Stamps]()

    def extremes(self, values: Numbers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        self._others = next(self._rounds)
        self._last = np.array([max(int(values[0]), *(int(other.entered[0]) for other in self._others))])
        return self._last, self._last

    def total(self, values: Numbers) -> NDArray[np.int64]:
        early = sum(int(other.left[0]) < self._last[0] for other in self._others)
        return np.array([int(values[0]) + int(early)])


def checked(rank: int, others: list[list[Stamps]], clock: str = "common") -> tuple[tuple[int | None, str], list[int]]:
    """What rank `rank` of three finds, and how long it let the others wait each time; `others` leave as told."""
    ticking, entered, rounds = Clock(), list[int](), iter(others)

    def once() -> Stamps:
        entered.append(ticking.now)
        return one(0, 10)

    world = Three(rank, rounds)
    form: Any = SimpleNamespace(session=SimpleNamespace(clock=ticking, world=world), once=once)
    method: Any = SimpleNamespace(clock=clock)
    found = _checked_barrier(form, method)
    return found, [entered[0], entered[1] - entered[0]]


TOGETHER = [one(5, 10), one(5, 10)]


@pytest.mark.parametrize(("rank", "late"), [(0, (False, True)), (1, (False, False)), (2, (True, False))])
def test_the_last_rank_comes_late_then_rank_0(rank: int, late: tuple[bool, bool]) -> None:
    found, waits = checked(rank, [TOGETHER, TOGETHER])
    assert tuple(wait >= BARRIER_DELAY for wait in waits) == late
    assert found[0] == 0


def test_whoever_left_before_the_last_had_come_is_counted() -> None:
    late = [one(11, 20), one(5, 20)]  # entered after this rank had left
    assert checked(1, [late, TOGETHER])[0] == (1, "1 ranks left before the last one entered")
    assert checked(1, [late, late])[0][0] == 2
    assert checked(1, [late, late], "local")[0] == (None, ""), "clocks that differ tell nothing"
