"""Check `cache`: from which size on arrays are in memory and in no cache, and whether there is room for them."""

from __future__ import annotations

from collbench.bindings.host_buffers import available_bytes
from collbench.doctor.parts.finding import Finding, Problem, found
from collbench.doctor.parts.processors import Machine
from collbench.machine.facts import last_level_cache
from collbench.units import format_bytes
from collbench.workloads.host.stream import TIMES_CACHE

#: The arrays of STREAM.
ARRAYS = 3

_EFFECT = "memory benchmarks (stream) with smaller arrays show the bandwidth of the cache"


def judge(machine: Machine, available: int | None) -> Finding:
    """`available` bytes of memory; None: the kernel does not say."""
    cache = last_level_cache(machine.root)
    if cache is None:
        cause = "the kernel does not say how large the last-level cache is (/sys/devices/system/cpu/cpu0/cache)"
        fix = f"lscpu --caches; or the processor's data sheet: give each array {TIMES_CACHE} times its last-level cache"
        return found("unknown", Problem("unknown", cause, _EFFECT, fix))
    each = TIMES_CACHE * cache
    needed = f"{ARRAYS} arrays of {TIMES_CACHE} x {format_bytes(cache)} take {format_bytes(ARRAYS * each)}"
    seen = f"last level {format_bytes(cache)}: arrays from {format_bytes(each)} on measure memory; {needed}"
    if available is None or available >= ARRAYS * each:
        return found(seen)
    cause = f"{needed}, and {format_bytes(available)} are available"
    fix = "free -h shows what takes the memory: end it, or measure on a machine with more"
    return found(seen, Problem("warn", cause, _EFFECT, fix))


def run(machine: Machine) -> Finding:
    return judge(machine, available_bytes())
