"""What is said of the GPUs of a run beside the numbers: shared ones, cramped ranks, states before and after."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.unit.made_pairs import Pair

from collbench.machine.facts import RankFacts, rank_facts
from collbench.run import facts_of_ranks
from collbench.schema.record import GpuState, Reading


def ranks(*found: tuple[str, str | None, int]) -> list[RankFacts]:
    """(machine, GPU, cores) of each."""
    mine = rank_facts()
    return [
        dataclasses.replace(mine, kernel_id=machine, gpu=gpu, cores=frozenset(range(cores)))
        for machine, gpu, cores in found
    ]


def test_a_gpu_is_shared_on_one_machine_only() -> None:
    assert facts_of_ranks.is_shared(ranks(("a", "GPU-0", 4), ("a", "GPU-0", 4)))
    assert not facts_of_ranks.is_shared(ranks(("a", "GPU-0", 4), ("b", "GPU-0", 4)))
    assert not facts_of_ranks.is_shared(ranks(("a", None, 4), ("a", None, 4), ("a", "GPU-0", 4)))


def test_a_rank_with_a_gpu_and_one_core_is_named() -> None:
    assert facts_of_ranks.cramped(ranks(("a", "GPU-0", 2), ("a", None, 1))) == ()
    (note,) = facts_of_ranks.cramped(ranks(("a", "GPU-0", 1), ("a", None, 1), ("a", "GPU-1", 1)))
    assert note.startswith("ranks 0, 2: one core for the call")
    (note,) = facts_of_ranks.cramped(ranks(("a", "GPU-0", 2), ("a", "GPU-1", 1)))
    assert note.startswith("rank 1: one core for the call")


def test_of_many_cramped_ranks_some_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_of_ranks, "MOST_NAMED", 2)
    (note,) = facts_of_ranks.cramped(ranks(*(("a", f"GPU-{n}", 1) for n in range(5))))
    assert note.startswith("ranks 0, 1 and 3 more: one core for the call")
    (note,) = facts_of_ranks.cramped(ranks(*(("a", f"GPU-{n}", 1) for n in range(2))))
    assert note.startswith("ranks 0, 1: one core for the call")


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
