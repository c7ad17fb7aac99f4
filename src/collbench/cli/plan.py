"""`collbench plan PLAN.toml`: what a launch plan amounts to: cells, order, placement, time."""

from __future__ import annotations

from pathlib import Path

import click

from collbench.cli.launching import seconds_of
from collbench.launch import topology
from collbench.launch.cells import cells_of, order_of
from collbench.launch.conduct import cases_by_ranks, placements_of
from collbench.schema.launch_plan import load_launch_plan
from collbench.units import format_duration


@click.command(name="plan")
@click.argument("plan", type=click.Path(path_type=Path))
def command(plan: Path) -> None:
    """Print the cells of PLAN, where their ranks sit here, the order of launches, and about how long it takes."""
    loaded = load_launch_plan(plan)
    placements = placements_of(loaded, topology.here())
    cases = cases_by_ranks(loaded)
    cells = cells_of(loaded)
    click.echo(f"{loaded.title or plan.stem}: {len(cells)} cells, {loaded.launches} launches each, seed {loaded.seed}")
    for number, cell in enumerate(cells):
        boxes = placements[cell].boxes
        where = "; ".join(
            f"{'host' if cell.isolation is None else box.name}: ranks {_span(box.ranks)} on cores {box.cores}"
            for box in boxes
        )
        crowded = ", more ranks than cores" if placements[cell].crowded else ""
        click.echo(f"  {number:3d}  {cell.title}: {len(cases[cell.ranks])} cases; {where}{crowded}")
    click.echo("order of launches, block by block:")
    numbers = {cell: number for number, cell in enumerate(cells)}
    order = order_of(loaded)
    for block in range(loaded.launches):
        click.echo(f"  {block:3d}  {' '.join(str(numbers[launch.cell]) for launch in order if launch.number == block)}")
    click.echo(
        f"about {format_duration(round(seconds_of(loaded)))}" if loaded.iters is None else "how long depends on iters"
    )


def _span(ranks: tuple[int, ...]) -> str:
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}"
