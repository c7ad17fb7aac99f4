"""The timing loop in its two forms, with one result: when this rank entered and left each operation.

The events cost host time, so the operations timed here are not samples: they run after the samples were taken.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from collbench.errors import LibraryError
from collbench.timing.call import Call, Native, Stage, Stopwatch
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
    """Why the native loop cannot time this call; None where it can."""
    if native_loop() is None:
        return "no native loop was built (no C compiler or no Python.h at installation)"
    if not call.has_native:
        return call.why_not_native or "the library has no C function for it"
    if not gate.has_native:
        return f"the backend has no C functions for gate {gate.kind}"
    if clock is not time.monotonic_ns:
        return "the backend has its own clock"
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
        return Stamps(
            np.concatenate([batch.entered for batch in batches]),
            np.concatenate([batch.left for batch in batches]),
            np.concatenate([batch.late for batch in batches]),
            np.concatenate([batch.marks for batch in batches]),
        )

    def part(self, begin: int, end: int) -> Stamps:
        """Those of samples `begin` to `end`, as far as there are so many."""
        return Stamps(self.entered[begin:end], self.left[begin:end], self.late[begin:end], self.marks[begin:end])

    def every(self, step: int) -> Stamps:
        """Each sample whose number is a multiple of `step`."""
        return Stamps(self.entered[::step], self.left[::step], self.late[::step], self.marks[::step])


def empty_stamps(call: Call, n: int) -> Stamps:
    """Stamps of `n` samples, all zero, for a loop to fill."""
    marks = np.zeros((n, len(call.stages) - 1), np.int64)
    return Stamps(np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_), marks)


def run_native(call: Call, gate: GateSetting, n: int, burst: int = 1) -> Stamps:
    """Time `n` samples of `burst` operations each in C.

    Raises:
        LibraryError: the library returned an error; the message has its code, and the library's text for it.
    """
    stamps = empty_stamps(call, n)
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

    `reading` is a call made after each sample, and the address to which it writes a float.

    Raises:
        LibraryError: as `run_native`.
    """
    loop = native_loop()
    assert loop is not None and call.has_native
    completion = None
    if call.completion is not None and call.completion.native:
        completion = call.completion.native[0]
    marks = stamps.marks if len(stages) > 1 else None
    done, code, failed = loop.measure(
        tuple(tuple(native.words for native in stage) for stage in stages), completion and completion.words,
        gate.native_fields(), burst, stamps.entered, stamps.left, stamps.late.view(np.uint8), marks,
        None if reading is None else (reading[0].words, reading[1]), device, call.halt.flag,
    )  # fmt: skip
    call.halt.block_if_set()
    if code == 0:
        return
    # as the loop numbers them: -1 is the gate, -2 the reading
    of_gate, of_reading = Native((), gate.signals.explain), reading and reading[0]
    calls = (*(native for stage in stages for native in stage), completion, of_reading, of_gate)
    failed_call = calls[failed]
    assert failed_call is not None
    if failed_call.after_error is not None:
        failed_call.after_error()
    error = error_in_words(code, failed_call.explain)
    raise LibraryError(f"the library returned {error} in operation {done + 1} of {len(stamps.late)}")


def error_in_words(code: int, explain: Callable[[int], str] | None) -> str:
    """`an error (CAUSE)`; without the number, by which MPICH counts errors, where the library has words."""
    return f"error {code}" if explain is None else f"an error ({explain(code)})"


def run_python(call: Call, gate: GateSetting, n: int, clock: Clock, burst: int = 1) -> Stamps:
    """Time `n` samples in Python, with its overhead; the garbage collector is paused."""
    stamps = empty_stamps(call, n)
    plain = burst == 1 and len(call.stages) == 1 and call.completion is None
    perform = call.stages[0].python if plain else _sample_of(call, stamps, burst, clock)
    halt = call.halt.block_if_set
    with gc_paused(), block_at_exit(call.halt):
        for i in range(n):
            target = gate.wait(clock)
            halt()
            before = clock()
            perform()
            after = clock()
            stamps.entered[i], stamps.left[i] = before, after
            stamps.late[i] = target != 0 and before > target + TOLERANCE_PYTHON
    return stamps


def _sample_of(call: Call, stamps: Stamps, burst: int, clock: Clock) -> Callable[[], None]:
    """All that is timed in a sample, where it is more than one call: its loops take some 0.2 us."""
    first, *following = (stage.python for stage in call.stages)
    complete = None if call.completion is None else call.completion.python
    halted, halt = call.halt.flag, call.halt.block_if_set
    samples = itertools.count()

    def perform() -> None:
        i = next(samples)
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

    return perform


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextlib.contextmanager
def block_at_exit(halt: Halt) -> Iterator[None]:
    """Block instead of leaving, even by an error, once the library is being shut down."""
    try:
        yield
    finally:
        halt.block_if_set()


def native_device_times(call: Call, watch: Stopwatch, gate: GateSetting, n: int) -> NDArray[np.float64]:
    """Seconds [n]; C issues operations and events.

    Raises:
        LibraryError: the library returned an error.
    """
    stages: tuple[Stage, ...] = (watch.start, *call.stages, watch.stop)
    issued = tuple(native for stage in stages for native in stage.native or ())
    milliseconds = np.zeros(n, np.float32)
    assert watch.native_read is not None and watch.cell is not None
    reading = (watch.native_read, int(watch.cell.ctypes.data))
    run_loop(call, (issued,), gate, 1, empty_stamps(call, n), reading, milliseconds)
    return milliseconds.astype(np.float64) * 1e-3


def python_device_times(call: Call, watch: Stopwatch, gate: GateSetting, n: int, clock: Clock) -> NDArray[np.float64]:
    """Seconds [n]; Python issues operations and events."""
    seconds = np.zeros(n)
    complete = (lambda: None) if call.completion is None else call.completion.python
    with gc_paused(), block_at_exit(call.halt):
        for i in range(n):
            gate.wait(clock)
            watch.start.python()
            for stage in call.stages:
                call.halt.block_if_set()
                stage.python()
            watch.stop.python()
            complete()
            seconds[i] = watch.read() * 1e-3
    return seconds
