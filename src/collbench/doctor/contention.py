"""Check `contention`: whether other processes use the cores now."""

from __future__ import annotations

import re

from collbench.doctor.parts.finding import Finding, Problem, found
from collbench.doctor.parts.processors import Machine, online
from collbench.machine.facts import CONTENDED_SHARE

_FIX = "ps -eo pid,pcpu,user,comm --sort=-pcpu | head; stop what it shows, or measure later"
_UNTOLD = Problem(
    "unknown",
    "/proc/pressure/cpu cannot be read: the kernel does not record CPU pressure",
    "records cannot say whether ranks waited for a CPU while they were timed (contended: null)",
    "boot with psi=1 (a kernel with CONFIG_PSI)",
)
_EFFECT = "ranks wait for a core in the middle of an operation: medians rise, p99 and max are the scheduler's"


def run(machine: Machine) -> Finding:
    """Pressure over the last ten seconds; only without it the load average, which covers about a minute."""
    cores = len(online(machine))
    pressure, load = _pressure(machine), _load(machine)
    seen = ", ".join(
        (
            "CPU pressure unknown" if pressure is None else f"tasks waited {pressure:g} % of the last 10 s",
            "load average unknown" if load is None else f"load average {load:g} on {cores} cores",
        )
    )
    if pressure is not None:
        return found(seen, _waiting(pressure))
    return found(seen, _UNTOLD, _loaded(load, cores))


def _pressure(machine: Machine) -> float | None:
    """Percent of the last ten seconds in which some task waited for a CPU; None: the kernel does not say."""
    match = re.search(r"^some avg10=([\d.]+)", machine.read("proc/pressure/cpu") or "", re.MULTILINE)
    return float(match[1]) if match else None


def _load(machine: Machine) -> float | None:
    """Tasks that ran or were ready to, averaged over about a minute."""
    match = re.match(r"[\d.]+", machine.read("proc/loadavg") or "")
    return float(match[0]) if match else None


def _waiting(pressure: float) -> Problem | None:
    if pressure < CONTENDED_SHARE * 100:
        return None
    cause = f"in {pressure:g} % of the last 10 s a task waited for a CPU ({CONTENDED_SHARE:.0%} counts as contention)"
    return Problem("warn", cause, _EFFECT, _FIX)


def _loaded(load: float | None, cores: int) -> Problem | None:
    if load is None or load <= cores:
        return None
    return Problem("warn", f"a load average of {load:g} over the last minute, on {cores} cores", _EFFECT, _FIX)
