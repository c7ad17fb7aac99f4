"""How long an experiment takes, as far as that can be told before anything starts."""

from __future__ import annotations

from collbench import backends, workloads
from collbench.collectives.case import CollectiveCase
from collbench.launch import engines
from collbench.launch.cells import LaunchCell, Part
from collbench.launch.expansion import ExpandedPlan, groups_of
from collbench.schema.plan import LaunchPlan, Plan
from collbench.units import counted, format_long
from collbench.workloads.program import ProgramCase

#: Checks and warm-up of a case of a collective, and the start of a program with its steps beside it (s).
CASE, EXECUTION = 0.05, 0.5

#: In which a process imports torch to start ranks by it, and in which a rank does to meet the others (core seconds).
MEETING = 2.6

#: What an operation is taken to move in a second for each byte of its size, to tell how long a slice of it lasts.
BYTES_PER_SECOND = 1e9


def about(expanded: ExpandedPlan) -> str:
    """The estimated duration of an experiment; with a fixed number of samples, without those that tell no time.

    Nothing bounds it: on a machine that does other things, starts take several times as long as is estimated.
    """
    needed = ", if all launches are needed" if expanded.plan.until == "decided" else ""
    return f"{_about(expanded)}{needed}"


def _about(expanded: ExpandedPlan) -> str:
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


def too_long(expanded: ExpandedPlan) -> str | None:
    """A sentence where the job of a cluster is estimated to end before its last launch; None where it is not."""
    seconds = seconds_of(expanded)
    limit = min((site.seconds for site in expanded.sites if site.seconds is not None), default=None)
    if limit is None or seconds <= limit:
        return None
    return (f"time {format_long(limit)} in the site file: all launches take about {format_long(seconds)}. Raise it, or "
            "go on in another job with launch --resume")  # fmt: skip


def at_most(plan: LaunchPlan) -> str:
    """What stands before the number of launches of a plan that may end before its last one."""
    return "at most " if plan.until == "decided" else ""


def seconds_of(expanded: ExpandedPlan) -> float:
    """The estimated duration of an experiment (s); samples that tell no time take none."""
    first = [launch for launch in expanded.order if launch.number == 0]
    block = sum(seconds_of_launch(expanded, launch.cell, launch.only, group.alone is None)
                for group in groups_of(expanded, first, {}) for launch in group.launches)  # fmt: skip
    return expanded.plan.launches * block


def seconds_of_launch(expanded: ExpandedPlan, cell: LaunchCell, part: Part | None, in_turns: bool) -> float:
    """What a launch adds to the duration of an experiment (s), of which only this `part` is executed.

    `in_turns`: other worlds live beside it.
    """
    placement = expanded.placements[cell]
    first, more = engines.get(cell.engine).start_seconds
    start = first + more * (len(placement.boxes) - 1)
    cases = expanded.cases[cell]
    if part is not None:
        cases = tuple(case for case in cases if any(identity in part.measured for identity in case.identities))
        start += CASE * len(part.brief)
    cores = len({core for slot in placement.slots for core in slot.cores})
    if cell.ranks > 1 and any(map(_meets_by_torch, cases)):
        start += MEETING * (1 + cell.ranks / cores)
    return start + sum(_seconds(case, expanded.plan, cores, in_turns) for case in cases)


def _meets_by_torch(case: CollectiveCase | ProgramCase) -> bool:
    """Whether its ranks, and what starts them, import torch."""
    if isinstance(case, ProgramCase):
        return workloads.get(case.case.workload).distributed
    return "torch" in backends.get(case.backend).packages


def _name(case: CollectiveCase | ProgramCase) -> str:
    return case.case.workload if isinstance(case, ProgramCase) else case.collective


def _tells(case: CollectiveCase | ProgramCase, plan: Plan) -> bool:
    """Whether the parameters of a case, or the plan's budget, say how long its samples take."""
    if plan.iters is None or not isinstance(case, ProgramCase):
        return plan.iters is None
    program = workloads.get(case.case.workload)
    return program.seconds(case.case) + program.computes(case.case, 1) > 0.0


def _seconds(case: CollectiveCase | ProgramCase, plan: LaunchPlan, cores: int, in_turns: bool) -> float:
    budget = plan.budget_seconds if plan.iters is None else 0.0
    if not isinstance(case, ProgramCase):
        in_slices = in_turns and plan.iters is None
        return CASE + (plan.slices.lasts(case.size / BYTES_PER_SECOND) if in_slices else budget)
    program = workloads.get(case.case.workload)
    samples = 1 if program.once else plan.warmup + (plan.iters or plan.floor)
    executions, times = (samples, 1) if program.repeated else (1, samples)
    each = program.seconds(case.case) + program.computes(case.case, times) / cores + EXECUTION
    return max(executions * each, budget)
