"""The benchmark stream beside McCalpin's stream.c, with the same flags: interleaved executions, in one run.

    python bench/stream_peer.py STREAM_C [--threads 1 2] [--mib 128] [--rounds 20]

stream.c (https://www.cs.virginia.edu/stream/FTP/Code/stream.c) is not part of the clone, because its licence has rules
for published results. It is compiled with the flags of setup.py, for several threads with OpenMP, and prints the
shortest time of each kernel without its first round: that is what is compared. With collbench, and a C compiler.

Its static arrays begin anywhere in a page, which costs it time. So a second build has arrays in mapped memory, as
collbench has: the target is for this one, and the first is shown beside it. Where pages are small, their places in the
memory change each execution by more than the target; the kernel gives huge pages to both after

    echo always >/sys/kernel/mm/transparent_hugepage/enabled
"""

from __future__ import annotations

import argparse
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
HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
LIMIT = 120.0  # s, one execution
ARRAYS = re.compile(r"static STREAM_TYPE\s+a\[[^;]*;")
FIRST = re.compile(r"^(?=[ \t]*/\* --- SETUP)", re.MULTILINE)
PRINTED = re.compile(r"^(?:Copy|Scale|Add|Triad):\s+\S+\s+\S+\s+(\S+)", re.MULTILINE)


def mapped(source: Path) -> Path:
    """A copy of stream.c whose three arrays are mapped at the start of main. ValueError: this is another stream.c."""
    text, arrays = ARRAYS.subn("#include <sys/mman.h>\nstatic STREAM_TYPE *restrict a, *restrict b, *restrict c;",
                               source.read_text())  # fmt: skip
    memory = "mmap(0, sizeof(STREAM_TYPE) * STREAM_ARRAY_SIZE, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)"
    text, starts = FIRST.subn(f"a = {memory}, b = {memory}, c = {memory};\n", text)
    if (arrays, starts) != (1, 1):
        raise ValueError(f"{source}: neither its arrays nor the start of main are those of stream.c 5.10")
    changed = OUT / "stream-mapped.c"
    changed.write_text(text)
    return changed


def compiled(source: Path, elements: int, threads: int) -> Path:
    """stream.c for arrays of so many doubles."""
    program = OUT / f"{source.stem}-{threads}"
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
    """Seconds [rounds][kernels] of each, in random order within a round."""
    order = random.Random(threads)  # noqa: S311
    static, dynamic = (compiled(path, elements, threads) for path in (source, mapped(source)))
    sides = {"collbench": lambda: ours(elements, threads), "mapped": lambda: theirs(dynamic, threads),
             "static": lambda: theirs(static, threads)}  # fmt: skip
    found: dict[str, list[list[float]]] = {name: [] for name in sides}
    for _ in range(number):
        for name in order.sample(list(sides), len(sides)):
            found[name].append(sides[name]())
    return found


def rows(threads: int, found: dict[str, list[list[float]]]) -> list[Sequence[str]]:
    """Of each kernel and build the ratio of medians, and the quartiles of those within rounds."""
    lines: list[Sequence[str]] = []
    for kernel, name in enumerate(KERNELS):
        mine = [times[kernel] for times in found["collbench"]]
        for build in ("mapped", "static"):
            other = [times[kernel] for times in found[build]]
            low, middle, high = quantiles((a / b for a, b in zip(mine, other, strict=True)), n=4)
            ratio = median(mine) / median(other)
            within = f"{low:.3f} .. {middle:.3f} .. {high:.3f}"
            lines.append((f"{name}, threads={threads}", build, f"{median(other) * 1e3:.2f}",
                          f"{median(mine) * 1e3:.2f}", f"{ratio:.3f}", within,
                          verdict(max(ratio, 1 / ratio), TARGET) if build == "mapped" else ""))  # fmt: skip
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="stream.c")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads [1 2]")
    parser.add_argument("--mib", type=int, default=128, help="MiB of an array [128]")
    parser.add_argument("--rounds", type=int, default=20, help="executions of each [20]")
    asked = parser.parse_args()
    end_on_sigterm()
    OUT.mkdir(exist_ok=True)
    elements = asked.mib * 2**17
    found = {threads: rounds(asked.source, elements, threads, asked.rounds) for threads in asked.threads}
    head = ("kernel", "arrays of stream.c", "stream.c (ms)", "collbench (ms)", "ratio", "quartiles of rounds",
            f"within {TARGET}")  # fmt: skip
    body = table(head, [row for threads, of_threads in found.items() for row in rows(threads, of_threads)])
    how = f"arrays of {asked.mib} MiB, {asked.rounds} rounds, transparent huge pages: {HUGE.read_text().strip()}"
    text = f"# stream beside stream.c\n\n{describe()}; {how}.\n\n{body}"
    keep("stream_peer", text, {"machine": describe(), "mib": asked.mib, "seconds": found})


if __name__ == "__main__":
    main()
