"""`--until`, the same for a launch and for the plan of one."""

from __future__ import annotations

from typing import get_args

import click
import msgspec

from collbench.schema.launch_plan import LaunchPlan, check_launch_plan
from collbench.schema.manifest import Until

until = click.option(
    "--until",
    type=click.Choice(get_args(Until)),
    default=None,
    help="End after all launches of the plan, or when its comparisons are decided.  [default: the plan's]",
)


def ending(plan: LaunchPlan, until: Until | None) -> LaunchPlan:
    """The plan with what the flag says in place of its own key.

    Raises:
        PlanError: it has too few launches to decide anything.
    """
    return plan if until is None else check_launch_plan(msgspec.structs.replace(plan, until=until))
