"""One error message per job: a rank prints one only if no other rank has.

When one rank fails, others notice soon after, and each would print a message. The ranks of a host share an unlinked
temporary file; the first one to write to it prints. Hosts, and containers that share no folder, each print their own.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from collbench.bindings.spec import World


class FirstReporter:
    """Lets one rank report an error. Collective to create."""

    def __init__(self, world: World) -> None:
        path = world.bcast(_new_file() if world.rank == 0 else None)
        self._file: int | None = None
        if path is not None:
            with contextlib.suppress(OSError):
                self._file = os.open(path, os.O_RDWR)
        world.bcast(world.gather(None) and None)  # all have opened it; the messages are those of every version
        if path is not None and world.rank == 0:
            Path(path).unlink()

    def claim(self) -> bool:
        """True for the first rank that asks, False for all later ones."""
        if self._file is None:
            return True
        import fcntl  # Unix has it

        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            first = os.fstat(self._file).st_size == 0
            os.pwrite(self._file, b"claimed", 0)
            return first
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def _new_file() -> str | None:
    """The path of a new empty file; None where the temporary folder cannot be written."""
    path = f"{os.environ.get('TMPDIR', '/tmp')}/collbench-{os.getpid()}-{time.monotonic_ns()}"  # noqa: S108
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError:
        return None
    return path
