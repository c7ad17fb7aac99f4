"""Facts of this machine and process: host, cores, container, clocks, contention, environment."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from collbench.machine import cgroup
from collbench.machine.cgroup import disks
from collbench.machine.confinement import confinement, priority
from collbench.machine.process import own_names
from collbench.schema.manifest import Gpu, Host
from collbench.schema.record import Confinement
from collbench.schema.world import HOST
from collbench.timing.clocks import clock_step

#: Prefixes of variables that change what any program does: threads, kernels of mathematics, memory, what is loaded.
#: Backends say which change what they do.
_COMMON = ("OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "BLIS_", "NUMEXPR_", "ONEDNN_", "DNNL_", "ATEN_", "MALLOC_",
           "GLIBC_TUNABLES", "LD_PRELOAD")  # fmt: skip

#: Names that may hold secrets: these words anywhere, or between underscores; and values with credentials of an address.
#: The last of each line hold what a launcher keeps for itself, and where software is installed.
_SECRET_NAME = re.compile(
    r"URI|TOKEN|SECRET|PASS|KEY|CRED|AUTH|PREFIXES|INITIAL_WDIR"
    r"|(?<![A-Z0-9])(PWD|BEARER|COOKIES?|SESSION|SID|JWT|PINS?|LICEN[CS]ES?|DIR$|ROOT$)(?![A-Z0-9])"
)
_SECRET_VALUE = re.compile(r"://\S*@")

#: Share of the time in which tasks waited for a CPU from which on we speak of contention.
CONTENDED_SHARE = 0.10


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def environment(prefixes: tuple[str, ...], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables with one of these prefixes or a common one, without those that a backend set for itself.

    All others stay out of the manifest: environments hold secrets.
    """
    recorded = (*_COMMON, *prefixes)
    own = own_names(environ)
    return {
        name: printable(value)
        for name, value in sorted(environ.items())
        if name.startswith(recorded) and name not in own and not _may_be_secret(name, value)
    }


def _may_be_secret(name: str, value: str) -> bool:
    return bool(_SECRET_NAME.search(name.upper()) or _SECRET_VALUE.search(value))


def printable(text: str) -> str:
    """Text for JSON: bytes of arguments and variables that are not UTF-8 become U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def format_cores(cores: Iterable[int]) -> str:
    """`0-3,8` for {0, 1, 2, 3, 8}: the kernel's own list format."""
    ordered = sorted(cores)
    spans: list[list[int]] = []
    for core in ordered:
        if spans and core == spans[-1][-1] + 1:
            spans[-1][1:] = [core]
        else:
            spans.append([core])
    return ",".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)


def parse_cores(text: str) -> frozenset[int]:
    """`0-3,8` as {0, 1, 2, 3, 8}: the kernel's own list format."""
    cores: set[int] = set()
    for span in text.split(","):
        if span.strip():
            first, _, last = span.partition("-")
            cores.update(range(int(first), int(last or first) + 1))
    return frozenset(cores)


def thread_siblings(cpu: int, root: Path = Path("/")) -> tuple[int, ...]:
    """The hardware threads of a processor's core, ascending, itself among them; it alone where the kernel is silent."""
    listed = _read(str(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))
    return tuple(sorted(parse_cores(listed or str(cpu))))


def container() -> str | None:
    """Name of the container of this process: from its launcher, else its hostname; None on a host."""
    name = os.environ.get("COLLBENCH_CONTAINER")
    if name:
        return name
    inside = Path("/.dockerenv").exists() or Path("/run/.containerenv").exists()
    return os.uname().nodename if inside else None


@dataclass(frozen=True)
class RankFacts:
    """Where one rank runs. Equal `clock_id` means one CLOCK_MONOTONIC; equal `kernel_id` means one machine.

    `cores` are the processors that it may use. `siblings` are the hardware threads of each of their cores that has
    several, whether it may use all of them or not.
    """

    host: str
    kernel_id: str
    clock_id: str
    cores: frozenset[int]
    container: str | None
    confinement: Confinement
    gpu: str | None = None
    siblings: tuple[tuple[int, ...], ...] = ()

    @property
    def binding(self) -> str:
        return format_cores(self.cores)

    @property
    def physical(self) -> frozenset[int]:
        """Its cores, each by the lowest number among its hardware threads."""
        first = {cpu: threads[0] for threads in self.siblings for cpu in threads}
        return frozenset(first.get(cpu, cpu) for cpu in self.cores)

    def threads_of(self, core: int) -> tuple[int, ...]:
        """The hardware threads of one of its `physical` cores."""
        return next((threads for threads in self.siblings if threads[0] == core), (core,))


def boot_id() -> str | None:
    """Identifies this boot of the machine; None where the kernel does not say."""
    return _read("/proc/sys/kernel/random/boot_id")


def host_name() -> str:
    """Of the machine that this process is on: as its launcher says, where its own hostname is that of a pod."""
    return os.environ.get(HOST) or os.uname().nodename


def machine_id() -> str:
    """Equal for processes on one machine, whatever container they are in."""
    return boot_id() or os.uname().nodename


def rank_facts(gpu: str | None = None, clock: str | None = None) -> RankFacts:
    """Of this process; `gpu` is the UUID of the GPU that it uses, `clock` names one that is not the machine's."""
    boot = machine_id()
    offsets = " ".join((_read("/proc/self/timens_offsets") or "").split())
    cores = own_cores()
    return RankFacts(
        host=host_name(),
        kernel_id=boot,
        clock_id=clock or f"{boot} {offsets}",
        cores=cores,
        container=container(),
        confinement=confinement(),
        gpu=gpu,
        siblings=tuple(sorted({threads for cpu in cores if len(threads := thread_siblings(cpu)) > 1})),
    )


def have_common_clock(facts: Iterable[RankFacts]) -> bool:
    """Whether all ranks read one CLOCK_MONOTONIC: same boot of one kernel, same time namespace."""
    return len({rank.clock_id for rank in facts}) == 1


def is_oversubscribed(facts: Iterable[RankFacts]) -> bool:
    """Whether any machine has more ranks than cores they may use; the hardware threads of a core are one."""
    ranks: Counter[str] = Counter()
    cores: dict[str, set[frozenset[int]]] = {}
    for rank in facts:
        ranks[rank.kernel_id] += 1
        cores.setdefault(rank.kernel_id, set()).add(rank.physical)
    return any(number > len(frozenset().union(*cores[machine])) for machine, number in ranks.items())


def cpu_stall_seconds() -> float | None:
    """Seconds in which some task waited for a CPU, since boot (PSI); None where the kernel does not say."""
    for line in (_read("/proc/pressure/cpu") or "").splitlines():
        if line.startswith("some"):
            return int(line.rpartition("total=")[2]) * 1e-6
    return None


@dataclass(frozen=True)
class CoreTimes:
    """Seconds since boot that cores were used, by programs and by the kernel; `steal`: by other virtual machines."""

    cores: int
    user: float
    system: float
    steal: float


def core_times() -> CoreTimes | None:
    """Of the cores that this process may use, without what this process used itself (/proc/stat, proc(5)).

    None where the kernel does not say.
    """
    cores = own_cores()
    names = {f"cpu{core}" for core in cores}
    lines = [line.split() for line in (_read("/proc/stat") or "").splitlines()]
    ticks = [[int(word) for word in words[1:9]] for words in lines if words and words[0] in names]
    if len(ticks) != len(cores) or any(len(words) < 8 for words in ticks):
        return None
    second = 1 / os.sysconf("SC_CLK_TCK")
    user, nice, system, _, _, irq, softirq, steal = (sum(column) * second for column in zip(*ticks, strict=True))
    own = os.times()
    return CoreTimes(len(cores), user + nice - own.user, system + irq + softirq - own.system, steal)


def host(ranks: Iterable[int] = (), gpus: Iterable[Gpu] = ()) -> Host:
    """Of this machine, for the manifest; `ranks` run on it and use `gpus`."""
    return Host(
        name=host_name(),
        ranks=tuple(ranks),
        kernel=os.uname().release,
        cpu=_cpu_model(),
        cores=os.cpu_count() or 1,
        memory=memory_size(),
        cgroup_cpus=cgroup.cpu_quota(),
        cgroup_memory=cgroup.memory_limit(),
        governor=_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        boot_id=boot_id(),
        clock_step=clock_step() * 1e-9,
        gpus=tuple(gpus),
        cache=last_level_cache(),
        priority=priority(),
        disks=disks(),
        huge_pages=huge_pages(),
    )


def huge_pages(root: Path = Path("/")) -> str | None:
    """Which memory gets transparent huge pages: `always`, `madvise` (on request), `never`; None: it cannot be known."""
    text = _read(f"{root}/sys/kernel/mm/transparent_hugepage/enabled") or ""
    return text.partition("[")[2].partition("]")[0] or None


def own_cores() -> frozenset[int]:
    """Processors that this process may use; all of them where the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def memory_size() -> int:
    """Bytes of this machine; 0 where the system does not say."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0


def last_level_cache(root: Path = Path("/")) -> int | None:
    """Bytes of the highest cache of the first processor; None where the kernel does not say."""
    levels: list[tuple[int, int]] = []
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, size = _read(f"{index}/level"), _read(f"{index}/size")
        if level and size and size.endswith("K"):
            levels.append((int(level), int(size[:-1]) * 1024))
    return max(levels, default=(0, None))[1]


def _cpu_model() -> str:
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return os.uname().machine
