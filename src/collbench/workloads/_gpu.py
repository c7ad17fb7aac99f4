"""What the benchmarks of suite `gpu` have in common: CuPy, and what their programs print."""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from typing import Any

from collbench.bindings.gpu.shared_library import how_to_install
from collbench.schema.axes import Axis
from collbench.schema.manifest import Library
from collbench.workloads._own import figures, notes, started, times, wrong
from collbench.workloads.program import Measure, Program
from collbench.workloads.software import Described, described

#: How long CuPy may take to try a GPU (s): where no process holds the GPU open, the driver starts it first.
LIMIT = 60.0


class Cupy(Described):
    """CuPy with a GPU and NVRTC: tried in a process of its own, because it takes seconds and memory of the GPU."""

    def found(self) -> Library | str:
        return _found()


@cache
def _found() -> Library | str:
    """CuPy, or why it cannot be used."""
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is not installed; {how_to_install()}"
    return described("CuPy", started("gpu.opened"), lambda output: Library(name="CuPy", **json.loads(output)), LIMIT)


def benchmark(
    name: str, title: str, summary: str, *axes: Axis, measures: tuple[Measure, ...], **fields: Any
) -> Program:  # fmt: skip
    """A benchmark `gpu_NAME`, which is the program of that name; it gets the parameters, and the size, as flags."""
    flags = (*(axis.name for axis in axes), *(("size",) if "sizes" in fields else ()))
    return Program(
        name=f"gpu_{name}", suite="gpu", title=title, summary=summary, measures=measures, axes=axes,
        argv=lambda case, times: started(f"gpu.{name}", **{flag: case[flag] for flag in flags}, times=times),
        parse=times, verify=wrong, figures=figures, notes=notes, software=(Cupy(),), **fields,
    )  # fmt: skip
