"""From a plan to its cases: every combination, in the plan's order, with names checked before anything is started."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from collbench import backends, collectives
from collbench.bindings.spec import Backend
from collbench.collectives.case import CollectiveCase, collective_case
from collbench.errors import PlanError
from collbench.schema.axes import choices_of
from collbench.schema.choices import Situation
from collbench.schema.plan import Plan


def refuse_cadence(plan: Plan, names: Iterable[str]) -> None:
    """What none of these backends can do.

    Raises:
        PlanError: streaming, where every call is complete when it returns; a graph, where there is none.
    """
    chosen = [backends.get(name) for name in names]
    if not plan.collectives:
        return
    if plan.cadence == "streaming" and not any(backend.streams for backend in chosen):
        raise PlanError(
            f"cadence streaming: {_listed(chosen)} completes every call before it returns; use cadence isolated, or "
            "nccl or torch-nccl."
        )
    if plan["cudagraph"] and not any("graph" in backend.axes for backend in chosen):
        raise PlanError(f"cudagraph {plan['cudagraph']}: {_listed(chosen)} has no CUDA graphs; use nccl.")


def _listed(chosen: list[Backend]) -> str:
    return ", ".join(backend.name for backend in chosen)


def cases_of(plan: Plan, backend: str, ranks: int) -> tuple[CollectiveCase, ...]:
    """The cases of one backend, each once.

    Raises:
        PlanError: an unknown collective, dtype or operation, or a root that is no rank.
        BackendUnavailable: an unknown backend.
    """
    rows = [collectives.get(name) for name in plan.collectives]
    operations = plan.burst if plan.cadence == "streaming" else 1
    situations = [Situation(row, backends.get(backend), ranks, operations) for row in rows]
    return tuple(dict.fromkeys(case for situation in situations for case in _cases_in(situation, plan)))


def _cases_in(situation: Situation, plan: Plan) -> Iterator[CollectiveCase]:
    """Every combination of the values on the axes that are there, those of the innermost loop fastest."""
    values = {
        axis: choice.values(plan[choice.key], situation)
        for axis, choice in sorted(choices_of("what", "how").items(), key=lambda item: item[1].nested)
        if situation.has(axis, choice)
    }
    for combination in itertools.product(*values.values()):
        chosen = dict(zip(values, combination, strict=True))
        yield collective_case(situation.row.name, chosen | {"ranks": situation.ranks})
