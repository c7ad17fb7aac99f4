"""What `launch` and `plan` say of a launch plan before anything starts: how much, and how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import click

from collbench.analysis.planning import fewest_launches
from collbench.characters import in_one_line
from collbench.cli.terminal import harmless
from collbench.launch.cells import LaunchCell, cases_in
from collbench.launch.placing import Placement, placements_of
from collbench.machine.topology import Topology
from collbench.schema.launch_plan import LaunchPlan
from collbench.units import counted, format_long

#: What a start costs besides measuring, in s (seen with Docker Engine 20.10 on two cores): host, containers, one more.
START_HOST, START_BOX, START_MORE = 0.7, 1.0, 0.4
#: Checks and warm-up of a case (s).
CASE = 0.05


@dataclass(frozen=True)
class Extent:
    """What a plan comes to on a machine: its cells, where their ranks sit, and how many cases each measures."""

    plan: LaunchPlan
    placements: Mapping[LaunchCell, Placement]
    cases: Mapping[LaunchCell, int]


def extent_of(plan: LaunchPlan, machine: Topology) -> Extent:
    """Of a plan on a machine; raises `PlanError` as `placements_of` and `cases_in` do."""
    placements = placements_of(plan, machine)
    cases = {cell: sum(len(case.identities) for case in cases_in(plan, cell)) for cell in placements}
    return Extent(plan, placements, cases)


def about(extent: Extent) -> str:
    """An estimate of an experiment's length; with a fixed number of samples, of its starts alone."""
    plan = extent.plan
    if plan.iters is None:
        return f"about {format_long(seconds_of(extent, plan.budget_seconds))}"
    starts = seconds_of(extent, 1e-3)
    return f"about {format_long(starts)} of starts, and {plan.iters} samples of each measurement"


def seconds_of(extent: Extent, budget: float) -> float:
    """An estimate of an experiment's length, where a budget (s for each case) decides."""
    total = 0.0
    for cell, placement in extent.placements.items():
        start = START_BOX + START_MORE * (placement.containers - 1) if placement.in_containers else START_HOST
        total += extent.plan.launches * (start + extent.cases[cell] * (budget + CASE))
    return total


def undecidable(extent: Extent) -> str | None:
    """What so many launches cannot tell of the plan's cells, in a sentence; None where they can."""
    plan, compared = extent.plan, comparisons(extent)
    needed = fewest_launches(compared)
    if not compared or plan.launches >= needed:
        return None
    if plan.launches == 1:
        return f"one launch describes and decides nothing: {compared} comparisons take launches = {needed}"
    return (f"{plan.launches} launches cannot tell a difference in one alone of {compared} comparisons, however large "
            f"it is: launches = {needed} can")  # fmt: skip


def comparisons(extent: Extent) -> int:
    """How many cells `compare --by policy` holds against another, or --by image where that is more."""
    questions: list[dict[tuple[object, ...], list[LaunchCell]]] = [{}, {}]
    for cell in extent.cases:
        questions[0].setdefault((cell.image, cell.ranks, cell.server), []).append(cell)
        questions[1].setdefault((cell.policy, cell.isolation, cell.affinity, cell.ranks, cell.server), []).append(cell)
    return max(sum(extent.cases[cell] for group in found.values() for cell in group[1:]) for found in questions)


def show_cells(extent: Extent, differences: tuple[str, ...] = ()) -> None:
    """A line of numbers, what policies note, and how the two sides differ in anything but the container."""
    plan, cells = extent.plan, len(extent.cases)
    launches, cases = cells * plan.launches, sum(extent.cases.values()) * plan.launches
    title = in_one_line(plan.title or "launch")
    product = f"{counted(cells, 'cell')} x {counted(plan.launches, 'launch', 'launches')}"
    results = f"{counted(launches, 'start')}, {counted(cases, 'measurement')}"
    click.echo(f"# {title}: {product} = {results}, {about(extent)}", err=True)
    said = undecidable(extent)
    if said is not None:
        click.echo(f"# {said}", err=True)
    noted = dict.fromkeys(placement.note for placement in extent.placements.values() if placement.note)
    for line in (*noted, *differences):
        click.echo(harmless(f"# {line}"), err=True)
