"""Check `clocks`: one CLOCK_MONOTONIC for all ranks, read without a system call."""

from __future__ import annotations

import time

from collbench.doctor.parts.finding import Finding, Problem, found
from collbench.doctor.parts.processors import Machine

_SOURCE = "sys/devices/system/clocksource/clocksource0"

#: Clock sources that are read through a device or that tick: never within a fraction of a microsecond.
_SLOW = {"hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"}

#: A read that takes longer (ns) went through the kernel; Python's own share is some 50 ns.
SLOW_READ = 500.0

_BATCHES, _READS = 20, 100


def read_cost() -> float:
    """Nanoseconds that one read of the clock takes: the least of several batches."""
    read = time.monotonic_ns
    costs = []
    for _ in range(_BATCHES):
        begin = read()
        for _ in range(_READS):
            read()
        costs.append((read() - begin) / _READS)
    return min(costs)


def judge(machine: Machine, cost: float) -> Finding:
    """Time namespace and clock source; `cost` of one read in ns."""
    source = machine.read(f"{_SOURCE}/current_clocksource")
    shifted = _shifts(machine.read("proc/self/timens_offsets") or "")
    namespace = f"shifted by a time namespace: {shifted}" if shifted else "no shift by a time namespace"
    seen = f"{source or 'unknown source'}, {cost:.0f} ns per read; {namespace}"
    return found(seen, _namespace(shifted), _slow(machine, source, cost))


def _shifts(text: str) -> str:
    """The lines of `/proc/self/timens_offsets` (name, seconds, nanoseconds) that are not zero."""
    lines = (line.split() for line in text.splitlines())
    return ", ".join(f"{name} {sec} s {ns} ns" for name, sec, ns in lines if (sec, ns) != ("0", "0"))


def _namespace(shifted: str) -> Problem | None:
    if not shifted:
        return None
    return Problem(
        "warn",
        f"this process runs in a time namespace with offsets ({shifted})",
        "where ranks outside it compare clocks too coarsely, --gate auto is barrier: a small bcast looks half as long",
        "start every rank in one time namespace: no unshare --time, no timeOffsets in a container's configuration",
    )


def _slow(machine: Machine, source: str | None, cost: float) -> Problem | None:
    if source not in _SLOW and cost < SLOW_READ:
        return None
    others = (machine.read(f"{_SOURCE}/available_clocksource") or "").split()
    fix = "boot with tsc=reliable clocksource=tsc, or take a virtual machine type that offers an invariant TSC"
    if "tsc" in others and source != "tsc":
        fix = f"echo tsc | sudo tee /{_SOURCE}/current_clocksource; to keep it, boot with clocksource=tsc"
    return Problem(
        "warn",
        f"the clock ({source or 'of an unknown source'}) takes {cost:.0f} ns to read: through the kernel, "
        "not from user space",
        "ranks that wait for a common start read it and are late; every sample holds a read, which slows small ones",
        fix,
    )


def run(machine: Machine) -> Finding:
    return judge(machine, read_cost())
