"""What doctor prints: machines that are ready, noisy, and not ready; a cluster; every finding of the yardsticks."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest

from collbench import yardsticks
from collbench.analysis.planning import Cost
from collbench.cli.doctor import DoctorReport
from collbench.cli.doctor import tables as doctor_tables
from collbench.doctor import BackendHere
from collbench.doctor.frame import Finding, Problem
from collbench.doctor.processors import judge_yardsticks as judge
from collbench.report.tables import LONGEST_LINE, terminal
from collbench.schema.store import NoReading
from collbench.yardsticks import Readings

CALM: dict[str, float | None] = {"copy": 50.0, "core_distance": 100.0, "core_speed": 950.0}
MPI, TORCH = BackendHere("mpi", ("Open MPI 5.0.11",)), BackendHere("torch-gloo", ("torch (gloo) 2.13.0+cpu",))
OF_GPUS = tuple(BackendHere(name, (), "no NVIDIA driver is loaded", True) for name in ("mpi-cuda", "nccl"))
WITH_GPU = (BackendHere("mpi-cuda", MPI.libraries, None, True), BackendHere("nccl", ("NCCL 2.29.3",), None, True))

GOVERNOR = Finding("powersave on 2 cores", (Problem(
    "warn", "2 cores with governor powersave, not performance", "the clock of a core follows its load",
    "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
),))  # fmt: skip
SHM = Finding("64.00 MiB, 64.00 MiB free", (Problem(
    "fail", "64.00 MiB free for 8 ranks, which may take 128.00 MiB", "MPICH dies of a bus error; NCCL fails to start",
    "docker run --shm-size=1g ... (in a shared IPC namespace: of the container that owns it)",
),))  # fmt: skip
PRESSURE = Finding("CPU pressure unknown", (Problem(
    "unknown", "/proc/pressure/cpu cannot be read: the kernel does not record CPU pressure",
    "records cannot say whether ranks waited for a CPU while they were timed", "boot with psi=1",
),))  # fmt: skip
FINE = {"cores": Finding("2 of 2 usable (0-1), no quota"), "memory": Finding("22.66 GiB available")}
QUIET = {"yardsticks": Finding("12 readings: core distance 93 to 96 ns", cost=Cost(0.012, 0.05, 6))}
NOISY = {"yardsticks": judge([Readings(CALM | {"core_distance": 100.0 + 9 * number**2}) for number in range(8)])}

SCREENS = {
    "ready": DoctorReport(FINE | QUIET, (MPI, *WITH_GPU, TORCH), 2, alone=True),
    "noisy": DoctorReport(
        {"contention": PRESSURE, "governor": GOVERNOR} | FINE | NOISY, (MPI, *OF_GPUS, TORCH), alone=True
    ),
    "not-ready": DoctorReport({"governor": GOVERNOR, "shm": SHM} | FINE, (*OF_GPUS, TORCH)),
    "many": DoctorReport({f"check{number}": GOVERNOR for number in range(12)} | {"shm": SHM}, (MPI,)),
    "cluster": DoctorReport({"clients": Finding("slurm 23.11.4"), "nodes": PRESSURE}, cluster=("slurm", "site.toml")),
}


@pytest.mark.parametrize("name", SCREENS)
def test_screens(golden: Callable[[str, str], None], name: str) -> None:
    text = terminal(doctor_tables(SCREENS[name]))
    assert len(text.splitlines()) <= 25
    assert max(map(len, text.splitlines())) <= LONGEST_LINE
    golden(f"doctor-{name}.txt", text)


def test_everything(golden: Callable[[str, str], None]) -> None:
    text = terminal(doctor_tables(SCREENS["noisy"], every=True))
    assert max(map(len, text.splitlines())) <= LONGEST_LINE
    golden("doctor-all.txt", text)


def test_yardsticks(golden: Callable[[str, str], None]) -> None:
    none = dict.fromkeys(yardsticks.names())
    findings = {
        "calm": judge([Readings({**CALM}), Readings({**CALM})]),
        "restless": judge([Readings({**CALM}), Readings(CALM | {"core_distance": 310.0, "core_speed": 700.0})]),
        **{reason: judge([Readings({**none}, reason)]) for reason in get_args(NoReading)},
    }
    golden("doctor-yardsticks.txt", terminal(doctor_tables(DoctorReport(findings), every=True)))
