"""How a run is measured, and samples in turns of a process: alignments, clocks, slack, how many come next."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.made_pairs import Pair, PairSession

from collbench.bindings.spec import Operation
from collbench.errors import Interrupted
from collbench.machine.facts import RankFacts, rank_facts
from collbench.run.failures import Unwatched
from collbench.run.sampling import (
    ANNOUNCEMENTS,
    FEW_ANNOUNCEMENTS,
    FIRST_BATCH,
    HOPELESS_BATCHES,
    MOST_DISPLACEMENTS,
    SHORT_PILOTS,
    SIMULATED_CAP,
    SMALLEST_SLACK,
    Decision,
    Method,
    Sampling,
    StopRule,
    TimedCall,
    choose_method,
    sample,
)
from collbench.schema.case import Alignment
from collbench.schema.plan import Plan
from collbench.timing.loop import AlignmentSetting, Call, Signals, Stage, Stamps

WATCH: Any = SimpleNamespace(stopped=None)


def sampling(
    align: Alignment,
    announced: list[None],
    oversubscribed: bool = False,
    clock: Callable[[], int] = time.monotonic_ns,
    decision: Decision | None = None,
) -> Sampling:
    """Rank 0; with `decision`, another rank, which hears that from rank 0."""
    world = Pair(
        lambda mine: mine if decision is None or mine is not None else decision, rank=0 if decision is None else 1
    )
    signals = Signals(lambda: None, lambda: announced.append(None), np.zeros(1, np.int64), decision is None)
    session = SimpleNamespace(world=world, signals=signals, clock=clock)
    method: Any = SimpleNamespace(stop=StopRule.fixed(100), oversubscribed=oversubscribed, align_may_change=False)
    form: Any = SimpleNamespace(session=session)
    return Sampling(form, method, AlignmentSetting(align, signals), [])


def displacements(batches: int, align: Alignment, **how: Any) -> list[int]:
    """How often rank 0 announces before each batch."""
    counts = []
    for _ in range(batches):
        announced: list[None] = []
        assert sampling(align, announced, **how).agree(WATCH) == 10
        counts.append(len(announced))
    return counts


def test_behind_a_barrier_chance_decides_how_many_messages_went_before() -> None:
    counts = displacements(300, "barrier")
    assert len(set(counts)) > 60
    assert {number % 2 for number in counts} == {0, 1}
    assert max(counts) < MOST_DISPLACEMENTS


@pytest.mark.parametrize(
    ("align", "how"),
    [("none", {}), ("roundtime", {}), ("barrier", {"oversubscribed": True}), ("barrier", {"clock": lambda: 0})],
    ids=["no align", "another align", "ranks that share a core", "times that are made up"],
)
def test_no_messages_go_before_other_gates_nor_where_they_would_disturb(align: Alignment, how: dict[str, Any]) -> None:
    assert displacements(20, align, **how) == [0] * 20


def test_all_ranks_do_what_rank_0_says() -> None:
    announced: list[None] = []
    decision = Decision(10, 0, "barrier", stop=False, displacements=5)
    assert sampling("barrier", announced, decision=decision).agree(WATCH) == 10
    assert len(announced) == 5


# How a run is measured ------------------------------------------------------------------------------------------------

ONE = replace(rank_facts(), cores=frozenset({0, 1}))
TWO_RANKS = (ONE, ONE)
TWO_CLOCKS = (ONE, replace(ONE, clock_id="another boot"))
TWO_MACHINES = (ONE, replace(ONE, clock_id="another boot", kernel_id="another"))
CROWDED = (ONE, ONE, ONE)


def chosen(ranks: Sequence[RankFacts] = TWO_RANKS, simulated: bool = False, **fields: object) -> Method:
    return choose_method(Plan(collectives=("bcast",), **fields), tuple(ranks), simulated)


@pytest.mark.parametrize(
    ("ranks", "align", "clock", "oversubscribed"),
    [
        (TWO_RANKS, "roundtime", "common", False),
        (TWO_CLOCKS, "barrier", "local", False),
        (TWO_MACHINES, "barrier", "local", False),
        (CROWDED, "barrier", "common", True),
    ],
)
def test_the_gate_fits_the_machine(ranks: tuple[RankFacts, ...], align: str, clock: str, oversubscribed: bool) -> None:
    """A common start needs one clock, and ranks that run at the same time."""
    found = chosen(ranks)
    assert (found.align, found.clock, found.oversubscribed) == (align, clock, oversubscribed)
    assert found.align_may_change
    assert found.ranks == ranks


@pytest.mark.parametrize("align", ["roundtime", "barrier", "none"])
@pytest.mark.parametrize("ranks", [TWO_RANKS, CROWDED, TWO_CLOCKS])
def test_a_gate_that_is_asked_for_is_taken(align: str, ranks: tuple[RankFacts, ...]) -> None:
    found = chosen(ranks, align=align)
    assert (found.align, found.align_may_change) == (align, False)


def test_simulated_ranks_need_no_cores() -> None:
    found = chosen(CROWDED, simulated=True)
    assert (found.align, found.oversubscribed) == ("roundtime", False)


@pytest.mark.parametrize(
    ("floor", "cap", "simulated", "most"),
    [(20, 500, False, 500), (20, 500, True, SIMULATED_CAP), (20, 25, True, 25), (40, 500, True, 40)],
)
def test_a_budget_has_a_floor_and_a_cap(floor: int, cap: int, simulated: bool, most: int) -> None:
    """Simulated samples are few, but never fewer than the floor."""
    found = chosen(simulated=simulated, floor=floor, cap=cap, budget="0.5s")
    assert found.stop == StopRule(0.5, floor, most)


@pytest.mark.parametrize("simulated", [False, True])
def test_a_fixed_number_of_samples_has_no_budget(simulated: bool) -> None:
    assert chosen(simulated=simulated, iters=1000).stop == StopRule.fixed(1000)


def test_the_rest_is_as_planned() -> None:
    found = chosen(warmup=7, check=3, cadence="streaming", burst=9, cudagraph=4)
    assert (found.warmup, found.check, found.cadence, found.burst, found.launches) == (7, 3, "streaming", 9, 4)
    assert chosen().cadence == "isolated"


# Between batches ------------------------------------------------------------------------------------------------------

SLACK = 1_000
FACTS = (rank_facts(), rank_facts())
MANY = StopRule.fixed(10_000)


class MadeSession(PairSession):
    """A clock that stands where it is put, or moves by `step` whenever it is read, and signals that cost nothing."""

    thread_level, transport = "single", None

    def __init__(self) -> None:
        self.world, self.now, self.step = Pair(), 0, 0
        self.signals = Signals(lambda: None, lambda: None, np.zeros(1, np.int64), announces=True)

    def clock(self) -> int:
        self.now += self.step
        return self.now


def method(align: Alignment = "roundtime", may_change: bool = True, stop: StopRule = MANY, warmup: int = 0) -> Method:
    return Method(align, may_change, "common", stop, warmup, 1, "isolated", FACTS, oversubscribed=False)


def timed_call(session: Any, performed: list[str] | None = None) -> TimedCall:
    performed = [] if performed is None else performed
    call = Call((Stage(lambda: performed.append("call")),))
    return TimedCall(Operation(None, (), call, False, 0), session, "python", None)


def sampling_slack(how: Method | None = None) -> tuple[Sampling, MadeSession]:
    session, how = MadeSession(), how or method()
    return Sampling(timed_call(session), how, AlignmentSetting(how.align, session.signals, SLACK), []), session


def batch(n: int, late: int) -> Stamps:
    """A batch of `n` samples, the first `late` of them late."""
    return Stamps(np.zeros(n, np.int64), np.ones(n, np.int64), np.arange(n) < late, np.zeros((n, 0), np.int64))


def after(current: Sampling, n: int, late: int) -> int:
    """What comes next, after one more batch."""
    current.done.append(batch(n, late))
    return current.agree(Unwatched())


def test_the_first_batch_is_small_and_leaves_the_slack() -> None:
    current, _ = sampling_slack()
    assert current.agree(Unwatched()) == FIRST_BATCH
    assert (current.align.kind, current.align.slack) == ("roundtime", SLACK)


@pytest.mark.parametrize(
    ("late", "times", "short"),
    [(0, 1, False), (5, 1, False), (6, 2, False), (50, 2, False), (51, 4, True), (100, 4, True)],
)
def test_late_samples_make_the_slack_grow(late: int, times: int, short: bool) -> None:
    """Above 5 % doubled; above half of the batch four times as long, and a short batch to see whether it was enough."""
    current, _ = sampling_slack()
    n = after(current, 100, late)
    assert (current.align.kind, current.align.slack) == ("roundtime", times * SLACK)
    assert n == FIRST_BATCH if short else n > FIRST_BATCH


def test_the_rank_with_most_late_samples_decides() -> None:
    current, session = sampling_slack()
    session.world.other = lambda mine: (100, 100, 0)
    after(current, 100, 0)
    assert current.align.slack == 4 * SLACK


def test_only_the_last_batch_makes_the_slack_grow() -> None:
    current, _ = sampling_slack()
    after(current, 100, 20)
    after(current, 100, 0)
    assert current.align.slack == 2 * SLACK


def test_a_late_share_is_one_of_its_own_batch() -> None:
    """6 of 10 are most of them, whatever a longer batch before was like."""
    current, _ = sampling_slack()
    after(current, 100, 0)
    assert after(current, 10, 6) == FIRST_BATCH
    assert current.align.slack == 4 * SLACK


def test_a_gate_that_makes_most_samples_late_gives_way_to_a_barrier() -> None:
    current, session = sampling_slack()
    for number in range(1, HOPELESS_BATCHES):
        assert after(current, 10, 6) == FIRST_BATCH
        assert (current.align.kind, current.align.slack) == ("roundtime", SLACK * 4**number)
    session.now = 77
    assert after(current, 10, 6) == FIRST_BATCH
    assert current.align.kind == "barrier"
    assert len(current.notes) == 1 and current.notes[0].startswith("align barrier: ")
    assert (current.done, current.began) == ([], 77)  # samples that were aligned otherwise do not count


def test_a_good_batch_in_between_starts_the_count_anew() -> None:
    current, _ = sampling_slack()
    for late in (6, 6, 6, 6, 6, 5, 6, 6, 6, 6, 6):
        after(current, 10, late)
    assert (current.hopeless, current.notes) == (HOPELESS_BATCHES - 1, [])
    after(current, 10, 6)
    assert current.align.kind == "barrier"


def test_a_gate_that_was_asked_for_stays() -> None:
    current, _ = sampling_slack(method(may_change=False))
    for _ in range(2 * HOPELESS_BATCHES):
        after(current, 10, 10)
    assert (current.align.kind, current.notes) == ("roundtime", [])


@pytest.mark.parametrize(("late", "align", "following"), [(6, "barrier", FIRST_BATCH), (5, "roundtime", 0)])
def test_at_the_end_more_than_half_of_all_samples_late_give_the_gate_up(
    late: int, align: Alignment, following: int
) -> None:
    """However few batches there were: the samples that count would be those of a minority."""
    current, _ = sampling_slack(method(stop=StopRule.fixed(30)))
    after(current, 20, 2 * late)
    assert current.align.kind == "roundtime", "not yet: samples are still to come"
    assert after(current, 10, late) == following
    assert current.align.kind == align


def test_the_budget_begins_after_the_warm_up_and_is_in_seconds() -> None:
    current, session = sampling_slack(method(stop=StopRule(2.0, 10, 1000)))
    current.began, session.now = 5 * 10**9, 6 * 10**9
    assert after(current, 100, 0) == 50, "half a second, the longest batch, at 100 samples a second"
    session.now = 7 * 10**9
    assert after(current, 100, 0) == 0


def test_a_stop_of_any_rank_interrupts_all() -> None:
    current, session = sampling_slack()
    session.world.other = lambda mine: (0, 0, 2)
    with pytest.raises(Interrupted):
        current.agree(Unwatched())


def test_a_stop_of_this_rank_interrupts_it_too() -> None:
    current, session = sampling_slack()
    session.world.other = lambda mine: (0, 0, 0)
    told = Unwatched()
    told.stopped = 15
    with pytest.raises(Interrupted):
        current.agree(told)


class Listening(Unwatched):
    """A watchdog that notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def beat(self, doing: str) -> None:
        self.heard.append(doing)


def test_warm_up_comes_in_portions_and_does_not_count() -> None:
    session, performed, watch = MadeSession(), list[str](), Listening()
    found = sample(
        timed_call(session, performed), method("barrier", stop=StopRule.fixed(12), warmup=25), watch, "bcast"
    )
    assert len(found.stamps.late) == 12
    assert len(performed) == 25 + 12
    assert watch.heard == [*["bcast: warming up"] * 3, *["bcast: timing"] * 2]


@pytest.mark.parametrize(("step", "other", "slack"), [(40_000, 0, 80_000), (40_000, 90_000, 180_000), (1, 0, 1_000)])
def test_the_first_slack_is_twice_the_announcement_to_the_slowest_rank(step: int, other: int, slack: int) -> None:
    """An announcement takes one step of the clock here. The other rank says how long it took there."""
    session = MadeSession()
    session.step = step
    session.world.other = lambda mine: [other] if len(mine) == 1 else mine
    found = sample(timed_call(session), method(stop=StopRule.fixed(0)), Unwatched(), "bcast")
    assert found.align.slack == slack
    assert slack >= SMALLEST_SLACK


@pytest.mark.parametrize(
    ("steps", "slack"),
    [
        (([10**6] * (2 * FEW_ANNOUNCEMENTS // 3) + [50_000] * (2 * 18) + [1_000] * 4) * SHORT_PILOTS, 2 * 50_000),
        (
            [
                *([10**6] * (2 * FEW_ANNOUNCEMENTS * (SHORT_PILOTS - 1)) + [9_000] * (2 * FEW_ANNOUNCEMENTS)),
                *(step for step in (8_000, 9_000, 3_000, 5_000, 4_000) for _ in range(2 * ANNOUNCEMENTS)),
            ],
            2 * 3_000,
        ),
    ],
    ids=["the first third of few is warming up", "the least of several pilots of many, where they are quick"],
)
def test_how_long_announcements_take(steps: list[int], slack: int) -> None:
    session, left = MadeSession(), iter([*steps, *[1_000] * 1000])

    def clock() -> int:
        session.now += next(left)
        return session.now

    session.clock = clock  # type: ignore[method-assign]
    found = sample(timed_call(session), method(stop=StopRule.fixed(0)), Unwatched(), "bcast")
    assert found.align.slack == slack


def test_other_gates_have_no_slack() -> None:
    session = MadeSession()
    session.step = 40_000
    assert sample(timed_call(session), method("barrier", stop=StopRule.fixed(1)), Unwatched(), "bcast").align.slack == 0
