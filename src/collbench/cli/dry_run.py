"""`collbench launch --dry-run`: every container as a docker command that does the same, and what starts the ranks.

The images are asked what they hold and the engine what it can give, as for a launch, so that the flags are the same.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import click
import msgspec

from collbench.launch.campaign import PreparedCampaign, prepare
from collbench.launch.cells import Launch, LaunchCell, inner_plan
from collbench.launch.identity import driver_identity, user_inside
from collbench.launch.one_launch import INSIDE, Folders, specs_for
from collbench.launch.rank_environment import Stack, on_host, variables
from collbench.launch.specs import INHIBIT_ADDRESS, Spec, docker_command
from collbench.launch.stopping import StopCheck
from collbench.schema.launch_plan import LaunchPlan

_ROOT = Path("/tmp/collbench-by-hand")  # noqa: S108 - printed, not used


def show_commands(plan: LaunchPlan, check: StopCheck) -> None:
    """For every cell: what is needed, the containers, the first command, and what removes it all again."""
    prepared = prepare(plan, check)
    click.echo("# By hand, one cell at a time. Every container carries collbench's labels: --sweep removes them too.")
    for number, cell in enumerate(prepared.placements):
        _show(prepared, Launch(cell, 0, number))


def _show(prepared: PreparedCampaign, launch: Launch) -> None:
    plan, cell, root = prepared.plan, launch.cell, _ROOT / str(launch.sequence)
    there = Folders(root / "plan.json", root / "out", root / "relay")
    side, placement = prepared.sides.start[cell.image], prepared.placements[cell]
    specs = specs_for(plan, launch, side, placement, prepared.run, driver_identity(), there)
    # a plan's title may hold what steers a terminal; as JSON writes it in ASCII it is the same title
    inner = json.dumps(msgspec.json.decode(msgspec.json.encode(inner_plan(plan, cell))))
    owner, group = user_inside() if specs else (os.getuid(), os.getgid())
    click.echo(f"\n# {cell.title}")
    click.echo(f"install -d {root} && install -d -m 700 -o {owner} -g {group} {there.out} {there.relay}")
    click.echo(f"printf %s {shlex.quote(inner)} > {there.plan}")
    if not specs:
        program = ("collbench", "run", str(there.plan), "--out", str(there.out))
        told = shlex.join(f"{name}={value}" for name, value in on_host(variables(cell, placement, side), root).items())
        argv = shlex.join(side.starter.local(cell.ranks, placement.crowded, program))
        click.echo(f"env PATH={side.environment}/bin:$PATH {told} {argv}")
        return
    network = next(spec.network for spec in specs if spec.network)
    sealed = f" --opt {INHIBIT_ADDRESS}=true" if side.sealed else ""
    click.echo(f"docker network create --internal{sealed} {network}")
    for spec in specs:
        click.echo(docker_command(spec))
    members = [spec for spec in specs if not spec.donates]
    for line in _starts(cell, side, members, [len(box.ranks) for box in placement.boxes], placement.crowded):
        click.echo(line)
    click.echo(f"docker rm -f {' '.join(spec.name for spec in specs)}; docker network rm {network}")


def _starts(cell: LaunchCell, side: Stack, members: list[Spec], ranks: list[int], crowded: bool) -> list[str]:
    """The command in the first container; across containers, what else the launcher does."""
    if len(members) == 1:
        return [f"docker exec {members[0].name} {shlex.join(side.starter.local(cell.ranks, crowded, INSIDE))}"]
    hosts = tuple((spec.name, number) for spec, number in zip(members, ranks, strict=True))
    argv = shlex.join(side.starter.across(hosts, INSIDE))
    if side.starter.direct is not None:
        return [
            f"docker exec --detach {' '.join(f'--env {k}={v}' for k, v in more.items())} {name} {argv}"
            for name, more in side.starter.direct(hosts)
        ]
    how = "leaves in the relay folder" if side.starter.relays else "prints"
    return [
        f"docker exec {members[0].name} {argv}",
        f"#   waits until what it {how} is executed in the other containers, which is the launcher's part",
    ]
