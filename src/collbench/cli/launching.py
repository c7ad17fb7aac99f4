"""What `launch` and `plan` say of a launch plan before anything starts: how much, and how long."""

from __future__ import annotations

import click
import msgspec

from collbench.cli.terminal import harmless, in_one_line
from collbench.launch import topology
from collbench.launch.cells import cases_in, cells_of, order_of
from collbench.launch.conduct import placements_of
from collbench.schema.launch_plan import LaunchPlan
from collbench.units import format_long

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


def show_cells(plan: LaunchPlan, differences: tuple[str, ...] = ()) -> None:
    """A line of numbers, and how the two sides differ in anything but the container."""
    cells, launches = len(cells_of(plan)), len(order_of(plan))
    cases = sum(len(cases_in(plan, cell)) for cell in cells_of(plan)) * plan.launches
    title = in_one_line(plan.title or "launch")
    click.echo(f"# {title}: {cells} cells x {plan.launches} launches = {launches} starts, "
               f"{cases} measurements, {about(plan)}", err=True)  # fmt: skip
    for line in differences:
        click.echo(harmless(f"# {line}"), err=True)
