"""sysbench cpu: verify by trial division which numbers are prime; no memory to speak of, no system calls."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.schema.case import Case
from collbench.workloads._sysbench import SYSBENCH, THREADS, command, events, total
from collbench.workloads.parameters import parameter
from collbench.workloads.program import Measure, Program


def argv(case: Case, times: int) -> Sequence[str]:
    return command("cpu", case["threads"], case["events"], f"--cpu-max-prime={case['max_prime']}")


def verify(case: Case, output: str) -> int:
    """As many events as were asked for."""
    expected: int = case["events"]
    return abs(events(output) - expected)


WORKLOAD = Program(
    name="sysbench_cpu",
    suite="cpu",
    title="sysbench cpu",
    summary="prime numbers by trial division: integer arithmetic of the cores",
    measures=(Measure("total", lambda case: case["events"], "events"),),
    argv=argv,
    parse=total,
    verify=verify,
    software=(SYSBENCH,),
    repeated=True,
    axes=(
        THREADS,
        parameter("max_prime", 20_000, "limit of the numbers that an event tries", least=3, most=1_000_000),
        parameter("events", 1000, "events of a sample", least=1, most=100_000_000),
    ),
)
