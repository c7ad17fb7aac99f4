"""A halt: once it is set, no call follows, in both forms of the loop, nor is the loop left, until it is lifted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from tests.unit.c_functions import Library

from collbench.errors import LibraryError
from collbench.timing.call import Call, Halt, Native, Signals, Stage, Stopwatch
from collbench.timing.loop import GateSetting, native_loop, python_device_times, run_native, run_python

compiled = pytest.param(
    "native", marks=pytest.mark.skipif(native_loop() is None, reason="no native loop was built here")
)
NO_GATE = GateSetting("none", Signals(int, int, np.zeros(1, np.int64), announces=True))


class Halting:
    """Calls that write their names down. The one named `last` sets the halt; a timer writes `lifted` and lifts it."""

    def __init__(self, last: str, fails: bool = False) -> None:
        self.halt, self.library, self.order = Halt(), Library(), list[str]()
        self._last, self._fails, self._timer = last, fails, threading.Timer(0.3, self._lift)

    def _lift(self) -> None:
        self.order.append("lifted")
        self.halt.flag[:] = bytes(4)

    def _called(self, name: str) -> int:
        self.order.append(name)
        if name != self._last or self.halt.is_set or "lifted" in self.order:
            return 0
        self.halt.set()
        self._timer.start()
        return 17 if self._fails else 0

    def stage(self, *names: str) -> Stage:
        def python() -> None:
            for name in names:
                if self._called(name):
                    raise RuntimeError("failed")

        natives = tuple(Native((self.library.function(lambda name=name: self._called(name)),)) for name in names)
        return Stage(python, natives, names[0])

    def call(self, *stages: Stage, completion: Stage | None = None) -> Call:
        return Call(stages, completion, halt=self.halt)


def run(driver: str, call: Call, n: int, burst: int = 1) -> None:
    if driver == "native":
        run_native(call, NO_GATE, n, burst)
    else:
        run_python(call, NO_GATE, n, time.monotonic_ns, burst)


@pytest.mark.parametrize("driver", [compiled, "python"])
@pytest.mark.parametrize(
    ("last", "n", "burst", "order"),
    [
        ("wait", 2, 1, ["issue", "wait", "lifted", "issue", "wait"]),
        ("issue", 1, 3, ["issue", "lifted", "issue", "issue", "wait"]),
        ("wait", 1, 1, ["issue", "wait", "lifted", "left"]),
    ],
)
def test_nothing_follows_a_halt(driver: str, last: str, n: int, burst: int, order: list[str]) -> None:
    made = Halting(last)
    run(driver, made.call(made.stage("issue"), completion=made.stage("wait")), n, burst)
    made.order.append("left")
    assert made.order[: len(order)] == order


@pytest.mark.parametrize("driver", [compiled, "python"])
def test_between_stages(driver: str) -> None:
    made = Halting("a")
    run(driver, made.call(made.stage("a"), made.stage("b")), 1)
    assert made.order == ["a", "lifted", "b"]


@pytest.mark.parametrize("driver", [compiled, "python"])
def test_an_error_does_not_leave_a_halted_loop(driver: str) -> None:
    """Whoever catches it would let go of buffers that the library still holds."""
    made = Halting("issue", fails=True)
    with pytest.raises((LibraryError, RuntimeError), match=r"failed|error 17"):
        run(driver, made.call(made.stage("issue")), 1)
    assert made.order == ["issue", "lifted"]


@pytest.mark.parametrize("driver", [compiled, "python"])
def test_whoever_halts_waits_for_a_call_that_has_begun(driver: str) -> None:
    """A thread that looked just before the halt is about to call; freeing what it uses has to wait for it."""
    begun, order, halt, library = threading.Event(), list[str](), Halt(), Library()

    def issue() -> int:
        begun.set()
        time.sleep(0.2)
        order.append("returned")
        return 0

    stage = Stage(lambda: bool(issue()), (Native((library.function(issue),)),), "issue")
    thread = threading.Thread(target=run, args=(driver, Call((stage,), halt=halt), 2))
    thread.start()
    assert begun.wait(10)
    assert not halt.wait_for_caller(0.0)
    halt.set()
    assert halt.wait_for_caller(60)
    assert order == ["returned"]
    halt.flag[:] = bytes(4)
    thread.join(60)
    assert order == ["returned"] * 2


def test_on_the_devices_clock() -> None:
    made = Halting("stop")
    nothing: Callable[[], float] = lambda: 0.0  # noqa: E731
    watch = Stopwatch(made.stage("start"), made.stage("stop"), nothing)
    python_device_times(made.call(made.stage("issue")), watch, NO_GATE, 2, time.monotonic_ns)
    assert made.order == ["start", "issue", "stop", "start", "lifted", "issue", "stop"]
