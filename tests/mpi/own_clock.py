"""Starts Python with other arguments: on rank 0 at once, on the others in a time namespace of their own, as if they
were on hosts whose clocks disagree. By how much, /proc/self/timens_offsets of each rank says.

unshare makes the namespace for its child; it is root's to make, or that of a user namespace's root.
"""

from __future__ import annotations

import os
import sys

#: Seconds by which the clock of a rank is ahead of that of the rank before.
AHEAD = 12_345


def command(rank: int, arguments: list[str]) -> list[str]:
    """Python with these arguments, on this rank."""
    program = [sys.executable, *arguments]
    if rank == 0:
        return program
    namespace = ["--time", "--fork", "--kill-child", f"--monotonic={rank * AHEAD}", f"--boottime={rank * AHEAD}"]
    return ["unshare", *([] if os.geteuid() == 0 else ["-Ur"]), *namespace, "--", *program]


def rank_here() -> int:
    """The rank that a launcher gave this process."""
    names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK")
    return next((int(os.environ[name]) for name in names if name in os.environ), 0)


if __name__ == "__main__":
    words = command(rank_here(), sys.argv[1:])
    os.execvp(words[0], words)  # noqa: S606 - it becomes the rank
