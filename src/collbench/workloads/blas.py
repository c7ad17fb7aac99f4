"""dgemm and linpack: what a BLAS and LAPACK reach on dense matrices; and the libraries to choose from.

linpack does what Intel's shared-memory LINPACK does: the order of the matrix and its leading dimension vary, and there
is neither a block size nor a process grid, as HPL has them.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from collbench.schema.axes import Axis
from collbench.schema.case import Case
from collbench.schema.manifest import Library
from collbench.units import counted
from collbench.workloads._own import started
from collbench.workloads.program import ALL_CORES, Measure, Program, parameter, threads_of
from collbench.workloads.software import Alternatives, Described, FirstOf, Software, described, run

#: In what MKL prints about itself.
_KERNEL = re.compile(r"^MKL_VERBOSE .*? for Intel\(R\) 64 architecture (.*?), \w+ [0-9.]+GHz", re.MULTILINE)


#: In what ldd prints.
_LINKED = re.compile(r"^\s*lib(?:openblas|blas|mkl_rt|blis|flexiblas|satlas|tatlas)\S* => (/\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Blas(Described):
    """A library by its name in `programs/blas.py`, or by its file: loaded and asked in a process of its own."""

    name: str

    def found(self) -> Library | str:
        return _found(self.name)


LIBRARIES = {name: Blas(name) for name in ("openblas", "mkl", "system")}

_THREADS = parameter(
    "threads", ALL_CORES, "threads of the library; 0: as many as cores", least=0, most=4096, kind="how"
)
_BLAS = parameter(
    "blas", "openblas", "the library: openblas (PyPI's scipy-openblas32), mkl (torch's) or system",
    among=tuple(LIBRARIES), kind="how",
)  # fmt: skip


@dataclass(frozen=True)
class BlasOf:
    """The BLAS that a program is linked with, where it is a file of its own."""

    program: FirstOf | Software

    def missing(self) -> str | None:
        """Never: the program is what may be missing."""

    def library(self) -> Library | None:
        program = self.program.library()
        path = linked(program.path) if program is not None and program.path is not None else None
        return None if path is None else Blas(path).library()


def linked(program: str) -> str | None:
    """The BLAS that the dynamic linker finds for a program; None where it has none, or does not tell."""
    try:
        match = _LINKED.search(run(("ldd", program)).stdout)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return match[1] if match is not None else None


@cache
def _found(name: str) -> Library | str:
    """What a library says of itself, or why it cannot be used."""
    return described(f"BLAS {name}", started("blas", name), read)


def read(output: str) -> Library:
    """What `programs/blas.py` printed; the kernel of MKL stands in MKL's own words before.

    Raises:
        ValueError, TypeError: it is not that.
    """
    library = Library(**json.loads(output.strip().rpartition("\n")[2]))
    kernel = _KERNEL.search(output)
    return library if kernel is None else msgspec.structs.replace(library, kernel=kernel[1])


def benchmark(
    name: str, title: str, summary: str, measure: Measure, *axes: Axis, figure: str, most: Callable[[Case], float],
    flags: Callable[[Case], Sequence[str]] = lambda case: (), **fields: Any,
) -> Program:  # fmt: skip
    """A benchmark that is a program of `programs/`, whose samples each have a `figure`: at `most` so much is right."""

    def argv(case: Case, times: int) -> Sequence[str]:
        threads = threads_of(case["threads"])
        return (*started(name, n=case["n"], threads=threads, blas=case["blas"], times=times), *flags(case))

    def verify(case: Case, output: str) -> int:
        return sum(not value <= most(case) for value in json.loads(output)["figures"])

    return Program(
        name=name,
        suite="cpu",
        title=title,
        summary=summary,
        measures=(measure,),
        argv=argv,
        parse=lambda output: {measure.name: [ns * 1e-9 for ns in json.loads(output)["ns"]]},
        verify=verify,
        figures=lambda case, output: {figure: max(json.loads(output)["figures"])},
        notes=notes,
        alternatives=Alternatives("blas", LIBRARIES),
        axes=(*axes, _THREADS, _BLAS),
        **fields,
    )


def notes(output: str) -> Sequence[str]:
    """The library that was used, from within the process that used it."""
    said = json.loads(output)
    kernel = f", kernel {said['kernel']}" if said["kernel"] else ""
    fewer = f" of the {said['asked']} asked for" if said["threads"] != said["asked"] else ""
    return (f"{said['name']} {said['version']}{kernel}, {counted(said['threads'], 'thread')}{fewer}",)


#: Relative errors of sums of n products are below n times this; there are three such sums on one side or the other.
EPS = 2.0**-52

#: The largest scaled residual of a right result: the threshold in HPL's input.
RESIDUAL = 16.0


def _flop(case: Case) -> float:
    """Of an elimination and two triangular solutions, as HPL counts them."""
    n: int = case["n"]
    return 2 / 3 * n**3 + 3 / 2 * n**2


def _lda(case: Case) -> int:
    return case["lda"] or case["n"]  # type: ignore[no-any-return]


def _refuses(case: Case) -> str | None:
    n = case["n"]
    if _lda(case) < n:
        return f"the leading dimension must be at least n; use lda=0 or lda={n}"
    if _lda(case) != n and case["blas"] == "mkl":
        return f"mkl is called through torch, which has no leading dimension; use lda=0 or lda={n}"
    return None


#: By name.
WORKLOADS = {program.name: program for program in (
    benchmark(
        "dgemm",
        "DGEMM",
        "multiply two square matrices of doubles by a BLAS",
        Measure("multiply", lambda case: 2.0 * case["n"] ** 3, "flop"),
        parameter("n", 2000, "order of the matrices", least=1, most=200_000),
        figure="relative error",
        most=lambda case: 2 * case["n"] * EPS,
        memory=lambda case: 3 * 8 * case["n"] ** 2,
    ),
    benchmark(
        "linpack",
        "LINPACK",
        "solve a dense system of equations by LAPACK's dgesv",
        Measure("solve", _flop, "flop"),
        parameter("n", 2000, "order of the matrix", least=1, most=200_000),
        parameter("lda", 0, "leading dimension of the matrix; 0: n", least=0, most=200_000),
        figure="residual",
        most=lambda case: RESIDUAL,
        flags=lambda case: ("--lda", str(_lda(case))),
        memory=lambda case: 8 * case["n"] * _lda(case) * (2 if case["blas"] == "mkl" else 1),  # torch solves in a copy
        refuses=_refuses,
    ),
)}  # fmt: skip
