"""Programs that load NVIDIA's libraries, in processes of their own: what is loaded here, other tests would find."""

from __future__ import annotations

import subprocess
import sys

from tests.mpi.jobs import skip_or_fail
from tests.processes import LIMIT

#: `nccl` and `cudart` as the backends load them.
HEAD = """
import ctypes, os, pathlib, re
from types import SimpleNamespace
import numpy as np
from collbench.bindings.gpu.nccl import NcclLog
from collbench.bindings.gpu.device import load, loaded
from collbench.collectives.row import C
log = NcclLog()
from collbench.bindings.gpu.nccl import cupy_nccl
nccl = cupy_nccl()
cudart = load("cudart", "libcudart.so.12", only=False)
"""


def need_libraries() -> None:
    """Skip where they are not installed."""
    try:
        import cupy  # noqa: F401
        import nvidia.nccl  # noqa: F401
    except ImportError:
        skip_or_fail("cuda", "CuPy and NCCL are not installed in this environment (extra cuda12)")


def run(body: str, before: str = "") -> str:
    """What a program prints that begins with `before` and `HEAD`."""
    done = subprocess.run(
        (sys.executable, "-c", before + HEAD + body), capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
