"""How the cases of a run are measured, from the plan and from the facts of all ranks, which rank 0 alone has."""

from __future__ import annotations

from dataclasses import replace

from collbench.bindings.spec import World
from collbench.machine.facts import RankFacts, have_common_clock, is_oversubscribed
from collbench.run.host_clocks import HostClocks
from collbench.run.sampling import Method
from collbench.schema.case import GATES, Gate
from collbench.schema.plan import Plan
from collbench.timing.stops import Budget, Fixed, StopRule

#: Most samples within a time budget of a simulation, whose samples take real time that its clock does not show.
SIMULATED_CAP = 30


def agreed_method(
    world: World, plan: Plan, ranks: tuple[RankFacts, ...], simulated: bool, clocks: HostClocks | None = None
) -> Method:
    """The choice of rank 0, on all ranks; without the facts of all ranks on the others. Collective."""
    if world.rank != 0:
        method: Method = world.bcast(None)
        return replace(method, clocks=clocks)
    chosen = choose_method(plan, ranks, simulated, clocks)
    world.bcast(replace(chosen, ranks=(), clocks=None))
    return chosen


def choose_method(
    plan: Plan, ranks: tuple[RankFacts, ...], simulated: bool, clocks: HostClocks | None = None
) -> Method:
    """The gate that fits the machines, and the plan's stop rule. `clocks` are those of hosts that share none."""
    common = have_common_clock(ranks)
    oversubscribed = not simulated and is_oversubscribed(ranks)
    automatic: Gate = "roundtime" if (common or clocks) and not oversubscribed else "barrier"
    cap = max(plan.floor, min(plan.cap, SIMULATED_CAP)) if simulated else plan.cap
    stop: StopRule = Budget(plan.budget_seconds, plan.floor, cap) if plan.iters is None else Fixed(plan.iters)
    return Method(
        gate=next((gate for gate in GATES if gate == plan.gate), automatic),
        gate_may_change=plan.gate == "auto",
        clock="common" if common else "synced" if clocks else "local",
        stop=stop,
        warmup=plan.warmup,
        check=plan.check,
        cadence="streaming" if plan.cadence == "streaming" else "isolated",
        ranks=ranks,
        oversubscribed=oversubscribed,
        burst=plan.burst,
        launches=plan["cudagraph"],
        most=cap if plan.iters is None else plan.iters,
        clocks=clocks,
    )
