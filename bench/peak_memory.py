"""Runs a program as a rank and notes what it once had resident: `peak_memory.py FILE PROGRAM ARGUMENT...`.

Writes FILE-RANK: bytes, of which shared pages are a part. The rank is the program, and this only its parent.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    where, *argv = sys.argv[1:]
    rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK", "0")
    # MPICH's launcher hands every rank an open file.
    code = subprocess.call(argv, close_fds=False)
    kilobytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    Path(f"{where}-{rank}").write_text(str(kilobytes * 1024), encoding="ascii")
    sys.exit(code)
