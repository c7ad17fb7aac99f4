"""`--until` and `--launches`, the same for a launch and for the plan of one."""

from __future__ import annotations

from typing import get_args

import click
import msgspec

from collbench.schema.launch_plan import MOST_LAUNCHES, LaunchPlan, check_launch_plan
from collbench.schema.manifest import Until

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
