"""From stamps made by hand to the numbers of a record; how many operations a sample and the device's time take."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.made_measurements import in_world
from tests.unit.made_pairs import Pair, PairSession
from tests.unit.test_case import CASE

from collbench.bindings.spec import Operation, World
from collbench.collectives.row import CollectiveCase
from collbench.machine.facts import rank_facts
from collbench.run.measure import (
    DEVICE_BUDGET,
    DEVICE_SAMPLES,
    Gathered,
    calls_of,
    device_seconds,
    fill_results,
    gathered,
    operations_on_device,
)
from collbench.run.sampling import MOST_CALLS, Method, Sampling, StopRule, TimedCall, agree_on_driver, times_of
from collbench.schema.axes import Driver
from collbench.schema.case import Cadence
from collbench.schema.record import Record
from collbench.timing.loop import AlignmentSetting, Call, Signals, Stage, Stamps, Stopwatch


def method(cadence: Cadence = "isolated", **fields: Any) -> Method:
    two = (rank_facts(), rank_facts("GPU-b"))
    return replace(Method("barrier", False, "common", StopRule.fixed(3), 5, 1, cadence, two, False), **fields)


def case(graph: int) -> CollectiveCase:
    return msgspec.structs.replace(CASE, graph=graph)


def stamps(entered: list[int], left: list[int], late: list[bool], *marks: list[int]) -> Stamps:
    ends = np.array(marks, np.int64).reshape(len(marks), len(left)).T
    return Stamps(np.array(entered), np.array(left), np.array(late), ends)


@pytest.mark.parametrize(
    ("cadence", "graph", "calls"), [("isolated", 0, 1), ("isolated", 1, 1), ("streaming", 0, 20), ("streaming", 20, 3)]
)
def test_calls_of_a_sample(cadence: Cadence, graph: int, calls: int) -> None:
    """A burst is issued call by call; a graph that holds it is launched as often as -G says."""
    assert calls_of(case(graph), method(cadence, burst=20, launches=3)) == calls
    assert calls_of(case(graph), method(cadence)) == 1


@pytest.mark.parametrize(
    ("slowest", "found"),
    [(1e-6, DEVICE_SAMPLES), (DEVICE_BUDGET / 10, 10), (2e-2, 25), (60.0, 3), (0.0, DEVICE_SAMPLES)],
)
def test_how_many_operations_are_timed_on_the_device(slowest: float, found: int) -> None:
    assert operations_on_device(slowest) == found


BLANK = Record(case=CASE.identity, launch=0, status="ok")


def filled(
    blank: Record, by_rank: list[Stamps], stages: tuple[str, ...], how: Method
) -> tuple[Record, NDArray[np.int64]]:
    """What rank 0 makes of the stamps of all ranks."""

    def body(world: World) -> Gathered | None:
        return gathered(times_of(by_rank[world.rank], world, how.clock, blank.burst), world)

    first, *others = in_world(len(by_rank), body)
    assert first is not None and others == [None] * len(others)
    return fill_results(blank, first, stages, how)


def test_a_sample_of_a_burst_is_the_time_of_one_operation() -> None:
    two = [stamps([0, 0], [400, 900], [False] * 2), stamps([10, 0], [500, 1000], [False] * 2)]
    record, matrix = filled(msgspec.structs.replace(BLANK, burst=10), two, ("",), method("streaming"))
    assert matrix.tolist() == [[40, 90], [50, 100]]
    assert record.seconds is not None
    assert (record.seconds.min, record.seconds.max) == pytest.approx((50e-9, 100e-9))
    assert record.ranks is not None
    assert record.ranks.p50 == pytest.approx((65e-9, 75e-9))
    assert record.ranks.gpu == (None, "GPU-b")
    assert record.legs == {}


def test_legs_are_those_of_the_valid_samples() -> None:
    """The second sample is late on one rank: neither it nor its parts count."""
    two = [
        stamps([100, 100, 500], [190, 9000, 700], [False, True, False], [130, 5000, 520]),
        stamps([105, 100, 480], [180, 9000, 710], [False, False, False], [120, 7000, 560]),
    ]
    record, _ = filled(BLANK, two, ("copy", "communication"), method())
    assert list(record.legs) == ["copy", "communication"]
    found = {name: (round(leg.min * 1e9), round(leg.max * 1e9)) for name, leg in record.legs.items()}
    assert found == {"copy": (30, 80), "communication": (60, 150)}
    assert record.samples is not None
    assert (record.samples.n, record.samples.invalid) == (3, 1)


def test_ranks_without_gpus_name_none() -> None:
    facts = rank_facts()
    record, _ = filled(BLANK, [stamps([0], [5], [False])] * 2, ("",), method(ranks=(facts, facts)))
    assert record.ranks is not None
    assert record.ranks.gpu == ()


class MadeSession(PairSession):
    thread_level, transport, clock = "single", None, staticmethod(lambda: 0)

    def __init__(self, other: Callable[[Any], Any]) -> None:
        self.world = Pair(other)
        self.signals = Signals(lambda: None, lambda: None, np.zeros(1, np.int64), announces=True)


def form_of(order: list[str], session: Any, burst: int, operations: int = 1, with_device: bool = True) -> TimedCall:
    """An operation that writes down what is issued; on the device, each stretch takes one millisecond more."""

    def step(name: str) -> Stage:
        return Stage(lambda: order.append(name))

    watch = Stopwatch(step("start"), step("stop"), lambda: float(order.count("stop")))
    call = Call((step("issue"),), step("completion"), watch if with_device else None)
    return TimedCall(Operation(None, (), call, False, 0), session, "python", None, burst, operations)


def sampled(form: TimedCall, nanoseconds: int) -> Sampling:
    """What sampling gave: every sample took that long."""
    taken = stamps([0] * 3, [nanoseconds] * 3, [False] * 3)
    return Sampling(form, method(), AlignmentSetting("none", form.session.signals), [], done=[taken])


def like_me(value: Any) -> Any:
    """Has a device and is as fast, but needs two seconds on it for all operations except the second."""
    return np.where(np.arange(len(value)) == 1, 0, 2 * 10**9) if isinstance(value, np.ndarray) else value


def test_the_devices_time_is_that_of_the_slowest_rank() -> None:
    order: list[str] = []
    form = form_of(order, MadeSession(like_me), 1)
    found = device_seconds(form, sampled(form, 10**8))
    assert found is not None
    assert order == ["start", "issue", "stop", "completion"] * 5
    assert (found.min, found.max) == pytest.approx((2e-3, 2.0))


def test_the_devices_time_of_a_burst_is_shared_out() -> None:
    """Two launches of a graph of five operations."""
    order: list[str] = []
    found = form_of(order, MadeSession(like_me), 2, 5).device_times(3)
    assert order == ["start", "issue", "issue", "stop", "completion"] * 3
    assert found == pytest.approx([1e-4, 2e-4, 3e-4])


def test_a_rank_without_a_device_performs_the_same_operations() -> None:
    order: list[str] = []
    assert form_of(order, MadeSession(like_me), 2, with_device=False).device_times(3) is None
    assert order == ["issue", "issue", "completion"] * 3


def test_no_device_anywhere_and_nothing_is_performed() -> None:
    order: list[str] = []
    form = form_of(order, MadeSession(like_me), 2, with_device=False)
    assert device_seconds(form, sampled(form, 10**6)) is None
    assert order == []


@pytest.mark.parametrize(
    ("calls", "issued"), [(0, 7), (MOST_CALLS // 7, 7), (MOST_CALLS // 5, 5), (10 * MOST_CALLS, 1)]
)
def test_a_burst_on_the_device_is_what_the_loop_can_hold_on_every_rank(calls: int, issued: int) -> None:
    """The other rank has more C calls than this one: the root of a gather, say. Both issue as many operations."""
    order: list[str] = []
    form_of(order, MadeSession(lambda value: [calls]), 7).device_times(1)
    assert order.count("issue") == issued
    assert MOST_CALLS == 4096 - 2, "the loop's most calls, two of which are the events"


def saying(reason: str | None) -> Callable[[Any], Any]:
    """The other rank, which has that to say."""
    return lambda mine: [2 if reason is None else 1] if isinstance(mine, list) else reason


@pytest.mark.parametrize(
    ("asked", "theirs", "driver", "note"),
    [
        ("python", None, "python", None),
        ("native", "no compiler there", "python", "driver python: the library has none"),
        ("native", None, "python", "driver python: the library has none"),
    ],
)
def test_all_ranks_take_the_driver_that_all_of_them_have(
    asked: Driver, theirs: str | None, driver: str, note: str | None
) -> None:
    """This rank has no C form: it says so wherever one was asked for."""
    operation = Operation(None, (), Call((Stage(int),), why_not_native="the library has none"), False, 0)
    session: Any = MadeSession(saying(theirs))
    found = agree_on_driver(operation, asked, "none", session, 3, 2)
    assert (found.driver, found.note, found.burst, found.operations) == (driver, note, 3, 2)


def test_one_rank_without_the_c_form_is_enough() -> None:
    operation = Operation(None, (), Call((Stage(int, ()),)), False, 0)
    session: Any = MadeSession(saying("no compiler there"))
    session.clock = time.monotonic_ns
    found = agree_on_driver(operation, "native", "none", session, 1, 1)
    assert (found.driver, found.note) == ("python", "driver python: no compiler there")
    session.world.other = lambda mine: mine
    found = agree_on_driver(operation, "native", "none", session, 1, 1)
    assert (found.driver, found.note) == ("native", None)
