"""Check `governor`: the cores keep their clock, whatever they did before."""

from __future__ import annotations

from collections import Counter

from collbench.doctor.parts.finding import Finding, Problem, found
from collbench.doctor.parts.processors import Machine, cpu_flags, online
from collbench.units import counted

_CPUS = "sys/devices/system/cpu"
_EFFECT = "the clock of a core follows its load: programs begin slowly, and two sides differ by what ran before them"


def run(machine: Machine) -> Finding:
    """By the governors that the kernel shows; a virtual machine has none."""
    names = (machine.read(f"{_CPUS}/cpu{core}/cpufreq/scaling_governor") for core in sorted(online(machine)))
    governors = Counter(name for name in names if name)
    if not governors:
        virtual = "hypervisor" in cpu_flags(machine)
        return found(f"none visible: the {'hypervisor' if virtual else 'firmware'} decides on clocks")
    seen = ", ".join(f"{name} on {counted(number, 'core')}" for name, number in governors.items())
    others = sorted(governors.keys() - {"performance"})
    if not others:
        return found(seen)
    number = sum(governors[name] for name in others)
    cause = f"{counted(number, 'core')} with governor {', '.join(others)}, not performance"
    fix = f"echo performance | sudo tee /{_CPUS}/cpu*/cpufreq/scaling_governor"
    return found(seen, Problem("warn", cause, _EFFECT, fix))
