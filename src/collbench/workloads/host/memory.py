"""What programs that measure memory have in common: memory of their own, processors near it, and its huge pages."""

from __future__ import annotations

import mmap
import re

from collbench.machine.cgroup import text_of
from collbench.machine.facts import huge_pages, in_order, processors_here
from collbench.workloads.protocol import Unusable

ALL_NODES = -1  #: processors of any memory node


def private(size: int) -> mmap.mmap:
    """Untouched memory that gets huge pages where the static arrays of a program in C get them."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def processors(threads: int, node: int) -> tuple[int, ...]:
    """One for each thread (0: all), of that memory node; of each core one before the others. Unusable: too few."""
    usable = processors_here()
    near = [core for core in usable if node in (ALL_NODES, core.node)]
    if not near:
        nodes = ", ".join(map(str, sorted({core.node for core in usable})))
        raise Unusable(f"node={node}: this process may use processors of the memory nodes {nodes}; use one of these")
    count = threads or len(near)
    if count > len(near):
        of_node = "" if node == ALL_NODES else f" of memory node {node}"
        raise Unusable(f"threads={count}: more than the {len(near)} processors{of_node} that this process may use")
    return tuple(core.number for core in in_order(near, count)[:count])


def huge_page_notes(size: int) -> tuple[str, ...]:
    """Which share of `size` bytes of memory is in transparent huge pages; nothing where the kernel does not say."""
    found = re.search(r"^AnonHugePages:\s+(\d+) kB", text_of("/proc/self/smaps_rollup") or "", re.MULTILINE)
    if found is None:
        return ()
    share = min(1024 * int(found[1]) / size, 1.0)  # the interpreter may have some too
    return (f"transparent huge pages {huge_pages() or 'unknown'}: {share * 100:.0f} % of the memory measured",)
