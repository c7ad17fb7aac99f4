"""What commands that launch have in common: where ranks are placed, and when the launches end."""

from __future__ import annotations

from typing import get_args

import click
import msgspec

from collbench.cli.terminal import NAME
from collbench.errors import RequestError
from collbench.launch import engines
from collbench.schema.manifest import Until
from collbench.schema.plan import MOST_LAUNCHES, LaunchPlan, check_launch_plan

until = click.option(
    "--until",
    type=click.Choice(get_args(Until)),
    default=None,
    help="End after all launches of the plan, or when its comparisons are decided.  [default: the plan's]",
)


launches = click.option(
    "--launches",
    type=click.IntRange(1, MOST_LAUNCHES),
    default=None,
    help="Launches of each cell; until decided the most.  [default: the plan's]",
)


def ending(plan: LaunchPlan, until: Until | None, launches: int | None) -> LaunchPlan:
    """The plan with what the flags say in place of its own keys.

    Raises:
        PlanError: it has too few launches to decide anything, or too many starts.
    """
    keys = {name: value for name, value in (("until", until), ("launches", launches)) if value is not None}
    return check_launch_plan(msgspec.structs.replace(plan, **keys)) if keys else plan


engine = click.option(
    "--on", "--engine", "engine", default=None, metavar="NAME",
    help="The engine: docker, podman, slurm, k8s.  [default: the plan's, or docker]",
)  # fmt: skip

site = click.option(
    "--site",
    type=NAME,
    default=None,
    metavar="FILE",
    help="What slurm or k8s is to know of the cluster (docs/cluster.md).  [default: the plan's]",
)

docker_host = click.option(
    "--docker-host",
    type=NAME,
    default=None,
    metavar="URL",
    help="Address of the engine.  [default: the plan's, DOCKER_HOST, or its usual socket]",
)


def placed_on(plan: LaunchPlan, engine: str | None, site: str | None, docker_host: str | None = None) -> LaunchPlan:
    """The plan with what the flags say in place of its own keys.

    Raises:
        PlanError: there is no such engine, which is not the plan's mistake.
        RequestError: a site file for an engine that reads none.
    """
    flags = {"engine": engine, "site": site, "docker_host": docker_host}
    if engine is not None:
        engines.get(engine)
    placed = msgspec.structs.replace(plan, **{name: text for name, text in flags.items() if text is not None})
    if site is not None and not engines.get(placed.engine).starts_ranks:
        raise RequestError(f"--site is for slurm and k8s; the engine is {placed.engine}.")
    return placed
