"""sysbench memory: write or read a buffer block by block, until so many bytes have moved; a block is an event."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.schema.case import Case
from collbench.units import format_size
from collbench.workloads._sysbench import benchmark
from collbench.workloads.program import Measure, parameter, threads_of


def blocks(case: Case) -> int:
    """Whole blocks of the size of the case."""
    count: int = case["size"] // case["block"]
    return count


def moved(case: Case) -> int:
    return blocks(case) * int(case["block"])


def refuses(case: Case) -> str | None:
    """sysbench gives every thread as many blocks."""
    threads = threads_of(case["threads"])
    if blocks(case) % threads == 0:
        return None
    whole = format_size(threads * case["block"])
    return f"{blocks(case)} blocks cannot be shared by {threads} threads; use a multiple of {whole} as the size"


def options(case: Case) -> Sequence[str]:
    return (f"--memory-block-size={case['block']}", f"--memory-total-size={moved(case)}",
            f"--memory-oper={case['access']}")  # fmt: skip


WORKLOAD = benchmark(
    "memory",
    "a buffer that is written or read by blocks; the size is what all threads move together",
    parameter("block", 1024, "bytes of a block", least=8, most=1 << 30),
    parameter("access", "write", "whether blocks are written or read", among=("write", "read")),
    events=blocks,
    options=options,
    refuses=refuses,
    measure=Measure("total", moved),
    sizes=("1G",),
)
