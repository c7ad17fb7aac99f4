"""A program of suite `gpu` on the double: `python -m tests.double.gpu_program MODULE FLAGS...`.

Variables: DOUBLE_GPUS (how many there are), DOUBLE_MEMORY (bytes of each), DOUBLE_KERNELS (a folder for what is
compiled), DOUBLE_EDIT=OLD=>NEW (a change of the kernels' source).
"""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
from pathlib import Path

from collbench.bindings.gpu import cupy_device
from tests.double.device import DoubleDevice
from tests.double.kernels import DoubleCompute


def edited(source: str) -> str:
    old, _, new = os.environ.get("DOUBLE_EDIT", "").partition("=>")
    return source.replace(old, new) if old else source


def compute(device: DoubleDevice) -> DoubleCompute:
    usual = Path(tempfile.gettempdir()) / f"collbench-double-{os.getuid()}"
    folder = Path(os.environ.get("DOUBLE_KERNELS", usual))
    folder.mkdir(parents=True, exist_ok=True)
    return DoubleCompute(device, folder, edited)


if __name__ == "__main__":
    gpus = tuple(f"GPU-{number}" for number in range(int(os.environ.get("DOUBLE_GPUS", "1"))))
    vars(cupy_device)["missing"] = lambda: None if gpus else "no CUDA device is visible (the double has none)"
    vars(cupy_device)["visible"] = lambda: gpus
    vars(cupy_device)["CupyDevice"] = DoubleDevice
    vars(cupy_device)["CupyCompute"] = compute
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
