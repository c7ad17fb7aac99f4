"""sysbench threads: threads that compete for a few locks and yield while they hold one: the scheduler's work."""

from __future__ import annotations

from collbench.workloads._sysbench import benchmark
from collbench.workloads.program import parameter

WORKLOAD = benchmark(
    "threads",
    "many threads that compete for a few locks, on however few cores: the scheduler",
    parameter("yields", 1000, "how often a thread yields in an event", least=1, most=1_000_000),
    parameter("locks", 8, "locks that the threads compete for", least=1, most=1024),
    parameter("events", 500, "events of a sample", least=1, most=100_000_000),
    threads=128,
    events=lambda case: case["events"],
    options=lambda case: (f"--thread-yields={case['yields']}", f"--thread-locks={case['locks']}"),
)
