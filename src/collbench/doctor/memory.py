"""Check `memory`: how much buffers can take before the kernel swaps or kills."""

from __future__ import annotations

from collbench.bindings.host_buffers import available_bytes
from collbench.doctor.parts.finding import Finding, Problem, found
from collbench.doctor.parts.processors import Machine
from collbench.machine.cgroup import memory_limit
from collbench.units import format_bytes

#: Less than this is too little for the default sweep beside the libraries of a few ranks.
LITTLE = 1 << 30


def judge(machine: Machine, available: int | None) -> Finding:
    """`available` bytes, as the check before the first case sees them; None: the kernel does not say."""
    if available is None:
        return found(
            "unknown",
            Problem("unknown", "/proc/meminfo cannot be read",
                    "a case that does not fit is not refused before it is allocated: the kernel may kill a rank",
                    "free -h; choose -e so that ranks x buffers stay below what is available"),
        )  # fmt: skip
    limit = memory_limit(machine.root)
    group = "no cgroup limit" if limit is None else f"cgroup limit {format_bytes(limit)}"
    seen = f"{format_bytes(available)} available, {_swap(machine)}, {group}"
    if available >= LITTLE:
        return found(seen)
    fix = "docker run --memory=4g ..." if machine.container is not None else "end other programs"
    return found(
        seen,
        Problem("warn", f"only {format_bytes(available)} are available without swapping",
                "large cases are refused, and buffers may be swapped out while they are timed",
                f"{fix}, or measure with a smaller -e"),
    )  # fmt: skip


def _swap(machine: Machine) -> str:
    lines = (line.split() for line in (machine.read("proc/meminfo") or "").splitlines())
    sizes = {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) > 1 and words[1].isdecimal()}
    total, free = sizes.get("SwapTotal", 0), sizes.get("SwapFree", 0)
    return f"swap {format_bytes(total - free)} of {format_bytes(total)} used" if total else "no swap"


def run(machine: Machine) -> Finding:
    return judge(machine, available_bytes())
