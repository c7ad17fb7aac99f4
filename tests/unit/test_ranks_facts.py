"""What is said of the ranks of a run: whether they waited for processors, shared GPUs, states of GPUs."""

from __future__ import annotations

import dataclasses
import os
import re
import time
from typing import Any

import pytest
from tests.unit.made_pairs import Pair

from collbench.machine.facts import ContentionMeter, CoreTimes, RankFacts, Stretch, Waited, core_times, rank_facts
from collbench.run import facts_of_ranks
from collbench.run.facts_of_ranks import COMMUNICATES, OwnTime, contended
from collbench.schema.record import GpuState, Reading


def second(other: float, disturbed: bool = False) -> Pair:
    """The own rank as rank 1 of two; rank 0 was held up for `other` seconds."""
    nanoseconds = round(other * 1e9)

    def of_rank_0(mine: list[int]) -> list[int]:
        if len(mine) == 2:
            return [nanoseconds, disturbed]
        return [0 if other >= 3.0 else 2]  # who was held up longest

    return Pair(of_rank_0, rank=1)


@pytest.mark.parametrize(
    ("stalled", "throttled", "other", "contends", "named"),
    [
        (0.01, 0.0, 0.0, False, ()),
        (0.5, 0.0, 0.0, True, ()),
        (None, None, 0.0, None, ()),
        (0.01, 0.4, 0.1, True, (r"rank 1 .* 0\.4 CPU seconds in 2 s:",)),
        (None, 0.0, 3.0, True, (r"rank 0 .* 3 CPU seconds in 2 s:",)),
    ],
)
def test_held_up(
    stalled: float | None, throttled: float | None, other: float, contends: bool | None, named: tuple[str, ...]
) -> None:
    """A group above, which others used up long ago, does not hide what the own group waited now."""
    before = Waited(None if stalled is None else 7.0, {} if throttled is None else {"/": 1000.0, "/own": 3.0})
    grown = {} if throttled is None else {"/": 1000.0, "/own": 3.0 + throttled, "/new": 50.0}
    added = Waited(None if stalled is None else 7.0 + stalled, grown).since(before)
    held_up, lines = contended(Stretch(2.0, added), second(other))
    assert (held_up, len(lines)) == (contends, len(named))
    assert all(re.search(*both) for both in zip(named, lines, strict=True))


def test_the_rank_that_was_stopped_longest_is_named() -> None:
    """This one was stopped too, and comes before it."""
    theirs = iter(([round(0.7e9), False], [1]))
    _, (said,) = contended(Stretch(2.0, Waited(1.0, {"/own": 0.5})), Pair(lambda mine: next(theirs)))
    assert re.search(r"rank 1 .* 0\.7 CPU seconds", said)


def test_of_no_time_nothing_is_known() -> None:
    assert contended(Stretch(0.0, Waited(1.0, {"/own": 1.0})), second(0.0)) == (None, ())


@pytest.mark.parametrize(
    ("stalled", "grown", "own", "contends"),
    [
        (1.0, CoreTimes(2, 3.9, 0.1, 0.0), OwnTime(3.9, 0.1), False),  # more threads than cores, and nobody else
        (1.0, CoreTimes(2, 3.9, 0.1, 0.0), OwnTime(2.0, 0.1), True),
        (1.0, CoreTimes(2, 2.0, 1.0, 0.0), OwnTime(2.0, 0.0), True),
        (1.0, CoreTimes(2, 2.0, 1.0, 0.0), OwnTime(2.0, 0.0, kernel=True), False),  # the kernel writes for it
        (1.0, CoreTimes(2, 2.0, 0.0, 0.5), OwnTime(2.0, 0.0), True),  # another virtual machine
        (0.01, CoreTimes(2, 3.9, 0.0, 0.0), OwnTime(0.0, 0.0), False),  # others had a core that stood idle
        (1.0, None, OwnTime(1.0, 0.0), True),
        (1.0, CoreTimes(2, 0.01, 1.0, 0.0), COMMUNICATES, False),  # threads of a library, and messages in the kernel
        (1.0, CoreTimes(2, 0.5, 0.0, 0.0), COMMUNICATES, True),
    ],
)
def test_ranks_are_held_up_where_others_used_their_cores(
    stalled: float, grown: CoreTimes | None, own: OwnTime, contends: bool
) -> None:
    start = CoreTimes(2, 10.0, 10.0, 10.0)
    end = None if grown is None else CoreTimes(2, 10.0 + grown.user, 10.0 + grown.system, 10.0 + grown.steal)
    added = Waited(7.0 + stalled, {}, end).since(Waited(7.0, {}, start))
    assert contended(Stretch(2.0, added), second(0.0), own) == (contends, ())


def test_all_are_held_up_where_one_of_them_is() -> None:
    quiet = Stretch(2.0, Waited(1.0, {}, CoreTimes(2, 0.0, 0.0, 0.0)))
    for disturbed in (False, True):
        assert contended(quiet, second(0.0, disturbed)) == (disturbed, ())


def test_what_others_did_between_two_stretches_does_not_count() -> None:
    """As of a world whose turns are apart: 3 s in two stretches, in which others had 1 CPU second."""
    clock = iter(round(second * 1e9) for second in (0.0, 1.0, 5.0, 7.0))
    looks = iter(Waited(s, {"/own": s}, CoreTimes(2, u, 0.0, 0.0)) for s, u in ((1, 0), (1.5, 1), (4, 9), (5, 9)))
    meter = ContentionMeter(lambda: next(clock), lambda: next(looks))
    for _ in range(2):
        meter.start()
        meter.stop()
    meter.stop()
    assert meter.passed == Stretch(3.0, Waited(1.5, {"/own": 1.5}, CoreTimes(2, 1.0, 0.0, 0.0)))
    meter.reset()
    assert meter.passed == Stretch(0.0, Waited())


def test_what_one_look_does_not_know_is_not_known() -> None:
    known = Stretch(1.0, Waited(1.0, {"/own": 1.0, "/": 2.0}, CoreTimes(2, 1.0, 1.0, 1.0)))
    assert known.and_then(Stretch(1.0, Waited(None, {"/own": 1.0}))) == Stretch(2.0, Waited(None, {"/own": 2.0}))
    assert known.and_then(known).added == Waited(2.0, {"/own": 2.0, "/": 4.0}, CoreTimes(2, 2.0, 2.0, 2.0))


def test_the_use_of_the_own_cores_is_read_without_this_process() -> None:
    before = core_times()
    if before is None:
        pytest.skip("no /proc/stat")
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    after = core_times()
    assert after is not None and after.cores == len(os.sched_getaffinity(0))
    assert after.user - before.user > -0.1


# GPUs ----------------------------------------------------------------------------------------------------------------


def ranks(*of: tuple[str, str | None, int]) -> list[RankFacts]:
    """(machine, GPU, cores) of each."""
    mine = rank_facts()
    return [
        dataclasses.replace(mine, kernel_id=machine, gpu=gpu, cores=frozenset(range(cores)))
        for machine, gpu, cores in of
    ]


def test_a_gpu_is_shared_on_one_machine_only() -> None:
    assert facts_of_ranks.is_shared(ranks(("a", "GPU-0", 4), ("a", "GPU-0", 4)))
    assert not facts_of_ranks.is_shared(ranks(("a", "GPU-0", 4), ("b", "GPU-0", 4)))
    assert not facts_of_ranks.is_shared(ranks(("a", None, 4), ("a", None, 4), ("a", "GPU-0", 4)))


def test_a_rank_with_a_gpu_and_one_core_is_named() -> None:
    assert facts_of_ranks.cramped(ranks(("a", "GPU-0", 2), ("a", None, 1))) == ()
    (note,) = facts_of_ranks.cramped(ranks(("a", "GPU-0", 1), ("a", None, 1), ("a", "GPU-1", 1)))
    assert note.startswith("ranks 0, 2: one core ")
    (note,) = facts_of_ranks.cramped(ranks(("a", "GPU-0", 2), ("a", "GPU-1", 1)))
    assert note.startswith("rank 1: one core ")


def test_of_many_cramped_ranks_some_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_of_ranks, "MOST_NAMED", 2)
    (note,) = facts_of_ranks.cramped(ranks(*(("a", f"GPU-{n}", 1) for n in range(5))))
    assert note.startswith("ranks 0, 1 and 3 more: one core ")
    (note,) = facts_of_ranks.cramped(ranks(*(("a", f"GPU-{n}", 1) for n in range(2))))
    assert note.startswith("ranks 0, 1: one core ")


def test_every_gpu_stands_once_with_both_readings() -> None:
    before, after = (Reading(uuid="GPU-0", sm_clock=clock) for clock in (210, 1980))

    def other(mine: Any) -> Any:
        return [1] if mine and isinstance(mine[0], int) else theirs

    theirs: list[GpuState] = []
    (state,) = facts_of_ranks.gpu_states((before,), (after,), Pair(other))
    assert (state.before.sm_clock, state.after.sm_clock) == (210, 1980)
    theirs = [state]
    assert facts_of_ranks.gpu_states((before,), (after,), Pair(other)) == (state,)
    assert facts_of_ranks.gpu_states((), (), Pair(other)) == (state,)
    assert facts_of_ranks.gpu_states((), (), Pair()) == ()
    assert facts_of_ranks.gpu_states((before,), (after,), Pair(other, rank=1)) == (), "rank 0 alone has them"
