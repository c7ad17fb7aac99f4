"""What the benchmarks of suite `gpu` have in common: CuPy, and what their programs print."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from collbench.bindings.gpu.shared_library import how_to_install
from collbench.schema.axes import Axis
from collbench.schema.case import Case
from collbench.schema.manifest import Library
from collbench.workloads.program import Measure, Program

#: How long CuPy may take to try a GPU (s): where no process holds the GPU open, the driver starts it first.
LIMIT = 60.0

PROGRAMS = "collbench.workloads.programs.gpu"


def command(name: str) -> tuple[str, ...]:
    """What starts a program of the package."""
    return (sys.executable, "-m", f"{PROGRAMS}.{name}")


class Cupy:
    """CuPy with a GPU and NVRTC: tried in a process of its own, because it takes seconds and memory of the GPU."""

    def missing(self) -> str | None:
        found = _found()
        return found if isinstance(found, str) else None

    def library(self) -> Library | None:
        found = _found()
        return None if isinstance(found, str) else found


@cache
def _found() -> Library | str:
    """CuPy, or why it cannot be used."""
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is not installed; {how_to_install()}"
    try:
        done = subprocess.run(
            command("opened"), capture_output=True, text=True, errors="replace",
            timeout=LIMIT, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode == 0:
            return Library(name="CuPy", **json.loads(done.stdout))
    except (OSError, subprocess.TimeoutExpired, ValueError, TypeError) as error:
        return f"CuPy: {error}"
    return (done.stderr.strip().splitlines() or [f"CuPy: its exit code is {done.returncode}"])[-1]


def benchmark(
    name: str, title: str, summary: str, *axes: Axis, measures: tuple[Measure, ...], **fields: Any
) -> Program:  # fmt: skip
    """A benchmark `gpu_NAME`, which is the program of that name; it gets the parameters, and the size, as flags."""
    return Program(
        name=f"gpu_{name}", suite="gpu", title=title, summary=summary, measures=measures, axes=axes,
        argv=_argv_of(name, (*(axis.name for axis in axes), *(("size",) if "sizes" in fields else ()))),
        parse=lambda output: {name: [ns * 1e-9 for ns in taken] for name, taken in json.loads(output)["ns"].items()},
        verify=lambda case, output: int(json.loads(output)["wrong"]),
        figures=lambda case, output: json.loads(output)["figures"],
        notes=lambda output: tuple(json.loads(output)["notes"]),
        software=(Cupy(),), **fields,
    )  # fmt: skip


def _argv_of(name: str, parameters: tuple[str, ...]) -> Callable[[Case, int], Sequence[str]]:
    def argv(case: Case, times: int) -> Sequence[str]:
        flags = (word for parameter in parameters for word in (f"--{parameter}", str(case[parameter])))
        return (*command(name), *flags, "--times", str(times))

    return argv
