"""hpl: High-Performance Linpack, by an xhpl, or else the one in Debian's hpcc, which measures much else beside it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from collbench.schema.case import Case
from collbench.workloads import _hpl
from collbench.workloads._blas import BlasOf
from collbench.workloads.parameters import ALL_CORES, parameter, threads_of
from collbench.workloads.program import Measure, Program
from collbench.workloads.software import FirstOf, Software

#: Neither has an option that prints its version.
_VERSION = r"HPLinpack (\d+\.\d+)"
HPL = FirstOf(
    "HPL",
    (Software("xhpl", version=(), pattern=_VERSION), Software("hpcc", "hpcc", version=(), pattern=_VERSION)),
)


def argv(case: Case, times: int) -> Sequence[str]:
    found = HPL.found()
    program = found.name if found is not None else "xhpl"
    settings = [word for name in ("n", "nb", "p", "q") for word in (f"--{name}", str(case[name]))]
    return (sys.executable, "-m", "collbench.workloads.programs.hpl", "--program", program, *settings)


def lacks(case: Case, folder: Path) -> str | None:
    processes, cores = case["p"] * case["q"], threads_of(ALL_CORES)
    return f"{processes} processes need as many cores, and there are {cores}" if processes > cores else None


WORKLOAD = Program(
    name="hpl",
    suite="cpu",
    title="HPL",
    summary="solve a dense system of equations by High-Performance Linpack",
    measures=(Measure("solve", lambda case: _hpl.flop(case["n"]), "flop"),),
    argv=argv,
    parse=lambda output: {"solve": [_hpl.seconds(output)]},
    verify=_hpl.wrong,
    figures=lambda case, output: {"residual": _hpl.residual(output)},
    notes=_hpl.notes,
    memory=lambda case: 8 * case["n"] ** 2,
    lacks=lacks,
    scratch=True,
    repeated=True,
    software=(HPL, BlasOf(HPL)),
    axes=(
        parameter("n", 2000, "order of the matrix", least=1, most=1_000_000),
        parameter("nb", 192, "size of a block", least=1, most=10_000, kind="how"),
        parameter("p", 1, "rows of the grid of processes", least=1, most=1000, kind="how"),
        parameter("q", 1, "columns of the grid; p x q processes have one thread each", least=1, most=1000, kind="how"),
    ),
)
