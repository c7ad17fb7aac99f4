"""chase: the latency of a load, by a chain of loads each of which needs the address that the one before it loaded.

The chain is one random cycle through the lines of a buffer, and so through its pages: no prefetcher knows the next
line. Where the buffer is larger than what the TLB reaches, a load includes the walk of the page table.

`python -m collbench.workloads.host.chase --size BYTES --line BYTES --times N` prints JSON: `ns`, the N times of `LOADS`
loads; `wrong`, the lines that the cycle misses; `notes`, on huge pages.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from collbench.schema.case import Case
from collbench.units import parse_size
from collbench.workloads.host.memory import huge_page_notes, private
from collbench.workloads.host.stream import USUAL
from collbench.workloads.program import Measure, Program, parameter
from collbench.workloads.protocol import arguments, notes, printed, started, times, wrong

#: Loads of a sample. The next sample goes on where one ends.
LOADS = 1 << 20

SEED = 1

UNBUILT = "chase was not built: no C compiler or no Python.h at installation; reinstall with them"


def usual_sizes(largest: str) -> tuple[str, ...]:
    """Through the caches, each four times the one before, to the largest."""
    steps = ("4K", "16K", "64K", "256K", "1M", "4M", "16M", "64M", "256M", "1G")
    return (*(size for size in steps if parse_size(size) < parse_size(largest)), largest)


def refuses(case: Case) -> str | None:
    line, size = case["line"], case["size"]
    if line % 8:
        return "line must be a multiple of 8 bytes, the length of an address"
    few = size < 2 * line or size % line
    return f"the size must be a multiple of the line, {line} bytes, and at least two of it" if few else None


WORKLOAD = Program(
    name="chase", suite="cpu", title="pointer chase",
    summary="latency of a load that depends on the one before, in caches and memory; the size is that of the buffer",
    measures=(Measure("load", lambda case: LOADS, "accesses", shown="time"),),
    argv=lambda case, times: started("host.chase", size=case["size"], line=case["line"], times=times),
    needs=lambda: None if importlib.util.find_spec("collbench.workloads._chase") else UNBUILT,
    parse=times, verify=wrong, notes=notes, memory=lambda case: int(case["size"]), refuses=refuses,
    sizes=usual_sizes(USUAL),
    axes=(parameter("line", 64, "bytes from one address to the next: a cache line", least=8, most=1 << 20),),
)  # fmt: skip


def run(size: int, line: int, times: int) -> dict[str, Any]:
    """What is printed. The lap before the samples shows that the cycle has all lines, and warms the caches."""
    from collbench.workloads import _chase

    buffer, n = private(size), size // line
    _chase.link(buffer, line, SEED)
    loads, places = _chase.lap(buffer, line)
    place, taken = 0, []
    for _ in range(times):
        ns, place = _chase.chase(buffer, line, place, LOADS)
        taken.append(ns)
    _, end = _chase.chase(buffer, line, place, -times * LOADS % n)  # the rest of a lap: back at the start
    missed = n - loads + (places != n * (n - 1) // 2) + (end != 0)
    return {"ns": {"load": taken}, "wrong": missed, "notes": huge_page_notes(size)}


def main() -> None:
    """Run as the flags say."""
    flags = arguments(__doc__, WORKLOAD)
    printed(lambda: run(flags.size, flags.line, flags.times), f"a buffer of {flags.size} bytes", "a smaller size")


if __name__ == "__main__":
    main()
