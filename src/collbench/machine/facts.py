"""Facts of this machine and process: host, cores, container, clocks, contention, environment, digests of files."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

from collbench.machine import cgroup
from collbench.machine.cgroup import confinement, disks, priority, text_of
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


def environment(prefixes: tuple[str, ...], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables with one of these prefixes or a common one, without those that a backend set for itself.

    All others stay out of the manifest: environments hold secrets.
    """
    recorded = (*_COMMON, *prefixes)
    names = own_names(environ)
    return {
        name: printable(value)
        for name, value in sorted(environ.items())
        if name.startswith(recorded) and name not in names
        and not _SECRET_NAME.search(name.upper()) and not _SECRET_VALUE.search(value)
    }  # fmt: skip


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
    listed = text_of(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
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
    return text_of("/proc/sys/kernel/random/boot_id")


def host_name() -> str:
    """Of the machine that this process is on: as its launcher says, where its own hostname is that of a pod."""
    return os.environ.get(HOST) or os.uname().nodename


def machine_id() -> str:
    """Equal for processes on one machine, whatever container they are in."""
    return boot_id() or os.uname().nodename


def rank_facts(gpu: str | None = None, clock: str | None = None) -> RankFacts:
    """Of this process; `gpu` is the UUID of the GPU that it uses, `clock` names one that is not the machine's."""
    boot = machine_id()
    offsets = " ".join((text_of("/proc/self/timens_offsets") or "").split())
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
    for line in (text_of("/proc/pressure/cpu") or "").splitlines():
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
    lines = [line.split() for line in (text_of("/proc/stat") or "").splitlines()]
    ticks = [[int(word) for word in words[1:9]] for words in lines if words and words[0] in names]
    if len(ticks) != len(cores) or any(len(words) < 8 for words in ticks):
        return None
    second = 1 / os.sysconf("SC_CLK_TCK")
    user, nice, system, _, _, irq, softirq, steal = (sum(column) * second for column in zip(*ticks, strict=True))
    times = os.times()
    return CoreTimes(len(cores), user + nice - times.user, system + irq + softirq - times.system, steal)


@dataclass(frozen=True)
class Waited:
    """Seconds since boot that tasks of this machine waited for a CPU; by control group, CPU seconds of throttling.

    `used` is what the cores of this process were used for, without what it used itself. None: the kernel does not say.
    """

    stalled: float | None = None
    throttled: Mapping[str, float] = field(default_factory=dict)
    used: CoreTimes | None = None

    def since(self, before: Waited) -> Waited:
        """The increase since an earlier look."""
        return _combined(self, before, -1)


def _combined(one: Waited, two: Waited, sign: Literal[1, -1]) -> Waited:
    """Sum or difference; unknown where one of the two is."""
    stalled = None if one.stalled is None or two.stalled is None else one.stalled + sign * two.stalled
    groups = one.throttled.keys() & two.throttled
    throttled = {group: one.throttled[group] + sign * two.throttled[group] for group in groups}
    if one.used is None or two.used is None:
        return Waited(stalled, throttled)
    user, system, steal = (
        getattr(one.used, name) + sign * getattr(two.used, name) for name in ("user", "system", "steal")
    )
    return Waited(stalled, throttled, CoreTimes(one.used.cores, user, system, steal))


def waited_now() -> Waited:
    return Waited(cpu_stall_seconds(), cgroup.throttled_seconds(), core_times())


@dataclass(frozen=True)
class Stretch:
    """The increase in so many seconds, which need not be in one piece."""

    seconds: float
    added: Waited

    def and_then(self, other: Stretch) -> Stretch:
        """Both together."""
        return Stretch(self.seconds + other.seconds, _combined(self.added, other.added, 1))


class ContentionMeter:
    """The time in which something is measured, without what lies between `stop` and `start`. `clock` is in ns."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns, look: Callable[[], Waited] = waited_now) -> None:
        self._clock, self._look = clock, look
        self._began: tuple[Waited, int] | None = None
        self._passed: Stretch | None = None

    def start(self) -> None:
        self._began = (self._look(), self._clock())

    def stop(self) -> None:
        """Without effect where it does not run."""
        if self._began is not None:
            before, began = self._began
            stretch = Stretch((self._clock() - began) * 1e-9, self._look().since(before))
            self._passed = stretch if self._passed is None else self._passed.and_then(stretch)
            self._began = None

    def reset(self) -> None:
        """Forget what has passed."""
        self._began = self._passed = None

    @property
    def passed(self) -> Stretch:
        return self._passed or Stretch(0.0, Waited())


def host(ranks: Iterable[int] = (), gpus: Iterable[Gpu] = ()) -> Host:
    """Of this machine, for the manifest; `ranks` run on it and use `gpus`."""
    cpuinfo = (text_of("/proc/cpuinfo") or "").splitlines()
    models = (line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name"))
    return Host(
        name=host_name(),
        ranks=tuple(ranks),
        kernel=os.uname().release,
        cpu=next(models, os.uname().machine),
        cores=os.cpu_count() or 1,
        memory=memory_size(),
        cgroup_cpus=cgroup.cpu_quota(),
        cgroup_memory=cgroup.memory_limit(),
        governor=text_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
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
    text = text_of(root / "sys/kernel/mm/transparent_hugepage/enabled") or ""
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
        level, size = text_of(index / "level"), text_of(index / "size")
        if level and size and size.endswith("K"):
            levels.append((int(level), int(size[:-1]) * 1024))
    return max(levels, default=(0, None))[1]


def sha256_of(path: str) -> str:
    """SHA-256 of a file, in hexadecimal. Read once by a process as long as it stays what it is.

    Raises:
        OSError: it cannot be read.
    """
    status = Path(path).stat()
    return _digest(path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=256)
def _digest(path: str, *version: int) -> str:
    import hashlib  # where nothing is hashed, the start is faster without it

    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":  # prints the facts of the machine that it runs on, as JSON on one line
    import sys

    import msgspec

    sys.stdout.write(msgspec.json.encode(host()).decode() + "\n")
