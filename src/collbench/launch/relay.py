"""`collbench-relay`: stands in for ssh inside a container, where Open MPI's mpirun starts its daemons.

Called as `collbench-relay HOST COMMAND...`. It leaves the request in the relay folder, which only this container has,
and waits until the driver of the launch has removed it: then the command runs in the container of that name.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

#: Longest wait for the driver (s).
LIMIT = 60.0

#: Largest request that the driver reads (bytes).
LARGEST = 1 << 16


def main() -> None:
    """Leave a request, wait until it is removed."""
    folder = Path(os.environ.get("COLLBENCH_RELAY", "/collbench/relay"))
    request = folder / f"{os.getpid()}.request"
    draft = request.with_suffix(".draft")
    draft.write_text(json.dumps(sys.argv[1:]), encoding="utf-8")
    draft.rename(request)
    until = time.monotonic() + LIMIT
    while request.exists():
        if time.monotonic() > until:
            sys.exit(f"collbench-relay: the driver did not start a daemon on {sys.argv[1]} within {LIMIT:g} s")
        time.sleep(0.01)
