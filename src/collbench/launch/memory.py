"""Whether what a world allocates fits into this machine's memory: asked before anything is started."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from collbench import collectives
from collbench.bindings.host_buffers import USABLE_SHARE, available_bytes
from collbench.collectives.case import CollectiveCase
from collbench.errors import PlanError
from collbench.launch.cells import LaunchCell
from collbench.run.memory_check import how_to_fit
from collbench.schema.dtypes import DTYPES
from collbench.schema.launch_plan import LaunchPlan
from collbench.units import format_bytes
from collbench.workloads.case import ProgramCase


def refuse_too_large(
    plan: LaunchPlan, by_cell: Mapping[LaunchCell, Collection[CollectiveCase | ProgramCase]], free: int | None = None
) -> None:
    """The worlds of a launch run one after the other, so the largest decides. `free` is in bytes; None: ask.

    With GPUs the buffers of collectives are not in host memory, and the ranks check theirs themselves.

    Raises:
        PlanError: a case needs more memory than is free.
    """
    free = available_bytes() if free is None else free
    if free is None:
        return
    for cell, cases in by_cell.items():
        needed, largest, less = max((_needed(case, plan.device) for case in cases), default=(0, "", ""))
        if needed > free * USABLE_SHARE:
            raise PlanError(
                f"{cell.title}: {largest} needs {format_bytes(needed)} of memory, and {format_bytes(free)} are free. "
                f"{less}"
            )


def _needed(case: CollectiveCase | ProgramCase, device: str) -> tuple[int, str, str]:
    """Bytes of host memory, the case as messages name it, and what takes less."""
    if isinstance(case, ProgramCase):
        return case.memory, case.title, how_to_fit(case)
    of = f"{case.collective} of {format_bytes(case.size)}"
    return buffers(case) if device == "cpu" else 0, of, "Lower sizes, ranks or workers."


def buffers(case: CollectiveCase) -> int:
    """Bytes of the buffers of all ranks; the library's own memory is not in it."""
    row, itemsize = collectives.get(case.collective), DTYPES[case.dtype]
    per_rank = (row.blocks(rank, case.ranks, case.root or 0) for rank in range(case.ranks))
    blocks = sum(max(held) if case.in_place else sum(held) for held in per_rank)
    return blocks * row.count(case.size, itemsize, case.ranks) * itemsize
