"""sysbench cpu: verify by trial division which numbers are prime; no memory to speak of, no system calls."""

from __future__ import annotations

from collbench.workloads._sysbench import benchmark
from collbench.workloads.program import parameter

WORKLOAD = benchmark(
    "cpu",
    "prime numbers by trial division: integer arithmetic of the cores",
    parameter("max_prime", 20_000, "limit of the numbers that an event tries", least=3, most=1_000_000),
    parameter("events", 1000, "events of a sample", least=1, most=100_000_000),
    events=lambda case: case["events"],
    options=lambda case: (f"--cpu-max-prime={case['max_prime']}",),
)
