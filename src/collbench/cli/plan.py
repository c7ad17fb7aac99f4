"""`collbench plan [PLAN]`: what a launch plan amounts to: cells, order, placement, time; or which plans there are."""

from __future__ import annotations

import click

from collbench.characters import in_one_line
from collbench.cli import plan_argument
from collbench.cli.launching import about, undecidable
from collbench.cli.terminal import harmless
from collbench.launch.expansion import expand
from collbench.launch.placing import Box, Placement
from collbench.launch.shipped import find_plan, plans, source_tree
from collbench.machine.facts import format_cores
from collbench.schema.launch_plan import load_launch_plan
from collbench.units import counted


@click.command(name="plan")
@plan_argument.optional_plan
def command(plan: str | None) -> None:
    """Print the cells of PLAN, where their ranks sit here, the order of launches, and about how long it takes.

    Without PLAN, the plans that come with collbench are listed.
    """
    if plan is None:
        _list()
        return
    path = find_plan(plan)
    loaded = load_launch_plan(path)
    expanded = expand(loaded)
    cells = expanded.cells
    title = in_one_line(loaded.title or path.stem)
    click.echo(
        f"{title}: {counted(len(cells), 'cell')}, {counted(loaded.launches, 'launch', 'launches')} each, "
        f"seed {loaded.seed}"
    )
    for number, cell in enumerate(cells):
        placement = expanded.placements[cell]
        where = _where(placement, cell.engine if cell.isolation is None else None)
        click.echo(f"  {number:3d}  {cell.title}: {counted(len(expanded.asked[cell]), 'case')}; {where}")
        if placement.note:
            click.echo(harmless(f"       note: {placement.note}"))
    click.echo("order of launches, block by block:")
    numbers = {cell: number for number, cell in enumerate(cells)}
    for block in range(loaded.launches):
        listed = " ".join(str(numbers[launch.cell]) for launch in expanded.order if launch.number == block)
        click.echo(f"  {block:3d}  {listed}")
    click.echo(about(expanded))
    said = undecidable(expanded)
    if said is not None:
        click.echo(said)


def _list() -> None:
    """The command that takes each plan, and its title; one without images is for a world that mpirun starts."""
    import tomllib

    known = plans()
    if not known:
        click.echo("This collbench was installed without plans, as in an image.")
        return
    for name, path in known.items():
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        command = "launch" if "images" in document else "run"
        title = document.get("title", "").removeprefix(f"{name}: ")
        click.echo(f"{f'collbench {command} {name}':<36} {title}".rstrip())
    click.echo(f"To change one, copy it from {source_tree() / 'launch'}.")


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
