"""What workloads that work in files ask of a folder, of the kernel and of its page cache.

`python -m collbench.workloads.host.files cold|warm PATH...` drops files, or all files of a folder, from the page cache,
or reads them in. Cold is fsync and then posix_fadvise(DONTNEED), which needs no right but to open the file: pages that
are not on the device yet cannot be dropped. Prints JSON: `resident`, the share of their pages that are then in memory
(mincore). Where files are nothing but pages of the cache (tmpfs), it ends with exit code 77.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from collbench.workloads.program import SideCommand
from collbench.workloads.protocol import SKIPPED, end, started

#: File systems by the number that statfs(2) gives.
_KINDS = {0x01021994: "tmpfs", 0x794C7630: "overlay", 0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs"}

ResultT = TypeVar("ResultT")

#: Least part of the time asked for that a program measures: it looks at its clock after each request.
SHORTEST = 0.9

_EXPLAINED = 'said=$("$@" 2>&1) && echo "$said" && exit; echo "$said" | grep -m 1 -e "$0" >&2; exit 1'


def explained(pattern: str, *argv: str) -> tuple[str, ...]:
    """The command, with its standard error in its output; where it fails, the first line with the pattern says why."""
    return ("sh", "-c", _EXPLAINED, pattern, *argv)


def kind_of(path: Path) -> str:
    """The file system that a path is on, as `tmpfs`; by its number where it has no name here. OSError: no such path."""
    status = (ctypes.c_long * 64)()  # longer than struct statfs, which begins with the type
    if ctypes.CDLL(None, use_errno=True).statfs(os.fsencode(path), status):
        raise OSError(number := ctypes.get_errno(), os.strerror(number), str(path))
    kind = status[0] & 0xFFFFFFFF
    return _KINDS.get(kind, f"file system {kind:#x}")


def no_direct(folder: Path) -> str | None:
    """Why files of a folder cannot be opened with O_DIRECT; None: they can."""
    path = folder / "direct"
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600))
    except OSError as error:
        return f"direct I/O: {kind_of(folder)} refuses to open a file with O_DIRECT ({error.strerror})"
    finally:
        path.unlink(missing_ok=True)
    return None


def no_io_uring() -> str | None:
    """Why the system call io_uring_setup cannot be used; None: it can."""
    number = 425  # on all architectures that containers run on
    queue = ctypes.CDLL(None, use_errno=True).syscall(number, 1, (ctypes.c_char * 120)())
    if queue >= 0:
        os.close(queue)
        return None
    return (f"io_uring is refused here ({os.strerror(ctypes.get_errno())}): by the kernel, or by the seccomp profile "
            'of the container engine, which seccomp = "unconfined" leaves out')  # fmt: skip


def cached(state: str, *paths: str) -> SideCommand:
    """Bring files into the page cache (`warm`), or out of it (`cold`); the record's check has what `main` prints."""
    return SideCommand(started("host.files", state, *paths), json.loads)


def resident(file: int) -> float:
    """Share of the pages of an open file that are in the cache; 0 of an empty one. OSError: the kernel tells none."""
    if (size := os.fstat(file).st_size) == 0:
        return 0.0
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    libc = ctypes.CDLL(None, use_errno=True)
    with mmap.mmap(file, size, access=mmap.ACCESS_COPY) as mapping:  # which touches no page
        first = ctypes.c_char.from_buffer(mapping)
        failed = libc.mincore(ctypes.byref(first), ctypes.c_size_t(size), pages)
        del first
    if failed:
        raise OSError(number := ctypes.get_errno(), os.strerror(number))
    return sum(page & 1 for page in pages) / len(pages)


def drop(file: int) -> None:
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def read(file: int) -> None:
    os.lseek(file, 0, os.SEEK_SET)
    while os.read(file, 1 << 20):
        pass


def each(paths: Sequence[Path], act: Callable[[int], ResultT]) -> list[ResultT]:
    """What `act` gives for each file, opened, also of those in folders. OSError."""
    results = []
    for path in [file for given in paths for file in (sorted(given.iterdir()) if given.is_dir() else (given,))]:
        with path.open("r+b") as file:
            results.append(act(file.fileno()))
    return results


def bring(state: str, paths: Sequence[Path]) -> float:
    """Do what `cached` says. The share of pages in the cache; the process ends where that is not as it should be."""
    cold, what = state == "cold", paths[0] if len(paths) == 1 else f"{len(paths)} files"
    try:
        each(paths, drop if cold else read)
        shares = each(paths, lambda file: (os.fstat(file).st_size, resident(file)))
    except OSError as error:
        end(1, f"page cache of {error.filename or what}: {error.strerror}")
    if cold and kind_of(paths[0]) == "tmpfs":
        end(SKIPPED, "cache=cold: a file on tmpfs is always in memory")
    share = sum(size * part for size, part in shares) / max(sum(size for size, _ in shares), 1)
    if (share if cold else 1 - share) > 0.01:
        why = "fsync and posix_fadvise(DONTNEED)" if cold else "reading; is there memory for it?"
        end(1, f"{share:.1%} of {what} is in the page cache after {why}")
    return share


def main() -> None:
    """Do what the arguments say, and print the share."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("state", choices=("cold", "warm"))
    parser.add_argument("path", type=Path, nargs="+")
    flags = parser.parse_args()
    sys.stdout.write(json.dumps({"resident": bring(flags.state, flags.path)}) + "\n")


if __name__ == "__main__":
    main()
