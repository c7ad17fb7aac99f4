"""The plan that a launch gives to its world: one of a user, and which of its cases this launch measures."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collbench.schema.case import Case
from collbench.schema.plan import Plan, load_plan


class WorldPlan(Plan, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`only` are the keys (`Case.key`) of the cases that are measured, of all that the plan has.

    The other cases stay part of the plan, so that ranks meet, take their places and check their memory as ever, and
    those that are measured keep their order.
    """

    only: tuple[str, ...] = ()

    if TYPE_CHECKING:  # the keys of axes are known when the table has been read

        def __init__(self, **keys: Any) -> None: ...


def plan_of_some(plan: Plan, cases: Collection[Case]) -> WorldPlan:
    """The plan, of which these cases are measured: as its world records them, without its place."""
    values = {name: getattr(plan, name) for name in Plan.__struct_fields__}
    return WorldPlan(**values, only=tuple(sorted(case.key for case in cases)))


def load_world_plan(path: Path, asked: str = "") -> Plan:
    """As `load_plan`; a file that a launch wrote, in JSON, may be a `WorldPlan`.

    Raises:
        PlanError: as `load_plan`.
    """
    return load_plan(path, asked, WorldPlan if path.suffix == ".json" else Plan)


def chosen_of(plan: Plan) -> frozenset[str]:
    """The keys of the cases that are measured; empty: all."""
    return frozenset(plan.only) if isinstance(plan, WorldPlan) else frozenset()
