"""The benchmark stream beside McCalpin's stream.c, with the same flags: interleaved executions, in one run.

    python bench/stream_peer.py STREAM_C [--threads 1 2] [--mib 128] [--rounds 20]

stream.c (https://www.cs.virginia.edu/stream/FTP/Code/stream.c) is not part of the clone, because its licence has rules
for published results. It is compiled with the flags of setup.py, for several threads with OpenMP, and prints the
shortest time of each kernel without its first round: that is what is compared. With collbench, and a C compiler.

Both have small pages alone: collbench asks for huge ones, and the static arrays of stream.c get them only where the
kernel gives them to everyone.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles

from installation import OUT, end_on_sigterm, run
from machine import describe
from results import keep, table, verdict

KERNELS = ("copy", "scale", "add", "triad")
TARGET = 1.03  # of the time, either way
TIMES = 20  # rounds of an execution; the first does not count
LIMIT = 120.0  # s, one execution
PRINTED = re.compile(r"^(?:Copy|Scale|Add|Triad):\s+\S+\s+\S+\s+(\S+)", re.MULTILINE)


def without_huge_pages() -> None:
    """From here on, of this process and all that it starts (prctl(2))."""
    set_thp_disable = 41
    if ctypes.CDLL(None, use_errno=True).prctl(set_thp_disable, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_THP_DISABLE)")


def compiled(source: Path, elements: int, threads: int) -> Path:
    """stream.c for arrays of so many doubles."""
    OUT.mkdir(exist_ok=True)
    program = OUT / f"stream-{threads}"
    openmp = ("-fopenmp",) if threads > 1 else ()
    sizes = (f"-DSTREAM_ARRAY_SIZE={elements}", f"-DNTIMES={TIMES}", "-mcmodel=medium")
    run(("gcc", "-O3", "-std=gnu11", *openmp, *sizes, str(source), "-o", str(program)), LIMIT, dict(os.environ))
    return program


def theirs(program: Path, threads: int) -> list[float]:
    """Seconds of each kernel by stream.c."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_PROC_BIND": "true"}
    return [float(seconds) for seconds in PRINTED.findall(run((str(program),), LIMIT, environment))]


def ours(elements: int, threads: int) -> list[float]:
    """The same by collbench."""
    argv = (sys.executable, "-m", "collbench.workloads.host.stream", "--size", str(8 * elements), "--times", str(TIMES),
            "--threads", str(threads))  # fmt: skip
    return [min(ns[1:]) * 1e-9 for ns in json.loads(run(argv, LIMIT, dict(os.environ)))["ns"].values()]


def rounds(source: Path, elements: int, threads: int, number: int) -> dict[str, list[list[float]]]:
    """Seconds [rounds][kernels] of both, in random order within a round."""
    program, order = compiled(source, elements, threads), random.Random(threads)  # noqa: S311
    sides = {"collbench": lambda: ours(elements, threads), "stream.c": lambda: theirs(program, threads)}
    found: dict[str, list[list[float]]] = {name: [] for name in sides}
    for _ in range(number):
        for name in order.sample(list(sides), len(sides)):
            found[name].append(sides[name]())
    return found


def rows(threads: int, found: dict[str, list[list[float]]]) -> list[Sequence[str]]:
    """Of each kernel the ratio of medians, and the quartiles of those within rounds."""
    lines: list[Sequence[str]] = []
    for name, mine, other in zip(KERNELS, zip(*found["collbench"], strict=True), zip(*found["stream.c"], strict=True),
                                 strict=True):  # fmt: skip
        low, middle, high = quantiles((a / b for a, b in zip(mine, other, strict=True)), n=4)
        ratio = median(mine) / median(other)
        within = f"{low:.3f} .. {middle:.3f} .. {high:.3f}"
        lines.append((f"{name}, threads={threads}", f"{median(other) * 1e3:.2f}", f"{median(mine) * 1e3:.2f}",
                      f"{ratio:.3f}", within, verdict(max(ratio, 1 / ratio), TARGET)))  # fmt: skip
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="stream.c")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads [1 2]")
    parser.add_argument("--mib", type=int, default=128, help="MiB of an array [128]")
    parser.add_argument("--rounds", type=int, default=20, help="executions of each [20]")
    asked = parser.parse_args()
    end_on_sigterm()
    without_huge_pages()
    elements = asked.mib * 2**17
    found = {threads: rounds(asked.source, elements, threads, asked.rounds) for threads in asked.threads}
    head = ("kernel", "stream.c (ms)", "collbench (ms)", "ratio", "quartiles of rounds", f"within {TARGET}")
    body = table(head, [row for threads, of_threads in found.items() for row in rows(threads, of_threads)])
    how = f"arrays of {asked.mib} MiB, {asked.rounds} rounds, no huge pages"
    text = f"# stream beside stream.c\n\n{describe()}; {how}.\n\n{body}"
    keep("stream_peer", text, {"machine": describe(), "mib": asked.mib, "seconds": found})


if __name__ == "__main__":
    main()
