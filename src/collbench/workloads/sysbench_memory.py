"""sysbench memory: write or read a buffer block by block, until so many bytes have moved."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.schema.case import Case
from collbench.workloads._sysbench import SYSBENCH, THREADS, command, events, total
from collbench.workloads.parameters import parameter
from collbench.workloads.program import Measure, Program


def blocks(case: Case) -> int:
    """Whole blocks of the size of the case."""
    count: int = case["size"] // case["block"]
    return count


def argv(case: Case, times: int) -> Sequence[str]:
    return command(
        "memory", case["threads"], blocks(case), f"--memory-block-size={case['block']}",
        f"--memory-total-size={blocks(case) * case['block']}", f"--memory-oper={case['access']}",
    )  # fmt: skip


def verify(case: Case, output: str) -> int:
    """Every block is an event."""
    return abs(events(output) - blocks(case))


WORKLOAD = Program(
    name="sysbench_memory",
    suite="cpu",
    title="sysbench memory",
    summary="a buffer that is written or read by blocks; the size is what all threads move together",
    measures=(Measure("total", lambda case: blocks(case) * case["block"]),),
    argv=argv,
    parse=total,
    verify=verify,
    software=(SYSBENCH,),
    repeated=True,
    sizes=("1G",),
    axes=(
        THREADS,
        parameter("block", 1024, "bytes of a block", least=8, most=1 << 30),
        parameter("access", "write", "whether blocks are written or read", among=("write", "read")),
    ),
)
