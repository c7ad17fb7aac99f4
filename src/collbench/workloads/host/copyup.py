"""copyup: open a file of an image's layer for writing, which copies it to the container's layer (overlayfs).

A container copies a file once, so a launch gives one sample.

`python -m collbench.workloads.host.copyup make FOLDER`, when an image is built: files whose content is known.
`python -m collbench.workloads.host.copyup open FILE`, in a container of it: how long it takes to open such a file for
writing. The file is read before, so that the layer's pages are in memory, and after, when its content must be the same.
It is then removed: there is no second first time. Prints JSON: `ns`, the time; `bytes` of the file; `wrong`, the blocks
of 1 MiB that the copying changed.
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

from collbench.schema.case import Case
from collbench.workloads.host.files import kind_of
from collbench.workloads.program import Measure, Program
from collbench.workloads.protocol import end, started

#: A folder of the image, with a file of each size; its name is the size.
LAYER = Path("/collbench/layer")

BLOCK = 1 << 20


def lacks(case: Case, folder: Path) -> str | None:
    """It must be a file of an overlay, and the storage that is measured too."""
    if not (path := LAYER / str(case["size"])).exists():
        return f"there is no {path}: it is in containers of the image tools, each of which can copy it once"
    kinds = {"the image's layer": kind_of(path), "the storage": kind_of(folder)}
    others = [f"{what} is {kind}" for what, kind in kinds.items() if kind != "overlay"]
    return f"only overlayfs copies a file when it is opened; {' and '.join(others)}" if others else None


def verify(case: Case, output: str) -> int:
    """Blocks of the copy that differ from the file, and whether it has another size."""
    result = json.loads(output)
    return int(result["wrong"]) + int(result["bytes"] != case["size"])


WORKLOAD = Program(
    name="copyup", suite="io", title="copy-up",
    summary="first opening of an image's file for writing, which copies it to the container's layer",
    measures=(Measure("open", lambda case: case["size"], once=True),),
    argv=lambda case, times: started("host.copyup", "open", f"{LAYER / str(case['size'])}"),
    parse=lambda output: {"open": [json.loads(output)["ns"] * 1e-9]},
    verify=verify, lacks=lacks, files=True, sizes=("1M", "64M", "256M"),
)  # fmt: skip


def content(size: int) -> Iterator[bytes]:
    """Blocks that cannot be compressed, and of which no two are alike."""
    for start in range(0, size, BLOCK):
        yield hashlib.shake_128(b"collbench %d" % start).digest(min(BLOCK, size - start))


def make(folder: Path, sizes: tuple[int, ...] = (1 << 20, 64 << 20, 256 << 20)) -> None:
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
    """Open it for writing, and remove it: the time (ns), its size, and wrong blocks. ValueError: they were before."""
    if wrong(path):
        raise ValueError("not as the image's build wrote it")
    began = time.perf_counter_ns()
    file = os.open(path, os.O_WRONLY)
    taken = time.perf_counter_ns() - began
    os.close(file)
    result = {"ns": taken, "bytes": path.stat().st_size, "wrong": wrong(path)}
    path.unlink()
    return result


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("make", "open"))
    parser.add_argument("path", type=Path)
    flags = parser.parse_args()
    try:
        if flags.what == "make":
            make(flags.path)
        else:
            sys.stdout.write(json.dumps(opened(flags.path)) + "\n")
    except (OSError, ValueError) as error:
        end(1, f"{flags.what} {flags.path}: {error.strerror if isinstance(error, OSError) else error}")


if __name__ == "__main__":
    main()
