"""stream: the memory bandwidth of one core, by copy, scale, add and triad.

After J. D. McCalpin, "Memory Bandwidth and Machine Balance in Current High Performance Computers", IEEE TCCA
Newsletter, December 1995: the kernels, and bytes as the program reads and writes them, not those that a cache reads.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from collbench.machine.facts import last_level_cache, memory_size
from collbench.schema.case import Case
from collbench.units import parse_size
from collbench.workloads._own import notes, started, times, wrong
from collbench.workloads.program import Measure, Program, parameter
from collbench.workloads.programs.stream import ITEM, in_cache, usual_size

USUAL = usual_size(last_level_cache(), memory_size())


def needs() -> str | None:
    if importlib.util.find_spec("collbench.workloads._stream") is None:
        return "stream's kernels were not built: no C compiler or no Python.h at installation; reinstall with them"
    return None


def argv(case: Case, times: int) -> Sequence[str]:
    return started("stream", size=case["size"], times=times)


def refuses(case: Case) -> str | None:
    if case["size"] < ITEM or case["size"] % ITEM:
        return f"the size must be a multiple of {ITEM} bytes, and at least {ITEM}"
    allowed = case["arrays"] == "any" or case["size"] >= parse_size(USUAL)  # no more fits beside a cache of this size
    small = () if allowed else in_cache(case["size"], last_level_cache())
    return f"{small[0]}. Use size={USUAL} or more, or arrays=any" if small else None


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
    parse=times,
    verify=wrong,
    needs=needs,
    notes=notes,
    memory=lambda case: 3 * int(case["size"]),
    refuses=refuses,
    sizes=(USUAL,),
    axes=(parameter("arrays", "memory", "larger than the cache, or of any size", among=("memory", "any"), kind="how"),),
)
