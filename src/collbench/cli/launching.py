"""What `launch` and `plan` say of a launch plan before anything starts: how much, and how long."""

from __future__ import annotations

import click

from collbench.analysis.planning import fewest_launches
from collbench.characters import in_one_line
from collbench.cli.terminal import harmless
from collbench.launch import engines
from collbench.launch.cells import LaunchCell
from collbench.launch.expansion import ExpandedPlan
from collbench.units import counted, format_long

#: Checks and warm-up of a case (s).
CASE = 0.05


def about(expanded: ExpandedPlan) -> str:
    """An estimate of an experiment's length; with a fixed number of samples, of its starts alone."""
    plan = expanded.plan
    if plan.iters is None:
        return f"about {format_long(seconds_of(expanded, plan.budget_seconds))}"
    starts = seconds_of(expanded, 1e-3)
    return f"about {format_long(starts)} of starts, and {plan.iters} samples of each measurement"


def seconds_of(expanded: ExpandedPlan, budget: float) -> float:
    """An estimate of an experiment's length (s), where a budget (s) for each case decides."""
    total = 0.0
    for cell, placement in expanded.placements.items():
        first, more = engines.get(cell.engine).start_seconds
        start = first + more * (len(placement.boxes) - 1)
        total += expanded.plan.launches * (start + len(expanded.asked[cell]) * (budget + CASE))
    return total


def undecidable(expanded: ExpandedPlan) -> str | None:
    """What so many launches cannot tell of the plan's cells, in a sentence; None where they can."""
    plan, compared = expanded.plan, comparisons(expanded)
    needed = fewest_launches(compared)
    if not compared or plan.launches >= needed:
        return None
    if plan.launches == 1:
        return f"one launch describes and decides nothing: {compared} comparisons take launches = {needed}"
    return (f"{plan.launches} launches cannot tell a difference in one alone of {compared} comparisons, however large "
            f"it is: launches = {needed} can")  # fmt: skip


def comparisons(expanded: ExpandedPlan) -> int:
    """How many cells `compare --by policy` holds against another, or --by image where that is more."""
    questions: list[dict[tuple[object, ...], list[LaunchCell]]] = [{}, {}]
    for cell in expanded.cells:
        questions[0].setdefault((cell.image, cell.ranks, cell.server), []).append(cell)
        questions[1].setdefault((cell.policy, cell.isolation, cell.affinity, cell.ranks, cell.server), []).append(cell)
    return max(sum(len(expanded.asked[cell]) for group in found.values() for cell in group[1:]) for found in questions)


def show_cells(expanded: ExpandedPlan, differences: tuple[str, ...] = ()) -> None:
    """A line of numbers, and how the two sides differ in anything but the container."""
    plan, cells, launches = expanded.plan, len(expanded.cells), len(expanded.order)
    cases = sum(len(cases) for cases in expanded.asked.values()) * plan.launches
    title = in_one_line(plan.title or "launch")
    product = f"{counted(cells, 'cell')} x {counted(plan.launches, 'launch', 'launches')}"
    results = f"{counted(launches, 'start')}, {counted(cases, 'measurement')}"
    click.echo(f"# {title}: {product} = {results}, {about(expanded)}", err=True)
    said = undecidable(expanded)
    if said is not None:
        click.echo(f"# {said}", err=True)
    noted = dict.fromkeys(placement.note for placement in expanded.placements.values() if placement.note)
    for line in (*noted, *differences):
        click.echo(harmless(f"# {line}"), err=True)
