"""How a run is measured: which gate and clock fit the machine, and what the plan says of samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from collbench.machine.facts import RankFacts, rank_facts
from collbench.run.sampling import SIMULATED_CAP, Budget, Fixed, Method, choose_method
from collbench.schema.plan import Plan

ONE = replace(rank_facts(), cores=frozenset({0, 1}))
TWO_RANKS = (ONE, ONE)
TWO_CLOCKS = (ONE, replace(ONE, clock_id="another boot"))
TWO_MACHINES = (ONE, replace(ONE, clock_id="another boot", kernel_id="another"))
CROWDED = (ONE, ONE, ONE)


def chosen(ranks: Sequence[RankFacts] = TWO_RANKS, simulated: bool = False, **fields: object) -> Method:
    return choose_method(Plan(collectives=("bcast",), **fields), tuple(ranks), simulated)


@pytest.mark.parametrize(
    ("ranks", "gate", "clock", "oversubscribed"),
    [
        (TWO_RANKS, "roundtime", "common", False),
        (TWO_CLOCKS, "barrier", "local", False),
        (TWO_MACHINES, "barrier", "local", False),
        (CROWDED, "barrier", "common", True),
    ],
)
def test_the_gate_fits_the_machine(ranks: tuple[RankFacts, ...], gate: str, clock: str, oversubscribed: bool) -> None:
    """A common start needs one clock, and ranks that run at the same time."""
    found = chosen(ranks)
    assert (found.gate, found.clock, found.oversubscribed) == (gate, clock, oversubscribed)
    assert found.gate_may_change
    assert found.ranks == ranks


@pytest.mark.parametrize("gate", ["roundtime", "barrier", "none"])
@pytest.mark.parametrize("ranks", [TWO_RANKS, CROWDED, TWO_CLOCKS])
def test_a_gate_that_is_asked_for_is_taken(gate: str, ranks: tuple[RankFacts, ...]) -> None:
    found = chosen(ranks, gate=gate)
    assert (found.gate, found.gate_may_change) == (gate, False)


def test_simulated_ranks_need_no_cores() -> None:
    found = chosen(CROWDED, simulated=True)
    assert (found.gate, found.oversubscribed) == ("roundtime", False)


@pytest.mark.parametrize(
    ("floor", "cap", "simulated", "most"),
    [(20, 500, False, 500), (20, 500, True, SIMULATED_CAP), (20, 25, True, 25), (40, 500, True, 40)],
)
def test_a_budget_has_a_floor_and_a_cap(floor: int, cap: int, simulated: bool, most: int) -> None:
    """Simulated samples are few, but never fewer than the floor."""
    found = chosen(simulated=simulated, floor=floor, cap=cap, budget="0.5s")
    assert found.stop == Budget(0.5, floor, most)


@pytest.mark.parametrize("simulated", [False, True])
def test_a_fixed_number_of_samples_has_no_budget(simulated: bool) -> None:
    assert chosen(simulated=simulated, iters=1000).stop == Fixed(1000)


def test_the_rest_is_as_planned() -> None:
    found = chosen(warmup=7, check=3, cadence="streaming", burst=9, cudagraph=4)
    assert (found.warmup, found.check, found.cadence, found.burst, found.launches) == (7, 3, "streaming", 9, 4)
    assert chosen().cadence == "isolated"
