"""`collbench plan PLAN.toml`: what a launch plan amounts to: cells, order, placement, time."""

from __future__ import annotations

from pathlib import Path

import click

from collbench.characters import in_one_line
from collbench.cli.launching import about, undecidable
from collbench.launch.expansion import expand
from collbench.launch.placing import Box, Placement
from collbench.machine.facts import format_cores
from collbench.schema.launch_plan import load_launch_plan
from collbench.units import counted


@click.command(name="plan")
@click.argument("plan", type=click.Path(path_type=Path))
def command(plan: Path) -> None:
    """Print the cells of PLAN, where their ranks sit here, the order of launches, and about how long it takes."""
    loaded = load_launch_plan(plan)
    expanded = expand(loaded)
    cells = expanded.cells
    title = in_one_line(loaded.title or plan.stem)
    click.echo(
        f"{title}: {counted(len(cells), 'cell')}, {counted(loaded.launches, 'launch', 'launches')} each, "
        f"seed {loaded.seed}"
    )
    for number, cell in enumerate(cells):
        where = _where(expanded.placements[cell], cell.engine if cell.isolation is None else None)
        click.echo(f"  {number:3d}  {cell.title}: {counted(len(expanded.cases[cell]), 'case')}; {where}")
    click.echo("order of launches, block by block:")
    numbers = {cell: number for number, cell in enumerate(cells)}
    for block in range(loaded.launches):
        listed = " ".join(str(numbers[launch.cell]) for launch in expanded.order if launch.number == block)
        click.echo(f"  {block:3d}  {listed}")
    click.echo(about(expanded))
    said = undecidable(expanded)
    if said is not None:
        click.echo(said)


def _where(placement: Placement, name: str | None) -> str:
    """`c0: ranks 0-1 on cores 0-1; ...`, and what is out of the ordinary. `name`: of what has no containers."""
    found = "; ".join(_said(box, name or box.name) for box in placement.boxes)
    idle = f"; idle: cores {format_cores(placement.idle)}" if placement.idle else ""
    return f"{found}{', more ranks than cores' if placement.crowded else ''}{idle}"


def _said(box: Box, name: str) -> str:
    many = len(box.ranks) > 1
    gpus = f", GPU{'s' if len(box.gpus) > 1 else ''} {' '.join(box.gpus)}" if box.gpus else ""
    return f"{name}: rank{'s' if many else ''} {_span(box.ranks)} on cores {box.cores}{gpus}"


def _span(ranks: tuple[int, ...]) -> str:
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}"
