"""collbench in this process, and at its end what it once had resident: `peak_memory.py FILE allreduce -b 1G ...`.

Writes FILE-RANK with the lines of /proc/self/status that speak of resident memory. Shared pages count.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from collbench.cli import main


def resident() -> str:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines(keepends=True)
    return "".join(line for line in lines if line.startswith(("VmHWM", "Rss")))


if __name__ == "__main__":
    where, sys.argv = sys.argv[1], ["collbench", *sys.argv[2:]]
    rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK", "0")
    try:
        main()
    finally:
        Path(f"{where}-{rank}").write_text(resident(), encoding="ascii")
