"""`collbench launch --dry-run`: every world as commands of its engine, and the commands that start the ranks.

The images are asked what they hold and the engine what it can give, as for a launch, so that the flags are the same.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click
import msgspec

from collbench.cli.launching import looking
from collbench.launch import engines
from collbench.launch.campaign import PreparedCampaign, prepare
from collbench.launch.cells import Launch, inner_plan
from collbench.launch.expansion import expand
from collbench.launch.folders.layout import folders_in
from collbench.launch.live_world import world_of
from collbench.launch.rank_environment import places
from collbench.launch.stopping import StopCheck
from collbench.launch.storage import described, place_of
from collbench.schema.launch_plan import LaunchPlan

_ROOT = Path("/tmp/collbench-by-hand")  # noqa: S108 - printed, not used


def show_commands(plan: LaunchPlan, check: StopCheck) -> None:
    """For every cell: its folders, the containers, the first command, and what removes everything."""
    engine = engines.get(plan.engine)
    if engine.starts_ranks:
        expanded = expand(plan)
        for line in expanded.left_out:
            click.echo(f"# {line}", err=True)
        click.echo(engine.script(plan, expanded.order, expanded.placements), nl=False)
        return
    with looking(plan):
        prepared = prepare(plan, check)
    click.echo("# By hand, one cell at a time. Every container has collbench's labels: --sweep removes it too.")
    for number, cell in enumerate(prepared.expanded.cells):
        for line in commands_of(prepared, Launch(cell, 0, number)):
            click.echo(line)


def commands_of(prepared: PreparedCampaign, launch: Launch) -> list[str]:
    """The commands of one launch: its folders, and then what its engine would do."""
    expanded, cell, root = prepared.expanded, launch.cell, _ROOT / str(launch.sequence)
    at, run = folders_in(root), prepared.sessions[cell.engine].run
    parent = place_of(cell, expanded.plan.folder)
    files = None if parent is None else Path(parent) / f"{_ROOT.name}-{launch.sequence}"
    storage = described(cell, files)
    world = world_of(launch, prepared.stacks.of(cell), expanded.placements[cell], run, at, storage)
    plan = inner_plan(expanded.plan, cell, storage.folder if storage else "")
    # A plan's title may hold control characters; in JSON's ASCII they are escaped.
    inner = json.dumps(msgspec.json.decode(msgspec.json.encode(plan)))
    planned = msgspec.json.encode(places(cell, world.placement)).decode()
    owner, group = world.user
    own = " ".join(str(folder) for folder in (at.out, at.relay, files) if folder)
    return [
        f"\n# {cell.title}",
        f"install -d {root} && install -d -m 700 -o {owner} -g {group} {own}",
        f"printf %s {shlex.quote(inner)} > {at.plan}",
        f"printf %s {shlex.quote(planned)} > {at.placement}",
        *engines.get(cell.engine).render(world),
    ]
