"""How long an experiment takes, as far as that can be told before anything starts."""

from __future__ import annotations

from collbench import workloads
from collbench.collectives.case import CollectiveCase
from collbench.launch import engines
from collbench.launch.expansion import ExpandedPlan
from collbench.schema.plan import Plan
from collbench.units import counted, format_long
from collbench.workloads.case import ProgramCase

#: Checks and warm-up of a case of a collective, and the start of a program with its steps beside it (s).
CASE, EXECUTION = 0.05, 0.5


def about(expanded: ExpandedPlan) -> str:
    """The estimated duration of an experiment; with a fixed number of samples, without those that tell no time."""
    plan = expanded.plan
    estimate = f"about {format_long(seconds_of(expanded))}"
    cases = [case for cases in expanded.cases.values() for case in cases]
    untold = dict.fromkeys(_name(case) for case in cases if not _tells(case, plan))
    if not untold:
        return estimate
    samples = f"{counted(plan.iters or plan.floor, 'sample')} of each measurement"
    if len(untold) == len({_name(case) for case in cases}):
        return f"{estimate} to start worlds, and {samples}"
    return f"{estimate}, and {samples} of {', '.join(untold)}"


def seconds_of(expanded: ExpandedPlan) -> float:
    """The estimated duration of an experiment (s); samples that tell no time take none."""
    total = 0.0
    for cell, placement in expanded.placements.items():
        first, more = engines.get(cell.engine).start_seconds
        start = first + more * (len(placement.boxes) - 1)
        total += expanded.plan.launches * (start + sum(_seconds(case, expanded.plan) for case in expanded.cases[cell]))
    return total


def _name(case: CollectiveCase | ProgramCase) -> str:
    return case.case.workload if isinstance(case, ProgramCase) else case.collective


def _tells(case: CollectiveCase | ProgramCase, plan: Plan) -> bool:
    """Whether the parameters of a case, or the plan's budget, say how long its samples take."""
    return plan.iters is None or (
        isinstance(case, ProgramCase) and workloads.get(case.case.workload).seconds(case.case) > 0.0
    )


def _seconds(case: CollectiveCase | ProgramCase, plan: Plan) -> float:
    budget = plan.budget_seconds if plan.iters is None else 0.0
    if not isinstance(case, ProgramCase):
        return budget + CASE
    program = workloads.get(case.case.workload)
    executions = plan.warmup + (plan.iters or plan.floor) if program.repeated and not program.once else 1
    return max(executions * (program.seconds(case.case) + EXECUTION), budget)
