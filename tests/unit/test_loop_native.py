"""The native loop, calling back into Python: counts, words, order, errors, lateness."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from tests.unit.c_functions import Library

from collbench.errors import LibraryError
from collbench.timing.call import Native, Signals, whole
from collbench.timing.loop import GateSetting, native_loop, run_native

loop: Any = native_loop()
pytestmark = pytest.mark.skipif(loop is None, reason="no native loop was built here (no C compiler at installation)")

NONE, BARRIER, ROUNDTIME = 0, 1, 2
AN_HOUR = 3_600 * 10**9


def measure(call: Any, n: int = 3, completion: Any = None, gate: Any = None) -> tuple[int, int, Any, Any, Any]:
    entered, left, late = np.zeros(n, np.int64), np.zeros(n, np.int64), np.full(n, 9, np.uint8)
    gate = gate or (NONE, None, None, np.zeros(1, np.int64), False, 0, 0)
    done, code, _ = loop.measure(((call,),), completion, gate, 1, entered, left, late, None, None, None, bytearray(4))
    return done, code, entered, left, late


@pytest.mark.parametrize("arguments", range(13))
def test_every_argument_arrives_as_its_word(arguments: int) -> None:
    seen: list[tuple[int, ...]] = []
    words = [2**64 - 1, 0, 2**63, *range(3, 12)][:arguments]
    library = Library()

    def called(*given: int) -> int:
        seen.append(given)
        return 0

    done, code, *_ = measure((library.function(called, arguments), *words), n=2)
    assert (done, code) == (2, 0)
    assert seen == [tuple(words)] * 2


def test_a_negative_integer_is_its_word() -> None:
    """MPI_IN_PLACE is (void *) -1 in some libraries."""
    seen: list[int] = []
    library = Library()

    def called(word: int) -> int:
        seen.append(word)
        return 0

    measure((library.function(called, 1), -1), n=1)
    assert seen == [2**64 - 1]


def test_stamps_are_monotonic_nanoseconds_of_this_very_time() -> None:
    before = time.monotonic_ns()
    done, code, entered, left, late = measure(Library().named("call"), n=50)
    after = time.monotonic_ns()
    assert (done, code) == (50, 0)
    stamps = np.stack([entered, left], axis=1).ravel()
    assert before <= stamps[0]
    assert (np.diff(stamps) >= 0).all()
    assert stamps[-1] <= after
    assert late.tolist() == [0] * 50


def test_the_completion_is_inside_the_sample() -> None:
    library = Library()
    inside: list[int] = []

    def completing() -> int:
        inside.append(time.monotonic_ns())
        return 0

    *_, entered, left, _ = measure(library.named("call"), n=4, completion=(library.function(completing),))
    assert len(inside) == 4
    assert all(a <= b <= c for a, b, c in zip(entered, inside, left, strict=True))
    library.order.clear()
    measure(library.named("call"), n=2, completion=library.named("completion"))
    assert library.order == ["call", "completion"] * 2


@pytest.mark.parametrize("at", [0, 1, 4])
def test_an_error_ends_the_loop_with_its_code(at: int) -> None:
    library = Library()
    done, code, _, left, _ = measure(library.named("call", fails_at=at), n=5, completion=library.named("completion"))
    assert (done, code) == (at, 17)
    assert library.order.count("call") == at + 1
    assert library.order.count("completion") == at
    assert (left[:at] > 0).all()
    assert (left[at:] == 0).all()


@pytest.mark.parametrize("failing", ["barrier", "announce", "completion"])
def test_an_error_of_any_part_ends_the_loop(failing: str) -> None:
    library = Library()
    parts = {
        name: library.named(name, 1 if name == failing else None, -3) for name in ("barrier", "announce", "completion")
    }
    gate = (ROUNDTIME, parts["barrier"], parts["announce"], np.zeros(1, np.int64), False, 0, AN_HOUR)
    done, code, *_ = measure(library.named("call"), completion=parts["completion"], gate=gate)
    assert (done, code) == (1, -3)


def test_gate_none_calls_nothing_else() -> None:
    library = Library()
    gate = (NONE, library.named("barrier"), library.named("announce"), np.zeros(1, np.int64), True, 0, 0)
    measure(library.named("call"), gate=gate)
    assert library.order == ["call"] * 3


def test_gate_barrier_is_passed_before_every_call() -> None:
    library = Library()
    start = np.zeros(1, np.int64)
    measure(library.named("call"), gate=(BARRIER, library.named("barrier"), None, start, True, 0, 0))
    assert library.order == ["barrier", "call"] * 3
    assert start[0] == 0


def test_the_root_announces_a_time_in_the_future_and_nobody_enters_before_it() -> None:
    library = Library()
    start = np.zeros(1, np.int64)
    slack = 200_000
    announced: list[tuple[int, int]] = []

    def announce() -> int:
        announced.append((int(start[0]), time.monotonic_ns()))
        return 0

    barrier, called = library.named("barrier"), library.named("call")
    before = time.monotonic_ns()
    *_, entered, _, _ = measure(called, gate=(ROUNDTIME, barrier, (library.function(announce),), start, True, slack, 0))
    assert library.order == ["barrier", "call"] * 3
    assert all(before + slack <= target <= now + slack for target, now in announced)
    assert all(target <= at for (target, _), at in zip(announced, entered, strict=True))


@pytest.mark.parametrize(("slope", "entered_by"), [(0.0, AN_HOUR), (1e-3, AN_HOUR + AN_HOUR // 1_000)])
def test_the_start_is_one_of_this_ranks_clock(slope: float, entered_by: int) -> None:
    """The root's clock is an hour behind this one when it shows `origin`; the announced start is an hour later."""
    library, origin = Library(), time.monotonic_ns() - 2 * AN_HOUR - AN_HOUR // 1_000
    start = np.array([origin + AN_HOUR])
    gate = (ROUNDTIME, library.named("barrier"), library.named("announce"), start, False, 0, 0)
    *_, entered, _, late = measure(library.named("call"), gate=(*gate, AN_HOUR, slope, origin))
    assert late.tolist() == [1] * 3, "it is over"
    tolerated = (*gate[:-1], int(entered[0]) - int(start[0]) - entered_by + 10**9)
    *_, late = measure(library.named("call"), gate=(*tolerated, AN_HOUR, slope, origin))
    assert late.tolist() == [0] * 3
    *_, late = measure(library.named("call"), gate=(*tolerated[:-1], tolerated[-1] - 2 * 10**9, AN_HOUR, slope, origin))
    assert late.tolist() == [1] * 3


@pytest.mark.parametrize(("tolerance", "late"), [(AN_HOUR // 2, 1), (2 * AN_HOUR, 0)])
def test_who_enters_later_than_tolerated_is_late(tolerance: int, late: int) -> None:
    """The root, elsewhere, announces a start of an hour ago."""
    library = Library()
    start = np.array([time.monotonic_ns() - AN_HOUR])
    gate = (ROUNDTIME, library.named("barrier"), library.named("announce"), start, False, 0, tolerance)
    *_, found = measure(library.named("call"), gate=gate)
    assert found.tolist() == [late] * 3
    assert library.order == ["barrier", "announce", "call"] * 3


def test_as_a_backend_uses_it() -> None:
    library = Library()
    barrier, announce = library.named("barrier"), library.named("announce")
    signals = Signals(
        int, int, np.zeros(1, np.int64), announces=True, native_barrier=barrier, native_announce=announce
    )  # fmt: skip
    stamps = run_native(whole(int, Native(library.named("call"))), GateSetting("roundtime", signals, slack=1_000), 5)
    assert library.order == ["barrier", "announce", "call"] * 5
    assert (stamps.left >= stamps.entered).all()
    assert stamps.late.dtype == bool
    assert len(stamps.late) == 5
    with pytest.raises(LibraryError, match="returned error 9 in operation 3 of 5"):
        run_native(whole(int, Native(library.named("bad", 2, 9))), GateSetting("none", signals), 5)
