"""checkpoint: what a training writes now and then, and reads when it begins again.

`python -m collbench.workloads.host.checkpoint --size BYTES --shards N --bs BYTES --cache cold|warm` writes random bytes
from memory into new files, a thread for each shard, and flushes the files and their folder to the device. It drops them
from the page cache, unless that is to be warm, and reads them into the same memory. Prints JSON: `ns` of both;
`figures`, with the share of the pages that were in the cache before the read; `wrong`, the shards with another hash.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import ne
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from collbench.schema.case import Case
from collbench.workloads.host.files import bring
from collbench.workloads.program import Measure, Program, parameter
from collbench.workloads.protocol import arguments, end, figures, printed, started, times, wrong

Words = npt.NDArray[np.uint64]


def refuses(case: Case) -> str | None:
    uneven = f"the size must be a multiple of {8 * case['shards']} bytes: shards have one size, in words of 8 bytes"
    return uneven if case["size"] % (8 * case["shards"]) or not case["size"] else None


WORKLOAD = Program(
    name="checkpoint", suite="io", title="checkpoint",
    summary="a checkpoint written and flushed to the device, and read back; the size is that of all shards together",
    measures=tuple(Measure(name, lambda case: case["size"]) for name in ("write", "read")),
    argv=lambda case, times: started("host.checkpoint", **{
        name: case[name] for name in ("size", "shards", "bs", "cache")
    }),
    parse=times, verify=wrong, figures=figures, refuses=refuses,
    memory=lambda case: int(case["size"]), disk=lambda case: int(case["size"]),
    seconds=lambda case: float(1 + case["size"] / 2e8),  # written, read, and hashed twice
    files=True, repeated=True, sizes=("1G",),
    axes=(
        parameter("shards", 1, "files, each written and read by a thread", least=1, most=1024),
        parameter("bs", 1 << 20, "bytes of a write or read", least=512, most=1 << 30),
        parameter("cache", "cold", "of the files, before they are read", among=("cold", "warm"), kind="how"),
    ),
)  # fmt: skip


def run(size: int, shards: int, bs: int, cache: str) -> dict[str, Any]:
    """What is printed. OSError: there is no space for the files, or they are there."""
    memory = np.random.default_rng().integers(0, 1 << 64, size // 8, np.uint64).reshape(shards, -1)
    paths = [Path(f"shard{number}") for number in range(shards)]

    def hashed(shard: Words) -> bytes:
        return hashlib.blake2b(shard.data).digest()

    def write(path: Path, shard: Words) -> None:
        with path.open("xb", buffering=0) as file:
            for part in _parts(shard, bs):
                if file.write(part) < len(part):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())

    def read(path: Path, shard: Words) -> None:
        with path.open("rb", buffering=0) as file:
            for part in _parts(shard, bs):
                file.readinto(part)

    with ThreadPoolExecutor(shards) as threads:
        expected, began = list(threads.map(hashed, memory)), time.perf_counter_ns()
        list(threads.map(write, paths, memory))
        folder = os.open(".", os.O_RDONLY)
        os.fsync(folder)  # for the names of the files
        taken = {"write": [time.perf_counter_ns() - began]}
        os.close(folder)
        share = bring(cache, paths)
        memory[:], began = 0, time.perf_counter_ns()
        list(threads.map(read, paths, memory))
        taken["read"] = [time.perf_counter_ns() - began]
        spoilt = sum(map(ne, expected, threads.map(hashed, memory)))
    for path in paths:  # the next execution makes new ones
        path.unlink()
    return {"ns": taken, "figures": {"resident": share}, "wrong": spoilt}


def _parts(shard: Words, bs: int) -> Iterator[memoryview]:
    view = shard.data.cast("B")
    return (view[start : start + bs] for start in range(0, len(view), bs))


def main() -> None:
    """Run as the flags say."""
    flags = arguments(__doc__, WORKLOAD)
    try:
        printed(lambda: run(flags.size, flags.shards, flags.bs, flags.cache), f"a checkpoint of {flags.size} bytes",
                "a smaller size")  # fmt: skip
    except OSError as error:
        end(1, f"checkpoint: {error.strerror}")


if __name__ == "__main__":
    main()
