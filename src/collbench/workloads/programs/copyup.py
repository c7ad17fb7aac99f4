"""`python -m collbench.workloads.programs.copyup make FOLDER`, when an image is built: files whose content is known.

`python -m collbench.workloads.programs.copyup open FILE`, in a container of it: how long it takes to open such a file
for writing, which copies it from the image's layer to the container's. The file is read before, so that the layer's
pages are in memory, and after, when its content must be the same. It is then removed: there is no second first time.
Prints JSON: `ns`, the time; `bytes` of the file; `wrong`, the blocks of 1 MiB that the copying changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

#: Sizes of the files that `make` writes: the files' names.
SIZES = (1 << 20, 64 << 20, 256 << 20)

BLOCK = 1 << 20


def content(size: int) -> Iterator[bytes]:
    """Blocks that cannot be compressed, and of which no two are alike."""
    for start in range(0, size, BLOCK):
        yield hashlib.shake_128(b"collbench %d" % start).digest(min(BLOCK, size - start))


def make(folder: Path, sizes: tuple[int, ...] = SIZES) -> None:
    """Files that anybody may open for writing, and remove."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    for size in sizes:
        with (folder / str(size)).open("wb") as file:
            file.writelines(content(size))
        (folder / str(size)).chmod(0o666)


def wrong(path: Path) -> int:
    """Blocks of a file that are not as `make` wrote them; its name says how many there are."""
    with path.open("rb") as file:
        return sum(file.read(BLOCK) != block for block in content(int(path.name))) + bool(file.read(1))


def opened(path: Path) -> dict[str, int]:
    """Open it for writing: the time (ns), its size, and the blocks that are wrong then. Removes it.

    Raises:
        OSError: it cannot be read, opened for writing or removed.
        ValueError: it was not as `make` wrote it.
    """
    if wrong(path):
        raise ValueError("not as the image's build wrote it")
    began = time.perf_counter_ns()
    file = os.open(path, os.O_WRONLY)
    taken = time.perf_counter_ns() - began
    os.close(file)
    found = {"ns": taken, "bytes": path.stat().st_size, "wrong": wrong(path)}
    path.unlink()
    return found


def main() -> int:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("make", "open"))
    parser.add_argument("path", type=Path)
    flags = parser.parse_args()
    try:
        if flags.what == "make":
            make(flags.path)
        else:
            print(json.dumps(opened(flags.path)))  # noqa: T201 - what it prints is its result
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        print(f"{flags.what} {flags.path}: {reason}", file=sys.stderr)  # noqa: T201 - the last line is the reason
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
