"""What `launch` and `plan` show of a launch plan before anything starts."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from collbench.launch import starters, topology
from collbench.launch.cells import cases_in, cells_of, order_of
from collbench.launch.conduct import placements_of
from collbench.launch.identity import driver_identity
from collbench.launch.sides import reference_of
from collbench.launch.specs import docker_command
from collbench.launch.told import Side
from collbench.launch.world import INSIDE, Folders, specs_for
from collbench.schema.launch_plan import LaunchPlan
from collbench.units import format_long

#: What a start costs besides measuring, in s (seen with Docker Engine 20.10 on two cores): host, containers, one more.
START_HOST, START_BOX, START_MORE = 1.5, 3.0, 0.4
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
    click.echo(f"# {plan.title or 'launch'}: {cells} cells x {plan.launches} launches = {launches} starts, "
               f"{cases} measurements, {about(plan)}", err=True)  # fmt: skip
    for line in differences:
        click.echo(f"# {line}", err=True)


def show_commands(plan: LaunchPlan) -> None:
    """Every container of every cell as a docker command, and the command that starts the ranks."""
    machine = topology.here()
    there = Folders(Path("/tmp/collbench/plan.json"), Path("/tmp/collbench/out"), Path("/tmp/collbench/relay"))  # noqa: S108
    placements = placements_of(plan, machine)
    for launch in order_of(plan)[: len(placements)]:
        named = [name for name in starters.names() if name in launch.cell.image]
        vendor = named[0] if named else "openmpi"
        side = Side(
            starters.get(vendor, launch.cell.image),
            reference_of(launch.cell.image),
            Path(f".venvs/{launch.cell.image}"),
        )
        specs = specs_for(plan, launch, side, placements[launch.cell], "cb", driver_identity(), there)
        click.echo(f"# {launch.cell.title}{'' if named else ' (taken for Open MPI: no image is asked)'}")
        if specs and specs[0].network:
            click.echo(f"docker network create --internal {specs[0].network}")
        for spec in specs:
            click.echo(docker_command(spec))
        members = [spec for spec in specs if not spec.donates]
        if len(members) > 1:
            hosts = tuple((s.name, len(b.ranks)) for s, b in zip(members, placements[launch.cell].boxes, strict=True))
            argv = side.starter.across(hosts, INSIDE)
        else:
            argv = side.starter.local(launch.cell.ranks, placements[launch.cell].crowded, INSIDE)
        click.echo(f"docker exec {members[0].name} {' '.join(argv)}" if members else " ".join(argv))
