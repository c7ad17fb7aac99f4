"""hpl: High-Performance Linpack, by an xhpl, or else the one in Debian's hpcc, and its report."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from collbench.schema.case import Case
from collbench.workloads._own import started
from collbench.workloads.blas import BlasOf
from collbench.workloads.program import ALL_CORES, Measure, Program, parameter, threads_of
from collbench.workloads.programs.blas import REFERENCE
from collbench.workloads.software import FirstOf, Software

#: The largest scaled residual of a right result: the threshold in HPL's input.
RESIDUAL = 16.0

_CHECKED = re.compile(r"^\|\|Ax-b\|\|_oo/\(eps\*.*\*N\)= +(\S+) \.+ (\w+) *$", re.MULTILINE)
_ROW = re.compile(r"^W[RC]\S+ +(\d+) +(\d+) +(\d+) +(\d+) +(\S+) +(\S+) *$", re.MULTILINE)
_TIME = re.compile(r"^HPL_time=(\S+)$", re.MULTILINE)
_REPORT_VERSION = re.compile(r"^HPLinpack (\S+)", re.MULTILINE)


def flop(n: int) -> float:
    """HPL 2.3, testing/ptest/HPL_pdtest.c."""
    return 2 / 3 * n**3 + 3 / 2 * n**2


def _row(output: str) -> tuple[str, ...]:
    """N, NB, P, Q, time and Gflops of the only system that was solved.

    Raises:
        ValueError: there is none, or another number of them.
    """
    rows = _ROW.findall(output)
    if len(rows) != 1:
        raise ValueError(f"{len(rows)} lines of results")
    return tuple(rows[0])


def seconds(output: str) -> float:
    """hpcc's summary has the time; HPL prints hundredths of seconds, so it is taken from the rate.

    Raises:
        ValueError: there is none.
    """
    n, *_, gflops = _row(output)
    time = _TIME.search(output)
    return float(time[1]) if time is not None else flop(int(n)) / (float(gflops) * 1e9)


def residual(output: str) -> float:
    return _checked(output)[0]


def _checked(output: str) -> tuple[float, str]:
    """The residual and what HPL says of it.

    Raises:
        ValueError: it is not there, as in a report of HPL 1, which has three others.
    """
    found = _CHECKED.findall(output)
    if len(found) != 1:
        raise ValueError(f"{len(found)} scaled residuals of HPL 2")
    return float(found[0][0]), found[0][1]


def wrong(case: Case, output: str) -> int:
    """Whether HPL found it wrong, or solved another system than that of the case."""
    value, word = _checked(output)
    asked = tuple(str(case[name]) for name in ("n", "nb", "p", "q"))
    return int(word != "PASSED" or not value <= RESIDUAL) + int(_row(output)[:4] != asked)


def notes(output: str) -> Sequence[str]:
    """Which HPL with which BLAS."""
    found = json.loads(output.partition("\n")[0])
    version, blas = _REPORT_VERSION.search(output), found["blas"]
    hpl = f"HPL {version[1] if version is not None else 'of unknown version'} of {found['program']}"
    if blas is None:
        return (f"{hpl}, whose BLAS is in the same file or not known",)
    if blas["name"] == REFERENCE:
        return (f"{hpl} with the reference BLAS {blas['path']}, which is several times slower than OpenBLAS "
                "(on Debian and Ubuntu: apt-get install libopenblas0-pthread)",)  # fmt: skip
    kernel = f", kernel {blas['kernel']}" if blas["kernel"] else ""
    return (f"{hpl} with {' '.join(filter(None, (blas['name'], blas['version'])))}{kernel}",)


#: Neither has an option that prints its version.
_VERSION = r"HPLinpack (\d+\.\d+)"
HPL = FirstOf(
    "HPL",
    (Software("xhpl", version=(), pattern=_VERSION), Software("hpcc", "hpcc", version=(), pattern=_VERSION)),
)


def argv(case: Case, times: int) -> Sequence[str]:
    found = HPL.found()
    program = found.name if found is not None else "xhpl"
    return started("hpl", program=program, **{name: case[name] for name in ("n", "nb", "p", "q")})


def lacks(case: Case, folder: Path) -> str | None:
    processes, cores = case["p"] * case["q"], threads_of(ALL_CORES)
    return f"{processes} processes need as many cores, and there are {cores}" if processes > cores else None


WORKLOAD = Program(
    name="hpl",
    suite="cpu",
    title="HPL",
    summary="solve a dense system of equations by High-Performance Linpack",
    measures=(Measure("solve", lambda case: flop(case["n"]), "flop"),),
    argv=argv,
    parse=lambda output: {"solve": [seconds(output)]},
    verify=wrong,
    figures=lambda case, output: {"residual": residual(output)},
    notes=notes,
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
