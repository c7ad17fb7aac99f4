"""From a plan to its cases: every combination, in the plan's order, with names checked before anything is started."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from collbench import backends, collectives
from collbench.bindings.spec import Backend
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Collective
from collbench.errors import PlanError, RequestError
from collbench.schema.axes import OPS, Op
from collbench.schema.case import DTYPE_ALIASES, DTYPES
from collbench.schema.plan import Plan
from collbench.spelling import suggestion


def refuse_cadence(plan: Plan, names: Iterable[str]) -> None:
    """What none of these backends can do.

    Raises:
        RequestError: streaming, where every call is complete when it returns; a graph, where there is none.
    """
    chosen = [backends.get(name) for name in names]
    if not plan.collectives:
        return
    if plan.cadence == "streaming" and not any(backend.streams for backend in chosen):
        raise RequestError(
            f"cadence streaming (-z 0): {_these(chosen)} completes every call before it returns; leave the flag "
            "out, or use nccl or torch-nccl."
        )
    if plan.cudagraph and not any("graph" in backend.axes for backend in chosen):
        raise RequestError(f"cudagraph {plan.cudagraph} (-G): {_these(chosen)} has no CUDA graphs; use nccl.")


def _these(chosen: list[Backend]) -> str:
    return ", ".join(backend.name for backend in chosen)


def dtypes_of(plan: Plan, backend: str) -> tuple[str, ...]:
    """Dtypes by their proper names; `all` is whatever the backend has.

    Raises:
        PlanError: an unknown dtype, with the nearest known one.
    """
    found: list[str] = []
    for name in plan.dtypes:
        proper = DTYPE_ALIASES.get(name.lower(), name.lower())
        if proper == "all":
            found.extend(backends.get(backend).dtypes())
        elif proper in DTYPES:
            found.append(proper)
        else:
            known = (*DTYPES, *DTYPE_ALIASES, "all")
            raise PlanError(f"dtype {name!r}: unknown. {suggestion(name.lower(), known)}")
    return tuple(dict.fromkeys(found))


def ops_of(plan: Plan, backend: str) -> tuple[Op, ...]:
    """Operations; `all` is whatever the backend has.

    Raises:
        PlanError: an unknown operation.
    """
    found: list[Op] = []
    for name in plan.ops:
        if name.lower() == "all":
            found.extend(backends.get(backend).ops)
            continue
        matching = [op for op in OPS if name.lower() == op]
        if not matching:
            raise PlanError(f"op {name!r}: unknown. {suggestion(name.lower(), (*OPS, 'all'))}")
        found.extend(matching)
    return tuple(dict.fromkeys(found))


def cases_of(plan: Plan, backend: str, ranks: int) -> tuple[CollectiveCase, ...]:
    """The cases of one backend, each once.

    Raises:
        PlanError: an unknown dtype or operation, or a root that is no rank.
        RequestError: an unknown collective or backend.
    """
    rows = [collectives.get(name) for name in plan.collectives]
    for root in plan.roots if any(row.rooted for row in rows) else ():
        if not 0 <= root < ranks:
            raise PlanError(f"root {root}: there are {ranks} ranks, 0 to {ranks - 1}.")
    dtypes, ops, sizes = dtypes_of(plan, backend), ops_of(plan, backend), plan.sizes_in_bytes()
    found = [case for row in rows for case in _cases_of_row(row, plan, backend, ranks, dtypes, ops, sizes)]
    return tuple(dict.fromkeys(found))


def _places(row: Collective, plan: Plan) -> tuple[bool, ...]:
    """Without an in-place form there is one case: out of place, unless only in place was asked for (a skip then)."""
    return plan.in_place if row.has_in_place else (False,) if False in plan.in_place else (True,)


def _cases_of_row(
    row: Collective,
    plan: Plan,
    backend: str,
    ranks: int,
    dtypes: tuple[str, ...],
    ops: tuple[Op, ...],
    sizes: tuple[int, ...],
) -> Iterator[CollectiveCase]:
    """Every combination, the last axis fastest. A row, or a backend, without an axis has one value on it."""
    axes: dict[str, tuple[Any, ...]] = {
        "driver": plan.drivers,
        "dtype": dtypes if row.moves_data else ("int8",),
        "op": ops if row.reduces else (None,),
        "root": plan.roots if row.rooted else (None,),
        **_axes_of_backend(row, plan, backends.get(backend).axes),
        "size": sizes if row.moves_data else (0,),
        "in_place": _places(row, plan),
    }
    common = {"collective": row.name, "backend": backend, "thread_level": plan.thread_level, "ranks": ranks}
    for values in itertools.product(*axes.values()):
        cell: dict[str, Any] = common | dict(zip(axes, values, strict=True))
        yield CollectiveCase(**cell)


def _axes_of_backend(row: Collective, plan: Plan, has: frozenset[str]) -> dict[str, tuple[Any, ...]]:
    """What only some backends vary. A graph holds one operation, or in streaming cadence a whole burst."""
    operations = plan.burst if plan.cadence == "streaming" else 1
    offered: dict[str, tuple[Any, ...]] = {
        "staging": plan.staging if row.moves_data else (None,),
        "algorithm": tuple(name or None for name in plan.algorithms),
        "protocol": tuple(name or None for name in plan.protocols),
        "registered": plan.registered,
        "graph": (operations if plan.cudagraph and not row.has_server else 0,),
    }
    server = {"staging"} if row.has_server and "server staging" in has else set()
    return {name: values for name, values in offered.items() if name in has | server}
