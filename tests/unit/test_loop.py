"""The timing loop, in C and in Python: counts, words, order, stages, bursts, errors, halts, lateness."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tests.unit.c_functions import Library

from collbench.errors import LibraryError
from collbench.timing import loop as loop_module
from collbench.timing.loop import (
    TOLERANCE_PYTHON,
    AlignmentSetting,
    Call,
    Halt,
    Native,
    Signals,
    Stage,
    Stamps,
    Stopwatch,
    Words,
    run_native,
    run_python,
    whole,
    why_not_native,
)

loop: Any = loop_module.native_loop()
compiled = pytest.mark.skipif(loop is None, reason="no native loop was built here (no C compiler at installation)")
both_forms = pytest.mark.parametrize("form", [pytest.param("native", marks=compiled), "python"])
NONE, BARRIER, ROUNDTIME = 0, 1, 2
AN_HOUR = 3_600 * 10**9
NO_GATE = AlignmentSetting("none", Signals(int, int, np.zeros(1, np.int64), announces=True))


def run(form: str, call: Call, align: AlignmentSetting, n: int, burst: int = 1) -> Stamps:
    if form == "native":
        return run_native(call, align, n, burst)
    return run_python(call, align, n, time.monotonic_ns, burst)


# In C: what is called, and what stands in the buffers ----------------------------------------------------------------


def measure(call: Any, n: int = 3, completion: Any = None, align: Any = None) -> tuple[int, int, Any, Any, Any]:
    entered, left, late = np.zeros(n, np.int64), np.zeros(n, np.int64), np.full(n, 9, np.uint8)
    align = align or (NONE, None, None, np.zeros(1, np.int64), False, 0, 0)
    done, code, _ = loop.measure(((call,),), completion, align, 1, entered, left, late, None, None, None, bytearray(4))
    return done, code, entered, left, late


def noting(notes: list[Any], what: Callable[..., Any] = time.monotonic_ns) -> Callable[..., int]:
    """A function that notes this each time it is called: the time, or something of its arguments."""

    def called(*arguments: int) -> int:
        notes.append(what(*arguments))
        return 0

    return called


@compiled
@pytest.mark.parametrize("words", [[2**64 - 1, 0, 2**63, *range(3, 12)][:n] for n in range(13)] + [[-1]])
def test_every_argument_arrives_as_its_word(words: list[int]) -> None:
    """A negative one too: MPI_IN_PLACE is (void *) -1 in some libraries."""
    library, seen = Library(), list[tuple[int, ...]]()
    function = library.function(noting(seen, lambda *given: given), len(words))
    assert measure((function, *words), n=2)[:2] == (2, 0)
    assert seen == [tuple(word % 2**64 for word in words)] * 2


@compiled
def test_stamps_are_monotonic_nanoseconds_of_this_very_time_around_call_and_completion() -> None:
    library, inside, before = Library(), list[int](), time.monotonic_ns()
    completion = (library.function(noting(inside)),)
    done, code, entered, left, late = measure(library.named("call"), n=50, completion=completion)
    assert (done, code) == (50, 0)
    stamps = [before, *np.stack([entered, inside, left], axis=1).ravel(), time.monotonic_ns()]
    assert (np.diff(stamps) >= 0).all()
    assert late.tolist() == [0] * 50


@compiled
@pytest.mark.parametrize("at", [0, 1, 4])
def test_an_error_ends_the_loop_with_its_code(at: int) -> None:
    library = Library()
    done, code, _, left, _ = measure(library.named("call", fails_at=at), n=5, completion=library.named("completion"))
    assert (done, code) == (at, 17)
    assert library.order == [*["call", "completion"] * at, "call"]
    assert [value > 0 for value in left] == [number < at for number in range(5)]


@compiled
@pytest.mark.parametrize("failing", ["barrier", "announce", "completion"])
def test_an_error_of_any_part_ends_the_loop(failing: str) -> None:
    library = Library()
    parts = {
        name: library.named(name, 1 if name == failing else None, -3) for name in ("barrier", "announce", "completion")
    }
    align = (ROUNDTIME, parts["barrier"], parts["announce"], np.zeros(1, np.int64), False, 0, AN_HOUR)
    done, code, *_ = measure(library.named("call"), completion=parts["completion"], align=align)
    assert (done, code) == (1, -3)


@compiled
@pytest.mark.parametrize(("kind", "order"), [(NONE, ["call"]), (BARRIER, ["barrier", "call"])])
def test_a_gate_calls_what_it_needs_and_nothing_else(kind: int, order: list[str]) -> None:
    library, start = Library(), np.zeros(1, np.int64)
    align = (kind, library.named("barrier"), library.named("announce"), start, True, 0, 0)
    measure(library.named("call"), align=align)
    assert (library.order, start[0]) == (order * 3, 0)


@compiled
def test_the_root_announces_a_time_in_the_future_and_nobody_enters_before_it() -> None:
    library, start, slack = Library(), np.zeros(1, np.int64), 200_000
    announced: list[tuple[int, int]] = []
    announce = (library.function(noting(announced, lambda: (int(start[0]), time.monotonic_ns()))),)
    barrier, call, before = library.named("barrier"), library.named("call"), time.monotonic_ns()
    *_, entered, _, _ = measure(call, align=(ROUNDTIME, barrier, announce, start, True, slack, 0))
    assert library.order == ["barrier", "call"] * 3
    for (target, now), at in zip(announced, entered, strict=True):
        assert before + slack <= target <= now + slack and target <= at


@compiled
@pytest.mark.parametrize(("slope", "entered_by"), [(0.0, AN_HOUR), (1e-3, AN_HOUR + AN_HOUR // 1_000)])
def test_the_start_is_one_of_this_ranks_clock(slope: float, entered_by: int) -> None:
    """The root's clock is an hour behind this one when it shows `origin`; the announced start is an hour later."""
    library, origin = Library(), time.monotonic_ns() - 2 * AN_HOUR - AN_HOUR // 1_000
    start, call = np.array([origin + AN_HOUR]), library.named("call")
    align = (ROUNDTIME, library.named("barrier"), library.named("announce"), start, False, 0)
    *_, entered, _, late = measure(call, align=(*align, 0, AN_HOUR, slope, origin))
    assert late.tolist() == [1] * 3, "it is over"
    for more, expected in ((10**9, 0), (-(10**9), 1)):
        tolerance = int(entered[0]) - int(start[0]) - entered_by + more
        assert measure(call, align=(*align, tolerance, AN_HOUR, slope, origin))[-1].tolist() == [expected] * 3


@compiled
@pytest.mark.parametrize(("tolerance", "expected"), [(AN_HOUR // 2, 1), (2 * AN_HOUR, 0)])
def test_who_enters_later_than_tolerated_is_late(tolerance: int, expected: int) -> None:
    """The root, elsewhere, announces a start of an hour ago."""
    library, start = Library(), np.array([time.monotonic_ns() - AN_HOUR])
    align = (ROUNDTIME, library.named("barrier"), library.named("announce"), start, False, 0, tolerance)
    *_, late = measure(library.named("call"), align=align)
    assert late.tolist() == [expected] * 3
    assert library.order == ["barrier", "announce", "call"] * 3


@compiled
def test_as_a_backend_uses_it() -> None:
    library = Library()
    barrier, announce = library.named("barrier"), library.named("announce")
    signals = Signals(int, int, np.zeros(1, np.int64), announces=True, native_barrier=barrier, native_announce=announce)
    stamps = run_native(
        whole(int, Native(library.named("call"))), AlignmentSetting("roundtime", signals, slack=1_000), 5
    )
    assert library.order == ["barrier", "announce", "call"] * 5
    assert (stamps.left >= stamps.entered).all()
    assert stamps.late.dtype == bool and len(stamps.late) == 5
    with pytest.raises(LibraryError, match=r"\b9\b.* 3 of 5"):
        run_native(whole(int, Native(library.named("bad", 2, 9))), AlignmentSetting("none", signals), 5)


# In C: arguments that are refused before anything is called, as address 1 would end the process ----------------------

CALL: Words = (1,)
START, PAIR, LATE = np.zeros(1, np.int64), np.zeros(2, np.int64), np.zeros(2, np.uint8)
GATE = (NONE, None, None, START, False, 0, 0)
FROZEN = np.zeros(2, np.int64)
FROZEN.flags.writeable = False
#: In the order of the parameters.
GOOD: dict[str, Any] = {"stages": ((CALL,),), "completion": None, "align": GATE, "burst": 1, "entered": PAIR,
                        "left": PAIR, "late": LATE, "marks": None, "reading": None, "device": None,
                        "halt": bytearray(4)}  # fmt: skip
TWO_STAGES, DEVICE = ((CALL,), (CALL,)), np.zeros(2, np.float32)

WRONG: dict[str, dict[str, Any]] = {
    "no call": {"stages": ((None,),)}, "a call that is a number": {"stages": ((5,),)},
    "a call that is a list": {"stages": (([1],),)}, "an empty call": {"stages": (((),),)},
    "address zero": {"stages": (((0,),),)}, "an address that is text": {"stages": ((("a",),),)},
    "a word that is a float": {"stages": (((1, 2.5),),)}, "thirteen words": {"stages": (((1, *range(13)),),)},
    "a completion that is text": {"completion": "x"}, "a completion at zero": {"completion": (0,)},
    "no align": {"align": None}, "a align of two fields": {"align": (0, None)},
    "an unknown align": {"align": (3, CALL, CALL, START, False, 0, 0)},
    "a negative align": {"align": (-1, CALL, CALL, START, False, 0, 0)},
    "a barrier align without barrier": {"align": (BARRIER, None, None, START, False, 0, 0)},
    "round time without announcement": {"align": (ROUNDTIME, CALL, None, START, False, 0, 0)},
    "a start that is None": {"align": (NONE, None, None, None, False, 0, 0)},
    "a start of 4 bytes": {"align": (NONE, None, None, np.zeros(1, np.int32), False, 0, 0)},
    "a slack that is text": {"align": (NONE, None, None, START, False, "x", 0)},
    "stamps that are a list": {"entered": [0, 0]}, "stamps of different lengths": {"entered": np.zeros(3, np.int64)},
    "late of another length": {"late": np.zeros(3, np.uint8)},
    "late as wide as the stamps": {"late": np.zeros(2, np.int64)}, "stamps that are read-only": {"entered": FROZEN},
    "stamps with holes": {"entered": np.zeros(4, np.int64)[::2]}, "bytes": {"late": b"\0\0"},
    "no stages": {"stages": ()}, "nine stages": {"stages": ((CALL,),) * 9},
    "stages that are a list": {"stages": [(CALL,)]}, "a stage that is a list": {"stages": ([CALL],)},
    "too many calls": {"stages": ((CALL,) * 4097,)}, "a burst of none": {"burst": 0},
    "a burst of stages": {"stages": TWO_STAGES, "burst": 2, "marks": np.zeros(2, np.int64)},
    "marks for too many stages": {"stages": TWO_STAGES, "marks": np.zeros(4, np.int64)},
    "a device without reading": {"device": DEVICE}, "a reading without address": {"reading": (CALL,), "device": DEVICE},
    "a reading at zero": {"reading": (CALL, 0), "device": DEVICE},
    "a device of another length": {"reading": (CALL, 8), "device": np.zeros(3, np.float32)}, "no halt": {"halt": None},
    "a halt of one byte": {"halt": bytearray(1)}
}  # fmt: skip


@compiled
@pytest.mark.parametrize("what", WRONG)
def test_wrong_arguments_are_refused(what: str) -> None:
    with pytest.raises((TypeError, ValueError, BufferError)):
        loop.measure(*(GOOD | WRONG[what]).values())


@compiled
@pytest.mark.parametrize("number", [0, 6])
def test_too_few_arguments_are_refused(number: int) -> None:
    with pytest.raises(TypeError):
        loop.measure(*list(GOOD.values())[:number])


@compiled
@pytest.mark.parametrize("frozen", ["entered", "left", "late"])
def test_refused_buffers_are_let_go(frozen: str) -> None:
    """A buffer that stayed exported could not be resized."""
    start = bytearray(8)
    buffers: dict[str, Any] = {"entered": bytearray(16), "left": bytearray(16), "late": bytearray(2)}
    buffers[frozen] = b"0" * 16
    with pytest.raises(BufferError):
        loop.measure(*(GOOD | {"align": (NONE, None, None, start, False, 0, 0)} | buffers).values())
    for held in (*buffers.values(), start):
        if isinstance(held, bytearray):
            held.append(0)


# In Python, with a clock that says what the script says --------------------------------------------------------------


def scripted(times: list[int]) -> Callable[[], int]:
    following: Iterator[int] = iter(times)
    return lambda: next(following)


def gate_to(start: int) -> AlignmentSetting:
    """A round-time align whose root is elsewhere and said `start`."""
    return AlignmentSetting("roundtime", Signals(int, int, np.array([start]), announces=False))


def test_stamps_are_around_the_operation_alone() -> None:
    """What Python needs for bursts and stages, some 0.2 us, would be timed with the call: `run_python` makes it."""
    order: list[str] = []
    times = scripted([100, 130, 200, 270])

    def clock() -> int:
        order.append("clock")
        return times()

    call = whole(lambda: order.append(f"operation of {sys._getframe(1).f_code.co_name}"))
    stamps = run_python(call, NO_GATE, 2, clock)
    assert order == ["clock", "operation of run_python", "clock"] * 2
    assert (stamps.entered.tolist(), stamps.left.tolist()) == ([100, 200], [130, 270])
    assert stamps.late.tolist() == [False, False]


@pytest.mark.parametrize(("entered", "late"), [(TOLERANCE_PYTHON, False), (TOLERANCE_PYTHON + 1, True)])
def test_who_enters_long_after_the_announced_start_is_late(entered: int, late: bool) -> None:
    start = 50_000
    stamps = run_python(whole(int), gate_to(start), 1, scripted([start, start + entered, start + 9_000]))
    assert (stamps.late.tolist(), stamps.left.tolist()) == ([late], [start + 9_000])


def test_the_collector_waits_and_comes_back_even_after_an_error() -> None:
    enabled: list[bool] = []

    def failing() -> None:
        enabled.append(gc.isenabled())
        raise RuntimeError("from the library")

    assert gc.isenabled()
    with pytest.raises(RuntimeError, match="from the library"):
        run_python(whole(failing), NO_GATE, 3, time.monotonic_ns)
    assert (enabled, gc.isenabled()) == ([False], True)
    gc.disable()
    try:
        assert len(run_python(whole(int), NO_GATE, 0, time.monotonic_ns).left) == 0
        assert not gc.isenabled(), "one that was off stays off"
    finally:
        gc.enable()


def test_batches_are_joined_in_order() -> None:
    first = run_python(whole(int), NO_GATE, 2, scripted([1, 2, 3, 4]))
    second = run_python(whole(int), gate_to(5), 1, scripted([5, 5_000, 5_001]))
    joined = Stamps.concatenate([first, second])
    assert (joined.entered.tolist(), joined.left.tolist()) == ([1, 3, 5_000], [2, 4, 5_001])
    assert joined.late.tolist() == [False, False, True]


def test_why_a_call_cannot_be_timed_natively(monkeypatch: pytest.MonkeyPatch,
                                             golden: Callable[[str, str], None]) -> None:  # fmt: skip
    native, clock = whole(int, Native((1,))), time.monotonic_ns
    assert loop is None or why_not_native(native, NO_GATE, clock) is None
    monkeypatch.setattr(loop_module, "native_loop", lambda: object())
    assert why_not_native(whole(int, why_not_native="because"), NO_GATE, clock) == "because"
    calls = [(whole(int), NO_GATE, clock), (native, gate_to(1), clock), (native, NO_GATE, lambda: 0)]
    reasons = [why_not_native(*call) for call in calls]
    monkeypatch.setattr(loop_module, "native_loop", lambda: None)
    reasons.append(why_not_native(native, NO_GATE, clock))
    golden("why-not-native.txt", "".join(f"{reason}\n" for reason in reasons))


# Stages and bursts, in both forms ------------------------------------------------------------------------------------


def at_the_gate(library: Library, fails_at: int | None = None) -> AlignmentSetting:
    """A barrier that writes its name down, in both forms."""
    signals = Signals(barrier=lambda: library.order.append("barrier"), announce=int, start=np.zeros(1, np.int64),
                      announces=True, native_barrier=library.named("barrier", fails_at),
                      explain=lambda code: f"align {code}")  # fmt: skip
    return AlignmentSetting("barrier", signals)


def stage(library: Library, *names: str, fails: str = "", at: int = 0) -> Stage:
    """A stage of named calls, in both forms. The library's word for a code is the name of the call."""

    def native(name: str) -> Native:
        return Native(library.named(name, at if name == fails else None), lambda code: f"{name} {code}")

    return Stage(lambda: library.order.extend(names), tuple(map(native, names)), names[0] if names else "")


def three_stages(library: Library, fails: str = "", at: int = 0) -> Call:
    """Two calls, none, one call, and a completion."""
    stages = (stage(library, "a", "b", fails=fails, at=at), stage(library), stage(library, "c", fails=fails, at=at))
    return Call(stages, stage(library, "completion", fails=fails, at=at))


@both_forms
def test_calls_of_all_stages_are_made_in_order_and_completed_once(form: str) -> None:
    library = Library()
    run(form, three_stages(library), at_the_gate(library), 3)
    assert library.order == ["barrier", "a", "b", "c", "completion"] * 3


@both_forms
def test_marks_are_read_between_the_stages(form: str) -> None:
    """Each call is made between the two readings of the clock around its stage; one stage has no marks."""
    library, n = Library(), 4
    moments: list[list[int]] = [[], [], []]
    stages = tuple(Stage(noting(called), (Native((library.function(noting(called)),)),)) for called in moments)
    stamps = run(form, Call(stages), at_the_gate(library), n)
    assert stamps.marks.shape == (n, 2)
    edges = np.column_stack((stamps.entered, stamps.marks, stamps.left))
    for number, called in enumerate(moments):
        assert (edges[:, number] <= called).all() and (called <= edges[:, number + 1]).all()
    assert run(form, whole(int, Native(library.named("call"))), at_the_gate(library), 3).marks.shape == (3, 0)


@compiled
@pytest.mark.parametrize("fails", ["a", "b", "c", "completion", "align"])
def test_an_error_is_in_the_words_of_the_call_that_returned_it(fails: str) -> None:
    library = Library()
    align = at_the_gate(library, fails_at=1 if fails == "align" else None)
    with pytest.raises(LibraryError, match=rf"\({fails} 17\).* 2 of 3"):
        run_native(three_stages(library, fails, at=1), align, 3)
    assert library.order[-1] == {"align": "barrier"}.get(fails, fails)


@compiled
@pytest.mark.parametrize(("fails", "closed"), [("a", 1), ("b", 0)])
def test_what_follows_an_error_is_called_once_for_the_call_that_failed(fails: str, closed: int) -> None:
    library = Library()
    first = Native(library.named("a", 1 if fails == "a" else None), after_error=Native(library.named("close")))
    second = Native(library.named("b", 1 if fails == "b" else None))
    with pytest.raises(LibraryError):
        run_native(Call((Stage(int, (first, second)),)), at_the_gate(library), 3)
    assert library.order.count("close") == closed


@compiled
def test_a_rank_with_nothing_to_do_still_passes_the_gate() -> None:
    library = Library()
    stamps = run_native(Call((Stage(int, ()), Stage(int, ()))), at_the_gate(library), 2)
    assert library.order == ["barrier"] * 2
    assert (np.diff(np.column_stack((stamps.entered, stamps.marks, stamps.left))) >= 0).all()


@both_forms
def test_a_burst_is_issued_back_to_back_and_completed_once(form: str) -> None:
    library = Library()
    call = Call((stage(library, "issue", "more"),), stage(library, "completion"))
    assert len(run(form, call, at_the_gate(library), 2, 3).left) == 2
    assert library.order == ["barrier", *["issue", "more"] * 3, "completion"] * 2


@compiled
def test_an_error_within_a_burst_ends_it() -> None:
    library = Library()
    call = Call((stage(library, "issue", fails="issue", at=4),), stage(library, "completion"))
    with pytest.raises(LibraryError, match=r"\(issue 17\).* 2 of 2"):
        run_native(call, at_the_gate(library), 2, 3)
    assert library.order == ["barrier", *["issue"] * 3, "completion", "barrier", "issue", "issue"]


# The device's own clock ----------------------------------------------------------------------------------------------


def device_times(form: str, library: Library, fails: str = "") -> Any:
    """Three samples of two calls with events around them; the k-th reading is k milliseconds. `fails` fails once."""
    cell, readings = np.full(1, -1.0, np.float32), list[float]()

    def made(*names: str) -> Stage:
        return stage(library, *names, fails=fails, at=1)

    def read() -> float:
        library.order.append("read")
        readings.append(len(readings) + 1.0)
        return readings[-1]

    def into_cell(address: int) -> int:
        ctypes.c_float.from_address(address).value = read()
        return 17 if fails == "read" and len(readings) == 2 else 0

    reading = Native((library.function(into_cell, 1), cell.ctypes.data), lambda code: f"read {code}")
    watch = Stopwatch(made("start"), made("stop"), read, reading, cell)
    call = Call((made("one"), made("two")), made("completion"))
    if form == "native":
        return loop_module.native_device_times(call, watch, at_the_gate(library), 3)
    return loop_module.python_device_times(call, watch, at_the_gate(library), 3, time.monotonic_ns)


@both_forms
def test_the_devices_time_is_read_after_each_completion_in_seconds(form: str) -> None:
    library = Library()
    assert device_times(form, library) == pytest.approx([1e-3, 2e-3, 3e-3], rel=1e-6)
    assert library.order == ["barrier", "start", "one", "two", "stop", "completion", "read"] * 3


@compiled
@pytest.mark.parametrize("fails", ["start", "stop", "read", "one", "completion"])
def test_an_error_beside_the_events_is_in_its_own_words(fails: str) -> None:
    """An event's error is CUDA's and an operation's is NCCL's: their codes mean different things."""
    with pytest.raises(LibraryError, match=rf"\({fails} 17\).* 2 of 3"):
        device_times("native", Library(), fails)


# A halt: once it is set, no call follows, nor is the loop left, until it is lifted -----------------------------------


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

    def stage(self, name: str) -> Stage:
        def python() -> None:
            if self._called(name):
                raise RuntimeError("error 17")

        return Stage(python, (Native((self.library.function(lambda: self._called(name)),)),), name)

    def call(self, *stages: str, completion: str = "") -> Call:
        return Call(tuple(map(self.stage, stages)), self.stage(completion) if completion else None, halt=self.halt)


@both_forms
@pytest.mark.parametrize(("last", "stages", "completion", "samples", "order"), [
    ("wait", ("issue",), "wait", (2, 1), "issue wait lifted issue wait left"),
    ("issue", ("issue",), "wait", (1, 3), "issue lifted issue issue wait left"),
    ("wait", ("issue",), "wait", (1, 1), "issue wait lifted left"), ("a", ("a", "b"), "", (1, 1), "a lifted b left"),
])  # fmt: skip
def test_nothing_follows_a_halt(form: str, last: str, stages: tuple[str, ...], completion: str,
                                samples: tuple[int, int], order: str) -> None:  # fmt: skip
    """Number of samples, and calls in a burst."""
    halting = Halting(last)
    run(form, halting.call(*stages, completion=completion), NO_GATE, *samples)
    assert [*halting.order, "left"] == order.split()


@both_forms
def test_an_error_does_not_leave_a_halted_loop(form: str) -> None:
    """Whoever catches it would let go of buffers that the library still holds."""
    made = Halting("issue", fails=True)
    with pytest.raises((LibraryError, RuntimeError), match="error 17"):
        run(form, made.call("issue"), NO_GATE, 1)
    assert made.order == ["issue", "lifted"]


@both_forms
def test_whoever_halts_waits_for_a_call_that_has_begun(form: str) -> None:
    """A thread that looked just before the halt is about to call; freeing what it uses has to wait for it."""
    begun, order, halt, library = threading.Event(), list[str](), Halt(), Library()

    def issue() -> int:
        begun.set()
        time.sleep(0.2)
        order.append("returned")
        return 0

    issued = Stage(lambda: bool(issue()), (Native((library.function(issue),)),), "issue")
    thread = threading.Thread(target=run, args=(form, Call((issued,), halt=halt), NO_GATE, 2))
    thread.start()
    assert begun.wait(10)
    assert not halt.wait_for_caller(0.0)
    halt.set()
    assert halt.wait_for_caller(60)
    assert order == ["returned"]
    halt.flag[:] = bytes(4)
    thread.join(60)
    assert order == ["returned"] * 2


def test_a_halt_on_the_devices_clock() -> None:
    made = Halting("stop")
    watch = Stopwatch(made.stage("start"), made.stage("stop"), float)
    loop_module.python_device_times(made.call("issue"), watch, NO_GATE, 2, time.monotonic_ns)
    assert made.order == ["start", "issue", "stop", "start", "lifted", "issue", "stop"]
