"""stream: the memory bandwidth of one core, by copy, scale, add and triad.

After J. D. McCalpin, "Memory Bandwidth and Machine Balance in Current High Performance Computers", IEEE TCCA
Newsletter, December 1995: the kernels, and bytes as the program reads and writes them, without those that a cache reads
before it writes a line.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence

from collbench.machine.facts import last_level_cache
from collbench.schema.case import Case
from collbench.workloads.program import Measure, Program
from collbench.workloads.programs.stream import ITEM, usual_size


def needs() -> str | None:
    if importlib.util.find_spec("collbench.workloads._stream") is None:
        return "stream's kernels were not built: no C compiler or no Python.h at installation; reinstall with them"
    return None


def argv(case: Case, times: int) -> Sequence[str]:
    """The size of a case is that of one array."""
    program = "collbench.workloads.programs.stream"
    return (sys.executable, "-m", program, "--size", str(case["size"]), "--times", str(times))


def parse(output: str) -> Mapping[str, Sequence[float]]:
    return {name: [ns * 1e-9 for ns in samples] for name, samples in json.loads(output)["ns"].items()}


def refuses(case: Case) -> str | None:
    whole = case["size"] >= ITEM and case["size"] % ITEM == 0
    return None if whole else f"the size must be a multiple of {ITEM} bytes, and at least {ITEM}"


WORKLOAD = Program(
    name="stream",
    suite="cpu",
    title="STREAM",
    summary="memory bandwidth by copy, scale, add and triad; the size is that of one array",
    measures=tuple(
        Measure(name, lambda case, arrays=arrays: arrays * case["size"])  # type: ignore[misc]
        for name, arrays in (("copy", 2), ("scale", 2), ("add", 3), ("triad", 3))
    ),
    argv=argv,
    parse=parse,
    verify=lambda case, output: int(json.loads(output)["wrong"]),
    needs=needs,
    notes=lambda output: tuple(json.loads(output)["notes"]),
    memory=lambda case: 3 * int(case["size"]),
    refuses=refuses,
    sizes=(usual_size(last_level_cache(), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")),),
)
