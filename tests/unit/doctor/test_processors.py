"""Every outcome of the checks of processors and memory."""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import get_args

import pytest
from tests.unit.doctor.machines import Outcomes, having, only, printed, program

from collbench import yardsticks as registry
from collbench.analysis.compare import MARGIN
from collbench.analysis.estimate import FEWEST
from collbench.analysis.planning import Cost
from collbench.doctor import Finding, Machine, ProgramOutput, execute, here, processors
from collbench.doctor.processors import contention, cores, governor, judge_compiler
from collbench.machine.launcher import Launcher
from collbench.schema.store import NoReading
from collbench.yardsticks import Readings

CPUS = "sys/devices/system/cpu"
GIB = 1 << 30


def ranks(machine: Machine, count: int, mine: str, theirs: str | None = "0-3", kind: str = "openmpi") -> Machine:
    """The machine as rank 0 sees it: a shell between it and its launcher."""
    return having(machine, {
        "proc/self/status": f"Name:\tpython\nPPid:\t12\nCpus_allowed_list:\t{mine}\n",
        "proc/12/status": f"Name:\tsh\nPPid:\t{11 if theirs else 0}\nCpus_allowed_list:\t{mine}\n",
        "proc/11/status": f"Name:\tprterun\nPPid:\t1\nCpus_allowed_list:\t{theirs}\n",
    }, launcher=Launcher(kind, 0, count))  # type: ignore[arg-type]  # fmt: skip


ON_CORE_2 = {"proc/self/status": "PPid:\t0\nCpus_allowed_list:\t2\n"}
TWO_THREADS = {f"{CPUS}/cpu{core}/topology/thread_siblings_list": f"{core % 2},{core % 2 + 2}" for core in range(4)}
QUOTA = {"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "150000 100000",
         "sys/fs/cgroup/a/b/cpu.max": "max 100000"}  # fmt: skip
ENOUGH = {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "400000 100000"}

CORES: Outcomes = {
    "alone": ("ok", cores),
    "one core": ("warn", lambda m: cores(having(m, ON_CORE_2))),
    "one core in a container": ("warn", lambda m: cores(having(m, ON_CORE_2, container="c"))),
    "one core in all": ("warn", lambda m: cores(having(m, ON_CORE_2 | {f"{CPUS}/online": "2"}))),
    "bound to one core": ("ok", lambda m: cores(ranks(m, 4, "2"))),
    "bound to some cores": ("ok", lambda m: cores(ranks(m, 2, "0-1"))),
    **{
        f"unbound by {kind}": ("warn", lambda m, kind=kind: cores(ranks(m, 2, "0-3", kind=kind)))  # type: ignore[misc]
        for kind in ("openmpi", "mpich", "slurm", "torchrun")
    },
    "one rank": ("ok", lambda m: cores(ranks(m, 1, "0-3"))),
    "more ranks than cores": ("warn", lambda m: cores(ranks(m, 5, "0-3"))),
    "more ranks than cores of the launcher": ("warn", lambda m: cores(ranks(m, 3, "0", "0-1"))),
    "launcher out of sight": ("ok", lambda m: cores(ranks(m, 4, "0", None))),
    "a rank on each physical core": ("ok", lambda m: cores(ranks(having(m, TWO_THREADS), 2, "0"))),
    "ranks on hardware threads": ("warn", lambda m: cores(ranks(having(m, TWO_THREADS), 3, "0"))),
    "quota below the cores": ("warn", lambda m: cores(having(m, QUOTA))),
    "quota and ranks in a container": ("warn", lambda m: cores(ranks(having(m, QUOTA, container="c"), 2, "0"))),
    "quota of all cores": ("ok", lambda m: cores(having(m, ENOUGH))),
}  # fmt: skip

BUSY = {"proc/pressure/cpu": "some avg10=10.50 avg60=0.00 avg300=0.00 total=12"}
LOADED = {"proc/loadavg": "9.00 4.00 3.00 2/103 5335"}


def without_pressure(machine: Machine, files: Mapping[str, str] | None = None) -> Machine:
    machine.path("proc/pressure/cpu").unlink()
    return having(machine, files)


CONTENTION: Outcomes = {
    "nobody else": ("ok", contention),
    "tasks wait": ("warn", lambda m: contention(having(m, BUSY))),
    "load that is over": ("ok", lambda m: contention(having(m, LOADED))),
    "no pressure": ("unknown", lambda m: contention(without_pressure(m))),
    "no pressure, load": ("unknown warn", lambda m: contention(without_pressure(m, LOADED))),
}

SOURCE = "sys/devices/system/clocksource/clocksource0"
UNSHIFTED = "monotonic           0         0\nboottime            0         0\n"


def clock(source: str, cost: float, available: str = "", offsets: str = "") -> Callable[[Machine], Finding]:
    files = {f"{SOURCE}/current_clocksource": f"{source}\n", f"{SOURCE}/available_clocksource": available,
             "proc/self/timens_offsets": offsets}  # fmt: skip
    return lambda m: processors.clocks(
        having(m, {name: text for name, text in files.items() if text.strip()}), lambda: cost
    )


CLOCKS: Outcomes = {
    "clock of user space": ("ok", clock("tsc", 51.2, offsets=UNSHIFTED)),
    "kernel that says nothing of clocks": ("ok", clock("", 60.0)),
    "time namespace, seconds": ("warn", clock("", 50.0, offsets="monotonic 100 0\nboottime 0 0")),
    "time namespace, nanoseconds": ("warn", clock("", 50.0, offsets="monotonic 0 -5\nboottime 0 0")),
    "slow clock source": ("warn", clock("hpet", 90.0)),
    "slow read": ("warn", clock("tsc", 900.0)),
    "slow clock source beside a tsc": ("warn", clock("acpi_pm", 800.0, "tsc hpet acpi_pm")),
}


def governors(*names: str) -> Callable[[Machine], Finding]:
    return lambda m: governor(
        having(m, {f"{CPUS}/cpu{core}/cpufreq/scaling_governor": f"{name}\n" for core, name in enumerate(names)})
    )


def ungoverned(flags: str) -> Callable[[Machine], Finding]:
    text = f"processor\t: 0\nflags\t\t: {flags}\n\nprocessor\t: 1\nflags\t\t: none\n"
    return lambda m: governor(having(m, {"proc/cpuinfo": text}))


GOVERNOR: Outcomes = {
    "cores keep their clock": ("ok", governors(*["performance"] * 4)),
    "governors save power, core 4 is not online": (
        "warn", governors("performance", "powersave", "powersave", "performance", "ondemand")),
    "no governor, hypervisor": ("ok", ungoverned("fpu avx2 hypervisor")),
    "no governor, firmware": ("ok", ungoverned("fpu avx2")),
}  # fmt: skip


def compiling(compiler: bool, header: bool) -> Callable[[Machine], Finding]:
    """Where the loop was not built."""

    def find(machine: Machine) -> Finding:
        here = having(machine, {"include/Python.h": ""} if header else {},
                      environ={**machine.environ, "CC": "mycc -pthread"})  # fmt: skip
        if compiler:
            program(here, "mycc")
        return judge_compiler(here, None, here.path("include"))

    return find


COMPILER: Outcomes = {
    "loop built": ("ok", lambda m: judge_compiler(m, "/x/_loop.abi3.so", Path("/nowhere"))),
    "loop not built, no compiler, no header": ("warn", compiling(False, False)),
    "loop not built, no compiler": ("warn", compiling(False, True)),
    "loop not built, no header": ("warn", compiling(True, False)),
    "loop not built": ("warn", compiling(True, True)),
}

SWAPPED = {"proc/meminfo": "MemTotal: 9 kB\nSwapTotal:       2097152 kB\nSwapFree:        1048576 kB\n",
           "proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": str(8 * GIB)}  # fmt: skip
UNLIMITED = {"proc/meminfo": "SwapTotal: 0 kB\n", "sys/fs/cgroup/memory.max": "max\n"}

MEMORY: Outcomes = {
    "memory with swap and limit": ("ok", lambda m: processors.memory(having(m, SWAPPED), lambda: 4 * GIB)),
    "memory without swap or limit": ("ok", lambda m: processors.memory(having(m, UNLIMITED), lambda: 4 * GIB)),
    "little memory": ("warn", lambda m: processors.memory(m, lambda: 1 << 20)),
    "little memory in a container": ("warn", lambda m: processors.memory(having(m, container="c"), lambda: 1 << 20)),
    "memory unknown": ("unknown", lambda m: processors.memory(m, lambda: None)),
}


def cached(available: int | None, **sizes: str) -> Callable[[Machine], Finding]:
    files: dict[str, str] = {}
    for index, (level, size) in enumerate(sizes.items()):
        folder = f"{CPUS}/cpu0/cache/index{index}"
        files |= {f"{folder}/level": level.removeprefix("l"), f"{folder}/size": size}
    return lambda m: processors.cache(having(m, files), lambda: available)


CACHE: Outcomes = {
    "arrays that no cache holds": ("ok", cached(384 << 20, l1="32K", l3="32768K", l2="1024K")),
    "arrays that memory does not hold": ("warn", cached(3 * GIB, l3="266240K")),
    "cache known, memory unknown": ("ok", cached(None, l3="266240K")),
    "cache unknown": ("unknown", cached(1 << 40)),
    "cache and memory unknown": ("unknown", cached(None)),
}
DEBIAN, WHEEL = "libopenblas.so.0", "openblas"


def with_blas(kernels: Mapping[str, str], flags: str, **environ: str) -> Callable[[Machine], Finding]:
    """A processor with these flags, and libraries that choose these kernels."""

    def answer(argv: tuple[str, ...]) -> ProgramOutput:
        assert argv[:-1] == (sys.executable, "-m", "collbench.workloads.host.blas"), "in a process of its own"
        if argv[-1] not in kernels:
            return ProgramOutput(1, "OSError: not there")
        said = json.dumps({"name": "OpenBLAS", "version": "0.3.21", "kernel": kernels[argv[-1]], "path": "/x"})
        return ProgramOutput(0, f"Core: {kernels[argv[-1]]}\n{said}\n")

    return lambda m: processors.blas(
        having(m, {"proc/cpuinfo": f"flags\t\t: fpu {flags}\n"}, execute=answer, environ={**m.environ, **environ})
    )


BLAS: Outcomes = {
    **{
        f"kernels of {kernel} on {flags}": (severity, with_blas({DEBIAN: kernel, WHEEL: good}, flags))
        for severity, flags, kernel, good in (
            ("warn", "avx2 avx512f", "Prescott", "SkylakeX"), ("warn", "avx2", "Nehalem", "Haswell"),
            ("warn", "avx avx2", "Sandybridge", "Haswell"), ("ok", "sse3", "Prescott", "Prescott"),
            ("ok", "avx", "Sandybridge", "Sandybridge"), ("ok", "avx2", "Zen", "Zen"),
            ("ok", "avx2 avx512f", "Cooperlake", "Haswell"), ("ok", "asimd", "ARMV8", "ARMV8"),
        )
    },
    "kernels forced": ("warn", with_blas({WHEEL: "Prescott"}, "avx2", OPENBLAS_CORETYPE="Prescott")),
    "another library": ("ok", with_blas({DEBIAN: ""}, "avx2")),
    "no OpenBLAS": ("ok", with_blas({}, "avx2")),
    "no process can be started": ("ok", processors.blas),
}  # fmt: skip

BY_PRCTL = "Mitigation: Speculative Store Bypass disabled via prctl"
OLD = f"{BY_PRCTL} and seccomp"


def speculating(state: str, bypass: str, kernel: str = "6.1.0") -> Callable[[Machine], Finding]:
    status = f"Name:\tx\nSpeculation_Store_Bypass:\t{state}\nSpeculationIndirectBranch:\talways enabled\nSeccomp:\t0\n"
    files = {"proc/self/status": status, "proc/sys/kernel/osrelease": kernel,
             f"{CPUS}/vulnerabilities/spec_store_bypass": f"{bypass}\n"}  # fmt: skip
    return lambda m: processors.speculation(having(m, files))


SPECULATION: Outcomes = {
    "no mitigation by filters": ("ok", speculating("thread vulnerable", BY_PRCTL)),
    "mitigation behind filters": ("warn", speculating("thread vulnerable", OLD, "5.15.0")),
    "mitigation behind the filter of this process": ("warn", speculating("thread force mitigated", OLD, "5.15.0")),
    "process mitigated by itself": ("warn", speculating("thread mitigated", BY_PRCTL)),
    "kernel that says nothing of speculation": ("ok", processors.speculation),
}

OUTCOMES = {
    **CORES, **CONTENTION, **CLOCKS, **GOVERNOR, **COMPILER, **MEMORY, **CACHE, **BLAS, **SPECULATION,
}  # fmt: skip


def test_outcomes(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    golden("doctor-processors.txt", printed(OUTCOMES, tmp_path))


def test_a_library_that_is_here_is_asked(machine: Machine) -> None:
    pytest.importorskip("scipy_openblas32")
    assert "scipy-openblas32 0." in processors.blas(having(machine, execute=execute)).observed


def test_the_clock_is_read() -> None:
    assert 0 < processors.read_cost() < 1e6


# Yardsticks ----------------------------------------------------------------------------------------------------------


def readings(*distances: float) -> list[Readings]:
    return [Readings({"core_distance": distance, "core_speed": 900.0}) for distance in distances]


def test_cores_that_move_by_no_more_than_the_resolution_stay_as_they_are() -> None:
    assert processors.judge_yardsticks(readings(100, 105, 119)).status == "ok"
    problem = only(processors.judge_yardsticks(readings(100, 122)), "warn")
    assert "100 to 122 ns" in problem.cause and "1/us" not in problem.cause, "the speed stayed"


def test_what_launches_cost_that_spread_alike() -> None:
    """By the yardstick that spreads most; readings in turns are the two sides."""
    assert processors.judge_yardsticks(readings(*[100] * 8)).cost == Cost(0.0, MARGIN, FEWEST)
    cost = processors.judge_yardsticks(readings(100, 105, 101, 100, 103, 100, 100, 104)).cost
    assert cost is not None
    logs = [math.log(105 / 100), math.log(100 / 101), math.log(100 / 103), math.log(104 / 100)]
    assert cost.spread == pytest.approx(statistics.stdev(logs))
    assert cost.launches == FEWEST
    assert processors.judge_yardsticks(readings(100, 140, 101, 100, 103, 130, 100, 104)).cost.launches > FEWEST  # type: ignore[union-attr]
    assert processors.judge_yardsticks(readings(100)).cost is None


@pytest.mark.parametrize("reason", get_args(NoReading))
def test_what_could_not_be_read(reason: NoReading) -> None:
    only(processors.judge_yardsticks([Readings(dict.fromkeys(registry.YARDSTICKS), reason)]), "unknown")


def test_it_does_not_go_on_where_nothing_can_be_read(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    read_on = []

    def take(cores: frozenset[int]) -> Readings:
        read_on.append(cores)
        return Readings(dict.fromkeys(registry.YARDSTICKS), "core_refused")

    monkeypatch.setattr(registry, "take", take)
    having(machine, {"proc/self/status": "Cpus_allowed_list:\t1-2\n"})
    assert processors.yardsticks(machine).status == "unknown"
    assert read_on == [frozenset((1, 2))]


def test_here_a_dozen_readings_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    take = registry.take

    def counted(cores: frozenset[int]) -> Readings:
        taken.append(take(cores))
        return taken[-1]

    monkeypatch.setattr(registry, "take", counted)
    processors.yardsticks(here())
    assert len(taken) == processors.READINGS
