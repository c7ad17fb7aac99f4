"""The timing loop in its two forms, with one result: when this rank entered and left each operation."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from collbench.errors import LibraryError
from collbench.timing.call import Call
from collbench.timing.gates import TOLERANCE_PYTHON, GateSetting

Clock = Callable[[], int]


@cache
def native_loop() -> ModuleType | None:
    """The compiled loop, or None where it could not be built."""
    try:
        from collbench.timing import _loop
    except ImportError:
        return None
    return _loop


def why_not_native(call: Call, gate: GateSetting, clock: Clock) -> str | None:
    """Why this call cannot be timed by the native loop; None when it can."""
    if native_loop() is None:
        return "no native loop was built (no C compiler or no Python.h at installation)"
    if call.native is None:
        return call.why_not_native or "the library has no C function for it"
    if not gate.has_native:
        return f"the gate {gate.kind} cannot be passed natively here"
    if clock is not time.monotonic_ns:
        return "the backend has a clock of its own"
    return None


@dataclass(frozen=True)
class Stamps:
    """When this rank entered and left each operation, [n] in ns of the ranks' clock, and where it was late."""

    entered: NDArray[np.int64]
    left: NDArray[np.int64]
    late: NDArray[np.bool_]

    @staticmethod
    def concatenate(batches: list[Stamps]) -> Stamps:
        """All batches as one."""
        return Stamps(
            np.concatenate([b.entered for b in batches]),
            np.concatenate([b.left for b in batches]),
            np.concatenate([b.late for b in batches]),
        )


def run_native(call: Call, gate: GateSetting, n: int) -> Stamps:
    """Time `n` operations in C.

    Raises:
        LibraryError: the library returned an error; the code is in the message, with the library's words for it.
    """
    loop = native_loop()
    assert loop is not None and call.native is not None
    entered, left, late = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.uint8)
    done, code = loop.measure(call.native, call.completion, gate.native_fields(), entered, left, late)
    if code != 0:
        words = "" if call.explain is None else f" ({call.explain(code)})"
        raise LibraryError(f"the library returned error {code}{words} in operation {done + 1} of {n}")
    return Stamps(entered, left, late.astype(bool))


def run_python(call: Call, gate: GateSetting, n: int, clock: Clock) -> Stamps:
    """Time `n` operations as a Python program pays for them. The garbage collector waits meanwhile."""
    entered, left, late = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_)
    operation = call.python
    collecting = gc.isenabled()
    gc.disable()
    try:
        for i in range(n):
            target = gate.wait(clock)
            before = clock()
            operation()
            after = clock()
            entered[i], left[i] = before, after
            late[i] = target != 0 and before > target + TOLERANCE_PYTHON
    finally:
        if collecting:
            gc.enable()
    return Stamps(entered, left, late)
