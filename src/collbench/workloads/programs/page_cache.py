"""`python -m collbench.workloads.programs.page_cache cold|warm FILE`: drop a file from the page cache, or read it in.

Cold is fsync and then posix_fadvise(DONTNEED), which needs no right but to open the file: pages that are not on the
device yet cannot be dropped. Prints JSON: `resident`, the share of the file's pages that are then in the cache
(mincore). Where files are nothing but pages of the cache (tmpfs), it ends with exit code 77.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import sys
from pathlib import Path

from collbench.workloads._files import kind_of

#: Share of the pages that may be where they should not.
STRAY = 0.01

CHUNK = 1 << 20


def resident(file: int) -> float:
    """Share of the pages of an open file that are in the cache; 0 for an empty one.

    Raises:
        OSError: the kernel does not tell.
    """
    size = os.fstat(file).st_size
    if size == 0:
        return 0.0
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    libc = ctypes.CDLL(None, use_errno=True)
    with mmap.mmap(file, size) as mapping:  # which touches no page
        first = ctypes.c_char.from_buffer(mapping)
        failed = libc.mincore(ctypes.byref(first), ctypes.c_size_t(size), pages)
        del first
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return sum(page & 1 for page in pages) / len(pages)


def drop(file: int) -> None:
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def read(file: int) -> None:
    os.lseek(file, 0, os.SEEK_SET)
    while os.read(file, CHUNK):
        pass


def main() -> int:
    """Do what the arguments say, and print the share."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("state", choices=("cold", "warm"))
    parser.add_argument("file", type=Path)
    flags = parser.parse_args()
    cold = flags.state == "cold"
    try:
        file = os.open(flags.file, os.O_RDWR)
        (drop if cold else read)(file)
        share = resident(file)
        os.close(file)
    except OSError as error:
        return say(f"page cache of {flags.file}: {error.strerror}", 1)
    if cold and kind_of(flags.file) == "tmpfs":
        return say("cache=cold: a file on tmpfs is always in memory", 77)
    if (share if cold else 1 - share) > STRAY:
        why = "fsync and posix_fadvise(DONTNEED)" if cold else "it was read; is there memory for it?"
        return say(f"{share:.1%} of {flags.file} is in the page cache after {why}", 1)
    print(json.dumps({"resident": share}))  # noqa: T201 - what it prints is its result
    return 0


def say(reason: str, code: int) -> int:
    print(reason, file=sys.stderr)  # noqa: T201 - the last line is the reason
    return code


if __name__ == "__main__":
    sys.exit(main())
