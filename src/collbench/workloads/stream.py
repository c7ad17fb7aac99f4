"""stream: the memory bandwidth of one core, by copy, scale, add and triad.

After J. D. McCalpin, "Memory Bandwidth and Machine Balance in Current High Performance Computers", IEEE TCCA
Newsletter, December 1995: the kernels, and bytes as the program reads and writes them, without those that a cache reads
before it writes a line.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence

from collbench.schema.case import Case
from collbench.workloads.program import Measure, Program

PROGRAM = "collbench.workloads.programs.stream"


def needs() -> str | None:
    if importlib.util.find_spec("collbench.workloads._stream") is None:
        return "stream's kernels were not built: no C compiler or no Python.h at installation; reinstall with them"
    return None


def argv(case: Case, times: int) -> Sequence[str]:
    """The size of a case is that of one array."""
    return (sys.executable, "-m", PROGRAM, "--size", str(case["size"]), "--times", str(times))


def parse(output: str) -> Mapping[str, Sequence[float]]:
    return {name: [ns * 1e-9 for ns in samples] for name, samples in json.loads(output)["ns"].items()}


def verify(case: Case, output: str) -> int:
    wrong: int = json.loads(output)["wrong"]
    return wrong


def notes(output: str) -> Sequence[str]:
    return (f"kernels compiled by {json.loads(output)['compiler']}",)


def refuses(case: Case) -> str | None:
    """An element is a double."""
    size: int = case["size"]
    return None if size >= 8 and size % 8 == 0 else "the size must be a multiple of 8 bytes, and at least 8"


def memory(case: Case) -> int:
    """Three arrays of the size of the case."""
    size: int = case["size"]
    return 3 * size


WORKLOAD = Program(
    name="stream",
    suite="cpu",
    title="STREAM",
    summary="memory bandwidth by copy, scale, add and triad; the size is that of one array",
    measures=(
        Measure("copy", lambda case: 2 * case["size"]),
        Measure("scale", lambda case: 2 * case["size"]),
        Measure("add", lambda case: 3 * case["size"]),
        Measure("triad", lambda case: 3 * case["size"]),
    ),
    argv=argv,
    parse=parse,
    verify=verify,
    needs=needs,
    notes=notes,
    memory=memory,
    refuses=refuses,
    sizes=("64M",),
)
