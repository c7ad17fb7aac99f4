"""loading: the input of a training, as MLPerf Storage emulates it: processes read examples, a trainer takes batches.

An example is a file. In an epoch each is read once, in a new random order; after each batch the trainer sleeps for as
long as an accelerator would compute. As torch's DataLoader does, every reader has two batches ahead of the trainer. The
bytes that were read stay in the reader, as in DLIO, which gives the trainer other ones of the same shape.

`python -m collbench.workloads.host.loading write|read --size BYTES ...` writes the examples, in the folder `examples`,
or reads them for an epoch. Prints JSON: `ns` of the epoch; `utilisation`, a share; `wrong`, the examples that are not
as they were written. The first word of an example is its number, and all its words add up to 0.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from collbench.schema.case import Case
from collbench.workloads.host.command import SCORED_UNITS
from collbench.workloads.host.files import cached, each
from collbench.workloads.program import Measure, Program, SideCommand, parameter
from collbench.workloads.protocol import add_flags, end, started, wrong

FOLDER = Path("examples")

#: Batches that a reader has ahead: prefetch_factor of torch's DataLoader.
AHEAD = 2


def batches(case: Case) -> int:
    """Whole batches of an epoch."""
    return int(case["size"] // case["example"] // case["batch"])


def _seconds(case: Case) -> float:
    return max(batches(case) * int(case["compute"]) * 1e-3, int(case["size"]) / 5e8)  # as a usual device reads


def _memory(case: Case) -> int:
    return int(case["readers"] * case["example"] + (case["size"] if case["cache"] == "warm" else 0))


def refuses(case: Case) -> str | None:
    if case["example"] % 8:
        return "example must be a multiple of 8 bytes"
    few = "the size is less than two batches: a trainer waits for the first in any case"
    return few if batches(case) < 2 else None


def _started(what: str, case: Case) -> tuple[str, ...]:
    names = ("size", "example", "batch", "readers", "compute")
    return started("host.loading", what, **{name: case[name] for name in names})


WORKLOAD = Program(
    name="loading", suite="io", title="loading of a training",
    summary="an epoch of examples, read by processes for a trainer that computes: bytes a second, and its utilisation",
    measures=(
        Measure("epoch", lambda case: batches(case) * case["batch"] * case["example"]),
        Measure("utilisation", lambda case: SCORED_UNITS, "%", shown="score"),
    ),
    argv=lambda case, times: _started("read", case), verify=wrong,
    parse=lambda output: {"epoch": [json.loads(output)["ns"] * 1e-9],
                          "utilisation": [SCORED_UNITS / (100 * json.loads(output)["utilisation"])]},
    elapsed=lambda case, output: float(json.loads(output)["ns"] * 1e-9),
    prepare=lambda case: (SideCommand(_started("write", case)),),
    before=lambda case: (cached(case["cache"], str(FOLDER)),),
    refuses=refuses, memory=_memory, disk=lambda case: int(case["size"]), seconds=_seconds,
    files=True, repeated=True, sizes=("1G",),
    axes=(
        parameter("example", 1 << 20, "bytes of an example, which is a file", least=4096, most=1 << 30),
        parameter("batch", 16, "examples of a batch", least=1, most=1 << 20),
        parameter("compute", 50, "ms for which the trainer computes with a batch", least=1, most=1_000_000),
        parameter("readers", 4, "processes that read", least=1, most=1024, kind="how"),
        parameter("cache", "cold", "of the files, before they are read", among=("cold", "warm"), kind="how"),
    ),
)  # fmt: skip


def write(size: int, example: int) -> None:
    """All examples: random words, each example with words of its own; on the device when it returns."""
    FOLDER.mkdir()
    noise = np.random.default_rng().integers(0, 1 << 64, example // 8, np.uint64)
    for number in range(1, size // example + 1):
        words = noise * np.uint64(2 * number + 1)
        words[0], words[-1] = number, 0
        words[-1:] -= words.sum()
        (FOLDER / str(number)).write_bytes(words.data)
    each((FOLDER,), os.fsync)


def load(numbers: list[int], example: int) -> int:
    """Read these examples; how many are not as they were written."""
    words, spoilt = np.empty(example // 8, np.uint64), 0
    for number in numbers:
        with (FOLDER / str(number)).open("rb", buffering=0) as file:
            whole = file.readinto(words.data) == example
        spoilt += not (whole and words[0] == number and words.sum() == 0)
    return spoilt


def train(flags: argparse.Namespace) -> dict[str, Any]:
    """An epoch. Of its utilisation, as of MLPerf Storage's, the loading of the first batch is no part."""
    order = random.sample(range(1, flags.size // flags.example + 1), flags.size // flags.example)
    count = len(order) // flags.batch
    following = iter([order[number * flags.batch : (number + 1) * flags.batch] for number in range(count)])
    with ProcessPoolExecutor(flags.readers, get_context("fork")) as readers:  # which starts all with the first task
        readers.submit(load, [], flags.example).result()
        spoilt, first, began = 0, 0, time.perf_counter_ns()
        ahead = deque(readers.submit(load, batch, flags.example) for batch in islice(following, AHEAD * flags.readers))
        while ahead:
            spoilt += ahead.popleft().result()
            first = first or time.perf_counter_ns()
            ahead.extend(readers.submit(load, batch, flags.example) for batch in islice(following, 1))
            time.sleep(flags.compute * 1e-3)
        ended = time.perf_counter_ns()
    return {"ns": ended - began, "utilisation": count * flags.compute * 1e6 / (ended - first), "wrong": spoilt}


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("write", "read"))
    add_flags(parser, WORKLOAD, "example", "batch", "compute", "readers")
    flags = parser.parse_args()
    try:
        if flags.what == "write":
            write(flags.size, flags.example)
        else:
            sys.stdout.write(json.dumps(train(flags)) + "\n")
    except (OSError, RuntimeError) as error:  # RuntimeError: a reader was killed
        end(1, f"{flags.what} examples: {getattr(error, 'strerror', None) or error}")


if __name__ == "__main__":
    main()
