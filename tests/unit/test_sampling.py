"""What ranks agree on between two batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.made_pairs import Pair

from collbench.run.sampling import MOST_DISPLACEMENTS, Decision, Fixed, Sampling
from collbench.schema.case import Gate
from collbench.timing.call import Signals
from collbench.timing.loop import GateSetting

WATCH: Any = SimpleNamespace(stopped=None)


def sampling(
    gate: Gate,
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
    method: Any = SimpleNamespace(stop=Fixed(100), oversubscribed=oversubscribed, gate_may_change=False)
    form: Any = SimpleNamespace(session=session)
    return Sampling(form, method, GateSetting(gate, signals), [])


def displacements(batches: int, gate: Gate, **how: Any) -> list[int]:
    """How often rank 0 announces before each batch."""
    counts = []
    for _ in range(batches):
        announced: list[None] = []
        assert sampling(gate, announced, **how).agree(WATCH) == 10
        counts.append(len(announced))
    return counts


def test_behind_a_barrier_chance_decides_how_many_messages_went_before() -> None:
    counts = displacements(300, "barrier")
    assert len(set(counts)) > 60
    assert {number % 2 for number in counts} == {0, 1}
    assert max(counts) < MOST_DISPLACEMENTS


@pytest.mark.parametrize(
    ("gate", "how"),
    [("none", {}), ("roundtime", {}), ("barrier", {"oversubscribed": True}), ("barrier", {"clock": lambda: 0})],
    ids=["no gate", "another gate", "ranks that share a core", "times that are made up"],
)
def test_no_messages_go_before_other_gates_nor_where_they_would_disturb(gate: Gate, how: dict[str, Any]) -> None:
    assert displacements(20, gate, **how) == [0] * 20


def test_all_ranks_do_what_rank_0_says() -> None:
    announced: list[None] = []
    decision = Decision(10, 0, "barrier", stop=False, displacements=5)
    assert sampling("barrier", announced, decision=decision).agree(WATCH) == 10
    assert len(announced) == 5
