"""Collectives through the fake backend: right, skipped for a known reason, and corrupted results found."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from collbench import collectives
from collbench.bindings.spec import WorldSettings
from collbench.collectives.row import fold
from collbench.run.experiment import perform, plan_experiment
from collbench.schema.axes import DTYPES, OPS, Op
from collbench.schema.manifest import Manifest
from collbench.schema.plan import Plan
from collbench.schema.record import Record
from tests.contract.oracle import ORACLE


class Kept:
    """A sink that keeps everything in memory."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.samples: list[NDArray[Any] | None] = []
        self.manifest: Manifest | None = None

    def begin(self, manifest: Manifest, cases: int) -> None:
        self.manifest = manifest

    def add(self, record: Record, samples: NDArray[Any] | None) -> None:
        self.records.append(record)
        self.samples.append(samples)

    def doing(self, what: str) -> None:
        """Kept no longer than it takes."""

    def saved(self) -> str:
        return ""

    def rescue(self) -> str:
        return ""


#: Ranks for which every dtype is tried, at one size; the others take a narrow and a wide one, at two.
EVERY_DTYPE = 5


def measured(plan: Plan, ranks: int, fault: str | None = None) -> Kept:
    kept = Kept()
    options = WorldSettings(timeout=60.0, ranks=ranks, fault=fault)
    perform(plan_experiment(plan, options, ("test",)), kept)
    return kept


def plan_for(name: str, ranks: int) -> Plan:
    return Plan(
        collectives=(name,),
        backends=("fake",),
        drivers=("python",),
        dtypes=("all",) if ranks == EVERY_DTYPE else ("int8", "float32"),
        ops=("all",),
        roots=tuple({0, ranks - 1}),
        sizes=("4100",) if ranks == EVERY_DTYPE else ("8", "4100"),
        in_place=(False, True),
        iters=2,
        warmup=1,
    )


@pytest.mark.parametrize(
    "ranks", [1, 2, pytest.param(3, marks=pytest.mark.slow), pytest.param(EVERY_DTYPE, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", collectives.names())
def test_every_case_is_right_or_skipped_for_a_known_reason(name: str, ranks: int) -> None:
    row = collectives.get(name)
    kept = measured(plan_for(name, ranks), ranks)
    assert kept.records
    for record in kept.records:
        if ranks < row.min_ranks:
            assert record.status == "skipped"
            assert (record.reason or "").startswith(name) and f" {row.min_ranks} ranks" in (record.reason or "")
            continue
        assert record.status == "ok", record
        assert record.check is not None and record.check.wrong == 0
        assert record.samples is not None and record.samples.n == 2
    if row.moves_data and ranks == EVERY_DTYPE:
        assert {record.case["dtype"] for record in kept.records} == set(DTYPES)


@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("name", collectives.names())
def test_a_corrupted_result_fails_the_case(name: str, rank: int, at: int) -> None:
    plan = Plan(collectives=(name,), backends=("fake",), drivers=("python",), sizes=("4096",), iters=3, warmup=0)
    receives = collectives.get(name).blocks(rank, 3, 0).recv > 0
    (record,) = measured(plan, 3, f"corrupt:{rank}@{at}").records
    if not receives and collectives.get(name).moves_data:
        assert record.status == "ok", "a rank that receives nothing has nothing to corrupt"
    else:
        assert record.status == "failed"
        assert f" {'before' if at == 0 else 'after'} timing" in (record.reason or "")


@pytest.mark.parametrize(("name", "wrong"), [("gather", "rank 2: 1 of 1020"), ("bcast", "rank 2: 1 of 1024")])
def test_a_wrong_result_names_the_rank_and_its_elements(name: str, wrong: str) -> None:
    """4096 bytes of float32: 1024 elements, of which a gather takes 340 from each of three ranks."""
    plan = Plan(
        collectives=(name,), backends=("fake",), drivers=("python",), sizes=("4096",), iters=3,
        roots=(2 if name == "gather" else 0,),
    )  # fmt: skip
    (record,) = measured(plan, 3, "corrupt:2@0").records
    assert f"before timing: {wrong} " in (record.reason or "")
    assert record.check is not None and record.check.wrong == 1


def test_the_fake_repeats_itself_exactly() -> None:
    plan = Plan(collectives=("allreduce",), backends=("fake",), drivers=("python",), sizes=("8", "4096"), iters=30)
    first, second = measured(plan, 4), measured(plan, 4)
    assert first.records == second.records
    for one, other in zip(first.samples, second.samples, strict=True):
        assert one is not None and other is not None
        assert (one == other).all()


# Every meaning equals the same operation written out on lists, for any ranks, root, reduction and input


def test_there_is_an_oracle_for_every_collective() -> None:
    assert set(ORACLE) == set(collectives.names())


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("name", sorted(ORACLE))
def test_meaning_is_the_oracle(name: str, ranks: int, op: Op) -> None:
    row = collectives.get(name)
    draw = random.Random(f"{name} {ranks} {op}")  # noqa: S311
    for root in range(ranks):
        inputs: list[list[list[float]]] = [
            [[draw.randint(1, 3) for _ in range(7)] for _ in range(row.blocks(rank, ranks, root).send)]
            for rank in range(ranks)
        ]
        arrays = [np.array(mine, np.int64).reshape(len(mine), 7) for mine in inputs]
        if ranks < row.min_ranks:
            continue
        result = [row.meaning(rank, arrays, root, fold(op)) for rank in range(ranks)]
        expected = ORACLE[name](inputs, root, op)
        assert [None if mine is None else mine.tolist() for mine in result] == expected
