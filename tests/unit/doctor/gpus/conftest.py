"""A machine of two nodes with a GPU each, and a pynvml that is made up."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pynvml as real
import pytest
from tests.unit.doctor.gpus.cards import Install, answering
from tests.unit.doctor.machines import write
from tests.unit.made_nvml import MadeNvml

from collbench.doctor.frame import Machine
from collbench.machine import nvml
from collbench.machine.launcher import Launcher


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Two nodes of two cores, of which this process may use all; CUDA starts."""
    made = Machine(tmp_path, {}, Launcher("none"), 1000, None, answering("0\n"))
    write(made, "sys/devices/system/cpu/online", "0-3")
    write(made, "sys/devices/system/node/node0/cpulist", "0-1")
    write(made, "sys/devices/system/node/node1/cpulist", "2-3")
    write(made, "sys/bus/pci/devices/0000:65:00.0/numa_node", "0")
    write(made, "sys/bus/pci/devices/0000:c1:00.0/numa_node", "1")
    write(made, "proc/self/status", "Name:\tpython\nPPid:\t0\nCpus_allowed_list:\t0-3\n")
    return made


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    def forget() -> None:
        nvml._open.cache_clear()
        nvml._handle.cache_clear()

    def put(made: MadeNvml) -> MadeNvml:
        monkeypatch.setitem(sys.modules, "pynvml", made)
        forget()
        return made

    yield put
    forget()


@pytest.fixture
def without_driver(install: Install) -> MadeNvml:
    return install(MadeNvml(start=real.NVML_ERROR_DRIVER_NOT_LOADED))
