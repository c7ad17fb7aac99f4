"""Whether the buffers of a world fit into this machine's memory: asked before anything is started."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from collbench import collectives
from collbench.bindings.host_buffers import USABLE_SHARE, available_bytes
from collbench.collectives.case import CollectiveCase
from collbench.errors import PlanError
from collbench.launch.cells import LaunchCell
from collbench.schema.dtypes import DTYPES
from collbench.schema.launch_plan import LaunchPlan
from collbench.units import format_bytes
from collbench.workloads.case import ProgramCase


def refuse_too_large(
    plan: LaunchPlan, asked: Mapping[LaunchCell, Collection[CollectiveCase | ProgramCase]], free: int | None = None
) -> None:
    """The worlds of a launch run one after the other, so the largest decides. `free` is in bytes; None: ask.

    With GPUs the buffers are not in host memory, and the ranks look for themselves. What a program needs is its own.

    Raises:
        PlanError: the buffers of a case are larger than the memory that is free.
    """
    free = available_bytes() if free is None else free
    if plan.device != "cpu" or free is None:
        return
    for cell, cases in asked.items():
        collective = (case for case in cases if isinstance(case, CollectiveCase))
        largest = max(collective, key=buffers, default=None)
        if largest is not None and buffers(largest) > free * USABLE_SHARE:
            raise PlanError(
                f"{cell.title}: {largest.collective} of {format_bytes(largest.size)} needs "
                f"{format_bytes(buffers(largest))} of buffers, and {format_bytes(free)} are free. "
                "Lower sizes, ranks or workers."
            )


def buffers(case: CollectiveCase) -> int:
    """Bytes of the buffers of all ranks; the library's own memory is not in it."""
    row, itemsize = collectives.get(case.collective), DTYPES[case.dtype]
    per_rank = (row.blocks(rank, case.ranks, case.root or 0) for rank in range(case.ranks))
    blocks = sum(max(one) if case.in_place else sum(one) for one in per_rank)
    return blocks * row.count(case.size, itemsize, case.ranks) * itemsize
