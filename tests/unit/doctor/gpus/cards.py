"""What tests of the checks of GPUs share."""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.doctor.machines import write
from tests.unit.made_nvml import MadeNvml

from collbench.doctor.frame import Machine, ProgramOutput

Install = Callable[[MadeNvml], MadeNvml]


def answering(text: str) -> Callable[[tuple[str, ...]], ProgramOutput]:
    return lambda argv: ProgramOutput(0, text)


def on_cores(machine: Machine, cores: str) -> Machine:
    write(machine, "proc/self/status", f"Name:\tpython\nPPid:\t0\nCpus_allowed_list:\t{cores}\n")
    return machine


def card(machine: Machine) -> None:
    write(machine, "sys/bus/pci/devices/0000:65:00.0/vendor", "0x10de")
    write(machine, "sys/bus/pci/devices/0000:65:00.0/class", "0x030200")
