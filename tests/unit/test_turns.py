"""A rank that takes turns: it sleeps in a real pipe until its world is to go on, and measures the slices it is told.

How many samples come next, in a slice and in a case that is measured alone.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.processes import LIMIT, wait_for
from tests.unit.made_measurements import case

from collbench.errors import Interrupted, RequestError
from collbench.machine import driver_link
from collbench.machine.facts import ContentionMeter, CoreTimes, Waited, machine_id
from collbench.run import sampling as sampling_module
from collbench.run import turns as under_test
from collbench.run.program import AloneWorld
from collbench.run.sampling import FIRST_BATCH, LARGEST_BATCH, LONGEST_BATCH, Sampling, StopRule
from collbench.run.turns import BATCH, QUOTA_SLICE, Turns, sampled_in_turns
from collbench.schema.case import Alignment
from collbench.schema.world import LONGEST_ORDER, VARIABLE, Order, Report, SliceRule
from collbench.timing.loop import AlignmentSetting, Signals, Stamps
from collbench.units import format_spans
from collbench.workloads import protocol


class Watched:
    """A watch that remembers; `stopped` may be set."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.stopped: int | None = None

    def beat(self, doing: str) -> None:
        self.said.append(doing)

    def failed(self, reason: str | None, lost: bool = False) -> None:
        """Nobody asks."""


@dataclass
class Driver:
    """The driver's ends of the pipes of a world with one rank; it holds both ends of each."""

    folder: Path
    orders: int = -1
    reports: int = -1
    heard: list[Report] = field(default_factory=list)
    begun: bytes = b""

    def __post_init__(self) -> None:
        for name in ("orders-0", "orders-1", "reports"):
            os.mkfifo(self.folder / name)
        self.orders = os.open(self.folder / "orders-0", os.O_RDWR)
        self.reports = os.open(self.folder / "reports", os.O_RDWR)

    def close(self) -> None:
        """Gone."""
        for pipe in (self.orders, self.reports):
            os.close(pipe)

    def order(self, order: Order) -> None:
        os.write(self.orders, msgspec.json.encode(order) + b"\n")

    def report(self) -> Report:
        """The next one."""
        while b"\n" not in self.begun:
            self.begun += os.read(self.reports, 1 << 16)
        line, _, self.begun = self.begun.partition(b"\n")
        self.heard.append(msgspec.json.decode(line, type=Report))
        return self.heard[-1]

    def leads(self, orders: Sequence[Order], meanwhile: Callable[[], object] = lambda: None) -> threading.Thread:
        """Answer each report with the next order, after something else."""

        def lead() -> None:
            for order in orders:
                self.report()
                meanwhile()
                self.order(order)

        thread = threading.Thread(target=lead)
        thread.start()
        return thread


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    with closing(Driver(tmp_path)) as made:
        yield made


@pytest.fixture
def rank(driver: Driver) -> Iterator[Turns]:
    with closing(Turns(driver.folder, 0)) as made:
        yield made


STANDS, READY, BEGIN, END = Report(at="stands"), Report(at="ready"), Order(act="begin"), Order(act="end")


def wait(rank: Turns, report: Report = STANDS, watch: Watched | None = None) -> Order:
    return rank.wait(report, AloneWorld(), watch or Watched(), "bcast")


# Sleeping ------------------------------------------------------------------------------------------------------------


def test_it_reports_where_it_stands_and_hears_what_to_do(driver: Driver, rank: Turns) -> None:
    watch, thread = Watched(), driver.leads([BEGIN, END, END])
    assert rank.stands(case().identity, AloneWorld(), watch) == BEGIN
    assert wait(rank, READY) == END
    assert rank.stands(None, AloneWorld(), watch) == END
    thread.join()
    told = [(report.at, report.case) for report in driver.heard]
    assert told == [("stands", case().identity), ("ready", None), ("stands", None)]


def test_only_the_first_report_names_what_it_holds_without_its_own_pipes(
    driver: Driver, rank: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hold(own: frozenset[int]) -> frozenset[str]:
        return frozenset(str(os.fstat(descriptor).st_ino) for descriptor in own)

    monkeypatch.setattr(under_test, "shareable", hold)
    thread = driver.leads([BEGIN, END])
    wait(rank)
    wait(rank)
    thread.join()
    pipes = [str((driver.folder / name).stat().st_ino) for name in ("orders-0", "reports")]
    held = tuple(sorted(f"{pipe} on {machine_id()}" for pipe in pipes))
    assert [report.holds for report in driver.heard] == [held, ()]
    here = f"{machine_id()} {format_spans(os.sched_getaffinity(0))}"
    assert [report.cores for report in driver.heard] == [(here,), ()]


def test_a_gpu_and_its_driver_are_no_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worlds use them in turns, as they do processors."""
    segment, gpu = "7f0000-7f1000 rw-s 0 00:1a 4711 /dev/shm/a", "7f0000-7f1000 rw-s 0 00:05 {} /dev/nvidia{}"
    lines = (segment, gpu.format(12, 0), gpu.format(13, "-uvm"), gpu.format(14, "ctl"))
    monkeypatch.setattr(under_test, "text_of", lambda path: "\n".join(lines) if path.endswith("/maps") else "")
    assert [name for name in under_test.shareable() if name.startswith("memory ")] == ["memory 00:1a 4711"]


def test_a_sleep_takes_no_processor_time(driver: Driver, rank: Turns) -> None:
    """Each report says it of the sleep before."""
    thread = driver.leads([BEGIN, BEGIN, END], lambda: time.sleep(0.2))
    for _ in range(3):
        wait(rank)
    thread.join()
    assert (driver.heard[0].asleep, driver.heard[0].slept) == (0.0, 0.0)
    for report in driver.heard[1:]:
        assert 0.15 < report.slept < LIMIT
        assert report.asleep < 0.05


def test_a_thread_that_computes_meanwhile_is_seen(driver: Driver, rank: Turns) -> None:
    over, used = threading.Event(), [0.0]

    def compute() -> None:
        while not over.is_set():
            sum(range(1000))
            used[0] = time.thread_time()

    def computed() -> None:
        before = used[0]
        wait_for(lambda: used[0] > before + 0.1)

    computing = threading.Thread(target=compute)
    computing.start()
    try:
        thread = driver.leads([BEGIN, END], computed)
        wait(rank)
        wait(rank)
        thread.join()
    finally:
        over.set()
        computing.join()
    assert driver.heard[1].asleep > 0.09


def test_what_the_sleeping_thread_does_itself_disturbs_nobody(driver: Driver, rank: Turns) -> None:
    class Working(Watched):
        def beat(self, doing: str) -> None:
            super().beat(doing)
            until = time.thread_time() + 0.1
            while time.thread_time() < until:
                pass

    thread = driver.leads([BEGIN, END])
    for _ in range(2):
        rank.wait(STANDS, AloneWorld(), Working(), "bcast")
    thread.join()
    assert driver.heard[1].slept > 0.1 > 0.05 > driver.heard[1].asleep


def test_what_all_ranks_used_is_added_up(driver: Driver, rank: Turns) -> None:
    class Of(AloneWorld):
        def total(self, values: Any) -> NDArray[np.int64]:
            return np.array(values, np.int64) + 3_000_000_000

        def gather(self, value: Any) -> list[Any]:
            return [(frozenset("b"), "y", (3,)), (frozenset("ab"), "x", (1,)), (frozenset(), "y", (2, 3))]

    thread = driver.leads([END])
    rank.wait(STANDS, Of(), Watched(), "bcast")
    thread.join()
    assert driver.heard[0].asleep == 3.0
    assert driver.heard[0].holds == ("a on x", "b on x", "b on y")


def test_a_sleeper_gives_signs_of_life(driver: Driver, rank: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_link, "NAP", 0.02)
    watch = Watched()
    thread = driver.leads([END], lambda: wait_for(lambda: len(watch.said) >= 5))
    wait(rank, watch=watch)
    thread.join()
    *asleep, last = watch.said
    assert len(set(asleep)) == 1 and asleep[0].startswith("bcast: ")
    assert last == "bcast"


def test_without_a_driver_it_ends(driver: Driver, rank: Turns) -> None:
    def leave() -> None:
        driver.report()
        driver.close()

    thread = threading.Thread(target=leave)
    thread.start()
    with pytest.raises(Interrupted):
        wait(rank)
    thread.join()
    driver.orders, driver.reports = (os.open(os.devnull, os.O_RDONLY) for _ in range(2))


def test_a_signal_wakes_it_up(driver: Driver, rank: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_link, "NAP", 0.02)
    watch = Watched()
    threading.Timer(0.1, lambda: setattr(watch, "stopped", 15)).start()
    began = time.monotonic()
    with pytest.raises(Interrupted):
        wait(rank, watch=watch)
    assert time.monotonic() - began > 0.05


def test_an_order_may_come_in_pieces(driver: Driver, rank: Turns) -> None:
    line = msgspec.json.encode(BEGIN) + b"\n"

    def pieces() -> None:
        for piece in (line[:5], line[5:-1], line[-1:]):
            time.sleep(0.05)
            os.write(driver.orders, piece)

    thread = threading.Thread(target=pieces)
    thread.start()
    assert wait(rank) == BEGIN
    thread.join()


def test_a_rank_but_the_first_reports_nothing(driver: Driver) -> None:
    with closing(Turns(driver.folder, 1)) as rank:
        pipe = os.open(driver.folder / "orders-1", os.O_RDWR)
        threading.Timer(0.05, lambda: os.write(pipe, msgspec.json.encode(END) + b"\n")).start()
        assert wait(rank) == END
        os.set_blocking(driver.reports, False)
        with pytest.raises(BlockingIOError):
            os.read(driver.reports, 1)
        os.close(pipe)


def test_a_folder_without_pipes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError):
        Turns(tmp_path / "nowhere", 0)


def test_it_gives_its_pipes_back(driver: Driver) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    rank = Turns(driver.folder, 0)
    assert len(os.listdir("/proc/self/fd")) == before + 2  # noqa: PTH208
    rank.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_the_longest_order_is_written_at_once() -> None:
    largest = Order(act="slice", align="roundtime", slack=1 << 62, anew=True, seconds=1 / 3, operations=1 << 62)
    assert len(msgspec.json.encode(largest)) < LONGEST_ORDER


# Slices --------------------------------------------------------------------------------------------------------------


@dataclass
class Made:
    """A call whose samples take what `takes(number)` says (ns; negative: late), on a clock that they move."""

    takes: Callable[[int], int] = lambda number: 1_000_000
    now: int = 0
    runs: list[tuple[Alignment, int, int]] = field(default_factory=list)
    announced: int = 0
    burst: int = 1
    operations: int = 1

    def __post_init__(self) -> None:
        signals = Signals(lambda: None, self._announce, np.zeros(1, np.int64), announces=True)
        self.session: Any = SimpleNamespace(world=AloneWorld(), signals=signals, clock=lambda: self.now)

    def _announce(self) -> None:
        self.announced += 1

    @property
    def taken(self) -> int:
        return sum(n for _, _, n in self.runs)

    def run(self, align: AlignmentSetting, n: int) -> Stamps:
        times = np.array([self.takes(self.taken + k) for k in range(n)], np.int64)
        self.runs.append((align.kind, align.slack, n))
        late, lasts = times < 0, np.abs(times)
        left = self.now + np.cumsum(lasts)
        self.now = int(left[-1])
        return Stamps(left - lasts, left, late, np.zeros((n, 0), np.int64))


#: A plan that does not fix how many samples there are.
ANY = StopRule(1.0, 20, 100)


def sampling(made: Made, align: Alignment = "roundtime", most: int = 100_000, stop: StopRule = ANY) -> Sampling:
    method: Any = SimpleNamespace(clock="common", oversubscribed=False, most=most, stop=stop)
    return Sampling(made, method, AlignmentSetting(align, made.session.signals, 1000), [])  # type: ignore[arg-type]


def slices(driver: Driver, rank: Turns, of: Sampling, *orders: Order, quota: bool = False) -> tuple[bool, list[Report]]:
    """Whether the case ended in its turns, and the reports."""
    thread = driver.leads(orders)
    ended = sampled_in_turns(of, rank, Watched(), "bcast", quota, ContentionMeter())
    thread.join()
    return ended, driver.heard


RULE = SliceRule(discard=5, discard_seconds=0.002, seconds=0.05, operations=10, longest=1.0)


A_SLICE = Order(act="slice", align="roundtime", slack=1000, seconds=0.05, rule=RULE)


def a_slice(**values: Any) -> Order:
    return msgspec.structs.replace(A_SLICE, **values)


@pytest.mark.parametrize(
    ("stop", "quota", "samples", "shortest"),
    [(ANY, False, 0, 0.0), (StopRule.fixed(7), False, 7, 0.0), (ANY, True, 0, QUOTA_SLICE)],
)
def test_it_says_that_it_is_ready_and_with_what(
    driver: Driver, rank: Turns, stop: StopRule, quota: bool, samples: int, shortest: float
) -> None:
    """A plan that fixes samples says how many; a quota makes slices longer."""
    ended, (ready,) = slices(driver, rank, sampling(Made(), stop=stop), END, quota=quota)
    assert ended
    assert (ready.at, ready.align, ready.slack) == ("ready", "roundtime", 1000)
    assert (ready.samples, ready.shortest) == (samples, shortest)


def test_a_case_that_is_to_be_measured_alone_does_not_end_in_turns(driver: Driver, rank: Turns) -> None:
    assert slices(driver, rank, sampling(Made()), a_slice(anew=True), Order(act="alone"))[0] is False


MS, FOUR = 1_000_000, msgspec.structs.replace(RULE, rounds=4)
LONG = msgspec.structs.replace(RULE, discard_seconds=0.1)
A_20 = a_slice(anew=True, operations=20)
#: What samples take (ns), the orders, at most so many samples, and by which rule; the last report's values, the samples
#: that are kept, and how many notes there are.
SLICES: dict[str, tuple[Callable[[int], int], list[Order], int, StopRule, dict[str, Any], int, int]] = {
    "of 1 ms each 5 are discarded, and 50 are a slice": (
        lambda number: MS, [a_slice(anew=True), a_slice()], 100_000, ANY,
        {"align": "roundtime", "n": 50, "late": 0, "seconds": 1e-3, "halves": (1e-3, 1e-3)}, 100, 0,
    ),
    "what is discarded is not in the time": (
        lambda number: 9 * MS if number < 5 else MS, [a_slice(anew=True)], 100_000, ANY, {"seconds": 1e-3}, 50, 0,
    ),
    "on GPUs more is discarded than a slice has": (
        lambda number: MS, [a_slice(anew=True, rule=LONG)], 100_000, ANY, {"n": 50, "seconds": 1e-3}, 50, 0,
    ),
    "a plan fixes samples, whatever they take": (
        lambda number: 400 * MS, [a_slice(anew=True, operations=7)], 100_000, ANY, {"n": 7}, 7, 0,
    ),
    "all of them are kept": (
        lambda number: MS, [a_slice(anew=True, operations=4), a_slice(operations=4)], 20, StopRule.fixed(20),
        {"n": 4}, 8, 0,
    ),
    "no more are kept than the plan wants": (
        lambda number: MS, [a_slice(anew=True, rule=FOUR), *[a_slice(rule=FOUR)] * 3], 80, ANY, {"n": 50}, 68, 0,
    ),
    "ten of 0.4 s would take longer than a slice may": (
        lambda number: 400 * MS, [a_slice(anew=True)], 100_000, ANY, {"n": 3}, 3, 0,
    ),
    "another align forgets all samples, and is a note": (
        lambda number: MS, [a_slice(anew=True), a_slice(), a_slice(anew=True, align="barrier")], 100_000, ANY,
        {"align": "barrier", "n": 50}, 50, 1,
    ),
    "to begin again forgets all samples": (
        lambda number: MS, [a_slice(anew=True), a_slice(), a_slice(anew=True)], 100_000, ANY, {"n": 50}, 50, 0,
    ),
    "late samples are counted, and not in the time": (
        lambda number: -7 * MS if number % 2 else MS, [A_20], 100_000, ANY,
        {"n": 20, "late": 10, "seconds": 1e-3}, 20, 0,
    ),
    "all late is no time": (
        lambda number: -MS, [A_20], 100_000, ANY, {"n": 20, "late": 20, "seconds": None, "halves": None}, 20, 0,
    ),
    "halves are kept apart": (
        lambda number: MS if number < 15 else 3 * MS, [A_20], 100_000, ANY, {"halves": (1e-3, 3e-3)}, 20, 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", SLICES)
def test_what_a_slice_reports_and_keeps(driver: Driver, rank: Turns, which: str) -> None:
    takes, orders, most, stop, expected, kept, notes = SLICES[which]
    of = sampling(made := Made(takes), most=most, stop=stop)
    ended, (_, *reports) = slices(driver, rank, of, *orders, END)
    assert ended and [report.at for report in reports] == ["slice"] * len(orders)
    discarded = 1 if takes(0) == 400 * MS else 100 if orders[0].rule == LONG else RULE.discard
    assert made.taken == sum(report.n for report in reports) + discarded * len(orders)
    for name, value in expected.items():
        assert getattr(reports[-1], name) == (pytest.approx(value) if isinstance(value, float | tuple) else value), name
    assert (len(of.stamps.late), len(of.notes), of.align.kind) == (kept, notes, reports[-1].align)


def test_what_is_measured_alone_has_no_samples_of_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    of = sampling(Made(), stop=StopRule.fixed(3))
    batches = iter((3, 0))
    monkeypatch.setattr(sampling_module, "_warmed_up", lambda *rest: of)
    monkeypatch.setattr(Sampling, "agree", lambda self, watch: next(batches))

    def broken_off(begun: Sampling) -> bool:
        begun.take(5)
        return False

    made: Any = of.timed_call
    assert len(sampling_module.sample(made, of.method, Watched(), "bcast", broken_off).stamps.late) == 3


@pytest.mark.parametrize(("last", "looks"), [("end", 4), ("alone", 5)])
def test_waiting_for_processors_counts_in_slices_alone(driver: Driver, rank: Turns, last: Any, looks: int) -> None:
    """And from the end of the turns on, where the case is measured alone; a slice that begins anew forgets the rest."""
    looked: list[float] = []

    def look() -> Waited:
        looked.append(time.monotonic())
        return Waited(float(len(looked)), {}, CoreTimes(2, 0.0, 0.0, 0.0))

    meter = ContentionMeter(look=look)
    meter.start()
    thread = driver.leads((a_slice(anew=True, sleepers=1), a_slice(sleepers=1), Order(act=last)))
    sampled_in_turns(sampling(Made()), rank, Watched(), "bcast", False, meter)
    thread.join()
    assert len(looked) == 1 + looks
    assert meter.passed.added.stalled == (2.0 if last == "end" else None)
    if last == "end":
        assert meter.passed.added.used is not None
        assert meter.passed.added.used.user == pytest.approx(-0.03 * 2 * meter.passed.seconds), "the sleeper's share"


def test_a_rank_gives_signs_of_life_in_a_long_slice(driver: Driver, rank: Turns) -> None:
    thread, watch = driver.leads((a_slice(operations=3 * BATCH), END)), Watched()
    assert sampled_in_turns(sampling(Made()), rank, watch, "bcast", False, ContentionMeter())
    thread.join()
    assert watch.said.count("bcast: timing") > 3


def test_the_gate_and_the_slack_are_those_that_it_is_told(driver: Driver, rank: Turns) -> None:
    made = Made()
    of = sampling(made)
    slices(driver, rank, of, a_slice(anew=True, slack=5000), a_slice(slack=9000), END)
    assert {(align, slack) for align, slack, _ in made.runs} == {("roundtime", 5000), ("roundtime", 9000)}
    assert of.notes == []


def test_behind_a_barrier_chance_decides_how_many_messages_go_before(driver: Driver, rank: Turns) -> None:
    announced = set()
    for _ in range(12):
        made = Made()
        made.session.clock = time.monotonic_ns
        slices(driver, rank, sampling(made, "barrier"), a_slice(align="barrier", operations=1), END)
        announced.add(made.announced)
    assert len(announced) > 3


# Sizes of batches, and the time of a slice ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("taken", "passed", "least", "seconds", "longest", "n"),
    [
        (0, 0.0, 10, 0.1, 2.0, 1),  # nobody knows yet how long one takes
        (0, 0.0, 10, 0.0, 0.0, 10),  # so many, whatever they take
        (0, 0.0, BATCH + 1, 0.0, 0.0, BATCH),
        (BATCH, 1.0, BATCH + 1, 0.0, 0.0, 1),
        (7, 99.0, 7, 0.0, 0.0, 0),
        (1, 0.001, 10, 0.1, 2.0, 99),  # those of the rest of 0.1 s
        (1, 0.02, 10, 0.1, 2.0, 9),  # ten take longer
        (1, 0.5, 10, 0.1, 2.0, 3),  # ten take too long
        (1, 1.5, 10, 0.1, 2.0, 1),
        (1, 2.0, 10, 0.1, 2.0, 0),
        (10, 0.1, 10, 0.1, 2.0, 0),
        (10, 0.2, 10, 0.1, 2.0, 0),
        (9, 0.2, 10, 0.1, 2.0, 1),
        (1, 1e-6, 10, 0.1, 2.0, BATCH),
        (1, 0.0, 10, 0.1, 2.0, BATCH),  # too short for the clock
    ],
)
def test_how_many_samples_come_next(
    taken: int, passed: float, least: int, seconds: float, longest: float, n: int
) -> None:
    assert under_test._next(taken, passed, least, seconds, longest) == n


def batches(rule: StopRule, pace: float) -> list[int]:
    """Batch sizes when every sample takes `pace` seconds."""
    sizes: list[int] = []
    while (n := rule.next_batch(sum(sizes), sum(sizes) * pace)) > 0:
        sizes.append(n)
        assert len(sizes) <= 1_000, "it does not stop"
    return sizes


@pytest.mark.parametrize("n", [1, FIRST_BATCH - 1, FIRST_BATCH, FIRST_BATCH + 1, 1000, 100_000])
def test_fixed_takes_exactly_what_was_asked_for(n: int) -> None:
    assert sum(batches(StopRule.fixed(n), 1e-6)) == n
    assert batches(StopRule.fixed(n), 1e-6)[0] == min(n, FIRST_BATCH)


def test_batches_are_small_first_and_bounded_then() -> None:
    assert batches(StopRule.fixed(5000), 1e-6) == [FIRST_BATCH, LARGEST_BATCH, LARGEST_BATCH, 990]
    assert batches(StopRule.fixed(100), 0.1) == [FIRST_BATCH, *[5] * 18]
    assert batches(StopRule.fixed(FIRST_BATCH + 2), 10 * LONGEST_BATCH) == [FIRST_BATCH, 1, 1]


@pytest.mark.parametrize(
    ("rule", "pace", "samples"),
    [
        (StopRule(0.25, floor=20, cap=10_000), 1e-3, 250),  # as many as it can pay for
        (StopRule(1.0, floor=20, cap=10_000), 0.01, 100),
        (StopRule(0.25, floor=20, cap=10_000), 2.0, 20),
        (StopRule(0.25, floor=20, cap=10_000), 1e-7, 10_000),
        (StopRule(0.25, floor=5, cap=7), 1e-7, 7),
        (StopRule(0.25, floor=20, cap=10_000), 0.0, 10_000),  # the clock stands still
        (StopRule.fixed(3000), 0.0, 3000),
    ],
)
def test_a_budget_pays_for_samples_between_its_floor_and_its_cap(rule: StopRule, pace: float, samples: int) -> None:
    assert sum(batches(rule, pace)) == samples


@pytest.mark.parametrize(
    ("samples", "seconds"),
    [
        ([], None), ([-5, -7], None), ([1000], 1e-6), ([1000, 3000], 2e-6),
        ([1000] * 9 + [90_000], 1e-6),  # the tenth at either end is left out
        ([10, *[1000] * 8, 90_000], 1e-6),
        ([1000] * 8 + [90_000], (8 * 1000 + 90_000) / 9 * 1e-9),  # of nine a tenth is none
        ([-1, 1000, 2000, -1], 1.5e-6),
    ],
)  # fmt: skip
def test_the_time_of_a_slice_is_the_mean_of_the_middle_of_its_samples(
    samples: list[int], seconds: float | None
) -> None:
    mean = under_test._trimmed(np.array(samples, np.int64))
    assert mean == (None if seconds is None else pytest.approx(seconds))


def test_a_training_in_turns_forgets_what_came_before_it_began_again(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its samples, and what was seen of its cores; each slice begins with a sample that does not count."""
    numbers, looked = iter(range(1, 100)), list[float]()

    def look() -> Waited:
        looked.append(0.0)
        return Waited(float(len(looked)), {}, CoreTimes(1, 0.0, 0.0, 0.0))

    def take(times: int) -> dict[str, list[int]]:
        return {"step": [next(numbers) for _ in range(times)]}

    monkeypatch.setenv(VARIABLE, str(driver.folder))
    monkeypatch.setattr(protocol, "ContentionMeter", lambda: ContentionMeter(look=look))
    one, again = a_slice(operations=2, sleepers=4), a_slice(operations=2, sleepers=4, anew=True)
    thread = driver.leads((again, one, again, one, END))
    taken, added = protocol.sampled_in_turns(take, 4, protocol.RankGroup(), lambda: {"epoch": [7]}) or ({}, None)
    thread.join()
    assert taken == {"step": [8, 9, 11, 12], "epoch": [7]}
    assert added is not None and added.added.stalled == 3.0
    assert added.added.used is not None and added.added.used.user == pytest.approx(-0.12 * added.seconds)
    measures = [report.measures for report in driver.heard[1:]]
    assert [of.pop("step") * 1e9 for of in measures] == pytest.approx([2.5, 5.5, 8.5, 11.5])
    assert measures == [{"epoch": pytest.approx(7e-9)}, {}] * 2
