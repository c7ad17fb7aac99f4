"""Gates, which line ranks up before a sample, and the timing loop behind them in its two forms, in C and in Python.

Both loops have one result: when this rank entered and left each operation.

`roundtime`: after a barrier the root announces a start a little in the future, and every rank spins until then. A rank
that is late marks the sample invalid. `barrier`: leave a barrier, start. `none`: start.
After Hunold and Carpen-Amarie, "Hierarchical clock synchronization in MPI", IEEE Cluster 2018 (round-time scheme).

Events of a device cost host time, so the operations that they time are no samples: they run after those were taken.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from collbench.errors import LibraryError
from collbench.schema.case import Gate
from collbench.timing.call import Call, Halt, Native, Signals, Stage, Stopwatch, Words
from collbench.timing.clocks import SAME, Line

#: A rank that enters this much after the announced start is late (ns): a few reads of the clock.
TOLERANCE_NATIVE = 200
TOLERANCE_PYTHON = 1_000

#: Slack grows up to this (ns). Where ranks are late even then, there is no common start.
LARGEST_SLACK = 20_000_000

_KIND: dict[Gate, int] = {"none": 0, "barrier": 1, "roundtime": 2}


@dataclass(frozen=True)
class GateSetting:
    """A gate ready to use: its kind, and how far in the future (ns) the root announces the start.

    The start is announced on the root's clock; `line` makes it one of this rank's.
    """

    kind: Gate
    signals: Signals
    slack: int = 0
    line: Line = SAME

    def native_fields(self) -> tuple[object, ...]:
        """The gate as an argument of the native loop."""
        s, line = self.signals, self.line
        calls = (_KIND[self.kind], s.native_barrier, s.native_announce)
        return (*calls, s.start, s.announces, self.slack, TOLERANCE_NATIVE, line.offset, line.slope, line.origin)

    @property
    def has_native(self) -> bool:
        """Whether the native loop can pass this gate."""
        needed: dict[Gate, tuple[Words | None, ...]] = {
            "none": (),
            "barrier": (self.signals.native_barrier,),
            "roundtime": (self.signals.native_barrier, self.signals.native_announce),
        }
        return None not in needed[self.kind]

    def wait(self, clock: Callable[[], int]) -> int:
        """Pass the gate from Python. Returns the announced start on this rank's clock, or 0 for the other kinds."""
        if self.kind == "none":
            return 0
        self.signals.barrier()
        if self.kind == "barrier":
            return 0
        if self.signals.announces:
            self.signals.start[0] = clock() + self.slack
        self.signals.announce()
        target = self.line.local(int(self.signals.start[0]))
        relax = self.signals.relax
        while clock() < target:
            if relax is not None:
                relax()
        return target

    def with_slack(self, slack: int) -> GateSetting:
        """The same gate with another slack in nanoseconds."""
        return replace(self, slack=min(slack, LARGEST_SLACK))


def announcement_delays(gate: GateSetting, clock: Callable[[], int], repetitions: int) -> NDArray[np.int64]:
    """Time from the root's stamp to this rank's receipt, [repetitions] in ns. Collective."""
    signals, delays = gate.signals, np.empty(repetitions, np.int64)
    for i in range(repetitions):
        signals.barrier()
        if signals.announces:
            signals.start[0] = clock()
        signals.announce()
        delays[i] = clock() - gate.line.local(int(signals.start[0]))
    return delays


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

    def __getitem__(self, samples: slice) -> Stamps:
        """Those of some samples, as far as there are so many."""
        return Stamps(self.entered[samples], self.left[samples], self.late[samples], self.marks[samples])


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
    with _undisturbed(call.halt):
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
def _undisturbed(halt: Halt) -> Iterator[None]:
    """No garbage is collected. Once the library is being shut down, block instead of leaving, even by an error."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        halt.block_if_set()
        if collecting:
            gc.enable()


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
    with _undisturbed(call.halt):
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
