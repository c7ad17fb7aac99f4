"""The plan that a launch gives to its world: one of a user, and which of its cases this launch measures."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from collbench.schema.case import Case
from collbench.schema.plan import Plan, load_plan


class WorldPlan(Plan, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`only` are the keys (`Case.key`) of the cases that are measured, of all that the plan has.

    Collectives among them whose keys are in `brief` are executed with one sample and have no record. All other cases
    stay part of the plan, so that ranks meet, take their places and check their memory as ever, and those that are
    executed keep their order.
    """

    only: tuple[str, ...] = ()
    brief: tuple[str, ...] = ()

    if TYPE_CHECKING:  # the keys of axes are known when the table has been read

        def __init__(self, **keys: Any) -> None: ...


def plan_of_some(plan: Plan, measured: Collection[Case], brief: Collection[Case] = ()) -> WorldPlan:
    """The plan, of which these cases are measured, and these executed: as its world records them, without its place."""
    values = {name: getattr(plan, name) for name in Plan.__struct_fields__}
    return WorldPlan(**values, only=_keys(measured), brief=_keys(brief))


def _keys(cases: Collection[Case]) -> tuple[str, ...]:
    return tuple(sorted(case.key for case in cases))


def load_world_plan(path: Path, asked: str = "") -> Plan:
    """As `load_plan`; a file that a launch wrote, in JSON, may be a `WorldPlan`.

    Raises:
        PlanError: as `load_plan`.
    """
    return load_plan(path, asked, WorldPlan if path.suffix == ".json" else Plan)


class Chosen(NamedTuple):
    """Which cases of a plan are executed, by their keys. None are `measured`: all are."""

    measured: frozenset[str] = frozenset()
    brief: frozenset[str] = frozenset()

    def measures(self, identities: Iterable[Case]) -> bool:
        """Whether a case has records; of several it has all or none."""
        return not self.measured or any(identity.key in self.measured for identity in identities)

    def executes(self, identities: Iterable[Case]) -> bool:
        """Whether a case is executed, with a record or without."""
        keys = {identity.key for identity in identities}
        return not self.measured or bool(keys & self.measured or keys & self.brief)


ALL_CASES = Chosen()


def chosen_of(plan: Plan) -> Chosen:
    """Of a plan of a user all cases."""
    return Chosen(frozenset(plan.only), frozenset(plan.brief)) if isinstance(plan, WorldPlan) else ALL_CASES
