"""The GPU that a program of this package uses, and what they all print; as a program: what CuPy is here.

`python -m collbench.workloads.programs.gpu.opened` prints JSON, `version` and `path` of CuPy; where there is no CuPy,
no NVRTC or no GPU, the reason, with exit code 77.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any

from collbench.bindings.gpu import cupy_device
from collbench.bindings.gpu.device import Device
from collbench.bindings.gpu.kernels import Compute, CupyCompute
from collbench.errors import BackendUnavailable, LibraryError, Unsupported
from collbench.schema import place
from collbench.workloads.programs.ending import SKIPPED


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
    uuid = os.environ.get(place.GPU) or visible[0]
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
