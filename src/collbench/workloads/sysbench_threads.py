"""sysbench threads: threads that compete for a few locks and yield while they hold one: the scheduler's work."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.schema.case import Case
from collbench.workloads._sysbench import SYSBENCH, command, events, total
from collbench.workloads.parameters import parameter
from collbench.workloads.program import Measure, Program


def argv(case: Case, times: int) -> Sequence[str]:
    yields, locks = f"--thread-yields={case['yields']}", f"--thread-locks={case['locks']}"
    return command("threads", case["threads"], case["events"], yields, locks)


def verify(case: Case, output: str) -> int:
    """As many events as were asked for."""
    expected: int = case["events"]
    return abs(events(output) - expected)


WORKLOAD = Program(
    name="sysbench_threads",
    suite="cpu",
    title="sysbench threads",
    summary="many threads that compete for a few locks, on however few cores: the scheduler",
    measures=(Measure("total", lambda case: case["events"], "events"),),
    argv=argv,
    parse=total,
    verify=verify,
    software=(SYSBENCH,),
    repeated=True,
    axes=(
        parameter("threads", 128, "threads of the program", least=1, most=4096),
        parameter("yields", 1000, "how often a thread yields in an event", least=1, most=1_000_000),
        parameter("locks", 8, "locks that the threads compete for", least=1, most=1024),
        parameter("events", 500, "events of a sample", least=1, most=100_000_000),
    ),
)
