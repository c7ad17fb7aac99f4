"""Cores: which are online, which this process and its launcher may use, which share a core."""

from __future__ import annotations

from collbench.doctor.parts.machine import Machine
from collbench.machine.facts import parse_cores, thread_siblings

_CPUS = "sys/devices/system/cpu"

#: How the names of processes begin that start ranks.
_LAUNCHERS = ("mpirun", "mpiexec", "prte", "orte", "hydra_", "slurmstepd", "torchrun", "pt_elastic")


def online(machine: Machine) -> frozenset[int]:
    """The cores of the machine that are online.

    Raises:
        OSError: the kernel does not say.
    """
    text = machine.read(f"{_CPUS}/online")
    if text is None:
        raise OSError(f"/{_CPUS}/online cannot be read")
    return parse_cores(text)


def cpu_flags(machine: Machine) -> frozenset[str]:
    """What the first processor can do, as the kernel calls it (`avx2`); empty where it does not say."""
    for line in (machine.read("proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def _status(machine: Machine, process: str) -> dict[str, str]:
    lines = (machine.read(f"proc/{process}/status") or "").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def allowed(machine: Machine, process: str = "self") -> frozenset[int]:
    """The cores that a process may use and that are online: the kernel's list may name others.

    Raises:
        OSError: the kernel does not say.
    """
    text = _status(machine, process).get("Cpus_allowed_list")
    if text is None:
        raise OSError(f"/proc/{process}/status does not say which cores may be used")
    return parse_cores(text) & online(machine)


def launcher_cores(machine: Machine) -> frozenset[int] | None:
    """The cores of the process that started this rank and bound it; None where that process cannot be seen."""
    process = _status(machine, "self").get("PPid", "0")
    while process not in ("", "0"):
        status = _status(machine, process)
        if status.get("Name", "").startswith(_LAUNCHERS):
            return allowed(machine, process)
        process = status.get("PPid", "0")
    return None


def physical(machine: Machine, cores: frozenset[int]) -> int:
    """The number of physical cores among `cores`, which may be hardware threads."""
    return len({thread_siblings(core, machine.root)[0] for core in cores})
