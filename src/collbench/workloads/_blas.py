"""What linpack and dgemm have in common: the libraries to choose from, and what their programs print."""

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
