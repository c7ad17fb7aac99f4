"""The report of HPL 2, as xhpl prints it and as hpcc has it in its own."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from collbench.schema.case import Case
from collbench.workloads.programs.blas import REFERENCE

#: The largest scaled residual of a right result: the threshold in HPL's input.
RESIDUAL = 16.0

_CHECKED = re.compile(r"^\|\|Ax-b\|\|_oo/\(eps\*.*\*N\)= +(\S+) \.+ (\w+) *$", re.MULTILINE)
_ROW = re.compile(r"^W[RC]\S+ +(\d+) +(\d+) +(\d+) +(\d+) +(\S+) +(\S+) *$", re.MULTILINE)
_TIME = re.compile(r"^HPL_time=(\S+)$", re.MULTILINE)
_VERSION = re.compile(r"^HPLinpack (\S+)", re.MULTILINE)


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
    version, blas = _VERSION.search(output), found["blas"]
    hpl = f"HPL {version[1] if version is not None else 'of unknown version'} of {found['program']}"
    if blas is None:
        return (f"{hpl}, whose BLAS is in the same file or not known",)
    if blas["name"] == REFERENCE:
        return (f"{hpl} with the reference BLAS {blas['path']}, which is several times slower than OpenBLAS "
                "(on Debian and Ubuntu: apt-get install libopenblas0-pthread)",)  # fmt: skip
    kernel = f", kernel {blas['kernel']}" if blas["kernel"] else ""
    return (f"{hpl} with {' '.join(filter(None, (blas['name'], blas['version'])))}{kernel}",)
