"""What an MPI says of itself and CUDA: whether it was built with it, and whether it claims to take device pointers.

Neither proves that it works: a device buffer has to be sent for that. The claim is asked for in a child process, for
it costs an MPI_Init.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

#: Longest wait for a library to answer (s).
ANSWER = 30.0

_CLAIM = """
import ctypes, sys
from mpi4py import MPI
sys.exit(100 + bool(ctypes.CDLL(sys.argv[1]).MPIX_Query_cuda_support()))
"""


def configure_line(version: str) -> str | None:
    """How the library was configured, from ompi_info (Open MPI) or the library's own version text (MPICH)."""
    if match := re.search(r"^MPICH configure:\s*(.*)$", version, re.MULTILINE):
        return match[1].strip("\0 ")
    if found := re.search(r"^config:cli:(.*)$", _ompi_info(), re.MULTILINE):
        return found[1].strip()
    return None


def built(version: str) -> bool | None:
    """Whether CUDA support was compiled in; None where the library does not say.

    `version` is the text of MPI_Get_library_version.
    """
    if "MPICH" in version:
        line = configure_line(version)
        return None if line is None else "--with-cuda" in line
    found = re.search(r"opal_built_with_cuda_support:value:(true|false)", _ompi_info())
    return None if found is None else found[1] == "true"


def claimed(library: str | None) -> bool | None:
    """What MPIX_Query_cuda_support says after MPI_Init; None where it is missing or gives no answer."""
    if library is None:
        return None
    try:
        done = subprocess.run((sys.executable, "-c", _CLAIM, library), capture_output=True, timeout=ANSWER, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return {100: False, 101: True}.get(done.returncode)


def _ompi_info() -> str:
    """Of the installation that this Python uses, else of the PATH."""
    beside = Path(sys.prefix) / "bin" / "ompi_info"
    program = str(beside) if beside.exists() else shutil.which("ompi_info")
    if program is None:
        return ""
    argv = (program, "--parsable", "--all")
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=ANSWER, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
