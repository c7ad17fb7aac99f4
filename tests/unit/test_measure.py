"""One case on all ranks of the fake backend: what stands in its record, and what becomes of a case that goes wrong."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.made_measurements import Change, Heard, case, measured, method, on_ranks, preparing
from tests.unit.made_pairs import Pair

from collbench import collectives
from collbench.backends.fake import Fault
from collbench.bindings.spec import Numbers, Observation, Operation
from collbench.collectives.row import CollectiveCase
from collbench.errors import LibraryError, LostRankError, RequestError, RunError, Unsupported
from collbench.machine import nvml
from collbench.machine.cgroup import distinct
from collbench.machine.facts import Waited, rank_facts
from collbench.run import facts_of_ranks
from collbench.run import measure as measure_module
from collbench.run.failures import AgreedError
from collbench.run.measure import BARRIER_DELAY, _checked_barrier, measure
from collbench.run.sampling import StopRule
from collbench.schema.manifest import Gpu
from collbench.schema.record import Reading, Record
from collbench.timing.loop import Stage, Stamps, Stopwatch

# What is recorded ----------------------------------------------------------------------------------------------------


def test_rank_0_has_the_record_and_the_samples_and_the_others_have_nothing() -> None:
    (record, samples), (other, nothing) = measured(case())
    assert samples is not None and samples.shape == (2, 3)
    assert nothing is None
    assert other == Record(case=case().identity, launch=0, status="ok")
    assert (record.case, record.launch, record.status, record.reason) == (case().identity, 0, "ok", None)
    assert record.work is not None and record.check is not None and record.samples is not None
    assert (record.work.amount, record.work.count, record.work.bus_factor) == (16, 4, 1.0)
    assert (record.check.wrong, record.samples.n, record.samples.invalid) == (0, 3, 0)
    assert (record.driver, record.align, record.cadence, record.clock) == ("python", "barrier", "isolated", "common")
    assert (record.in_place, record.transport, record.algorithm, record.protocol) == (False, "simulated", None, None)
    assert (record.burst, record.device, record.gpus, record.shared_gpu, record.notes) == (1, None, (), False, ())
    assert (record.contended, record.oversubscribed) == (None, False), "virtual time waits for no processor"
    assert record.confinement == distinct((rank_facts().confinement,) * 2, ("here",) * 2)


def test_the_watchdog_hears_of_every_step() -> None:
    watch = Heard()
    row = collectives.get("bcast")
    on_ranks(1, lambda session: measure(case(ranks=1), row, session, method(1, warmup=1), watch))
    steps = (
        "preparing",
        "checking before timing",
        "warming up",
        "timing",
        "timing on the device",
        "checking after timing",
    )
    assert watch.said == [f"bcast 16 B on fake: {step}" for step in steps]


def test_what_is_recorded_of_the_method_and_of_the_operation() -> None:
    """The work is what moves after rounding to whole blocks."""
    how = method(oversubscribed=True, clock="local", align="none")
    (record, _), _ = measured(case("allreduce", driver="native", in_place=True), how)
    assert (record.oversubscribed, record.clock, record.align, record.in_place) == (True, "local", "none", True)
    assert record.driver == "python" and [note.partition(":")[0] for note in record.notes] == ["driver python"]
    (record, _), *_ = measured(case("allgather", ranks=3, size=120))
    assert record.work is not None and (record.work.amount, record.work.count) == (96, 8)
    assert record.work.bus_factor == pytest.approx(2 / 3)


def observing(seen: Callable[[int], Observation]) -> Change:
    def observe(rank: int, operation: Operation) -> Operation:
        def look(once: Callable[[], object]) -> Observation:
            once()
            return seen(rank)

        return replace(operation, observe=look)

    return preparing(observe)


def test_what_the_ranks_saw_of_their_library_stands_in_the_record() -> None:
    """Notes of cramped GPUs come last."""
    seen = [Observation("RING", "LL", "P2P", ("one",)), Observation("TREE", "LL", None, ("one", "two"))]
    (record, _), _ = measured(case(), change=observing(lambda rank: seen[rank]))
    assert (record.algorithm, record.protocol, record.transport) == ("RING, TREE", "LL", "P2P")
    assert record.notes == ("one", "two")
    rank = replace(rank_facts("GPU-0"), cores=frozenset({3}))
    how = replace(method(), ranks=(rank, rank))
    (record, _), _ = measured(case(driver="native"), how, observing(lambda rank: Observation(notes=("seen",))))
    assert record.transport == "simulated", "what the session says, where nothing was seen"
    assert record.shared_gpu
    assert [note.partition(":")[0] for note in record.notes] == ["driver python", "seen", "ranks 0, 1"]


def test_the_gpus_are_looked_at_before_and_after_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = iter((210, 1980))
    monkeypatch.setattr(nvml, "readings", lambda uuids: (Reading(uuid=uuids[0], sm_clock=next(clocks)),))

    def with_gpu(session: Any) -> None:
        if session.world.rank == 1:
            session.gpu = Gpu(uuid="GPU-1", name="A", memory=1, bus="0")

    (record, _), _ = measured(case(), change=with_gpu)
    (state,) = record.gpus
    assert (state.before.uuid, state.before.sm_clock, state.after.sm_clock) == ("GPU-1", 210, 1980)


class Ticking:
    """A clock that moves by `step` (ns) each time it is read."""

    def __init__(self, step: int) -> None:
        self.step, self.now = step, 0

    def __call__(self) -> int:
        self.now += self.step
        return self.now


def test_where_time_is_real_waiting_for_processors_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seconds in which they may have waited are those between the two looks."""
    clock, looked = Ticking(1_000_000), list[int]()
    contended = Mock(return_value=(True, ("held up",)))

    def now() -> Waited:
        looked.append(clock.now)
        return Waited(7.0)

    monkeypatch.setattr(time, "monotonic_ns", clock)
    monkeypatch.setattr(measure_module, "waited_now", now)
    monkeypatch.setattr(facts_of_ranks, "contended", contended)
    ((record, _),) = measured(case(ranks=1), method(1, align="none"), lambda session: setattr(session, "clock", clock))
    assert (record.contended, record.notes) == (True, ("held up",))
    ((stretch, _),) = (call.args for call in contended.call_args_list)
    assert stretch.added == Waited(0.0)
    assert stretch.seconds == pytest.approx((looked[1] - looked[0] - 1_000_000) * 1e-9) and stretch.seconds > 5e-3


def performing(once: Callable[[int, Callable[[], object]], object], completes: bool = True) -> Change:
    """`once(rank, perform)` is what each rank calls, of a library that only issues work, or that performs it."""

    def change(rank: int, operation: Operation) -> Operation:
        perform = operation.call.stages[0].python
        completion = Stage(lambda: None) if completes else operation.call.completion
        stage = Stage(lambda: once(rank, perform))
        return replace(operation, call=replace(operation.call, stages=(stage,), completion=completion))

    return preparing(change)


def test_a_burst_is_issued_as_a_whole_and_a_graph_holds_several() -> None:
    calls: list[int] = []

    def counted(rank: int, perform: Callable[[], object]) -> None:
        calls.append(rank)
        perform()

    streaming = method(cadence="streaming", burst=5, launches=2)
    (record, _), _ = measured(case(), streaming, performing(counted))
    assert (record.burst, record.cadence, calls.count(0)) == (5, "streaming", 3 * 5 + 2)
    (record, _), _ = measured(case(graph=7), streaming, performing(counted))
    assert record.burst == 2 * 7


def test_the_time_on_the_device_is_taken_after_the_samples() -> None:
    def timed(rank: int, operation: Operation) -> Operation:
        watch = Stopwatch(Stage(int), Stage(int), lambda: 2.0 + rank)
        return replace(operation, call=replace(operation.call, completion=Stage(lambda: None), stopwatch=watch))

    (record, _), _ = measured(case(), change=preparing(timed))
    assert record.device is not None and record.device.p50 == pytest.approx(3e-3), "the slowest rank's"


# What goes wrong -----------------------------------------------------------------------------------------------------


def on_rank_1(error: Exception) -> Change:
    def fail(rank: int, operation: Operation) -> Operation:
        if rank == 1:
            raise error
        return operation

    return preparing(fail)


#: What cannot be prepared, and whether that is a skip or a failure.
UNPREPARED: list[tuple[CollectiveCase, dict[str, Any], Change, str]] = [
    (case("ps_bcast", ranks=1), {}, lambda session: None, "skipped"),
    (case("ps_gather", in_place=True), {}, lambda session: None, "skipped"),
    (case(), {"cadence": "streaming"}, lambda session: None, "skipped"),
    (case(), {}, on_rank_1(Unsupported("no such algorithm")), "skipped"),
    (case(), {}, on_rank_1(MemoryError("8 GiB")), "failed"),
    (case(), {}, on_rank_1(LibraryError("error 5")), "failed"),
]


def test_what_one_rank_cannot_prepare_no_rank_measures(golden: Callable[[str, str], None]) -> None:
    reasons = []
    for unprepared, how, change, status in UNPREPARED:
        results = measured(unprepared, method(unprepared.ranks, **how), change)
        assert len({record.reason for record, _ in results}) == 1
        for record, samples in results:
            assert (record.status, record.launch, samples) == (status, 0, None)
            assert (record.case, record.work) == (unprepared.identity, None)
        reasons.append(results[0][0].reason)
    for name, fault, check in (("bcast", "corrupt:1", 1), ("bcast", "corrupt:1@4", 1), ("barrier", "corrupt:1", 1),
                               ("bcast", "corrupt:1@6", 5)):  # fmt: skip
        reasons.append(measured(case(name), method(check=check), fault=fault)[0][0].reason)
    golden("reasons-of-a-case.txt", "".join(f"{reason}\n" for reason in reasons))


@pytest.mark.parametrize("error", [LibraryError("no algorithm"), RuntimeError("no algorithm")])
def test_a_library_that_answers_at_once_refuses_the_case_on_all_ranks(error: Exception) -> None:
    """Once in the check before, once in the only sample: the third time is the check after. One that performs in the
    call takes the job along."""
    calls: list[int] = []

    def refuse(rank: int, perform: Callable[[], object]) -> None:
        perform()
        calls.append(rank)
        if rank == 1 and calls.count(1) == 3:
            raise error

    for record, samples in measured(case(), method(stop=StopRule.fixed(1)), performing(refuse)):
        assert (record.status, record.reason, samples) == ("failed", "rank 1: no algorithm", None)
        assert (record.case, record.launch) == (case().identity, 0)
    with pytest.raises(type(error), match="no algorithm"):
        measured(case(ranks=1), change=performing(Mock(side_effect=error), completes=False))


def test_async_error_that_the_library_met_ends_all_ranks_with_the_case_named() -> None:
    def troubled(session: Any) -> None:
        session.async_error = lambda: "remote error" if session.world.rank == 1 else None

    with pytest.raises(AgreedError, match=r"^rank 1: bcast 16 B .*remote error\.$") as caught:
        measured(case(), change=troubled)
    assert isinstance(caught.value.error, LostRankError) and not isinstance(caught.value.error, RunError)


def test_a_fault_in_no_operation_is_refused() -> None:
    assert Fault.parse("corrupt:1%5").share == 0.05
    with pytest.raises(RequestError):
        Fault.parse("corrupt:1%0")


@pytest.mark.parametrize(("fault", "when"), [("corrupt:1", "before"), ("corrupt:1@4", "after")])
def test_a_wrong_result_says_when_it_was_seen_and_what_would_have_moved(fault: str, when: str) -> None:
    (record, samples), (other, _) = measured(case(), fault=fault)
    assert (record.status, record.launch, samples) == ("failed", 0, None)
    assert all(text in (record.reason or "") for text in (f"{when} timing: ", "rank 1: 1 of 4 "))
    assert record.check is not None and record.work is not None
    assert (record.check.wrong, record.work.amount) == (1, 16)
    assert other == record, "all ranks know"


@pytest.mark.parametrize(("most", "names"), [(2, ("rank 1: 3 of 24 ", "rank 2: 6 of 24 ")),
                                             (1, ("rank 1: 3 of 24 ", "1 more ranks"))])  # fmt: skip
def test_ranks_with_wrong_elements_are_named_with_how_many(most: int, names: tuple[str, ...],
                                                           monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr(measure_module, "MOST_NAMED", most)

    def spoil(rank: int, operation: Operation) -> Operation:
        def once() -> None:
            operation.call.stages[0].python()
            for part in operation.output:
                part.array[:, :rank] = 0  # type: ignore[attr-defined]

        return replace(operation, call=replace(operation.call, stages=(Stage(once),)))

    (record, _), *_ = measured(case("allgather", ranks=3, size=120), change=preparing(spoil))
    assert record.check is not None and record.check.wrong == 3 + 6
    assert re.findall(r"rank \d: \d of \d+ |\d more ranks", record.reason or "") == list(names)


@pytest.mark.parametrize(("name", "check", "status", "wrong"),
                         [("bcast", 0, "ok", None), ("barrier", 0, "ok", None), ("bcast", 1, "failed", 1),
                          ("bcast", 2, "failed", 1), ("barrier", 1, "failed", 1)])  # fmt: skip
def test_a_check_ends_with_the_first_wrong_result(name: str, check: int, status: str,
                                                          wrong: int | None) -> None:  # fmt: skip
    (record, _), _ = measured(case(name), method(check=check), fault="corrupt:1")
    assert record.check is not None and (record.status, record.check.wrong) == (status, wrong)


def test_operations_are_checked_until_one_is_wrong_and_it_is_named() -> None:
    """One is checked before, three samples are taken after five of warm-up; the third of four checks is wrong."""
    (record, _), _ = measured(case(), method(check=5), fault=f"corrupt:1@{1 + 4 + 2 - 1}")
    assert (record.status, record.check and record.check.wrong) == ("failed", 1)


def test_a_rare_corruption_is_seen_by_many_checks() -> None:
    """Of 2 % of the operations 200 checks see one in 1 - 0.98^200 = 98 % of runs, one before and one after in 4 %."""
    random.seed(29)
    failed = {checks: [measured(case(), method(check=checks), fault="corrupt:1%2")[0][0].status
                       for _ in range(60)].count("failed") for checks in (1, 200)}  # fmt: skip
    assert failed[200] >= 57 and failed[1] <= 12


def test_a_barrier_that_lets_a_rank_go_early_is_wrong() -> None:
    for clock, status, wrong in (("common", "failed", 1), ("local", "ok", None)):
        (record, _), _ = measured(case("barrier"), method(clock=clock), fault="corrupt:1")
        assert record.check is not None and (record.status, record.check.wrong) == (status, wrong)
        assert ("before timing: 1 " in str(record.reason)) == (clock == "common")


def test_samples_that_were_all_late_are_a_failure_that_says_what_helps() -> None:
    """Each rank comes long after the announced start, because its clock jumps before every sample."""

    def slow(session: Any) -> None:
        clock, announce, behind = session.clock, session.signals.announce, list[int]()

        def late() -> None:
            announce()
            behind.append(50_000_000)

        session.clock = lambda: clock() + sum(behind)
        session.signals = replace(session.signals, announce=late)

    (record, samples), _ = measured(case(), method(align="roundtime"), slow)
    assert record.status == "failed"
    assert all(text in (record.reason or "") for text in ("3 samples", "late", "align barrier"))
    assert record.samples is not None and (record.samples.n, record.samples.invalid) == (3, 3)
    assert samples is not None and (np.asarray(samples) < 0).all()


# A barrier is checked with a straggler: first the last rank, then rank 0, so that whoever leaves early is seen -------


def stamps_of(entered: int, left: int) -> Stamps:
    return Stamps(np.array([entered]), np.array([left]), np.zeros(1, bool), np.zeros((1, 0), np.int64))


class Three(Pair):
    """One rank of three; the other two entered and left as told, in one round after the other."""

    size = 3

    def __init__(self, rank: int, rounds: Iterator[list[Stamps]]) -> None:
        super().__init__(rank=rank)
        self._rounds, self._others = rounds, list[Stamps]()

    def minmax(self, values: Numbers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        self._others = next(self._rounds)
        self._last = np.array([max(int(values[0]), *(int(other.entered[0]) for other in self._others))])
        return self._last, self._last

    def total(self, values: Numbers) -> NDArray[np.int64]:
        early = sum(int(other.left[0]) < self._last[0] for other in self._others)
        return np.array([int(values[0]) + int(early)])


class Clocks:
    """Of several hosts: all ahead of rank 0's by `ahead`, and by the bound not known better."""

    def __init__(self, bound: int, ahead: int) -> None:
        self.bound, self.ahead, self.times = bound, ahead, 0

    def begin(self) -> None:
        self.times = 0

    def synchronise(self) -> None:
        self.times += 1

    def common(self, stamps: Stamps) -> Stamps:
        return replace(stamps, entered=stamps.entered - self.ahead, left=stamps.left - self.ahead)


def checked(rank: int, others: list[list[Stamps]], clock: str = "common",
            clocks: Clocks | None = None) -> tuple[tuple[int | None, str], list[int]]:  # fmt: skip
    """What rank `rank` of three finds, and how long it let the others wait each time; `others` leave as told."""
    ticking, entered = Ticking(1_000), list[int]()

    def once() -> Stamps:
        entered.append(ticking.now)
        return stamps_of(0, 10)

    signals = SimpleNamespace(barrier=lambda: None)
    session = SimpleNamespace(clock=ticking, world=Three(rank, iter(others)), signals=signals)
    timed_call: Any = SimpleNamespace(session=session, once=once)
    outcome = _checked_barrier(timed_call, SimpleNamespace(clock=clock, clocks=clocks))  # type: ignore[arg-type]
    return outcome, [entered[0], entered[1] - entered[0]]


TOGETHER = [stamps_of(5, 10), stamps_of(5, 10)]


@pytest.mark.parametrize(("rank", "late"), [(0, (False, True)), (1, (False, False)), (2, (True, False))])
def test_the_last_rank_comes_late_then_rank_0(rank: int, late: tuple[bool, bool]) -> None:
    outcome, waits = checked(rank, [TOGETHER, TOGETHER])
    assert tuple(wait >= BARRIER_DELAY for wait in waits) == late
    assert outcome[0] == 0


def test_whoever_left_before_the_last_had_come_is_counted() -> None:
    """On synchronised clocks if they cannot explain it: its clock shows 10 when it leaves, and is 7000 ahead."""
    late = [stamps_of(11, 20), stamps_of(5, 20)]  # entered after this rank had left
    (wrong, text), _ = checked(1, [late, TOGETHER])
    assert wrong == 1 and text.startswith("1 ")
    assert checked(1, [late, late])[0][0] == 2
    assert checked(1, [late, late], "local")[0] == (None, ""), "clocks that differ tell nothing"
    for entered, early in ((-6_989, 0), (-6_890, 0), (-6_889, 1)):
        clocks = Clocks(bound=50, ahead=7_000)
        others = [stamps_of(entered, entered + 900), stamps_of(-7_000, -6_000)]
        assert checked(1, [others, others], "synced", clocks)[0][0] == 2 * early
        assert clocks.times == 1, "after each of both"
    _, waits = checked(2, [TOGETHER, TOGETHER], "synced", Clocks(bound=1_000_000, ahead=0))
    assert waits[0] >= BARRIER_DELAY + 4_000_000
