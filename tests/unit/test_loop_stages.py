"""Stages, bursts and the device's own clock, in both forms of the loop."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.unit.c_functions import Library

from collbench.errors import LibraryError
from collbench.timing.call import Call, Native, Signals, Stage, Stopwatch, whole
from collbench.timing.loop import (
    GateSetting,
    native_device_times,
    native_loop,
    python_device_times,
    run_native,
    run_python,
)

compiled = pytest.mark.skipif(
    native_loop() is None, reason="no native loop was built here (no C compiler at installation)"
)


def at_the_gate(library: Library, fails_at: int | None = None) -> GateSetting:
    """A barrier that writes its name down, in both forms."""
    signals = Signals(
        barrier=lambda: library.order.append("barrier"),
        announce=int,
        start=np.zeros(1, np.int64),
        announces=True,
        native_barrier=library.named("barrier", fails_at),
        explain=lambda code: f"gate {code}",
    )
    return GateSetting("barrier", signals)


def stage(library: Library, *names: str, fails: str = "", at: int = 0) -> Stage:
    """A stage of named calls, in both forms. The library's word for a code is the name of the call."""

    def python() -> None:
        library.order.extend(names)

    def native(name: str) -> Native:
        return Native(library.named(name, at if name == fails else None), lambda code: f"{name} {code}")

    return Stage(python, tuple(map(native, names)), names[0] if names else "")


def three_stages(library: Library, fails: str = "", at: int = 0) -> Call:
    """Two calls, none, one call, and a completion."""
    stages = (stage(library, "a", "b", fails=fails, at=at), stage(library), stage(library, "c", fails=fails, at=at))
    return Call(stages, stage(library, "completion", fails=fails, at=at))


@compiled
def test_calls_of_all_stages_are_made_in_order_and_completed_once() -> None:
    library = Library()
    run_native(three_stages(library), at_the_gate(library), 3)
    assert library.order == ["barrier", "a", "b", "c", "completion"] * 3


def test_the_python_form_makes_them_in_the_same_order() -> None:
    library = Library()
    run_python(three_stages(library), at_the_gate(library), 3, time.monotonic_ns)
    assert library.order == ["barrier", "a", "b", "c", "completion"] * 3


def seen_at(moments: list[int]) -> Callable[[], int]:
    def called() -> int:
        moments.append(time.monotonic_ns())
        return 0

    return called


@pytest.mark.parametrize("form", [pytest.param("native", marks=compiled), "python"])
def test_marks_are_read_between_the_stages(form: str) -> None:
    """Each call is seen between the two readings of the clock around its stage."""
    library, n = Library(), 4
    moments: list[list[int]] = [[], [], []]
    stages = tuple(Stage(seen_at(seen), (Native((library.function(seen_at(seen)),)),)) for seen in moments)
    gate = at_the_gate(library)
    found = (
        run_native(Call(stages), gate, n) if form == "native" else run_python(Call(stages), gate, n, time.monotonic_ns)
    )
    assert found.marks.shape == (n, 2)
    edges = np.column_stack((found.entered, found.marks, found.left))
    for number, seen in enumerate(moments):
        assert (edges[:, number] <= seen).all()
        assert (seen <= edges[:, number + 1]).all()


@pytest.mark.parametrize("form", [pytest.param("native", marks=compiled), "python"])
def test_one_stage_has_no_marks(form: str) -> None:
    library = Library()
    call, gate = whole(int, Native(library.named("call"))), at_the_gate(library)
    found = run_native(call, gate, 3) if form == "native" else run_python(call, gate, 3, time.monotonic_ns)
    assert found.marks.shape == (3, 0)


@compiled
@pytest.mark.parametrize("fails", ["a", "b", "c", "completion"])
def test_an_error_is_in_the_words_of_the_call_that_returned_it(fails: str) -> None:
    library = Library()
    call = three_stages(library, fails, at=1)
    with pytest.raises(LibraryError, match=rf"returned an error \({fails} 17\) in operation 2 of 3"):
        run_native(call, at_the_gate(library), 3)
    assert library.order[-1] == fails


@compiled
@pytest.mark.parametrize(("fails", "closed"), [("a", 1), ("b", 0)])
def test_what_follows_an_error_is_called_once_for_the_call_that_failed(fails: str, closed: int) -> None:
    library = Library()
    close = Native(library.named("close"))
    first = Native(library.named("a", 1 if fails == "a" else None), after_error=close)
    second = Native(library.named("b", 1 if fails == "b" else None))
    with pytest.raises(LibraryError):
        run_native(Call((Stage(int, (first, second)),)), at_the_gate(library), 3)
    assert library.order.count("close") == closed


@compiled
def test_an_error_at_the_gate_is_in_the_words_of_the_gate() -> None:
    library = Library()
    with pytest.raises(LibraryError, match=r"returned an error \(gate 17\) in operation 3 of 3"):
        run_native(three_stages(library), at_the_gate(library, fails_at=2), 3)


@compiled
def test_a_rank_with_nothing_to_do_still_passes_the_gate() -> None:
    library = Library()
    found = run_native(Call((Stage(int, ()), Stage(int, ()))), at_the_gate(library), 2)
    assert library.order == ["barrier"] * 2
    assert (np.diff(np.column_stack((found.entered, found.marks, found.left))) >= 0).all()


@pytest.mark.parametrize("form", [pytest.param("native", marks=compiled), "python"])
def test_a_burst_is_issued_back_to_back_and_completed_once(form: str) -> None:
    library = Library()
    call = Call((stage(library, "issue", "more"),), stage(library, "completion"))
    gate = at_the_gate(library)
    found = run_native(call, gate, 2, 3) if form == "native" else run_python(call, gate, 2, time.monotonic_ns, 3)
    assert library.order == ["barrier", *["issue", "more"] * 3, "completion"] * 2
    assert len(found.left) == 2


@compiled
def test_an_error_within_a_burst_ends_it() -> None:
    library = Library()
    call = Call((stage(library, "issue", fails="issue", at=4),), stage(library, "completion"))
    with pytest.raises(LibraryError, match=r"\(issue 17\) in operation 2 of 2"):
        run_native(call, at_the_gate(library), 2, 3)
    assert library.order == ["barrier", "issue", "issue", "issue", "completion", "barrier", "issue", "issue"]


class Events:
    """A stopwatch whose k-th reading is k milliseconds."""

    def __init__(self, library: Library, fails: str = "") -> None:
        self.library = library
        self.cell = np.full(1, -1.0, np.float32)
        self.read_so_far = 0
        start, stop = (stage(library, name, fails=fails, at=1) for name in ("start", "stop"))
        words = (library.function(self.into_cell, 1), self.cell.ctypes.data)
        self.watch = Stopwatch(start, stop, self.read, Native(words, lambda code: f"read {code}"), self.cell)
        self.fails = fails == "read"

    def read(self) -> float:
        self.library.order.append("read")
        self.read_so_far += 1
        return float(self.read_so_far)

    def into_cell(self, address: int) -> int:
        ctypes.c_float.from_address(address).value = self.read()
        return 17 if self.fails and self.read_so_far == 2 else 0


def timed(library: Library, form: str, events: Events, call: Call, n: int) -> Any:
    gate = at_the_gate(library)
    if form == "native":
        return native_device_times(call, events.watch, gate, n)
    return python_device_times(call, events.watch, gate, n, time.monotonic_ns)


@pytest.mark.parametrize("form", [pytest.param("native", marks=compiled), "python"])
def test_the_devices_time_is_read_after_each_completion_in_seconds(form: str) -> None:
    library = Library()
    events = Events(library)
    call = Call((stage(library, "one"), stage(library, "two")), stage(library, "completion"))
    found = timed(library, form, events, call, 3)
    assert library.order == ["barrier", "start", "one", "two", "stop", "completion", "read"] * 3
    assert found == pytest.approx([1e-3, 2e-3, 3e-3], rel=1e-6)


@compiled
@pytest.mark.parametrize("fails", ["start", "stop", "read", "one", "completion"])
def test_an_error_beside_the_events_is_in_its_own_words(fails: str) -> None:
    """An event's error is CUDA's and an operation's is NCCL's: their codes mean different things."""
    library = Library()
    events = Events(library, fails)
    call = Call((stage(library, "one", fails=fails, at=1),), stage(library, "completion", fails=fails, at=1))
    with pytest.raises(LibraryError, match=rf"returned an error \({fails} 17\) in operation 2 of 3"):
        timed(library, "native", events, call, 3)
