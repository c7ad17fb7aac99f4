"""Facts of ranks: how often others used the cores, GPUs that changed, and worlds of many ranks."""

from __future__ import annotations

import csv
import io
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from tests.unit.made_measurements import in_world
from tests.unit.made_pairs import Pair
from tests.unit.made_runs import made_case, made_record, write_run

from collbench.cli.analyse import show_command
from collbench.machine.cgroup import FIRST_RANKS, distinct
from collbench.machine.facts import (
    ContentionMeter,
    CoreTimes,
    RankFacts,
    Stretch,
    Waited,
    core_times,
    is_oversubscribed,
    rank_facts,
)
from collbench.run import facts_of_ranks
from collbench.run.facts_of_ranks import COMMUNICATES, SLOWEST, OwnTime, contended, facts_of_all, ranks_of
from collbench.run.measure import Gathered, fill_results
from collbench.run.sampling import Method, StopRule, agreed_method
from collbench.schema import record as records
from collbench.schema.plan import Plan
from collbench.schema.record import GpuState, MachineRanks, Reading, Record, SlowRank
from collbench.schema.samples import ALL_RANKS_LIMIT
from collbench.schema.world import Order

HERE = rank_facts()


def second(other: float = 0.0, disturbed: bool = False) -> Pair:
    """The own rank as rank 1 of two; rank 0 was held up for `other` seconds."""

    def of_rank_0(mine: list[int]) -> list[int]:
        if len(mine) == 2:
            return [round(other * 1e9), disturbed]
        return [0 if other >= 3.0 else 2]  # who was held up longest

    return Pair(of_rank_0, rank=1)


@pytest.mark.parametrize(("stalled", "throttled", "other", "contends", "named"), [
    (0.01, 0.0, 0.0, False, ()), (0.5, 0.0, 0.0, True, ()), (None, None, 0.0, None, ()),
    (0.01, 0.4, 0.1, True, (r"rank 1 .* 0\.4 CPU seconds in 2 s:",)),
    (None, 0.0, 3.0, True, (r"rank 0 .* 3 CPU seconds in 2 s:",)),
])  # fmt: skip
def test_held_up(stalled: float | None, throttled: float | None, other: float, contends: bool | None,
                 named: tuple[str, ...]) -> None:  # fmt: skip
    """A group above, which others used up long ago, does not hide what the own group waited now."""
    before = Waited(None if stalled is None else 7.0, {} if throttled is None else {"/": 1000.0, "/own": 3.0})
    grown = {} if throttled is None else {"/": 1000.0, "/own": 3.0 + throttled, "/new": 50.0}
    added = Waited(None if stalled is None else 7.0 + stalled, grown).since(before)
    held_up, lines = contended(Stretch(2.0, added), second(other))
    assert (held_up, len(lines)) == (contends, len(named))
    assert all(re.search(*both) for both in zip(named, lines, strict=True))


def test_the_rank_that_was_stopped_longest_is_named() -> None:
    """This one was stopped too, and comes before it. Of no time nothing is known."""
    theirs = iter(([round(0.7e9), False], [1]))
    _, (line,) = contended(Stretch(2.0, Waited(1.0, {"/own": 0.5})), Pair(lambda mine: next(theirs)))
    assert re.search(r"rank 1 .* 0\.7 CPU seconds", line)
    assert contended(Stretch(0.0, Waited(1.0, {"/own": 1.0})), second()) == (None, ())


@pytest.mark.parametrize(("stalled", "grown", "own", "contends"), [
    (1.0, CoreTimes(2, 3.9, 0.1, 0.0), OwnTime(3.9, 0.1), False),  # more threads than cores, and nobody else
    (1.0, CoreTimes(2, 3.9, 0.1, 0.0), OwnTime(2.0, 0.1), True),
    (1.0, CoreTimes(2, 2.0, 1.0, 0.0), OwnTime(2.0, 0.0), True),
    (1.0, CoreTimes(2, 2.0, 1.0, 0.0), OwnTime(2.0, 0.0, kernel=True), False),  # the kernel writes for it
    (1.0, CoreTimes(2, 2.0, 0.0, 0.5), OwnTime(2.0, 0.0), True),  # another virtual machine
    (0.01, CoreTimes(2, 3.9, 0.0, 0.0), OwnTime(0.0, 0.0), False),  # others had a core that stood idle
    (1.0, None, OwnTime(1.0, 0.0), True),
    (1.0, CoreTimes(2, 0.01, 1.0, 0.0), COMMUNICATES, False),  # threads of a library, and messages in the kernel
    (1.0, CoreTimes(2, 0.5, 0.0, 0.0), COMMUNICATES, True),
])  # fmt: skip
def test_ranks_are_held_up_where_others_used_the_cores_of_one(stalled: float, grown: CoreTimes | None, own: OwnTime,
                                                              contends: bool) -> None:  # fmt: skip
    start = CoreTimes(2, 10.0, 10.0, 10.0)
    end = None if grown is None else CoreTimes(2, 10.0 + grown.user, 10.0 + grown.system, 10.0 + grown.steal)
    added = Waited(7.0 + stalled, {}, end).since(Waited(7.0, {}, start))
    assert contended(Stretch(2.0, added), second(), own) == (contends, ())
    quiet = Stretch(2.0, Waited(1.0, {}, CoreTimes(2, 0.0, 0.0, 0.0)))
    assert contended(quiet, second(disturbed=contends)) == (contends, ()), "of the other"


def test_what_ranks_on_the_same_core_use_is_not_the_use_of_others() -> None:
    """Their programs, and the processes of the other ranks: 0 and 2 share a core, and 1 has one of its own."""
    ranks = [replace(HERE, cores=frozenset({core}), siblings=()) for core in (0, 1, 0)]
    used = [((1.0, 0.1), (0.01, 0.001)), ((2.0, 0.2), (0.02, 0.002)), ((4.0, 0.4), (0.04, 0.004))]
    of_each = [facts_of_ranks.own_time(ranks, rank, used, kernel=False) for rank in range(3)]
    assert [time.user for time in of_each] == pytest.approx([5.04, 2.0, 5.01])
    assert [time.system for time in of_each] == pytest.approx([0.504, 0.2, 0.501])


def test_what_others_did_between_two_stretches_does_not_count() -> None:
    """As of a world whose turns are apart: 3 s in two stretches, in which others had 1 CPU second. What one look does
    not know is not known."""
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
    known = Stretch(1.0, Waited(1.0, {"/own": 1.0, "/": 2.0}, CoreTimes(2, 1.0, 1.0, 1.0)))
    assert known.and_then(Stretch(1.0, Waited(None, {"/own": 1.0}))) == Stretch(2.0, Waited(None, {"/own": 2.0}))
    assert known.and_then(known).added == Waited(2.0, {"/own": 2.0, "/": 4.0}, CoreTimes(2, 2.0, 2.0, 2.0))


@pytest.mark.parametrize(("used", "disturbed"), [(0.4, False), (0.48, True)])
def test_what_sleepers_of_a_duet_may_use_is_no_contention(used: float, disturbed: bool) -> None:
    """Two of them, by the rule 3 % each, and 5 % of others: 11 % of two cores are 0.44 s in 2 s."""
    clock = iter((0, 2 * 10**9))
    looks = iter((Waited(0.0, {}, CoreTimes(2, 0.0, 0.0, 0.0)), Waited(1.0, {}, CoreTimes(2, used, 0.0, 0.0))))
    meter = ContentionMeter(lambda: next(clock), lambda: next(looks))
    meter.start(Order(act="slice", sleepers=2).sleepers_share)
    meter.stop()
    assert contended(meter.passed, second()) == (disturbed, ())


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


def gpus(*of: tuple[str, str | None, int]) -> list[RankFacts]:
    """(machine, GPU, cores) of each rank."""
    return [replace(HERE, kernel_id=name, gpu=gpu, cores=frozenset(range(cores))) for name, gpu, cores in of]


def test_a_gpu_is_shared_on_one_machine_only() -> None:
    assert facts_of_ranks.is_shared(gpus(("a", "GPU-0", 4), ("a", "GPU-0", 4)))
    assert not facts_of_ranks.is_shared(gpus(("a", "GPU-0", 4), ("b", "GPU-0", 4)))
    assert not facts_of_ranks.is_shared(gpus(("a", None, 4), ("a", None, 4), ("a", "GPU-0", 4)))


@pytest.mark.parametrize(("cores", "named"), [((2, None), None), ((1, None, 1), "ranks 0, 2: "), ((2, 1), "rank 1: "),
                                              ((1, 1), "ranks 0, 1: "),
                                              ((1,) * 5, "ranks 0, 1 and 3 more: ")])  # fmt: skip
def test_ranks_with_a_gpu_and_one_core_are_named(monkeypatch: pytest.MonkeyPatch, cores: tuple[int | None, ...],
                                                 named: str | None) -> None:  # fmt: skip
    """Of many some. `None` is a rank with one core and no GPU."""
    monkeypatch.setattr(facts_of_ranks, "MOST_NAMED", 2)
    world = gpus(*(("a", None if count is None else f"GPU-{n}", count or 1) for n, count in enumerate(cores)))
    notes = facts_of_ranks.cramped(world)
    assert len(notes) == (named is not None) and all(note.startswith(str(named)) for note in notes)


def test_every_gpu_stands_once_with_both_readings() -> None:
    before, after = ((Reading(uuid="GPU-0", sm_clock=clock),) for clock in (210, 1980))
    theirs: list[GpuState] = []
    pair = Pair(lambda mine: [1] if mine and isinstance(mine[0], int) else theirs)
    (state,) = facts_of_ranks.gpu_states(before, after, pair)
    assert (state.before.sm_clock, state.after.sm_clock) == (210, 1980)
    theirs.append(state)
    assert facts_of_ranks.gpu_states(before, after, pair) == facts_of_ranks.gpu_states((), (), pair) == (state,)
    assert facts_of_ranks.gpu_states((), (), Pair()) == ()
    pair.rank = 1
    assert facts_of_ranks.gpu_states(before, after, pair) == (), "rank 0 alone has them"


# What rank 0 knows of all ranks, and what a record says of more ranks than it can name --------------------------------

BLANK = Record(case=made_case(), launch=0, status="ok")
CONFINED = msgspec.structs.replace(HERE.confinement, namespaces={"ipc": 1, "net": 2})


def on_machines(ranks: int, each: int, **fields: Any) -> tuple[RankFacts, ...]:
    """Ranks that fill one machine after the other."""
    return tuple(replace(HERE, host=f"n{r // each}", kernel_id=f"boot {r // each}", **fields) for r in range(ranks))


def method(ranks: tuple[RankFacts, ...] = (HERE, HERE)) -> Method:
    return Method("barrier", False, "common", StopRule.fixed(3), 5, 1, "isolated", ranks, False)


# Ranks ---------------------------------------------------------------------------------------------------------------


def test_up_to_64_ranks_each_is_named() -> None:
    """With its host and the hardware threads of its cores."""
    ranks = ranks_of([1e-6] * ALL_RANKS_LIMIT, on_machines(ALL_RANKS_LIMIT, 8))
    assert ranks.p50 == (1e-6,) * ALL_RANKS_LIMIT and len(ranks.binding) == len(ranks.container) == ALL_RANKS_LIMIT
    assert (ranks.gpu, ranks.machines, ranks.slowest, ranks.on_gpus) == ((), (), (), False)
    ranks = ranks_of([1e-6] * 4, on_machines(4, 2, cores=frozenset({0}), siblings=((0, 8),)))
    assert (ranks.host, ranks.siblings) == (("n0", "n0", "n1", "n1"), ("0,8",) * 4)
    assert ranks_of([1e-6] * 4, on_machines(4, 2, siblings=())).siblings == ()


def test_above_64_ranks_machines_and_the_slowest_stand_for_them() -> None:
    medians = [(100 + rank) * 1e-9 for rank in range(66)]
    medians[3] = 5e-6
    ranks = ranks_of(medians, on_machines(66, 33))
    assert (ranks.p50, ranks.binding, ranks.container, ranks.gpu) == ((), (), (), ())
    assert [(machine.name, machine.ranks) for machine in ranks.machines] == [("n0", 33), ("n1", 33)]
    assert ranks.machines[0].p50 == pytest.approx((100e-9, 109e-9, 117e-9, 125e-9, 5e-6))
    assert ranks.machines[1].p50 == pytest.approx((133e-9, 141e-9, 149e-9, 157e-9, 165e-9))
    slowest = [(3, "n0"), (65, "n1"), (64, "n1"), (63, "n1"), (62, "n1")]
    assert [(slow.rank, slow.host) for slow in ranks.slowest] == slowest and len(slowest) == SLOWEST
    assert ranks.slowest[0].p50 == 5e-6


def test_show_says_on_which_host_the_slowest_rank_was(tmp_path: Path) -> None:
    """In the table of one world and in that of an experiment; `csv` has the machines."""
    slow = ranks_of([1e-6] * 99 + [4e-6] * 33, on_machines(132, 33))
    usual = ranks_of([2e-6] + [1e-6] * 131, on_machines(132, 33))
    where = {"image": "openmpi", "policy": "multi", "isolation": "strict", "engine": "slurm"}
    for name, case in (("world", made_case()), ("launches", made_case(**where))):
        records = [made_record(case, launch, 1e-6, ranks=ranks) for launch, ranks in enumerate((slow, usual, slow))]
        run = write_run(tmp_path / name, {case: records if name == "launches" else records[:1]})
        shown = CliRunner().invoke(show_command, [str(run)]).stdout
        (line,) = (line for line in shown.splitlines() if "slowest" in line)
        assert ("n3 in 2, n0 in 1" if name == "launches" else "n3 in 1") in line
        assert " 4.00 " in line
        table = CliRunner().invoke(show_command, [str(run), "--style", "csv"]).stdout
        assert next(csv.DictReader(io.StringIO(table)))["rank_hosts"] == "n0 x 33; n1 x 33; n2 x 33; n3 x 33"


def test_ranks_that_are_scattered_over_machines_belong_to_theirs() -> None:
    """A container for each rank has a hostname of its own, and is on one of two machines."""
    facts = tuple(replace(HERE, host=f"c{r}", kernel_id=str(r % 2), gpu=f"GPU-{r // 4}") for r in range(80))
    ranks = ranks_of([r % 2 * 1e-6 + 1e-6 for r in range(80)], facts)
    assert ranks.machines == (MachineRanks(name="c0", ranks=40, p50=(1e-6,) * 5, gpus=20),
                              MachineRanks(name="c1", ranks=40, p50=(2e-6,) * 5, gpus=20))  # fmt: skip
    assert ranks.slowest[0] == SlowRank(rank=1, p50=2e-6, host="c1"), "of equal ones the first"
    assert ranks.on_gpus


def test_a_record_of_a_large_world_is_read_as_it_was_written() -> None:
    """Without a sample in time no rank has a median."""
    taken, how = np.array([[2000, -1, 3000]]), method(ranks=on_machines(100, 10))
    record, matrix = fill_results(BLANK, Gathered(taken, taken, [1000.5] * 100), ("",), how)
    assert matrix is taken
    assert record.samples is not None and (record.samples.n, record.samples.invalid) == (3, 1)
    assert record.ranks is not None and len(record.ranks.machines) == 10
    ok = msgspec.structs.replace(record, work=records.Work(amount=1))
    assert records.decode(records.encode(ok)) == ok
    assert len(records.encode(ok)) < 3000
    record, _ = fill_results(BLANK, Gathered(np.array([[-5]]), np.array([[5]]), []), ("",), method())
    assert (record.status, record.ranks) == ("failed", None)


# Confinement ---------------------------------------------------------------------------------------------------------


#: Ipc and net namespaces of ranks, their machines, how often: ranks (the first two), own kinds, namespaces and count.
CONFINEMENTS: dict[str, tuple[list[tuple[int, int]], str, int, list[tuple[Any, ...]]]] = {
    "up to 64 ranks differ by their numbers": (
        [(1, 7), (2, 7), (1, 7)], "aaa", 1,
        [((0, 2), ("ipc",), {"ipc": 1, "net": 7}, None), ((1,), ("ipc",), {"ipc": 2, "net": 7}, None)]),
    "one has nothing of its own": ([(1, 7)], "a", 1, [((0,), (), {"ipc": 1, "net": 7}, None)]),
    "above 64 a container for each makes one": (
        [(rank, 7) for rank in range(70)], "a" * 70, 1, [((0, 1), ("ipc",), {"net": 7}, 70)]),
    "what all ranks of a machine share is not their own, and of two numbers none is told": (
        [(1, 7), (1, 8)], "ab", 40, [((0, 1), (), {"ipc": 1}, 80)]),
    "machines with and without containers differ": (
        [(1, 7), (2, 8), (3, 9)], "aab", 30,
        [((0, 1), ("ipc", "net"), {}, 60), ((2, 5), (), {"ipc": 3, "net": 9}, 30)]),
}  # fmt: skip


@pytest.mark.parametrize("which", CONFINEMENTS)
def test_confinements(which: str) -> None:
    namespaces, machines, times, expected = CONFINEMENTS[which]
    of_ranks = [msgspec.structs.replace(CONFINED, namespaces={"ipc": ipc, "net": net}) for ipc, net in namespaces]
    confinements = distinct(of_ranks * times, list(machines) * times)
    assert [(one.ranks[:2], one.own, one.namespaces, one.count) for one in confinements] == expected


def test_limits_make_a_difference_on_one_machine() -> None:
    loose, tight = CONFINED, msgspec.structs.replace(CONFINED, memory_limit=1 << 20)
    confinements = distinct((loose, tight, loose), ("here",) * 3)
    assert [(one.ranks, one.memory_limit) for one in confinements] == [((0, 2), loose.memory_limit), ((1,), 1 << 20)]


@pytest.mark.parametrize(("ranks", "named", "count"), [(ALL_RANKS_LIMIT + 1, FIRST_RANKS, ALL_RANKS_LIMIT + 1), (
    ALL_RANKS_LIMIT, ALL_RANKS_LIMIT, None
)])  # fmt: skip
def test_of_many_ranks_the_first_are_named_and_all_counted(ranks: int, named: int, count: int | None) -> None:
    (confinement,) = distinct([CONFINED] * ranks, ("here",) * ranks)
    assert (confinement.ranks, confinement.count) == (tuple(range(named)), count)
    how = method(ranks=on_machines(3, 1))
    assert how.confinement is how.confinement, "once for all records"
    assert [confinement.ranks for confinement in how.confinement] == [(0, 1, 2)]


# Facts ---------------------------------------------------------------------------------------------------------------


def test_rank_0_gets_the_facts_of_all_and_all_measure_as_it_chose() -> None:
    """Crowded machines are found among many."""
    facts = tuple(
        replace(HERE, host=f"c{r}", kernel_id=str(r // 2), clock_id=f"{r // 2} x", cores=frozenset({r % 2}), gpu="GPU",
                container=f"c{r}", confinement=msgspec.structs.replace(CONFINED, namespaces={"ipc": r}))
        for r in range(4)
    )  # fmt: skip
    assert in_world(4, lambda world: facts_of_all(world, facts[world.rank])) == [facts, (), (), ()]
    crowded, plan = on_machines(3, 3, cores=frozenset({0})), Plan(collectives=("bcast",), warmup=7)
    first, *others = in_world(3, lambda world: agreed_method(world, plan, () if world.rank else crowded, False))
    assert (first.align, first.warmup, first.oversubscribed, first.ranks) == ("barrier", 7, True, crowded)
    assert others == [replace(first, ranks=())] * 2
    many = on_machines(20_000, 2, cores=frozenset({0, 1}))
    assert not is_oversubscribed(many)
    assert is_oversubscribed([*many, replace(many[77])])
