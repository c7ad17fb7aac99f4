"""The table of a run of many launches, byte by byte, on records that are made up."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from collbench.analysis.results import cells_of
from collbench.report.cells import launch_tables
from collbench.report.tables import terminal
from collbench.schema.case import case_of
from collbench.schema.record import Record, ResultCheck, Work, summarise

CASE = case_of("allreduce", {"backend": "mpi", "size": 1024,
        "dtype": "float32", "op": "sum", "ranks": 2, "driver": "native", "thread_level": "single",
        "image": "mpich"})  # fmt: skip
REFUSED = "process_vm_readv refused at this step: mpich copies twice"


def record(policy: str, isolation: str | None, launch: int, us: float, *notes: str) -> Record:
    case = CASE.having(policy=policy, isolation=isolation, engine="host" if policy == "host" else "docker")
    work = Work(amount=1024, count=256, bus_factor=1.0)
    seconds = summarise(np.array([round(us * 1000)]))
    return Record(case=case, launch=launch, status="ok", work=work, seconds=seconds, driver="native",
                  check=ResultCheck(wrong=0), transport="ch4 shm", contended=launch == 3, notes=notes)  # fmt: skip


def test_times_transports_remarks_and_reasons(golden: Callable[[str, str], None]) -> None:
    rows = [record("host", None, n, 10 + n / 10) for n in range(7)]
    rows += [record("multi", "strict", n, 20 + n / 5, REFUSED) for n in range(7)]
    rows += [record("single", "strict", n, 100 + 30 * n) for n in range(5)]
    case = CASE.having(policy="single", isolation="strict", engine="docker")
    rows.append(Record(case=case, launch=5, status="failed", reason="container c1 died"))
    golden("launches.txt", terminal(launch_tables(cells_of(rows))))


def test_of_one_launch_each(golden: Callable[[str, str], None]) -> None:
    rows = [record("host", None, 0, 10), record("multi", "strict", 0, 20)]
    golden("launches-few.txt", terminal(launch_tables(cells_of(rows))))
