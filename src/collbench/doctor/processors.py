"""Checks of processors and memory: who uses them, how they change, and what is compiled for them."""

from __future__ import annotations

import json
import re
import sys
import sysconfig
import time
import timeit
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from collbench import yardsticks as registry
from collbench.analysis.bounds import in_order
from collbench.analysis.compare import MARGIN
from collbench.analysis.planning import Movement, cost, movements
from collbench.bindings.spec import available_bytes
from collbench.doctor import Finding, Machine, Problem, check, finding
from collbench.machine.cgroup import cpu_quota, memory_limit
from collbench.machine.facts import CONTENDED_SHARE, last_level_cache
from collbench.schema.store import NoReading
from collbench.timing.loop import native_loop
from collbench.units import counted, format_bytes, format_spans
from collbench.workloads.host.stream import TIMES_CACHE
from collbench.yardsticks import Readings

_BIND = {"openmpi": "mpirun --bind-to core", "mpich": "mpiexec -bind-to core",
         "intelmpi": "mpiexec -genv I_MPI_PIN_DOMAIN core", "slurm": "srun --cpu-bind=cores"}  # fmt: skip


@check
def cores(machine: Machine) -> Finding:
    """The cores that this process and its launcher may use, and their quota, against the ranks; and the binding."""
    allowed, quota = machine.allowed(), cpu_quota(machine.root)
    listed, limit = format_spans(allowed), "no quota" if quota is None else f"quota {quota:g}"
    if machine.ranks is None:
        seen = f"{len(allowed)} of {len(machine.online)} usable ({listed}), {limit}; no launcher: one rank"
        return finding(seen, _throttled(machine, quota, allowed, 1), _single(machine, allowed))
    of_launcher = machine.launcher_cores
    # The launcher may be outside this container and not visible: then its ranks may have all cores.
    shared = allowed | (machine.online if of_launcher is None else of_launcher)
    seen = (f"{counted(machine.ranks, 'rank')} on {counted(len(shared), 'core')} ({format_spans(shared)}), {limit}; "
            f"rank {machine.launcher.rank} bound to {listed}")  # fmt: skip
    throttled = _throttled(machine, quota, shared, machine.ranks)
    return finding(seen, throttled, *_placed(machine, machine.ranks, allowed, shared))


def _single(machine: Machine, allowed: frozenset[int]) -> Problem | None:
    if len(allowed) > 1:
        return None
    present = machine.online
    fix = f"taskset -cp {format_spans(present)} $$"
    if len(present) == 1:
        fix = "use a machine with a core for each rank"
    elif machine.container is not None:
        fix = f"docker run --cpuset-cpus={format_spans(present)} ..."
    effect = "two ranks would take turns on it: times would be those of the scheduler, not of the library"
    return Problem("warn", f"this process may use one core ({format_spans(allowed)})", effect, fix)


def _throttled(machine: Machine, quota: float | None, cores: frozenset[int], ranks: int) -> Problem | None:
    if quota is None or quota >= len(cores):
        return None
    fix = f"systemctl set-property UNIT CPUQuota= AllowedCPUs={format_spans(cores)}"
    if machine.container is not None:
        fix = f"docker run --cpuset-cpus={format_spans(cores)} ... instead of --cpus"
    spinning = f", to {ranks} ranks that spin" if ranks > quota else ""
    cause = f"the cgroup grants the time of {quota:g} cores, on a set of {len(cores)}{spinning}"
    effect = ("once it is spent, every rank is stopped for the rest of the period (up to 100 ms), which raises p99 and "
              "max")  # fmt: skip
    return Problem("warn", cause, effect, fix)


def _placed(machine: Machine, ranks: int, allowed: frozenset[int], shared: frozenset[int]) -> list[Problem]:
    if ranks > len(shared):
        effect = "ranks wait for a core, not for data: small operations take 100 us and more instead of less than 1 us"
        fix = f"mpirun -n {len(shared)} collbench ..., or use a machine with {ranks} cores"
        return [Problem("warn", f"{ranks} ranks, {len(shared)} cores", effect, fix)]
    problems = []
    if ranks > (count := machine.physical(shared)):
        cause = f"{ranks} ranks on {count} physical cores: the {len(shared)} cores above are hardware threads"
        effect = "two ranks share one core's execution units and caches: copies and reductions slow each other down"
        problems.append(Problem("warn", cause, effect, f"mpirun -n {count} collbench ..."))
    if ranks > 1 and len(allowed) > 1 and allowed == shared:
        fix = f"{_BIND.get(machine.launcher.kind, _BIND['openmpi'])} -n {ranks} collbench ..."
        cause = f"rank {machine.launcher.rank} may run on every core ({format_spans(allowed)}): it is not bound"
        effect = "the kernel moves ranks between cores while they are timed: launches differ more, p99 and max rise"
        problems.append(Problem("warn", cause, effect, fix))
    return problems


@check
def contention(machine: Machine) -> Finding:
    """Do others use the cores now? By the pressure of the last 10 s, else by the load average of about a minute."""
    number = len(machine.online)
    some = re.search(r"^some avg10=([\d.]+)", machine.read("proc/pressure/cpu") or "", re.MULTILINE)
    running = re.match(r"[\d.]+", machine.read("proc/loadavg") or "")
    pressure, load = float(some[1]) if some else None, float(running[0]) if running else None
    seen = "CPU pressure unknown" if pressure is None else f"tasks waited {pressure:g} % of the last 10 s"
    seen += ", load average unknown" if load is None else f", load average {load:g} on {number} cores"
    effect = "ranks wait for a core in the middle of an operation: medians rise, p99 and max are the scheduler's"
    fix = "ps -eo pid,pcpu,user,comm --sort=-pcpu | head; stop what it shows, or measure later"
    if pressure is not None:
        cause = (f"in {pressure:g} % of the last 10 s a task waited for a CPU (more than "
                 f"{CONTENDED_SHARE * 100:g} % is contention)")  # fmt: skip
        return finding(seen, Problem("warn", cause, effect, fix) if pressure > CONTENDED_SHARE * 100 else None)
    cause = "/proc/pressure/cpu cannot be read: the kernel does not record CPU pressure"
    unknown_effect = "records cannot say whether ranks waited for a CPU while they were timed (contended: null)"
    problems = [Problem("unknown", cause, unknown_effect, "boot with psi=1 (a kernel with CONFIG_PSI)")]
    if load and load > number:
        cause = f"a load average of {load:g} over the last minute, on {number} cores"
        problems.append(Problem("warn", cause, effect, fix))
    return finding(seen, *problems)


@check
def governor(machine: Machine) -> Finding:
    """Whether the cores keep their clock: by the governors that the kernel shows; a virtual machine has none."""
    cpus = "sys/devices/system/cpu"
    names = (machine.read(f"{cpus}/cpu{core}/cpufreq/scaling_governor") for core in sorted(machine.online))
    governors = Counter(name for name in names if name)
    if not governors:
        virtual = "hypervisor" in machine.cpu_flags
        return finding(f"none visible: the {'hypervisor' if virtual else 'firmware'} decides on clocks")
    seen = ", ".join(f"{name} on {counted(number, 'core')}" for name, number in governors.items())
    if not (others := sorted(governors.keys() - {"performance"})):
        return finding(seen)
    number = sum(governors[name] for name in others)
    cause = f"{counted(number, 'core')} with governor {', '.join(others)}, not performance"
    effect = "the clock of a core follows its load: programs begin slowly, and two sides differ by what ran before them"
    fix = f"echo performance | sudo tee /{cpus}/cpu*/cpufreq/scaling_governor"
    return finding(seen, Problem("warn", cause, effect, fix))


REINSTALL = "pip install --force-reinstall --no-deps --no-cache-dir -v ."


@check
def compiler(machine: Machine) -> Finding:
    """The native timing loop, and what is missing to build it."""
    loop = native_loop()
    return judge_compiler(machine, None if loop is None else loop.__file__, Path(sysconfig.get_path("include")))


def judge_compiler(machine: Machine, loop: str | None, headers: Path) -> Finding:
    """`loop` is the file of the built loop, or None; `headers` the directory in which Python.h belongs."""
    if loop is not None:
        return finding(f"native loop built ({loop})")
    program = (machine.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    effect = ("--driver native falls back to python: times of small operations include mpi4py and Python, "
              "8 bytes take two to three times the library's own latency")  # fmt: skip
    missing = [f"no C compiler ({program}) on PATH"] if machine.which(program) is None else []
    missing += [] if (headers / "Python.h").is_file() else [f"no Python.h in {headers}"]
    if missing:
        seen = f"native loop not built: {', '.join(missing)}"
        fix = f"sudo apt-get install -y gcc libc6-dev python3-dev (Debian, Ubuntu), then in the checkout: {REINSTALL}"
        return finding(seen, Problem("warn", f"collbench was installed with {' and '.join(missing)}", effect, fix))
    cause = f"{program} and Python.h are here now: they were installed after collbench, or the build failed"
    fix = f"in the checkout, and read what it prints about collbench.timing._loop: {REINSTALL}"
    return finding("native loop not built", Problem("warn", cause, effect, fix))


READINGS, APART = 12, 0.1  #: Readings, and the time from one to the next (s).
_TWO_CORES = "taskset -cp 0-1 $$, in the shell that starts collbench"
_CAUSES: dict[NoReading, tuple[str, str]] = {
    "elsewhere": ("this process may use no core of this machine", _TWO_CORES),
    "not_built": ("the yardsticks in C were not built", f"in the checkout, with gcc and Python.h: {REINSTALL}"),
    "core_refused": ("this process cannot run on a core of its own list", _TWO_CORES),
    "too_few_cores": ("this process may use one core, and a distance is between two", _TWO_CORES),
    "late": ("a core ran no thread for a second", "ps -eo pid,pcpu,cls,comm --sort=-pcpu | head shows which program"),
    "failed": ("no memory or no thread for a reading", "ulimit -a shows the limits of this shell"),
}


@check
def yardsticks(machine: Machine) -> Finding:
    """How far the cores move while nothing is measured, in a dozen readings: their distance, speed and copies."""
    allowed, readings = machine.allowed(), []
    for _ in range(READINGS):
        readings.append(registry.take(allowed))
        if all(value is None for value in readings[-1].values.values()):
            break
        time.sleep(APART)
    return judge_yardsticks(readings)


def judge_yardsticks(readings: Sequence[Readings]) -> Finding:
    """Of readings one after the other; the cost is that of launches that spread as they do, of one side in turn."""
    moved = movements(reading.values for reading in readings)
    seen = f"{len(readings)} readings: {_ranges(moved)}" if moved else "nothing could be read"
    problems = []
    if reason := next((reading.reason for reading in readings if reading.reason), None):
        cause, fix = _CAUSES[reason]
        problems.append(Problem("unknown", cause, "a run cannot say what the machine did between its launches", fix))
    if noisy := [movement for movement in moved if movement.share > registry.YARDSTICKS[movement.name].resolution]:
        cause = f"the cores change while nothing is measured: {_ranges(noisy)}"
        effect = "launches of one side differ: a comparison needs more of them, and duets, which measure in turns"
        fix = "ps -eo pid,pcpu,user,comm --sort=-pcpu | head; else ask for cores of your own"
        problems.append(Problem("warn", cause, effect, fix))
    columns = ([value for reading in readings if (value := reading.values[name])] for name in readings[0].values)
    return Finding(seen, tuple(problems), cost([in_order(column[:-1:2], column[1::2]) for column in columns], MARGIN))


def _ranges(moved: Sequence[Movement]) -> str:
    """`core distance 94 to 755 ns, core speed 380 to 781 steps/us`."""
    return ", ".join(f"{reading.name.replace('_', ' ')} {reading.least:.3g} to {reading.largest:.3g} "
                     f"{registry.YARDSTICKS[reading.name].unit}" for reading in moved)  # fmt: skip


_SOURCE = "sys/devices/system/clocksource/clocksource0"

#: Clock sources that are read through a device or that tick: never within a fraction of a microsecond.
_SLOW_SOURCES = {"hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"}
SLOW_READ = 500.0  #: A read that takes longer (ns) went through the kernel; Python's own share is some 50 ns.

_BATCHES, _READS = 20, 100


def read_cost() -> float:
    """Nanoseconds that one read of the clock takes: the least of several batches."""
    return min(timeit.repeat(time.monotonic_ns, number=_READS, repeat=_BATCHES)) / _READS * 1e9


@check
def clocks(machine: Machine, cost: Callable[[], float] = read_cost) -> Finding:
    """One CLOCK_MONOTONIC for all ranks, read without a system call: time namespace, clock source, cost of a read."""
    source = machine.read(f"{_SOURCE}/current_clocksource")
    lines = (line.split() for line in (machine.read("proc/self/timens_offsets") or "").splitlines())
    shifted = ", ".join(f"{name} {sec} s {ns} ns" for name, sec, ns in lines if (sec, ns) != ("0", "0"))
    problems, read = [], cost()
    if shifted:
        cause = f"this process runs in a time namespace with offsets ({shifted})"
        effect = ("where ranks outside it compare clocks too coarsely, --align auto is barrier: a small bcast looks "
                  "half as long")  # fmt: skip
        fix = "start every rank in one time namespace: no unshare --time, no timeOffsets in a container's configuration"
        problems.append(Problem("warn", cause, effect, fix))
    if source in _SLOW_SOURCES or read >= SLOW_READ:
        fix = "boot with tsc=reliable clocksource=tsc, or take a virtual machine type that offers an invariant TSC"
        if "tsc" in (machine.read(f"{_SOURCE}/available_clocksource") or "").split() and source != "tsc":
            fix = f"echo tsc | sudo tee /{_SOURCE}/current_clocksource; to keep it, boot with clocksource=tsc"
        cause = (f"the clock ({source or 'of an unknown source'}) takes {read:.0f} ns to read: through the kernel, not "
                 "from user space")  # fmt: skip
        effect = ("ranks that wait for a common start read it and are late; every sample holds a read, which slows "
                  "small ones")  # fmt: skip
        problems.append(Problem("warn", cause, effect, fix))
    namespace = f"shifted by a time namespace: {shifted}" if shifted else "no shift by a time namespace"
    return finding(f"{source or 'unknown source'}, {read:.0f} ns per read; {namespace}", *problems)


@check
def speculation(machine: Machine) -> Finding:
    """Whether containers pay for a mitigation that the host does not have.

    Kernels before 5.16 disable speculative stores past unknown addresses (SSBD) for every process with a filter of
    system calls, which is what Docker gives its containers.
    """
    lines = machine.status()
    # Speculation_Store_Bypass, SpeculationIndirectBranch
    states = [f"{name} {value}" for name, value in lines.items() if name.startswith("Speculation")]
    bypass = machine.read("sys/devices/system/cpu/vulnerabilities/spec_store_bypass") or ""
    states += [f"spec_store_bypass: {bypass}"] if bypass else []
    mitigated = "mitigated" in lines.get("Speculation_Store_Bypass", "")
    seen = "; ".join(states) or "the kernel does not say"
    effect = "loads wait for earlier stores: programs that access much memory are several per cent slower, in "
    # `Mitigation: Speculative Store Bypass disabled via prctl and seccomp`: the state of kernels before 5.16
    if "seccomp" in bypass:
        kernel = machine.read("proc/sys/kernel/osrelease") or "unknown"
        where = "and this process has one" if mitigated else "as Docker's containers have, and the host's have not"
        cause = f"kernel {kernel} disables store bypass (SSBD) in processes with a filter of system calls, {where}"
        fix = ('seccomp = ["default", "unconfined"] in the launch plan, then compare --by seccomp; or boot with '
               "spec_store_bypass_disable=prctl")  # fmt: skip
        return finding(seen, Problem("warn", cause, f"{effect}containers only", fix))
    if not mitigated:
        return finding(seen)
    cause = "store bypass is disabled for this process (SSBD), by what started it or for the whole machine"
    fix = "grep Speculation /proc/1/status shows whether it is for all; else start collbench without that"
    return finding(seen, Problem("warn", cause, f"{effect}this process and what it starts", fix))


LITTLE_MEMORY = 1 << 30  #: Less than this is too little for the default sweep beside the libraries of a few ranks.


@check
def memory(machine: Machine, available_to_buffers: Callable[[], int | None] = available_bytes) -> Finding:
    """How much buffers can take before the kernel swaps or kills, as the check before the first case sees it."""
    if (available := available_to_buffers()) is None:
        effect = "a case that does not fit is not refused before it is allocated: the kernel may kill a rank"
        fix = "free -h; choose -e so that ranks x buffers stay below what is available"
        return finding("unknown", Problem("unknown", "/proc/meminfo cannot be read", effect, fix))
    limit = memory_limit(machine.root)
    group = "no cgroup limit" if limit is None else f"cgroup limit {format_bytes(limit)}"
    lines = (line.split() for line in (machine.read("proc/meminfo") or "").splitlines())
    sizes = {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) > 1 and words[1].isdecimal()}
    total, free = sizes.get("SwapTotal", 0), sizes.get("SwapFree", 0)
    swap = f"swap {format_bytes(total - free)} of {format_bytes(total)} used" if total else "no swap"
    seen = f"{format_bytes(available)} available, {swap}, {group}"
    if available >= LITTLE_MEMORY:
        return finding(seen)
    fix = "docker run --memory=4g ..." if machine.container is not None else "end other programs"
    cause = f"only {format_bytes(available)} are available without swapping"
    effect = "large cases are refused, and buffers may be swapped out while they are timed"
    return finding(seen, Problem("warn", cause, effect, f"{fix}, or measure with a smaller -e"))


ARRAYS = 3  #: The arrays of STREAM.


@check
def cache(machine: Machine, available_to_arrays: Callable[[], int | None] = available_bytes) -> Finding:
    """From which size on arrays are in memory and in no cache, and whether there is room for them."""
    available = available_to_arrays()
    effect = "memory benchmarks (stream) with smaller arrays show the bandwidth of the cache"
    if (last_level := last_level_cache(machine.root)) is None:
        cause = "the kernel does not say how large the last-level cache is (/sys/devices/system/cpu/cpu0/cache)"
        fix = f"lscpu --caches; or the processor's data sheet: give each array {TIMES_CACHE} times its last-level cache"
        return finding("unknown", Problem("unknown", cause, effect, fix))
    array = TIMES_CACHE * last_level
    needed = f"{ARRAYS} arrays of {TIMES_CACHE} x {format_bytes(last_level)} take {format_bytes(ARRAYS * array)}"
    seen = f"last level {format_bytes(last_level)}: arrays from {format_bytes(array)} on measure memory; {needed}"
    if available is None or available >= ARRAYS * array:
        return finding(seen)
    cause = f"{needed}, and {format_bytes(available)} are available"
    fix = "free -h shows what takes the memory: end it, or measure on a machine with more"
    return finding(seen, Problem("warn", cause, effect, fix))


#: Kernels of OpenBLAS that use no vectors wider than those of SSE, or of the first AVX (OpenBLAS, TargetList.txt).
SLOW_KERNELS = frozenset((
    "Atom", "Athlon", "Banias", "Barcelona", "Bobcat", "Bulldozer", "Coppermine", "Core2", "Dunnington", "Generic",
    "Katmai", "Nano", "Nehalem", "Northwood", "Opteron", "Opteron_SSE3", "P5", "Penryn", "Piledriver", "Prescott",
    "Sandybridge", "Steamroller", "Unknown"))  # fmt: skip

#: What to load, and what brings it.
LIBRARIES = {"libopenblas.so.0": "the distribution's OpenBLAS",
             "libopenblas64.so.0": "the distribution's OpenBLAS (64)",
             "openblas": "scipy-openblas32", "openblas64": "scipy-openblas64"}  # fmt: skip


@check
def blas(machine: Machine) -> Finding:
    """The kernels that OpenBLAS chose: it takes a processor that it does not know for an old one without vectors."""
    libraries = [library for name, title in LIBRARIES.items() if (library := _open_blas(machine, name, title))]
    if not libraries:
        return finding("no OpenBLAS; linpack and dgemm need one: pip install scipy-openblas32")
    forced = machine.environ.get("OPENBLAS_CORETYPE")
    seen = "; ".join(f"{title}: {kernel}" for title, kernel in libraries)
    seen += f" (OPENBLAS_CORETYPE={forced})" if forced else ""
    wide = next((flag for flag in ("avx512f", "avx2") if flag in machine.cpu_flags), None)
    newer = "SkylakeX" if wide == "avx512f" else "Haswell"
    fix = f"export OPENBLAS_CORETYPE={newer}; or, in containers too, a newer OpenBLAS: pip install scipy-openblas32"
    if forced:
        fix = f"unset OPENBLAS_CORETYPE, which is {forced}; where the kernels remain old, set it to {newer}"
    effect = "matrix products and LINPACK are 3 to 6 times slower than this processor can compute them"
    causes = (f"{title} uses the kernels for {kernel}, and this processor has {wide}"
              for title, kernel in libraries if wide is not None and kernel in SLOW_KERNELS)  # fmt: skip
    return finding(seen, *(Problem("warn", cause, effect, fix) for cause in causes))


def _open_blas(machine: Machine, name: str, title: str) -> tuple[str, str] | None:
    """Title with version, and the processor that its kernels are for, as a child says; None where it is not there."""
    try:
        output = machine.execute((sys.executable, "-m", "collbench.workloads.host.blas", name))
        answer = json.loads(output.text.strip().rpartition("\n")[2]) if output.code == 0 else {}
        return (f"{title} {answer['version']}", answer["kernel"]) if answer.get("kernel") else None
    except (OSError, ValueError):
        return None
