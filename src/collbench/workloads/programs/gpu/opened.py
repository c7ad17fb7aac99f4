"""The GPU that a program of this package uses, and what they all print; as a program: what CuPy is here.

`python -m collbench.workloads.programs.gpu.opened` prints JSON, `version` and `path` of CuPy; where there is no CuPy,
no NVRTC or no GPU, the reason, with exit code 77.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from collbench.bindings.gpu import cupy_device
from collbench.bindings.gpu.cupy_device import Compute, CupyCompute
from collbench.bindings.gpu.device import Device
from collbench.collectives.row import Array
from collbench.errors import BackendUnavailable, LibraryError, Unsupported
from collbench.schema import world
from collbench.workloads.programs.ending import SKIPPED

#: Bytes that are copied at once.
PART = 64 << 20


class Rows:
    """[rows, columns] float32 in device memory."""

    def __init__(self, device: Device, rows: int, columns: int) -> None:
        self.rows, self.columns, self._device = rows, columns, device
        self._memory = device.allocate(4 * rows * columns)
        self.address = self._memory.address

    def parts(self) -> Iterator[tuple[int, int]]:
        """First and last of rows that are copied together."""
        at_once = max(1, PART // (4 * self.columns))
        for first in range(0, self.rows, at_once):
            yield first, min(first + at_once, self.rows)

    def write(self, first: int, values: Array) -> None:
        """Rows from `first` on. Complete on return."""
        self._device.write(
            self.address + 4 * first * self.columns, np.ascontiguousarray(values, np.float32).reshape(-1)
        )

    def read(self, first: int, last: int) -> Array:
        """Rows from `first` to before `last`."""
        values = np.empty((last - first, self.columns), np.float32)
        self._device.read(self.address + 4 * first * self.columns, values.reshape(-1))
        return values

    def spoil(self) -> None:
        """Nothing that an operation should have written may be right by accident: NaN everywhere."""
        for first, last in self.parts():
            self.write(first, np.full((last - first, self.columns), np.nan, np.float32))


@dataclass(frozen=True)
class OpenGpu:
    """A GPU, with what computes on it."""

    device: Device
    compute: Compute


def opened() -> OpenGpu:
    """The GPU that was planned for the rank that started this program, else the first that it sees.

    Raises:
        BackendUnavailable: there is none, or not that one.
    """
    why = cupy_device.missing()
    if why is not None:
        raise BackendUnavailable(why)
    visible = cupy_device.visible()
    uuid = os.environ.get(world.GPU) or visible[0]
    if uuid not in visible:
        raise BackendUnavailable(f"GPU {uuid} was planned, and this process sees {', '.join(visible)}")
    device = cupy_device.CupyDevice(uuid)
    return OpenGpu(device, CupyCompute(device))


def source(name: str) -> str:
    """The text of a `.cu` file of this package."""
    return (resources.files(__package__) / f"{name}.cu").read_text(encoding="utf-8")


def printed(
    doc: str | None,
    flags: tuple[tuple[str, type, str], ...],
    run: Callable[[OpenGpu, argparse.Namespace], dict[str, Any]],
) -> int:
    """Print the result of `run` as JSON; returns the exit code. `flags` are names, types and meanings."""
    parser = argparse.ArgumentParser(description=doc)
    for name, kind, means in (*flags, ("times", int, "how many samples")):
        parser.add_argument(f"--{name}", type=kind, required=True, help=means)
    asked = parser.parse_args()
    try:
        result = run(opened(), asked)
    except (BackendUnavailable, Unsupported) as error:
        return _say(str(error), SKIPPED)
    except (MemoryError, LibraryError) as error:
        return _say(str(error), 1)
    sys.stdout.write(json.dumps(result) + "\n")
    return 0


def _say(reason: str, code: int) -> int:
    sys.stderr.write(f"{reason}\n")
    return code


def main() -> int:
    try:
        compute = opened().compute
        compute.compile("", {})
    except BackendUnavailable as error:
        return _say(str(error), SKIPPED)
    sys.stdout.write(json.dumps(compute.described()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
