"""From a plan to its cases: every combination, in the plan's order, with names checked before anything is started."""

from __future__ import annotations

from collections.abc import Iterator

from collbench import backends, collectives
from collbench.collectives.row import Collective
from collbench.errors import PlanError, RequestError
from collbench.schema.case import DTYPE_ALIASES, DTYPES, OPS, Case, Op
from collbench.schema.plan import Plan
from collbench.spelling import suggestion


def refuse_cadence(plan: Plan) -> None:
    """What no backend here can do.

    Raises:
        RequestError: streaming, where every call is complete when it returns.
    """
    if plan.cadence == "streaming":
        raise RequestError(
            "cadence streaming (-z 0): the backends on host memory complete every call before it returns; "
            "leave the flag out."
        )


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


def ops_of(plan: Plan) -> tuple[Op, ...]:
    """Operations; `all` is every one.

    Raises:
        PlanError: an unknown operation.
    """
    found: list[Op] = []
    for name in plan.ops:
        matching = [op for op in OPS if name.lower() in (op, "all")]
        if not matching:
            raise PlanError(f"op {name!r}: unknown. {suggestion(name.lower(), (*OPS, 'all'))}")
        found.extend(matching)
    return tuple(dict.fromkeys(found))


def cases_of(plan: Plan, backend: str, ranks: int) -> tuple[Case, ...]:
    """The cases of one backend, each once.

    Raises:
        PlanError: an unknown dtype or operation, or a root that is no rank.
        RequestError: an unknown collective or backend.
    """
    rows = [collectives.get(name) for name in plan.collectives]
    for root in plan.roots if any(row.rooted for row in rows) else ():
        if not 0 <= root < ranks:
            raise PlanError(f"root {root}: there are {ranks} ranks, 0 to {ranks - 1}.")
    dtypes, ops, sizes = dtypes_of(plan, backend), ops_of(plan), plan.sizes_in_bytes()
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
) -> Iterator[Case]:
    for driver in plan.drivers:
        for dtype in dtypes if row.moves_data else ("int8",):
            for op in ops if row.reduces else (None,):
                for root in plan.roots if row.rooted else (None,):
                    for size in sizes if row.moves_data else (0,):
                        for in_place in _places(row, plan):
                            yield Case(
                                collective=row.name,
                                backend=backend,
                                driver=driver,
                                thread_level=plan.thread_level,
                                bytes=size,
                                dtype=dtype,
                                op=op,
                                root=root,
                                ranks=ranks,
                                in_place=in_place,
                            )
