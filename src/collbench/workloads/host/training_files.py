"""Files of a training: the examples that it loads, and the checkpoints that it writes and reads again.

loading is what MLPerf Storage emulates: processes read examples, and a trainer takes batches of them. In an epoch each
example, a file, is read once, in a new random order; with each batch the trainer sleeps for as long as an accelerator
would compute. As with torch's DataLoader, every reader has two batches ahead of the trainer. As in DLIO, the bytes that
were read stay in the reader. The first word of an example is its number, and all its words add up to 0.

`python -m collbench.workloads.host.training_files loading|checkpoint --size BYTES ...` prints JSON: `ns` by measure;
`wrong`, the examples or shards that are not as they were written; `utilisation` of the trainer; `figures`, the share of
a checkpoint that was in the page cache before it was read. With `--times 0` loading writes the examples.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import islice
from multiprocessing import get_context
from operator import ne
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from collbench.schema.case import Case
from collbench.workloads.host.command import SCORED_UNITS
from collbench.workloads.host.files import bring, cached, each
from collbench.workloads.program import Measure, Program, SideCommand, parameter
from collbench.workloads.protocol import arguments, end, figures, printed, started, times, wrong

#: The folder of examples; batches that a reader has ahead, prefetch_factor of torch's DataLoader.
EXAMPLES, AHEAD = Path("examples"), 2


def batches(case: Case | Mapping[str, int]) -> int:
    """Whole batches of an epoch."""
    return int(case["size"] // case["example"] // case["batch"])


def _loading(case: Case, times: int) -> tuple[str, ...]:
    names = ("size", "example", "batch", "compute", "readers")
    return started("host.training_files", "loading", **{name: case[name] for name in names}, times=times)


def _loading_refuses(case: Case) -> str | None:
    if case["example"] % 8:
        return "example must be a multiple of 8 bytes"
    ahead = AHEAD * case["readers"]
    if batches(case) <= ahead:  # then the trainer waits for the first batch alone, which does not count
        return f"readers load {ahead} batches ahead, and an epoch has {batches(case)}; use a larger size"
    return None


#: By name.
WORKLOADS = {program.name: program for program in (
    Program(
        name="loading", suite="io", title="loading of a training",
        summary="an epoch of examples that processes read for a trainer: bytes a second, utilisation of the trainer",
        measures=(
            Measure("epoch", lambda case: batches(case) * case["batch"] * case["example"]),
            Measure("utilisation", lambda case: SCORED_UNITS, "%", shown="score"),
        ),
        argv=_loading, verify=wrong, refuses=_loading_refuses,
        parse=lambda output: times(output) | {"utilisation": [SCORED_UNITS / 100 / json.loads(output)["utilisation"]]},
        elapsed=lambda case, output: times(output)["epoch"][0],
        prepare=lambda case: (SideCommand(_loading(case, 0)),),
        before=lambda case: (cached(case["cache"], str(EXAMPLES)),),
        memory=lambda case: int(case["readers"] * case["example"] + (case["cache"] == "warm") * case["size"]),
        disk=lambda case: int(case["size"]), files=True, repeated=True, sizes=("1G",),
        seconds=lambda case: 1 + max(batches(case) * float(case["compute"]) * 1e-3, case["size"] / 5e8),
        axes=(
            parameter("example", 1 << 20, "bytes of an example, which is a file", least=4096, most=1 << 30),
            parameter("batch", 16, "examples of a batch", least=1, most=1 << 20),
            parameter("compute", 50, "ms for which the trainer computes with a batch", least=1, most=1_000_000),
            parameter("readers", 4, "processes that read", least=1, most=1024, kind="how"),
            parameter("cache", "cold", "of the files, before they are read", among=("cold", "warm"), kind="how"),
        ),
    ),
    Program(
        name="checkpoint", suite="io", title="checkpoint",
        summary="a checkpoint written, flushed to the device and read back; the size is that of all shards together",
        measures=tuple(Measure(name, lambda case: case["size"]) for name in ("write", "read")),
        argv=lambda case, times: started("host.training_files", "checkpoint", size=case["size"], shards=case["shards"],
                                         cache=case["cache"]),
        parse=times, verify=wrong, figures=figures,
        refuses=lambda case: None if case["size"] and case["size"] % (8 * case["shards"]) == 0 else
        f"the size must be a multiple of {8 * case['shards']} bytes: whole words in each shard",
        memory=lambda case: int(case["size"]), disk=lambda case: int(case["size"]), files=True, repeated=True,
        seconds=lambda case: float(1 + case["size"] / 2e8), sizes=("1G",),  # written and read, with checksums
        axes=(
            parameter("shards", 1, "files, each written and read by a thread", least=1, most=1024),
            parameter("cache", "cold", "of the files, before they are read", among=("cold", "warm"), kind="how"),
        ),
    ),
)}  # fmt: skip


def write_examples(size: int, example: int) -> None:
    """Random words, each example with words of its own; they are on the device when it returns."""
    EXAMPLES.mkdir()
    noise = np.random.default_rng().integers(0, 1 << 64, example // 8, np.uint64)
    for number in range(1, size // example + 1):
        words = noise * np.uint64(2 * number + 1)
        words[0], words[-1] = number, 0
        words[-1:] -= words.sum()
        (EXAMPLES / str(number)).write_bytes(words.data)
    each((EXAMPLES,), os.fsync)


def read_examples(numbers: Sequence[int], example: int) -> int:
    """How many of these examples are not as they were written."""
    words, spoilt = np.empty(example // 8, np.uint64), 0
    for number in numbers:
        with (EXAMPLES / str(number)).open("rb", buffering=0) as file:
            whole = file.readinto(words.data) == example
        spoilt += not (whole and words[0] == number and words.sum() == 0)
    return spoilt


def loading(flags: argparse.Namespace) -> dict[str, Any]:
    """An epoch. Of its utilisation, as of MLPerf Storage's, the loading of the first batch is no part."""
    order = random.sample(range(1, flags.size // flags.example + 1), batches(vars(flags)) * flags.batch)
    parts = [order[start : start + flags.batch] for start in range(0, len(order), flags.batch)]
    with ProcessPoolExecutor(flags.readers, get_context("fork")) as readers:  # which starts all with the first task
        readers.submit(read_examples, [], flags.example).result()
        requested = (readers.submit(read_examples, part, flags.example) for part in parts)
        spoilt, first, began = 0, 0, time.perf_counter_ns()
        ahead = deque(islice(requested, AHEAD * flags.readers))
        while ahead:
            spoilt, first = spoilt + ahead.popleft().result(), first or time.perf_counter_ns()
            ahead.extend(islice(requested, 1))
            time.sleep(flags.compute * 1e-3)
        ended = time.perf_counter_ns()
    computed = len(parts) * flags.compute * 1e6
    return {"ns": {"epoch": [ended - began]}, "utilisation": computed / (ended - first), "wrong": spoilt}


def checkpoint(flags: argparse.Namespace) -> dict[str, Any]:
    """Random words from memory to new files, a thread for each shard, and back. OSError: there is no space for them."""
    memory = np.random.default_rng().integers(0, 1 << 64, (flags.shards, flags.size // 8 // flags.shards), np.uint64)
    paths = [Path(f"shard{number}") for number in range(flags.shards)]

    def write(path: Path, shard: npt.NDArray[np.uint64]) -> None:
        with path.open("xb") as file:
            file.write(shard.data)
            file.flush()
            os.fsync(file.fileno())

    def read(path: Path, shard: npt.NDArray[np.uint64]) -> None:
        with path.open("rb") as file:
            file.readinto(shard.data)

    with ThreadPoolExecutor(flags.shards) as threads:
        expected, began = list(threads.map(zlib.crc32, memory)), time.perf_counter_ns()
        list(threads.map(write, paths, memory))
        taken = {"write": [time.perf_counter_ns() - began]}
        share = bring(flags.cache, paths)
        memory[:], began = 0, time.perf_counter_ns()
        list(threads.map(read, paths, memory))
        taken["read"] = [time.perf_counter_ns() - began]
        spoilt = sum(map(ne, expected, threads.map(zlib.crc32, memory)))
    list(map(Path.unlink, paths))  # the next execution makes new ones
    return {"ns": taken, "figures": {"resident": share}, "wrong": spoilt}


def main() -> None:
    """Run as the flags say."""
    flags = arguments(__doc__, WORKLOADS)
    try:
        if flags.times == 0:
            write_examples(flags.size, flags.example)
        else:
            run = loading if flags.name == "loading" else checkpoint
            printed(lambda: run(flags), f"a {flags.name} of {flags.size} bytes", "a smaller size")
    except OSError as error:
        end(1, f"{flags.name}: {error.strerror}")


if __name__ == "__main__":
    main()
