"""gpu_launch: what it costs to launch a kernel that does nothing."""

from __future__ import annotations

from collbench.schema.case import Case
from collbench.workloads._gpu import benchmark
from collbench.workloads.program import Measure, parameter

#: Launches in a graph.
GRAPH = 100


def refuses(case: Case) -> str | None:
    return f"burst must be a multiple of {GRAPH}, the launches of a graph" if case["burst"] % GRAPH else None


WORKLOAD = benchmark(
    "launch", "Launches of a kernel", "launches of an empty kernel: issued, each waited for, and in graphs of 100",
    parameter("burst", 1000, "launches in a sample", least=GRAPH, most=1_000_000),
    measures=tuple(Measure(way, lambda case: case["burst"], "launches") for way in ("issue", "issue_wait", "graph")),
    refuses=refuses,
)  # fmt: skip
