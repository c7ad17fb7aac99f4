"""`collbench run PLAN.toml`: many cases in one world."""

from __future__ import annotations

from pathlib import Path

import click

from collbench.cli import plan_argument
from collbench.cli.options import OUTPUT, WORLD, flags
from collbench.cli.sink import carry_out
from collbench.cli.terminal import PATH
from collbench.errors import RequestError
from collbench.launch.shipped import find_plan
from collbench.run.binding import bind
from collbench.schema.plan import load_world_plan
from collbench.schema.world import read_places


@click.command(name="run")
@plan_argument.plan
@flags(OUTPUT, WORLD)
@click.option(
    "--placement",
    type=PATH,
    default=None,
    metavar="FILE",
    help="Where each rank is planned to be: it takes these cores. A world that differs is refused.",
)
@click.option(
    "--turns",
    type=PATH,
    default=None,
    metavar="FOLDER",
    help="Links to a launcher that lets worlds on the same cores measure in turns.",
)
def command(
    plan: str,
    style: str,
    out: Path | None,
    output_file: Path | None,
    timeout: str,
    ranks: int | None,
    fault: str | None,
    placement: Path | None,
    turns: Path | None,
) -> None:
    """Measure every case of PLAN in the world that mpirun or torchrun started.

    PLAN is a TOML file, or the name of a plan that comes with collbench (collbench plan lists them).
    The time-out is the plan's unless -T is given.
    """
    import msgspec

    places = None if placement is None else read_places(placement)
    if places is not None:
        bind(places)  # before anything starts a thread
    path = find_plan(plan)
    loaded = load_world_plan(path, plan)
    if output_file is not None and output_file.resolve() == path.resolve():
        raise RequestError(f"-J {output_file}: would overwrite the plan. Name another file.")
    source = click.get_current_context().get_parameter_source("timeout")
    if source is not None and source.name != "DEFAULT":
        loaded = msgspec.structs.replace(loaded, timeout=timeout)
    carry_out(loaded, style, out, output_file, ranks, fault, plan_file=path, places=places, turns=turns)
