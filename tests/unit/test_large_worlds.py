"""What a record says of more ranks than it can name: machines, the slowest ranks, confinements that many have."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from tests.unit.made_measurements import in_world
from tests.unit.made_runs import made_case, made_record, write_run
from tests.unit.test_numbers import BLANK, method

from collbench.cli.analyse import show_command
from collbench.machine.cgroup import FIRST_RANKS, distinct
from collbench.machine.facts import RankFacts, is_oversubscribed, rank_facts
from collbench.run.facts_of_ranks import SLOWEST, facts_of_all, ranks_of
from collbench.run.measure import Gathered, fill_results
from collbench.run.sampling import agreed_method
from collbench.schema import record as records
from collbench.schema.plan import Plan
from collbench.schema.record import Confinement, MachineRanks, SlowRank
from collbench.schema.samples import ALL_RANKS_LIMIT

HERE = rank_facts()
CONFINED = msgspec.structs.replace(HERE.confinement, namespaces={"ipc": 1, "net": 2})


def on_machines(ranks: int, each: int, **fields: Any) -> tuple[RankFacts, ...]:
    """Ranks that fill one machine after the other."""
    return tuple(replace(HERE, host=f"n{r // each}", kernel_id=f"boot {r // each}", **fields) for r in range(ranks))


# Ranks ---------------------------------------------------------------------------------------------------------------


def test_up_to_64_ranks_each_is_named() -> None:
    found = ranks_of([1e-6] * ALL_RANKS_LIMIT, on_machines(ALL_RANKS_LIMIT, 8))
    assert found.p50 == (1e-6,) * ALL_RANKS_LIMIT and len(found.binding) == len(found.container) == ALL_RANKS_LIMIT
    assert (found.gpu, found.machines, found.slowest, found.on_gpus) == ((), (), (), False)


def test_above_64_ranks_machines_and_the_slowest_stand_for_them() -> None:
    medians = [(100 + rank) * 1e-9 for rank in range(66)]
    medians[3] = 5e-6
    found = ranks_of(medians, on_machines(66, 33))
    assert (found.p50, found.binding, found.container, found.gpu) == ((), (), (), ())
    assert [(machine.name, machine.ranks) for machine in found.machines] == [("n0", 33), ("n1", 33)]
    assert found.machines[0].p50 == pytest.approx((100e-9, 109e-9, 117e-9, 125e-9, 5e-6))
    assert found.machines[1].p50 == pytest.approx((133e-9, 141e-9, 149e-9, 157e-9, 165e-9))
    assert [(slow.rank, slow.host) for slow in found.slowest] == [
        (3, "n0"), (65, "n1"), (64, "n1"), (63, "n1"), (62, "n1")
    ]  # fmt: skip
    assert found.slowest[0].p50 == 5e-6 and len(found.slowest) == SLOWEST


def test_each_rank_names_its_host_and_the_hardware_threads_of_its_cores() -> None:
    found = ranks_of([1e-6] * 4, on_machines(4, 2, cores=frozenset({0}), siblings=((0, 8),)))
    assert (found.host, found.siblings) == (("n0", "n0", "n1", "n1"), ("0,8",) * 4)
    assert ranks_of([1e-6] * 4, on_machines(4, 2, siblings=())).siblings == ()


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
        assert "n3 in 2, n0 in 1" in line if name == "launches" else "n3 in 1" in line
        assert "n3 took up to 4.00 times" in line
        table = CliRunner().invoke(show_command, [str(run), "--style", "csv"]).stdout
        assert next(csv.DictReader(io.StringIO(table)))["rank_hosts"] == "n0 x 33; n1 x 33; n2 x 33; n3 x 33"


def test_ranks_that_are_scattered_over_machines_belong_to_theirs() -> None:
    """A container for each rank has a hostname of its own, and is on one of two machines."""
    facts = tuple(replace(HERE, host=f"c{r}", kernel_id=str(r % 2), gpu=f"GPU-{r // 4}") for r in range(80))
    found = ranks_of([r % 2 * 1e-6 + 1e-6 for r in range(80)], facts)
    assert found.machines == (
        MachineRanks(name="c0", ranks=40, p50=(1e-6,) * 5, gpus=20),
        MachineRanks(name="c1", ranks=40, p50=(2e-6,) * 5, gpus=20),
    )
    assert found.slowest[0] == SlowRank(rank=1, p50=2e-6, host="c1"), "of equal ones the first"
    assert found.on_gpus


def test_a_record_of_a_large_world_is_read_as_it_was_written() -> None:
    taken = np.array([[2000, -1, 3000]])
    how = method(ranks=on_machines(100, 10))
    record, matrix = fill_results(BLANK, Gathered(taken, taken, [1000.5] * 100), ("",), how)
    assert matrix is taken
    assert record.samples is not None and (record.samples.n, record.samples.invalid) == (3, 1)
    assert record.ranks is not None and len(record.ranks.machines) == 10
    ok = msgspec.structs.replace(record, work=records.Work(amount=1))
    assert records.decode(records.encode(ok)) == ok
    assert len(records.encode(ok)) < 3000


def test_without_a_sample_in_time_no_rank_has_a_median() -> None:
    record, _ = fill_results(BLANK, Gathered(np.array([[-5]]), np.array([[5]]), []), ("",), method())
    assert (record.status, record.ranks) == ("failed", None)


# Confinement ---------------------------------------------------------------------------------------------------------


def in_spaces(*numbers: tuple[int, int], times: int = 1) -> list[Confinement]:
    """Confinements by their ipc and net namespaces."""
    return [msgspec.structs.replace(CONFINED, namespaces={"ipc": ipc, "net": net}) for ipc, net in numbers * times]


def machines(names: str, times: int = 1) -> list[str]:
    return list(names) * times


def test_up_to_64_ranks_confinements_differ_by_their_numbers() -> None:
    found = distinct(in_spaces((1, 7), (2, 7), (1, 7)), machines("aaa"))
    assert [(one.ranks, one.own, one.namespaces, one.count) for one in found] == [
        ((0, 2), ("ipc",), {"ipc": 1, "net": 7}, None), ((1,), ("ipc",), {"ipc": 2, "net": 7}, None)
    ]  # fmt: skip
    (alone,) = distinct(in_spaces((1, 7)), machines("a"))
    assert (alone.own, alone.namespaces) == ((), {"ipc": 1, "net": 7})


def test_above_64_ranks_a_container_for_each_makes_one_confinement() -> None:
    (found,) = distinct(in_spaces(*((rank, 7) for rank in range(70))), machines("a", 70))
    assert (found.own, found.namespaces, found.count) == (("ipc",), {"net": 7}, 70)


def test_a_namespace_that_all_ranks_of_a_machine_share_is_not_their_own() -> None:
    """On the other machine it has another number, and none is told."""
    (found,) = distinct(in_spaces((1, 7), (1, 8), times=40), machines("ab", 40))
    assert (found.own, found.namespaces, found.count) == ((), {"ipc": 1}, 80)


def test_machines_with_and_without_containers_differ() -> None:
    found = distinct(in_spaces((1, 7), (2, 8), (3, 9), times=30), machines("aab", 30))
    assert [(one.ranks[:2], one.own, one.namespaces, one.count) for one in found] == [
        ((0, 1), ("ipc", "net"), {}, 60), ((2, 5), (), {"ipc": 3, "net": 9}, 30)
    ]  # fmt: skip


def test_limits_make_a_difference_on_one_machine() -> None:
    loose, tight = CONFINED, msgspec.structs.replace(CONFINED, memory_limit=1 << 20)
    found = distinct((loose, tight, loose), ("here",) * 3)
    assert [(one.ranks, one.memory_limit) for one in found] == [((0, 2), loose.memory_limit), ((1,), 1 << 20)]


def test_of_many_ranks_the_first_are_named_and_all_counted() -> None:
    many = ALL_RANKS_LIMIT + 1
    (found,) = distinct([CONFINED] * many, ("here",) * many)
    assert (found.ranks, found.count) == (tuple(range(FIRST_RANKS)), many)
    (found,) = distinct([CONFINED] * ALL_RANKS_LIMIT, ("here",) * ALL_RANKS_LIMIT)
    assert (found.ranks, found.count) == (tuple(range(ALL_RANKS_LIMIT)), None)


def test_it_is_found_once_for_all_records() -> None:
    how = method(ranks=on_machines(3, 1))
    assert how.confinement is how.confinement
    assert [one.ranks for one in how.confinement] == [(0, 1, 2)]


# Facts ---------------------------------------------------------------------------------------------------------------


def test_rank_0_gets_the_facts_of_all() -> None:
    facts = tuple(
        replace(HERE, host=f"c{r}", kernel_id=str(r // 2), clock_id=f"{r // 2} x", cores=frozenset({r % 2}), gpu="GPU",
                container=f"c{r}", confinement=msgspec.structs.replace(CONFINED, namespaces={"ipc": r}))
        for r in range(4)
    )  # fmt: skip
    found, *others = in_world(4, lambda world: facts_of_all(world, facts[world.rank]))
    assert found == facts
    assert others == [()] * 3


def test_all_ranks_measure_as_rank_0_chose_and_it_alone_has_the_facts() -> None:
    crowded, plan = on_machines(3, 3, cores=frozenset({0})), Plan(collectives=("bcast",), warmup=7)
    first, *others = in_world(3, lambda world: agreed_method(world, plan, () if world.rank else crowded, False))
    assert (first.gate, first.warmup, first.oversubscribed, first.ranks) == ("barrier", 7, True, crowded)
    assert others == [replace(first, ranks=())] * 2


def test_crowded_machines_are_found_among_many() -> None:
    facts = list(on_machines(20_000, 2, cores=frozenset({0, 1})))
    assert not is_oversubscribed(facts)
    assert is_oversubscribed([*facts, replace(facts[77])])
