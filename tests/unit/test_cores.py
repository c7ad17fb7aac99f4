"""Cores that ranks share: how many threads each has, and what a record says of it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit import made_measurements
from tests.unit.made_programs import PLAN, row_with, shell

from collbench import workloads
from collbench.backends.fake import FakeWorld, Hub, run_ranks
from collbench.machine.facts import RankFacts, parse_cores, rank_facts
from collbench.run import facts_of_ranks
from collbench.run.expand import program_cases
from collbench.run.failures import Unwatched
from collbench.run.program import measure_program
from collbench.run.sampling import choose_method
from collbench.run.worlds_of_programs import AloneWorld, Peers
from collbench.schema.case import case_of
from collbench.schema.record import Record
from collbench.workloads.program import threads_of_rank


def ranks(*where: str) -> tuple[RankFacts, ...]:
    """`a:0-3` is a rank on machine a that may use cores 0 to 3."""
    split = (one.split(":") for one in where)
    return tuple(replace(rank_facts(), kernel_id=machine, cores=parse_cores(own)) for machine, own in split)


@pytest.mark.parametrize(
    ("where", "threads"),
    [
        (("a:0-3",), (4,)),
        (("a:0-1", "a:2-3"), (2, 2)),
        (("a:0-3", "a:0-3"), (2, 2)),
        (("a:0-3", "b:0-3"), (4, 4)),
        (("a:0-1", "a:0-1", "a:0-1"), (1, 1, 1)),
        (("a:0-3", "a:0"), (2, 1)),
        (("a:0-6", "a:0-6"), (3, 3)),
    ],
)
def test_cores_are_divided_among_the_ranks_of_a_machine_that_may_use_them(
    where: tuple[str, ...], threads: tuple[int, ...]
) -> None:
    world = ranks(*where)
    assert tuple(facts_of_ranks.threads_of(world, number) for number in range(len(world))) == threads


def test_shared_cores_are_told_where_there_are_enough_for_all() -> None:
    assert facts_of_ranks.notes(ranks("a:0-3", "a:0-3")) == (
        "ranks 0-1 share cores 0-3, because their launcher binds none: each has 2 threads (threads=0)",
    )
    assert (
        facts_of_ranks.notes(ranks("a:0-1", "a:2-3"))
        == facts_of_ranks.notes(ranks("a:0", "b:0"))
        == facts_of_ranks.notes(ranks("a:0-1"))
        == ()
    )
    assert facts_of_ranks.notes(ranks("a:0", "a:0")) == (), "records say otherwise that there are more ranks than cores"


def test_ranks_on_hardware_threads_of_one_core_are_a_note() -> None:
    pair = tuple(replace(rank, siblings=((0, 1),)) for rank in ranks("a:0", "a:1"))
    (note,) = facts_of_ranks.siblings(pair)
    assert note.startswith("ranks 0 and 1 share core 0 (threads 0, 1) of ")
    assert [facts_of_ranks.threads_of(pair, number) for number in range(2)] == [1, 1]
    assert (
        facts_of_ranks.siblings(tuple(replace(rank, siblings=((0, 2), (1, 3))) for rank in ranks("a:0", "a:1"))) == ()
    )
    assert facts_of_ranks.siblings(tuple(replace(rank, siblings=((0, 1),)) for rank in ranks("a:0-1", "a:0-1"))) == ()
    assert facts_of_ranks.threads_of(tuple(replace(rank, siblings=((0, 1),)) for rank in ranks("a:0-1")), 0) == 1


@pytest.mark.parametrize("name", ["ddp", "parameter_server"])
def test_threads_that_nobody_asked_for_are_left_to_the_process(name: str) -> None:
    usual: dict[str, Any] = {"network": "fcn5", "batch": 0, "bucket": 0, "device": "cpu", "servers": 1,
                             "shard": "even", "steps": 1, "data": "made-up", "seed": 1}  # fmt: skip
    words = list(workloads.get(name).argv(case_of(name, usual | {"threads": 0, "ranks": 2}), 1))
    assert words[words.index("--threads") + 1] == "0"


def test_a_process_takes_the_threads_that_its_rank_has() -> None:
    told = Peers(AloneWorld(), Unwatched(), threads=3).variables()
    assert threads_of_rank(0, told) == 3
    assert threads_of_rank(2, told) == 2
    assert threads_of_rank(0, {}) >= 1


@pytest.mark.torch
def test_torch_is_given_them(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from collbench.workloads.dl import ddp

    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    ddp.TorchRanks("cpu", 0)
    ddp.TorchRanks("cpu", 2)
    assert asked == [7, 2]


def record_of_rank_0(monkeypatch: pytest.MonkeyPatch, *where: str) -> Record:
    """What a program that says its threads gives on these ranks, each of which is a thread here.

    Of the three samples after the warm-up (ns) the first takes rank 1 the longest, and the second rank 0.
    """
    times = json.dumps({name: [9, 10, 20, 30] for name in ("copy", "scale", "add", "triad")})
    by_rank = times.replace("10, 20", "'$((10 + 50 * RANK))', '$((20 - 15 * RANK))'")
    said = f"""printf '%s' '{{"ns": {by_rank}, "wrong": 0, "notes": ["'$OMP_NUM_THREADS' threads"]}}'"""
    row = replace(row_with(shell(said)), distributed=True)
    monkeypatch.setattr(workloads, "get", lambda name: row)
    world, (case,) = ranks(*where), program_cases(PLAN, len(where))
    method = choose_method(PLAN, world, simulated=False)
    hub, found = Hub(len(where), 20.0), list[Record]()

    def body(rank: int) -> None:
        session: Any = SimpleNamespace(world=FakeWorld(hub, rank), clock=time.monotonic_ns, failures=None)
        measured = measure_program(case, PLAN, session, method, Unwatched())
        if rank == 0:
            found.append(measured[0][0])

    run_ranks(hub, body, 20.0)
    return found[0]


def test_a_sample_is_the_time_of_the_slowest_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    record = record_of_rank_0(monkeypatch, "a:0-7", "a:8-15")
    assert record.seconds is not None and record.ranks is not None
    assert [record.seconds.min, record.seconds.p50, record.seconds.max] == pytest.approx([20e-9, 30e-9, 60e-9])
    assert record.ranks.p50 == pytest.approx((20e-9, 30e-9))


def test_a_record_says_that_its_ranks_shared_cores_and_each_had_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = record_of_rank_0(monkeypatch, "a:0-7", "a:0-7")
    assert shared.status == "ok", shared.reason
    assert "4 threads" in shared.notes and any(note.startswith("ranks 0-1 share cores 0-7") for note in shared.notes)
    bound = record_of_rank_0(monkeypatch, "a:0-7", "a:8-15")
    assert "8 threads" in bound.notes and not any("share" in note for note in bound.notes)


def test_siblings_are_looked_for_once_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def siblings(of: Sequence[RankFacts]) -> tuple[str, ...]:
        asked.append(len(of))
        return ("said",)

    monkeypatch.setattr(facts_of_ranks, "siblings", siblings)
    method = made_measurements.method()
    assert [method.siblings for _ in range(3)] == [("said",)] * 3
    assert asked == [len(method.ranks)]
