"""Every outcome of the checks of processors and memory."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from tests.unit.doctor.machines import only, program, write

from collbench import yardsticks as registry
from collbench.analysis.compare import MARGIN
from collbench.analysis.estimate import FEWEST
from collbench.analysis.planning import Cost
from collbench.doctor import processors
from collbench.doctor.frame import Machine, here
from collbench.machine.cgroup import cpu_quota
from collbench.machine.facts import parse_cores
from collbench.machine.launcher import Launcher
from collbench.schema.store import NoReading
from collbench.yardsticks import Readings


def ranks(machine: Machine, count: int, mine: str, theirs: str | None = "0-3", kind: str = "openmpi") -> Machine:
    """The machine as rank 0 sees it: a shell between it and its launcher."""
    write(machine, "proc/self/status", f"Name:\tpython\nPPid:\t12\nCpus_allowed_list:\t{mine}\n")
    write(machine, "proc/12/status", f"Name:\tsh\nPPid:\t{11 if theirs else 0}\nCpus_allowed_list:\t{mine}\n")
    write(machine, "proc/11/status", f"Name:\tprterun\nPPid:\t1\nCpus_allowed_list:\t{theirs}\n")
    return replace(machine, launcher=Launcher(kind, 0, count))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "cores"), [("0-3,8", {0, 1, 2, 3, 8}), ("5", {5}), ("", set()), ("0-1,4-5", {0, 1, 4, 5})]
)
def test_core_lists(text: str, cores: set[int]) -> None:
    assert parse_cores(text) == cores


def test_cores_alone(machine: Machine) -> None:
    finding = processors.cores(machine)
    assert finding.status == "ok"
    assert finding.seen == "4 of 4 usable (0-3), no quota; no launcher: one rank"


def test_one_core_alone(machine: Machine) -> None:
    write(machine, "proc/self/status", "PPid:\t0\nCpus_allowed_list:\t2\n")
    assert only(processors.cores(machine), "warn").fix == "taskset -cp 0-3 $$"
    assert only(processors.cores(replace(machine, container="c")), "warn").fix == "docker run --cpuset-cpus=0-3 ..."
    write(machine, "sys/devices/system/cpu/online", "2")
    assert "taskset" not in only(processors.cores(machine), "warn").fix


def test_bound_ranks(machine: Machine) -> None:
    finding = processors.cores(ranks(machine, 4, mine="2"))
    assert finding.status == "ok"
    assert finding.seen == "4 ranks on 4 cores (0-3), no quota; rank 0 bound to 2"


def test_bound_to_some_cores_is_bound(machine: Machine) -> None:
    assert processors.cores(ranks(machine, 2, mine="0-1")).status == "ok"


@pytest.mark.parametrize(
    ("kind", "flag"),
    [("openmpi", "mpirun --bind-to core"), ("mpich", "mpiexec -bind-to core"), ("torchrun", "mpirun --bind-to core")],
)
def test_unbound_ranks(machine: Machine, kind: str, flag: str) -> None:
    assert flag in only(processors.cores(ranks(machine, 2, mine="0-3", kind=kind)), "warn").fix


def test_one_rank_need_not_be_bound(machine: Machine) -> None:
    assert processors.cores(ranks(machine, 1, mine="0-3")).status == "ok"


def test_more_ranks_than_cores(machine: Machine) -> None:
    problem = only(processors.cores(ranks(machine, 5, mine="0-3")), "warn")
    assert problem.cause == "5 ranks, 4 cores"
    assert "mpirun -n 4" in problem.fix


def test_ranks_share_what_the_launcher_may_use_not_the_machine(machine: Machine) -> None:
    assert only(processors.cores(ranks(machine, 3, mine="0", theirs="0-1")), "warn").cause == "3 ranks, 2 cores"


def test_a_launcher_out_of_sight_is_given_every_core(machine: Machine) -> None:
    unseen = ranks(machine, 4, mine="0", theirs=None)
    assert unseen.launcher_cores is None
    assert processors.cores(unseen).status == "ok"


def test_ranks_on_hardware_threads(machine: Machine) -> None:
    for core in range(4):
        write(machine, f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list", f"{core % 2},{core % 2 + 2}")
    assert processors.cores(ranks(machine, 2, mine="0")).status == "ok"
    problem = only(processors.cores(ranks(machine, 3, mine="0")), "warn")
    assert "3 ranks on 2 physical cores" in problem.cause
    assert "mpirun -n 2" in problem.fix


def test_a_quota_below_the_cores(machine: Machine) -> None:
    write(machine, "proc/self/cgroup", "0::/a/b")
    write(machine, "sys/fs/cgroup/a/cpu.max", "150000 100000")
    write(machine, "sys/fs/cgroup/a/b/cpu.max", "max 100000")
    problem = only(processors.cores(machine), "warn")
    assert "1.5 cores, on a set of 4" in problem.cause
    assert "CPUQuota" in problem.fix
    contained = ranks(replace(machine, container="c"), 2, mine="0")
    problem = only(processors.cores(contained), "warn")
    assert "2 ranks" in problem.cause
    assert problem.fix == "docker run --cpuset-cpus=0-3 ... instead of --cpus"


def test_the_tightest_quota_counts(machine: Machine) -> None:
    write(machine, "proc/self/cgroup", "0::/a/b")
    write(machine, "sys/fs/cgroup/a/cpu.max", "100000 100000")
    write(machine, "sys/fs/cgroup/a/b/cpu.max", "300000 100000")
    assert cpu_quota(machine.root) == 1.0


def test_a_quota_above_the_cores_is_none(machine: Machine) -> None:
    write(machine, "proc/self/cgroup", "0::/")
    write(machine, "sys/fs/cgroup/cpu.max", "400000 100000")
    assert cpu_quota(machine.root) == 4.0
    assert processors.cores(machine).status == "ok"


@pytest.mark.parametrize("folder", ["cpu,cpuacct/docker/x", "cpu/docker/x", "cpu"])
def test_a_quota_in_the_old_hierarchy(machine: Machine, folder: str) -> None:
    """The last: inside a container, where the group's own path is not to be seen."""
    write(machine, "proc/self/cgroup", "9:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/")
    write(machine, f"sys/fs/cgroup/{folder}/cpu.cfs_quota_us", "50000")
    write(machine, f"sys/fs/cgroup/{folder}/cpu.cfs_period_us", "100000")
    assert cpu_quota(machine.root) == 0.5


def test_no_limit_in_the_old_hierarchy(machine: Machine) -> None:
    write(machine, "proc/self/cgroup", "4:cpu:/")
    write(machine, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1")
    write(machine, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    assert cpu_quota(machine.root) is None


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


def readings(*distances: float) -> list[Readings]:
    return [Readings({"core_distance": distance, "core_speed": 900.0}) for distance in distances]


def test_cores_that_stay_as_they_are() -> None:
    assert processors.judge_yardsticks(readings(100, 105, 119)).status == "ok"


def test_what_launches_cost_that_spread_alike() -> None:
    """By the yardstick that spreads most; readings in turns are the two sides."""
    assert processors.judge_yardsticks(readings(*[100] * 8)).cost == Cost(0.0, MARGIN, FEWEST)
    found = processors.judge_yardsticks(readings(100, 105, 101, 100, 103, 100, 100, 104)).cost
    assert found is not None
    logs = [math.log(105 / 100), math.log(100 / 101), math.log(100 / 103), math.log(104 / 100)]
    assert found.spread == pytest.approx(statistics.stdev(logs))
    assert found.launches == FEWEST
    assert processors.judge_yardsticks(readings(100, 140, 101, 100, 103, 130, 100, 104)).cost.launches > FEWEST  # type: ignore[union-attr]
    assert processors.judge_yardsticks(readings(100)).cost is None


def test_cores_that_move_more_than_the_resolution() -> None:
    problem = only(processors.judge_yardsticks(readings(100, 122)), "warn")
    assert "100 to 122 ns" in problem.cause
    assert "core" in problem.cause and "1/us" not in problem.cause, "that one stayed"


@pytest.mark.parametrize("reason", get_args(NoReading))
def test_what_could_not_be_read(reason: NoReading) -> None:
    none = Readings(dict.fromkeys(registry.names()), reason)
    only(processors.judge_yardsticks([none]), "unknown")


def test_it_does_not_go_on_where_nothing_can_be_read(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def take(cores: frozenset[int]) -> Readings:
        asked.append(cores)
        return Readings(dict.fromkeys(registry.names()), "core_refused")

    monkeypatch.setattr(registry, "take", take)
    write(machine, "proc/self/status", "Cpus_allowed_list:\t1-2\n")
    assert processors.yardsticks(machine).status == "unknown"
    assert asked == [frozenset((1, 2))]


def test_here_a_dozen_readings_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    take = registry.take

    def counted(cores: frozenset[int]) -> Readings:
        taken.append(take(cores))
        return taken[-1]

    monkeypatch.setattr(registry, "take", counted)
    processors.yardsticks(here())
    assert len(taken) == processors.READINGS
