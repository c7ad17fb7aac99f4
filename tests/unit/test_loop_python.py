"""The Python form of the timing loop, with a clock that says what the script says."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from collbench.timing import loop
from collbench.timing.call import Native, Signals, whole
from collbench.timing.loop import TOLERANCE_PYTHON, GateSetting, Stamps, native_loop, run_python, why_not_native


def nothing() -> None:
    """Does it."""


def scripted(times: list[int]) -> Callable[[], int]:
    following: Iterator[int] = iter(times)
    return lambda: next(following)


def gate_to(start: int) -> GateSetting:
    """A round-time gate whose root is elsewhere and said `start`."""
    return GateSetting("roundtime", Signals(nothing, nothing, np.array([start]), announces=False))


NO_GATE = GateSetting("none", Signals(nothing, nothing, np.zeros(1, np.int64), announces=True))


def test_stamps_are_around_the_operation_alone() -> None:
    order: list[str] = []
    times = scripted([100, 130, 200, 270])

    def clock() -> int:
        order.append("clock")
        return times()

    found = run_python(whole(lambda: order.append("operation")), NO_GATE, 2, clock)
    assert order == ["clock", "operation", "clock"] * 2
    assert found.entered.tolist() == [100, 200]
    assert found.left.tolist() == [130, 270]
    assert found.late.tolist() == [False, False]


@pytest.mark.parametrize(("entered", "late"), [(TOLERANCE_PYTHON, False), (TOLERANCE_PYTHON + 1, True)])
def test_who_enters_long_after_the_announced_start_is_late(entered: int, late: bool) -> None:
    start = 50_000
    found = run_python(whole(nothing), gate_to(start), 1, scripted([start, start + entered, start + 9_000]))
    assert found.late.tolist() == [late]
    assert found.left.tolist() == [start + 9_000]


def test_the_collector_waits_and_comes_back_even_after_an_error() -> None:
    seen: list[bool] = []

    def failing() -> None:
        seen.append(gc.isenabled())
        raise RuntimeError("from the library")

    assert gc.isenabled()
    with pytest.raises(RuntimeError, match="from the library"):
        run_python(whole(failing), NO_GATE, 3, time.monotonic_ns)
    assert seen == [False]
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        run_python(whole(nothing), NO_GATE, 1, time.monotonic_ns)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_no_samples() -> None:
    assert len(run_python(whole(nothing), NO_GATE, 0, time.monotonic_ns).left) == 0


def test_batches_are_joined_in_order() -> None:
    one = run_python(whole(nothing), NO_GATE, 2, scripted([1, 2, 3, 4]))
    two = run_python(whole(nothing), gate_to(5), 1, scripted([5, 5_000, 5_001]))
    joined = Stamps.concatenate([one, two])
    assert joined.entered.tolist() == [1, 3, 5_000]
    assert joined.left.tolist() == [2, 4, 5_001]
    assert joined.late.tolist() == [False, False, True]


def test_why_a_call_cannot_be_timed_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    native = whole(nothing, Native((1,)))
    clock = time.monotonic_ns
    assert native_loop() is None or why_not_native(native, NO_GATE, clock) is None
    monkeypatch.setattr(loop, "native_loop", lambda: object())
    assert why_not_native(whole(nothing), NO_GATE, clock) == "the library has no C function for it"
    assert why_not_native(whole(nothing, why_not_native="because"), NO_GATE, clock) == "because"
    assert why_not_native(native, gate_to(1), clock) == "the backend has no C functions for gate roundtime"
    assert why_not_native(native, NO_GATE, lambda: 0) == "the backend has its own clock"
    monkeypatch.setattr(loop, "native_loop", lambda: None)
    assert "no native loop was built" in (why_not_native(native, NO_GATE, clock) or "")


def test_nothing_stands_between_the_clock_and_a_single_call() -> None:
    """What Python needs for bursts and stages, some 0.2 us, would be timed with the call."""
    callers: list[str] = []
    run_python(whole(lambda: callers.append(sys._getframe(1).f_code.co_name)), NO_GATE, 2, time.monotonic_ns)
    assert callers == ["run_python"] * 2
