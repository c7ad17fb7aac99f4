"""Taking times: calls that a backend hands over, how ranks line up, the loop in C and in Python; a clock's step.

Both loops have one result: when this rank entered and left each operation.

`roundtime`: after a barrier the root announces a start a little in the future, and every rank spins until then. A rank
that is late marks the sample invalid. `barrier`: leave a barrier, start. `none`: start.
After Hunold and Carpen-Amarie, "Hierarchical clock synchronization in MPI", IEEE Cluster 2018 (round-time scheme).

Events of a device cost host time, so the operations that they time are no samples: they run after those were taken.

All times are nanoseconds. CLOCK_MONOTONIC is given in nanoseconds, but the counter behind it may step by 10 ns or
42 ns. A time of some hundred nanoseconds is then a small multiple of the step, whatever a statistic makes of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from collbench.errors import LibraryError
from collbench.schema.case import Alignment

Clock = Callable[[], int]

#: How often a blocked thread looks again (s).
_NAP = 0.02

#: Values of the flag: make no further call; the thread that makes them is blocked.
_HALTED, _BLOCKED = 1, 2


class Halt:
    """Not set at first. `flag` is an int32 that the native loop reads before each call of the library."""

    def __init__(self) -> None:
        self.flag = bytearray(4)

    @property
    def is_set(self) -> bool:
        """Whether the library is being shut down."""
        return bool(self.flag[0])

    def set(self) -> None:
        """From now on, a thread that checks the flag blocks. Whoever sets it must end the process."""
        self.flag[0] = _HALTED

    def wait_for_caller(self, limit: float) -> bool:
        """After `set`: wait up to `limit` seconds until the thread that calls the library is blocked; whether it is.

        It may have checked just before the flag was set, and be about to call. A thread inside a call that waits for
        another rank never blocks here; only shutting the library down lets it out.
        """
        deadline = time.monotonic() + limit
        while self.flag[0] != _BLOCKED and time.monotonic() < deadline:
            time.sleep(_NAP / 10)
        return self.flag[0] == _BLOCKED

    def block_if_set(self) -> None:
        """Return at once, or, once set, not before the process ends: the caller would free what is still in use."""
        if self.is_set:
            self.flag[0] = _BLOCKED
        while self.is_set:
            time.sleep(_NAP)


#: A C function's address, then its arguments as machine words.
Words = tuple[int, ...]


@dataclass(frozen=True)
class Native:
    """One call of a C function. `explain` turns the error code that it returns into the library's words.

    `after_error` is called once if this one fails.
    """

    words: Words
    explain: Callable[[int], str] | None = None
    after_error: Native | None = None

    def __call__(self) -> int:
        """Make the call now, outside the loop; returns its error code."""
        address, *arguments = self.words
        return int(ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * len(arguments))(address)(*arguments))


@dataclass(frozen=True)
class Stage:
    """A part of an operation: a Python callable, and the C calls that do the same, one after the other.

    `native` is None where there is no C form, and empty where this rank has nothing to do. `name` says what the part
    does, where an operation has several.
    """

    python: Callable[[], object]
    native: tuple[Native, ...] | None = None
    name: str = ""


@dataclass(frozen=True)
class Stopwatch:
    """Times work on the device, between two events of the device's own clock.

    `start` and `stop` are issued around the work; after its completion `read` returns the milliseconds between them.
    Where there is a C form, `native_read` writes them to `cell` (float32 [1]).
    """

    start: Stage
    stop: Stage
    read: Callable[[], float]
    native_read: Native | None = None
    cell: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Call:
    """One operation: its stages, and what completes it on this rank.

    Without `completion` the last stage returns when this rank's part is complete. With it, stages only issue work, and
    many operations may be issued before one completion; the completion is part of every sample. `why_not_native` says
    why there is no C form. `keep` holds whatever must stay alive while the words are in use. `halt` is checked before
    every call, and before the loop returns.
    """

    stages: tuple[Stage, ...]
    completion: Stage | None = None
    stopwatch: Stopwatch | None = None
    why_not_native: str | None = None
    keep: tuple[object, ...] = ()
    halt: Halt = field(default_factory=Halt)

    @property
    def has_native(self) -> bool:
        """Whether every stage and the completion have a C form."""
        stages = self.stages if self.completion is None else (*self.stages, self.completion)
        return all(stage.native is not None for stage in stages)

    @property
    def streams(self) -> bool:
        """Whether operations can be issued back to back and completed once."""
        return self.completion is not None and len(self.stages) == 1


def whole(python: Callable[[], object], *native: Native, why_not_native: str | None = None) -> Call:
    """An operation of one stage that is complete when it returns; without `native` it has no C form."""
    return Call((Stage(python, native or None),), why_not_native=why_not_native)


@dataclass(frozen=True)
class Messages:
    """Messages of 8 bytes between two ranks, by which hosts compare their clocks: `send` and `receive` block.

    `cell` is the int64 [1] that is sent, and into which is received. The native forms are the same as words of C calls,
    `explain` turns their error codes into the library's text, and `keep` is what they need alive.
    """

    cell: NDArray[np.int64]
    send: Callable[[int], object]
    receive: Callable[[int], object]
    native_send: Callable[[int], Words | None] = lambda rank: None
    native_receive: Callable[[int], Words | None] = lambda rank: None
    explain: Callable[[int], str] | None = None
    keep: object = None


@dataclass(frozen=True)
class Signals:
    """How a backend lines ranks up: a barrier, and a broadcast of the root's 8 bytes, in Python and as words.

    `start` is the int64 [1] that `announce` broadcasts, in nanoseconds of the ranks' clock; `announces` is true on the
    root. `relax` is called while a rank spins: a library whose own threads finish the broadcast needs the core for
    them. `explain` turns an error code of the words into the library's text. Without `messages` ranks on several hosts
    have no common time.
    """

    barrier: Callable[[], object]
    announce: Callable[[], object]
    start: NDArray[np.int64]
    announces: bool
    relax: Callable[[], object] | None = None
    native_barrier: Words | None = None
    native_announce: Words | None = None
    explain: Callable[[int], str] | None = None
    messages: Messages | None = None


# Alignment ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A clock as a function of rank 0's: ahead by `offset` when rank 0's shows `origin`, and by `slope` more per ns."""

    offset: int = 0
    slope: float = 0.0
    origin: int = 0

    def local(self, first: int) -> int:
        """What this clock shows when rank 0's shows `first`."""
        return first + self.offset + int(self.slope * (first - self.origin))


#: A rank that enters this much after the announced start is late (ns): a few reads of the clock.
TOLERANCE_NATIVE = 200
TOLERANCE_PYTHON = 1_000

#: Slack grows up to this (ns). Where ranks are late even then, there is no common start.
LARGEST_SLACK = 20_000_000

#: A larger share of late samples may want a larger slack; a share above the other shows that there was no common start.
LATE_SHARE, HOPELESS_SHARE = 0.05, 0.5

#: Samples that are looked at before the slack is doubled, or the last doubling is judged: it must leave at most this
#: part of the late share.
JUDGED, HELPED = 100, 0.8


class Slack:
    """The slack (ns) of a case in round time, larger after late samples as long as that makes fewer of them late.

    Ranks are late because an announcement took longer than the slack, or because something kept them while they waited.
    In the second case a larger slack makes more of them late, and operations slower: caches are cold after the wait.
    """

    def __init__(self, value: int) -> None:
        self.value = min(value, LARGEST_SLACK)
        self._late = self._n = 0
        self._before: tuple[int, float] | None = None  # the slack before the last doubling, and the late share with it
        self._helps = True

    def adapt(self, late: int, n: int) -> bool:
        """After so many late of `n` samples; whether most were late, for which the slack is quadrupled at once."""
        if late > HOPELESS_SHARE * n:
            self._change(4 * self.value)
            self._before, self._helps = None, True
            return True
        self._late, self._n = self._late + late, self._n + n
        if self._n < JUDGED:
            return False
        share, before, self._before = self._late / self._n, self._before, None
        if before is not None and share > HELPED * before[1]:
            self._change(before[0])
            self._helps = False
        elif self._helps and share > LATE_SHARE:
            self._before = self.value, share
            self._change(2 * self.value)
        else:
            self._late = self._n = 0
        return False

    def _change(self, value: int) -> None:
        self.value, self._late, self._n = min(value, LARGEST_SLACK), 0, 0


_KIND: dict[Alignment, int] = {"none": 0, "barrier": 1, "roundtime": 2}


@dataclass(frozen=True)
class AlignmentSetting:
    """An alignment ready to use: its kind, and how far in the future (ns) the root announces the start.

    The start is announced on the root's clock; `line` makes it one of this rank's.
    """

    kind: Alignment
    signals: Signals
    slack: int = 0
    line: Line = Line()  # that of rank 0's own clock

    def native_fields(self) -> tuple[object, ...]:
        """The alignment as an argument of the native loop."""
        s, line = self.signals, self.line
        calls = (_KIND[self.kind], s.native_barrier, s.native_announce)
        return (*calls, s.start, s.announces, self.slack, TOLERANCE_NATIVE, line.offset, line.slope, line.origin)

    @property
    def has_native(self) -> bool:
        """Whether the native loop can line ranks up so."""
        needed = (self.signals.native_barrier, self.signals.native_announce)[: _KIND[self.kind]]
        return None not in needed

    def wait(self, clock: Clock) -> int:
        """Line up from Python. Returns the announced start on this rank's clock, or 0 for the other kinds."""
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

    def with_slack(self, slack: int) -> AlignmentSetting:
        """The same alignment with another slack in nanoseconds."""
        return replace(self, slack=min(slack, LARGEST_SLACK))


def announcement_delays(align: AlignmentSetting, clock: Clock, repetitions: int) -> NDArray[np.int64]:
    """Time from the root's stamp to this rank's receipt, [repetitions] in ns. Collective."""
    signals, delays = align.signals, np.empty(repetitions, np.int64)
    for i in range(repetitions):
        signals.barrier()
        if signals.announces:
            signals.start[0] = clock()
        signals.announce()
        delays[i] = clock() - align.line.local(int(signals.start[0]))
    return delays


@cache
def native_loop() -> ModuleType | None:
    """The compiled loop, or None where it could not be built."""
    try:
        from collbench.timing import _loop
    except ImportError:
        return None
    return _loop


def why_not_native(call: Call, align: AlignmentSetting, clock: Clock) -> str | None:
    """Why the native loop cannot time this call; None where it can."""
    if native_loop() is None:
        return "no native loop was built (no C compiler or no Python.h at installation)"
    if not call.has_native:
        return call.why_not_native or "the library has no C function for it"
    if not align.has_native:
        return f"the backend has no C functions to line ranks up by {align.kind}"
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
        fields = zip(*((batch.entered, batch.left, batch.late, batch.marks) for batch in batches), strict=True)
        return Stamps(*(np.concatenate(of_batches) for of_batches in fields))

    def __getitem__(self, samples: slice) -> Stamps:
        """Those of some samples, as far as there are so many."""
        return Stamps(self.entered[samples], self.left[samples], self.late[samples], self.marks[samples])


def empty_stamps(call: Call, n: int) -> Stamps:
    """Stamps of `n` samples, all zero, for a loop to fill."""
    marks = np.zeros((n, len(call.stages) - 1), np.int64)
    return Stamps(np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_), marks)


def run_native(call: Call, align: AlignmentSetting, n: int, burst: int = 1) -> Stamps:
    """Time `n` samples of `burst` operations each in C.

    Raises:
        LibraryError: the library returned an error; the message has its code, and the library's text for it.
    """
    stamps = empty_stamps(call, n)
    run_loop(call, tuple(stage.native or () for stage in call.stages), align, burst, stamps)
    return stamps


def run_loop(
    call: Call, stages: tuple[tuple[Native, ...], ...], align: AlignmentSetting, burst: int, stamps: Stamps,
    reading: tuple[Native, int] | None = None, device: NDArray[np.float32] | None = None,
) -> None:  # fmt: skip
    """Run the compiled loop over `stages` with the completion of `call`, into `stamps` and `device`; errors as above.

    `reading` is a call made after each sample, and the address to which it writes a float.
    """
    loop = native_loop()
    assert loop is not None and call.has_native
    completion = None
    if call.completion is not None and call.completion.native:
        completion = call.completion.native[0]
    marks = stamps.marks if len(stages) > 1 else None
    done, code, failed = loop.measure(
        tuple(tuple(native.words for native in stage) for stage in stages), completion and completion.words,
        align.native_fields(), burst, stamps.entered, stamps.left, stamps.late.view(np.uint8), marks,
        None if reading is None else (reading[0].words, reading[1]), device, call.halt.flag,
    )  # fmt: skip
    call.halt.block_if_set()
    if code == 0:
        return
    # as the loop numbers them: -1 is lining up, -2 the reading
    of_align, of_reading = Native((), align.signals.explain), reading and reading[0]
    calls = (*(native for stage in stages for native in stage), completion, of_reading, of_align)
    failed_call = calls[failed]
    assert failed_call is not None
    if failed_call.after_error is not None:
        failed_call.after_error()
    error = error_in_words(code, failed_call.explain)
    raise LibraryError(f"the library returned {error} in operation {done + 1} of {len(stamps.late)}")


def error_in_words(code: int, explain: Callable[[int], str] | None) -> str:
    """`an error (CAUSE)`; without the number, by which MPICH counts errors, where the library has words."""
    return f"error {code}" if explain is None else f"an error ({explain(code)})"


def run_python(call: Call, align: AlignmentSetting, n: int, clock: Clock, burst: int = 1) -> Stamps:
    """Time `n` samples in Python, with its overhead; the garbage collector is paused."""
    stamps = empty_stamps(call, n)
    plain = burst == 1 and len(call.stages) == 1 and call.completion is None
    perform = call.stages[0].python if plain else _sample_of(call, stamps, burst, clock)
    halt = call.halt.block_if_set
    with _undisturbed(call.halt):
        for i in range(n):
            target = align.wait(clock)
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


def native_device_times(call: Call, watch: Stopwatch, align: AlignmentSetting, n: int) -> NDArray[np.float64]:
    """Seconds [n]; C issues operations and events."""
    issued = tuple(native for stage in (watch.start, *call.stages, watch.stop) for native in stage.native or ())
    milliseconds = np.zeros(n, np.float32)
    assert watch.native_read is not None and watch.cell is not None
    reading = (watch.native_read, int(watch.cell.ctypes.data))
    run_loop(call, (issued,), align, 1, empty_stamps(call, n), reading, milliseconds)
    return milliseconds.astype(np.float64) * 1e-3


def python_device_times(
    call: Call, watch: Stopwatch, align: AlignmentSetting, n: int, clock: Clock
) -> NDArray[np.float64]:
    """Seconds [n]; Python issues operations and events."""
    seconds = np.zeros(n)
    complete = (lambda: None) if call.completion is None else call.completion.python
    with _undisturbed(call.halt):
        for i in range(n):
            align.wait(clock)
            watch.start.python()
            for stage in call.stages:
                call.halt.block_if_set()
                stage.python()
            watch.stop.python()
            complete()
            seconds[i] = watch.read() * 1e-3
    return seconds


# The step of a clock --------------------------------------------------------------------------------------------------

#: Pairs of reads that lie farther apart than this (ns) are left out: the phase of a wrong step adds up over them.
_FARTHEST = 400
#: Steps that are searched for between reads (ns). With a longer one, neighbouring reads are equal.
_LONGEST, _SHORTEST = 200.0, 2.0
#: Coherence above which reads lie on multiples of a step. Rounding to whole ns leaves 0.97 for 10 ns, 0.81 for 4 ns.
_COHERENT = 0.75
#: How far (ns) a difference of two readings may be from a multiple of the step: each reading was rounded down. Reads
#: that all take about 100 ns are coherent at 100 ns whatever the step is.
_OFF, _OFTEN = 2.0, 0.98
_READS, _WINDOW = 200, 12


def clock_step(clock: Clock = time.monotonic_ns) -> float:
    """Nanoseconds from one value that `clock` can show to the next, at least 1."""
    reads = np.array([clock() for _ in range(_READS)], dtype=np.int64)
    steps = np.diff(reads)
    if np.any(steps == 0) and np.any(steps > 0):
        return float(np.min(steps[steps > 0]))  # several reads within one step
    spans = np.concatenate([reads[lag:] - reads[:-lag] for lag in range(1, _WINDOW)])
    return max(lattice(spans[(spans > 0) & (spans < _FARTHEST)]), 1.0)


def lattice(values: NDArray[np.int64]) -> float:
    """The longest step of which all `values` [n] in ns are multiples, up to rounding; 0.0 where there is none.

    The measure is |mean exp(2 pi i v / step)|, which is 1 on a lattice and near 0 elsewhere (Rayleigh). A step
    counts only if three consecutive multiples occur, as two clusters of values are no lattice, and if the values lie
    on its multiples, not merely near them.
    """
    if len(values) < 3:
        return 0.0
    frequencies = np.arange(1 / _LONGEST, 1 / _SHORTEST, 0.2 / _FARTHEST)
    distinct, counts = np.unique(values, return_counts=True)
    phases = np.exp(2j * np.pi * np.outer(frequencies, distinct))
    coherence = np.abs(phases @ counts) / counts.sum()
    for frequency in frequencies[coherence >= _COHERENT]:
        multiples = np.unique(np.rint(distinct * frequency))
        if np.any(multiples[2:] - multiples[:-2] == 2):
            near = (frequencies >= frequency) & (frequencies < 1.3 * frequency)
            step = float(1 / frequencies[near][np.argmax(coherence[near])])
            off = np.abs(distinct - step * np.rint(distinct / step))
            if counts[off <= _OFF].sum() >= _OFTEN * counts.sum():
                return step
    return 0.0
