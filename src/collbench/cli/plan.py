"""`collbench plan [PLAN]`: cells, placement, order and duration of a launch plan; or the plans that there are."""

from __future__ import annotations

from pathlib import Path

import click

from collbench.analysis.compare import compare
from collbench.analysis.estimate import FEWEST
from collbench.analysis.pairs import own_sides
from collbench.analysis.planning import power
from collbench.cli import launch_options, plan_argument
from collbench.cli.analysing import RUN, margin, read
from collbench.cli.duration import about, at_most, seconds_of, too_long
from collbench.cli.launch_options import engine, placed_on, site
from collbench.cli.launching import before_measuring, comparisons, oversubscribed, undecidable
from collbench.cli.terminal import harmless
from collbench.errors import RequestError, in_one_line
from collbench.launch import engines
from collbench.launch.expansion import ExpandedPlan, expand
from collbench.launch.placement import Box, Placement
from collbench.launch.preview import indistinct_sides, preview_of
from collbench.launch.shipped import find_plan, plans, source_tree
from collbench.machine.facts import format_cores
from collbench.report.sensitivity import power_table
from collbench.report.tables import Table, terminal
from collbench.schema.manifest import Until
from collbench.schema.plan import load_launch_plan, named_in_errors
from collbench.units import counted


@click.command(name="plan")
@plan_argument.optional_plan
@engine
@site
@launch_options.until
@launch_options.launches
@click.option(
    "--like", type=RUN, default=None, metavar="RUN", help="Say what launches decide if they spread as in RUN."
)
@margin
@click.option("--order", is_flag=True, help="Print the order of launches.")
def command(
    plan: str | None, engine: str | None, site: str | None, until: Until | None, launches: int | None,
    like: Path | None, margin: float, order: bool,
) -> None:  # fmt: skip
    """Print the cells of PLAN, where their ranks are placed here, how long it takes, and what it can decide.

    Without PLAN, list the plans that come with collbench.
    """
    if plan is None:
        _list()
        return
    path = find_plan(plan)
    loaded = launch_options.ending(placed_on(load_launch_plan(path, plan), engine, site), until, launches)
    with named_in_errors(path):
        expanded = expand(loaded)
        if script := engines.get(loaded.engine).script:  # it says what it cannot do
            script(loaded, expanded.order, expanded.placements)
    title = in_one_line(loaded.title or path.stem)
    each = counted(loaded.launches, "launch", "launches")
    click.echo(f"{title}: {counted(len(expanded.cells), 'cell')}, {at_most(loaded)}{each} each, seed {loaded.seed}")
    _show_cells(expanded)
    if order and len(expanded.cells) > 1:
        _show_order(expanded)
    click.echo(f"{about(expanded)} (estimated for an idle machine)")
    for sentence in (too_long(expanded), undecidable(expanded)):
        if sentence is not None:
            click.echo(sentence)
    if like is not None:
        click.echo(harmless(terminal([_power(expanded, like, margin)])), nl=False)
    elif comparisons(expanded):
        click.echo("what so many launches decide: --like RUN, an earlier run of this machine")
    here = preview_of(expanded)
    for line in (*indistinct_sides(loaded), *before_measuring(expanded, here.missing), *here.lines):
        click.echo(harmless(line))


def _show_cells(expanded: ExpandedPlan) -> None:
    for number, cell in enumerate(expanded.cells):
        placement = expanded.placements[cell]
        where = _where(placement, cell.engine if cell.isolation is None else None)
        click.echo(f"  {number:3d}  {cell.title}: {counted(len(expanded.expected[cell]), 'case')}; {where}")
        if placement.note:
            click.echo(harmless(f"       note: {placement.note}"))


def _show_order(expanded: ExpandedPlan) -> None:
    click.echo("order of launches, block by block:")
    numbers = {cell: number for number, cell in enumerate(expanded.cells)}
    for block in range(expanded.plan.launches):
        listed = " ".join(str(numbers[launch.cell]) for launch in expanded.order if launch.number == block)
        click.echo(f"  {block:3d}  {listed}")


#: Numbers of launches in the table beside that of the plan.
_NUMBERS = (7, 15, 25, 50, 100)


def _power(expanded: ExpandedPlan, run: Path, margin: float) -> Table:
    """What numbers of launches decide, each with its duration, if launches spread as in a run.

    Raises:
        RequestError: the run has no comparison with an interval.
    """
    observed = read(run)
    compared = compare(own_sides(observed), margin, observed.interleaved)
    ratios = [one.ratio for one in compared if one.ratio is not None and one.ratio.interval is not None]
    if not ratios:
        raise RequestError(f"plan --like {run}: it compares nothing with {FEWEST} launches or more. Name another run.")
    each = seconds_of(expanded) / expanded.plan.launches
    numbers = sorted({*_NUMBERS, max(expanded.plan.launches, FEWEST)})
    in_turns = any(cell.turns for cell in observed.cells.values())
    powers = [(power(ratios, number, margin), number * each) for number in numbers]
    return power_table(powers, observed.name, margin, in_turns)


def _list() -> None:
    """The command that takes each plan, and its title; one without images is for a world that mpirun starts."""
    import tomllib

    shipped = plans()
    if not shipped:
        click.echo("This collbench was installed without plans, as in an image.")
        return
    width = max(len(f"collbench launch {name}") for name in shipped)
    for name, path in shipped.items():
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        command = "launch" if "images" in document else "run"
        title = document.get("title", "").removeprefix(f"{name}: ")
        click.echo(f"{f'collbench {command} {name}':<{width}} {title}".rstrip())
    click.echo(f"To change one, copy it from {source_tree() / 'launch'}.")


def _where(placement: Placement, name: str | None) -> str:
    """`c0: ranks 0-1 on cores 0-1; ...`, shared and idle cores. `name` is that of an engine without containers.

    Of several hosts each is named by its number.
    """
    over = len({box.host for box in placement.boxes}) > 1
    hosts = [f"{name}, host {box.host}" if over else name for box in placement.boxes] if name else []
    names = hosts or [box.name for box in placement.boxes]
    boxes = "; ".join(_described(box, title) for box, title in zip(placement.boxes, names, strict=True))
    crowded = f", {oversubscribed(placement)}" if placement.crowded else ""
    idle = f"; idle: cores {format_cores(placement.idle)}" if placement.idle else ""
    return f"{boxes}{crowded}{idle}"


def _described(box: Box, name: str) -> str:
    ranks = f"rank {box.ranks[0]}" if len(box.ranks) == 1 else f"ranks {box.ranks[0]}-{box.ranks[-1]}"
    gpus = ""
    if box.gpus:
        gpus = f", {'GPUs' if len(box.gpus) > 1 else 'GPU'} {' '.join(box.gpus)}"
    return f"{name}: {ranks} on cores {box.cores}{gpus}"
