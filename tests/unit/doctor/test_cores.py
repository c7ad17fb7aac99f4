"""Every outcome of the check cores: bindings, crowds and quotas."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.doctor.machines import only, write

from collbench.doctor import processors
from collbench.doctor.frame import Machine
from collbench.machine.cgroup import cpu_quota
from collbench.machine.facts import parse_cores
from collbench.machine.launcher import Launcher


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
