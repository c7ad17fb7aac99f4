"""The timing loop in its two forms, with one result: when this rank entered and left each operation."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from collbench.errors import LibraryError
from collbench.timing.call import Call, Native
from collbench.timing.gates import TOLERANCE_PYTHON, GateSetting
from collbench.timing.halt import Halt

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
    if not call.has_native:
        return call.why_not_native or "the library has no C function for it"
    if not gate.has_native:
        return f"the gate {gate.kind} cannot be passed natively here"
    if clock is not time.monotonic_ns:
        return "the backend has a clock of its own"
    return None


@dataclass(frozen=True)
class Stamps:
    """When this rank entered and left each sample, [n] in ns of the ranks' clock, and where it was late.

    `marks` [n, stages - 1] are the ends of all stages but the last.
    """

    entered: NDArray[np.int64]
    left: NDArray[np.int64]
    late: NDArray[np.bool_]
    marks: NDArray[np.int64]

    @staticmethod
    def concatenate(batches: list[Stamps]) -> Stamps:
        """All batches as one."""
        return Stamps(
            np.concatenate([b.entered for b in batches]),
            np.concatenate([b.left for b in batches]),
            np.concatenate([b.late for b in batches]),
            np.concatenate([b.marks for b in batches]),
        )


def room_for(call: Call, n: int) -> Stamps:
    """Stamps of `n` samples, all zero."""
    marks = np.zeros((n, len(call.stages) - 1), np.int64)
    return Stamps(np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_), marks)


def run_native(call: Call, gate: GateSetting, n: int, burst: int = 1) -> Stamps:
    """Time `n` samples of `burst` operations each in C.

    Raises:
        LibraryError: the library returned an error; the code is in the message, with the library's words for it.
    """
    stamps = room_for(call, n)
    run_loop(call, tuple(stage.native or () for stage in call.stages), gate, burst, stamps)
    return stamps


def run_loop(
    call: Call,
    stages: tuple[tuple[Native, ...], ...],
    gate: GateSetting,
    burst: int,
    stamps: Stamps,
    reading: tuple[Native, int] | None = None,
    device: NDArray[np.float32] | None = None,
) -> None:
    """Run the compiled loop over `stages` with the completion of `call`, into `stamps` and `device`.

    `reading` is called after each sample, and leaves a float at its address.

    Raises:
        LibraryError: as `run_native`.
    """
    loop = native_loop()
    assert loop is not None and call.has_native
    completion = None if call.completion is None or not call.completion.native else call.completion.native[0]
    marks = stamps.marks if len(stages) > 1 else None
    done, code, failed = loop.measure(
        tuple(tuple(one.words for one in stage) for stage in stages), completion and completion.words,
        gate.native_fields(), burst, stamps.entered, stamps.left, stamps.late.view(np.uint8), marks,
        None if reading is None else (reading[0].words, reading[1]), device, call.halt.flag,
    )  # fmt: skip
    call.halt.stay_if_set()
    if code == 0:
        return
    made = dict(enumerate((*(one for stage in stages for one in stage), completion)))
    culprit = reading[0] if failed == -2 and reading is not None else made.get(failed)
    explain = gate.signals.explain if failed == -1 else None if culprit is None else culprit.explain
    words = "" if explain is None else f" ({explain(code)})"
    if culprit is not None and culprit.after_error is not None:
        culprit.after_error()
    raise LibraryError(f"the library returned error {code}{words} in operation {done + 1} of {len(stamps.late)}")


def run_python(call: Call, gate: GateSetting, n: int, clock: Clock, burst: int = 1) -> Stamps:
    """Time `n` samples as a Python program pays for them. The garbage collector waits meanwhile."""
    stamps = room_for(call, n)
    operations = tuple(stage.python for stage in call.stages)
    first, following = operations[0], operations[1:]
    complete = None if call.completion is None else call.completion.python
    halted, halt = call.halt.flag, call.halt.stay_if_set
    with no_collection(), left_by(call.halt):
        for i in range(n):
            target = gate.wait(clock)
            halt()
            before = clock()
            first()
            for _ in range(burst - 1):
                if halted[0]:
                    halt()
                first()
            for number, operation in enumerate(following):
                stamps.marks[i, number] = clock()
                if halted[0]:
                    halt()
                operation()
            if complete is not None:
                complete()
            after = clock()
            stamps.entered[i], stamps.left[i] = before, after
            stamps.late[i] = target != 0 and before > target + TOLERANCE_PYTHON
    return stamps


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """The garbage collector waits."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextlib.contextmanager
def left_by(halt: Halt) -> Iterator[None]:
    """Not left, even by an error, once the library is being taken down."""
    try:
        yield
    finally:
        halt.stay_if_set()
