"""A machine on which nothing is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.doctor.machines import NO_LAUNCHER, no_program, write

from collbench.doctor.frame import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Four idle cores, no container, no launcher, nothing wrong."""
    made = Machine(tmp_path, {"PATH": str(tmp_path / "bin")}, NO_LAUNCHER, 1000, None, no_program)
    write(made, "sys/devices/system/cpu/online", "0-3")
    write(made, "proc/self/status", "Name:\tpython\nPPid:\t0\nCpus_allowed_list:\t0-7\n")
    write(made, "proc/pressure/cpu", "some avg10=1.50 avg60=0.00 avg300=0.00 total=12\nfull avg10=99.00 total=0")
    write(made, "proc/loadavg", "0.50 0.40 0.30 2/103 5335")
    return made
