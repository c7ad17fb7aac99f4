"""Every outcome of the checks clocks, contention, compiler and memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.doctor.machines import only, program, write

from collbench.doctor import processors
from collbench.doctor.frame import Machine

SOURCE = "sys/devices/system/clocksource/clocksource0"


def test_clock_of_user_space(machine: Machine) -> None:
    write(machine, "proc/self/timens_offsets", "monotonic           0         0\nboottime            0         0\n")
    write(machine, f"{SOURCE}/current_clocksource", "tsc\n")
    finding = processors.judge_clocks(machine, 51.2)
    assert finding.status == "ok"
    assert finding.seen == "tsc, 51 ns per read; no shift by a time namespace"


def test_a_kernel_that_tells_nothing_has_no_time_namespaces(machine: Machine) -> None:
    assert processors.judge_clocks(machine, 60.0).status == "ok"


@pytest.mark.parametrize("offsets", ["monotonic 100 0\nboottime 0 0", "monotonic 0 -5\nboottime 0 0"])
def test_a_time_namespace(machine: Machine, offsets: str) -> None:
    write(machine, "proc/self/timens_offsets", offsets)
    problem = only(processors.judge_clocks(machine, 50.0), "warn")
    assert "monotonic" in problem.cause
    assert "boottime" not in problem.cause


@pytest.mark.parametrize(("source", "cost"), [("hpet", 90.0), ("tsc", 900.0)])
def test_a_slow_clock(machine: Machine, source: str, cost: float) -> None:
    write(machine, f"{SOURCE}/current_clocksource", source)
    problem = only(processors.judge_clocks(machine, cost), "warn")
    assert source in problem.cause
    assert "boot with" in problem.fix


def test_a_slow_clock_beside_a_tsc(machine: Machine) -> None:
    write(machine, f"{SOURCE}/current_clocksource", "acpi_pm")
    write(machine, f"{SOURCE}/available_clocksource", "tsc hpet acpi_pm")
    assert only(processors.judge_clocks(machine, 800.0), "warn").fix.startswith("echo tsc | sudo tee")


def test_the_clock_is_read() -> None:
    assert 0 < processors.read_cost() < 1e6


def test_nobody_else(machine: Machine) -> None:
    finding = processors.contention(machine)
    assert finding.status == "ok"
    assert finding.seen == "tasks waited 1.5 % of the last 10 s, load average 0.5 on 4 cores"


def test_tasks_wait(machine: Machine) -> None:
    write(machine, "proc/pressure/cpu", "some avg10=10.00 avg60=0.00 avg300=0.00 total=12")
    assert "10 %" in only(processors.contention(machine), "warn").cause


def test_a_load_that_is_over_is_only_shown(machine: Machine) -> None:
    write(machine, "proc/loadavg", "9.00 4.00 3.00 2/103 5335")
    assert processors.contention(machine).status == "ok"


def test_without_pressure_nothing_is_known(machine: Machine) -> None:
    machine.path("proc/pressure/cpu").unlink()
    assert "psi=1" in only(processors.contention(machine), "unknown").fix


def test_without_pressure_the_load_tells(machine: Machine) -> None:
    machine.path("proc/pressure/cpu").unlink()
    write(machine, "proc/loadavg", "4.10 4.00 3.00 2/103 5335")
    finding = processors.contention(machine)
    assert [problem.severity for problem in finding.problems] == ["unknown", "warn"]
    assert finding.status == "warn"


def test_loop_built(machine: Machine) -> None:
    finding = processors.judge_compiler(machine, "/x/_loop.abi3.so", Path("/nowhere"))
    assert finding.status == "ok"
    assert "/x/_loop.abi3.so" in finding.seen


@pytest.mark.parametrize(("has_compiler", "has_header"), [(False, False), (False, True), (True, False), (True, True)])
def test_loop_not_built(machine: Machine, has_compiler: bool, has_header: bool) -> None:
    machine = replace(machine, environ={**machine.environ, "CC": "mycc -pthread"})
    if has_compiler:
        program(machine, "mycc")
    if has_header:
        write(machine, "include/Python.h", "")
    problem = only(processors.judge_compiler(machine, None, machine.path("include")), "warn")
    assert ("no C compiler (mycc)" in problem.cause) == (not has_compiler)
    assert ("no Python.h" in problem.cause) == (not has_header)
    assert ("apt-get install -y gcc libc6-dev python3-dev" in problem.fix) == (not (has_compiler and has_header))
    assert "pip install --force-reinstall" in problem.fix


def test_memory_enough(machine: Machine) -> None:
    write(machine, "proc/meminfo", "MemTotal: 9 kB\nSwapTotal:       2097152 kB\nSwapFree:        1048576 kB\n")
    write(machine, "proc/self/cgroup", "0::/")
    write(machine, "sys/fs/cgroup/memory.max", str(8 << 30))
    finding = processors.judge_memory(machine, 4 << 30)
    assert finding.status == "ok"
    assert finding.seen == "4.00 GiB available, swap 1.00 GiB of 2.00 GiB used, cgroup limit 8.00 GiB"


def test_memory_without_swap_or_limit(machine: Machine) -> None:
    write(machine, "proc/meminfo", "SwapTotal: 0 kB\n")
    write(machine, "sys/fs/cgroup/memory.max", "max\n")
    assert processors.judge_memory(machine, 4 << 30).seen == "4.00 GiB available, no swap, no cgroup limit"


def test_little_memory(machine: Machine) -> None:
    assert "smaller -e" in only(processors.judge_memory(machine, 1 << 20), "warn").fix
    assert "--memory" in only(processors.judge_memory(replace(machine, container="c"), 1 << 20), "warn").fix


def test_memory_not_told(machine: Machine) -> None:
    only(processors.judge_memory(machine, None), "unknown")
