"""What `launch` and `plan` say of a launch plan before anything starts: how much, and how long."""

from __future__ import annotations

import click
import msgspec

from collbench.analysis.planning import fewest_launches
from collbench.characters import in_one_line
from collbench.cli.terminal import harmless
from collbench.launch.campaign import placements_of
from collbench.launch.cells import LaunchCell, cases_in, cells_of, order_of
from collbench.machine import topology
from collbench.schema.launch_plan import LaunchPlan
from collbench.units import counted, format_long

#: What a start costs besides measuring, in s (seen with Docker Engine 20.10 on two cores): host, containers, one more.
START_HOST, START_BOX, START_MORE = 0.7, 1.0, 0.4
#: Checks and warm-up of a case (s).
CASE = 0.05


def about(plan: LaunchPlan) -> str:
    """An estimate of an experiment's length; with a fixed number of samples, of its starts alone."""
    if plan.iters is None:
        return f"about {format_long(seconds_of(plan))}"
    starts = seconds_of(msgspec.structs.replace(plan, budget=1e-3))
    return f"about {format_long(starts)} of starts, and {plan.iters} samples of each measurement"


def seconds_of(plan: LaunchPlan) -> float:
    """An estimate of an experiment's length, where a budget decides."""
    total = 0.0
    for cell, placement in placements_of(plan, topology.here()).items():
        boxes = len(placement.boxes)
        start = START_HOST if cell.isolation is None else START_BOX + START_MORE * (boxes - 1)
        total += plan.launches * (start + len(cases_in(plan, cell)) * (plan.budget_seconds + CASE))
    return total


def undecidable(plan: LaunchPlan) -> str | None:
    """What so many launches cannot tell of the plan's cells, in a sentence; None where they can."""
    compared = comparisons(plan)
    needed = fewest_launches(compared)
    if not compared or plan.launches >= needed:
        return None
    if plan.launches == 1:
        return f"one launch describes and decides nothing: {compared} comparisons take launches = {needed}"
    return (f"{plan.launches} launches cannot tell a difference in one alone of {compared} comparisons, however large "
            f"it is: launches = {needed} can")  # fmt: skip


def comparisons(plan: LaunchPlan) -> int:
    """How many cells `compare --by policy` holds against another, or --by image where that is more."""
    questions: list[dict[tuple[object, ...], list[LaunchCell]]] = [{}, {}]
    for cell in cells_of(plan):
        questions[0].setdefault((cell.image, cell.ranks, cell.server), []).append(cell)
        questions[1].setdefault((cell.policy, cell.isolation, cell.affinity, cell.ranks, cell.server), []).append(cell)
    return max(sum(len(cases_in(plan, cell)) for group in found.values() for cell in group[1:]) for found in questions)


def show_cells(plan: LaunchPlan, differences: tuple[str, ...] = ()) -> None:
    """A line of numbers, and how the two sides differ in anything but the container."""
    cells, launches = len(cells_of(plan)), len(order_of(plan))
    cases = sum(len(cases_in(plan, cell)) for cell in cells_of(plan)) * plan.launches
    title = in_one_line(plan.title or "launch")
    product = f"{counted(cells, 'cell')} x {counted(plan.launches, 'launch', 'launches')}"
    results = f"{counted(launches, 'start')}, {counted(cases, 'measurement')}"
    click.echo(f"# {title}: {product} = {results}, {about(plan)}", err=True)
    said = undecidable(plan)
    if said is not None:
        click.echo(f"# {said}", err=True)
    for line in differences:
        click.echo(harmless(f"# {line}"), err=True)
