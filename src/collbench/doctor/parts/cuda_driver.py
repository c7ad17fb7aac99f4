"""Whether CUDA starts, tried in a child process: NVML lists GPUs also where libcuda is missing or fails."""

from __future__ import annotations

import json
import sys

from collbench.doctor.parts.finding import Problem
from collbench.doctor.parts.gpu_absence import CAPABLE, capabilities
from collbench.doctor.parts.machine import Machine

_TRY = """
import ctypes, json
try:
    library = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    print(json.dumps(str(error)))
else:
    print(json.dumps(library.cuInit(0)))
"""

_EFFECT = "backends mpi-staged, mpi-cuda, nccl and torch-nccl do not start"

_NO_COMPAT = "unset LD_LIBRARY_PATH (if it puts a CUDA compat folder before the driver's libcuda)"

#: By the error of cuInit: what it means, what to do.
_ERRORS = {
    100: ("no device is visible to CUDA", "unset CUDA_VISIBLE_DEVICES"),
    802: ("the system is not ready: NVSwitches need their fabric manager", "sudo systemctl start nvidia-fabricmanager"),
    803: ("libcuda is not that of the loaded driver", _NO_COMPAT),
    804: ("this GPU does not support a newer libcuda", _NO_COMPAT),
}
_OTHER = ("an error without an explanation", "sudo dmesg | grep -i nvrm (messages of the driver)")


def refusal(machine: Machine) -> Problem | None:
    """Why CUDA does not start here; None where it does."""
    try:
        output = machine.execute((sys.executable, "-I", "-S", "-c", _TRY))
        answer: int | str = json.loads(output.text.strip().splitlines()[-1])
    except (OSError, TimeoutError, ValueError, IndexError) as error:
        cause = f"the child process that starts CUDA did not answer: {error or type(error).__name__}"
        command = f"{sys.executable} -c 'import ctypes; print(ctypes.CDLL(\"libcuda.so.1\").cuInit(0))'"
        return Problem("unknown", cause, f"if CUDA does not start, {_EFFECT}", command)
    if isinstance(answer, str):
        return _no_library(machine, answer)
    if answer == 0:
        return None
    meaning, fix = _ERRORS.get(answer, _OTHER)
    return Problem("fail", f"CUDA does not start: cuInit returns {answer}, {meaning}", _EFFECT, fix)


def _no_library(machine: Machine, error: str) -> Problem:
    if machine.container is None:
        fix = "sudo ldconfig; where libcuda.so.1 is not installed: sudo apt-get install -y libcuda1 (Debian)"
        return Problem("fail", f"the driver's libcuda.so.1 is not loaded: {error}", _EFFECT, fix)
    return Problem("fail", f"no libcuda.so.1 in this container ({error}); {capabilities(machine)}", _EFFECT, CAPABLE)
