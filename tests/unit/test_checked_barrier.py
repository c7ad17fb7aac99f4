"""A barrier is checked with a straggler: first the last rank, then rank 0, so that whoever leaves early is seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.made_pairs import Pair

from collbench.bindings.spec import Numbers
from collbench.run.measure import BARRIER_DELAY, _checked_barrier
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

    def minmax(self, values: Numbers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        self._others = next(self._rounds)
        self._last = np.array([max(int(values[0]), *(int(other.entered[0]) for other in self._others))])
        return self._last, self._last

    def total(self, values: Numbers) -> NDArray[np.int64]:
        early = sum(int(other.left[0]) < self._last[0] for other in self._others)
        return np.array([int(values[0]) + int(early)])


class Clocks:
    """Of several hosts: all ahead of rank 0's by `ahead`, and by the bound not known better."""

    def __init__(self, bound: int, ahead: int) -> None:
        self.bound, self.ahead, self.times = bound, ahead, 0

    def begin(self) -> None:
        self.times = 0

    def synchronise(self) -> None:
        self.times += 1

    def common(self, stamps: Stamps) -> Stamps:
        return replace(stamps, entered=stamps.entered - self.ahead, left=stamps.left - self.ahead)


def checked(
    rank: int, others: list[list[Stamps]], clock: str = "common", clocks: Clocks | None = None
) -> tuple[tuple[int | None, str], list[int]]:
    """What rank `rank` of three finds, and how long it let the others wait each time; `others` leave as told."""
    ticking, entered, rounds = Clock(), list[int](), iter(others)

    def once() -> Stamps:
        entered.append(ticking.now)
        return one(0, 10)

    world, signals = Three(rank, rounds), SimpleNamespace(barrier=lambda: None)
    form: Any = SimpleNamespace(session=SimpleNamespace(clock=ticking, world=world, signals=signals), once=once)
    method: Any = SimpleNamespace(clock=clock, clocks=clocks)
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


def test_on_synchronised_clocks_a_rank_left_early_if_they_cannot_explain_it() -> None:
    """Its clock shows 10 when it leaves, and is 7000 ahead of rank 0's; each clock may be wrong by the bound."""
    for entered, early in ((-6_989, 0), (-6_890, 0), (-6_889, 1)):
        clocks = Clocks(bound=50, ahead=7_000)
        others = [one(entered, entered + 900), one(-7_000, -6_000)]
        assert checked(1, [others, others], "synced", clocks)[0][0] == 2 * early
        assert clocks.times == 1, "after each of both"


def test_the_last_one_lets_the_others_wait_for_longer_than_the_clocks_may_be_wrong() -> None:
    _, waits = checked(2, [TOGETHER, TOGETHER], "synced", Clocks(bound=1_000_000, ahead=0))
    assert waits[0] >= BARRIER_DELAY + 4_000_000
