"""Facts of this machine and process: environment, processors, GPUs, host, container, clocks, contention, digests."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

from collbench.machine import cgroup, nvml
from collbench.machine.cgroup import confinement, disks, priority, text_of
from collbench.machine.launcher import own_names
from collbench.schema.manifest import Gpu, Host
from collbench.schema.record import Confinement
from collbench.schema.world import HOST
from collbench.timing.loop import clock_step
from collbench.units import format_spans, parse_spans

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
#: What mpirun of Open MPI 4 and of Intel MPI tell their ranks by variables of settings, and no user set.
_SET_BY_MPIRUN = (
    "OMPI_MCA_orte_", "OMPI_MCA_ess", "OMPI_MCA_pmix", "OMPI_MCA_shmem_RUNTIME_QUERY_hint",
    "I_MPI_INFO_", "I_MPI_HYDRA_UUID", "I_MPI_HYDRA_TOPOLIB", "I_MPI_MPIRUN", "I_MPI_PIN_INFO", "I_MPI_PIN_MAPPING",
    "I_MPI_BIND_WIN_ALLOCATE", "I_MPI_INTERNAL_MEM_POLICY", "I_MPI_RETURN_WIN_MEM_NUMA", "FI_PROVIDER_PATH",
)  # fmt: skip
_SECRET_VALUE = re.compile(r"://\S*@")
CONTENDED_SHARE = 0.10  #: Tasks that wait for a CPU for a larger share of the time are contention.


def environment(prefixes: tuple[str, ...], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables with a prefix of these or of `_COMMON` that no backend set, for the manifest; no others: secrets."""
    set_by_backends = own_names(environ)
    return {
        name: printable(value)
        for name, value in sorted(environ.items())
        if name.startswith((*_COMMON, *prefixes)) and name not in set_by_backends
        and not name.startswith(_SET_BY_MPIRUN)
        and not _SECRET_NAME.search(name.upper()) and not _SECRET_VALUE.search(value)
    }  # fmt: skip


def printable(text: str) -> str:
    """Text for JSON: bytes of arguments and variables that are not UTF-8 become U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


# Processors and GPUs --------------------------------------------------------------------------------------------------


def thread_siblings(cpu: int, root: Path = Path("/")) -> tuple[int, ...]:
    """The hardware threads of a processor's core, ascending, itself among them; it alone where the kernel is silent."""
    listed = text_of(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return tuple(sorted(parse_spans(listed or str(cpu))))


def own_cores() -> frozenset[int]:
    """Processors that this process may use; all of them where the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


@dataclass(frozen=True)
class Core:
    """A logical processor: its number, its memory node, and the lowest number among those that share its core.

    `cache`: the lowest number among those that share its last-level cache; -1 where that is not known.
    """

    number: int
    node: int = 0
    first_sibling: int = -1
    cache: int = -1
    socket: int = 0

    @property
    def physical(self) -> int:
        """Equal for the processors that share a core."""
        return self.number if self.first_sibling < 0 else self.first_sibling


@dataclass(frozen=True)
class TopologyGpu:
    """A GPU or MIG device by its UUID, with its memory node and its memory in bytes, and what leaves it.

    `exclusive`: it takes one process at most.
    """

    uuid: str
    node: int = 0
    memory: int | None = None
    exclusive: bool = False
    outlets: nvml.Outlets = field(default_factory=nvml.Outlets)


@dataclass(frozen=True)
class Topology:
    """Processors that this process may use, GPUs in order of bus or why there are none; `name` as in messages.

    `links` connect GPUs, by their places in `gpus`, as NVML names them (`nvml.peers`). `of_cluster`: a node, of which
    the cluster gives out what it likes.
    """

    cores: tuple[Core, ...]
    gpus: tuple[TopologyGpu, ...] = ()
    no_gpus: str = ""
    name: str = "this machine"
    links: Mapping[tuple[int, int], str] = field(default_factory=dict)
    of_cluster: bool = False

    def physical(self, numbers: Collection[int]) -> frozenset[int]:
        """The cores of processors with these numbers, each by the lowest number among its hardware threads."""
        cores = self.by_number
        return frozenset(cores[number].physical if number in cores else number for number in numbers)

    @cached_property
    def by_number(self) -> dict[int, Core]:
        return {core.number: core for core in self.cores}

    @property
    def nodes(self) -> tuple[int, ...]:
        """Memory nodes that these processors belong to, ascending."""
        return tuple(sorted({core.node for core in self.cores}))

    def nodes_of(self, numbers: Collection[int]) -> tuple[int, ...]:
        """Memory nodes of the processors with these numbers, ascending."""
        cores = self.by_number
        return tuple(sorted({cores[number].node for number in numbers if number in cores}))


def in_order(cores: Iterable[Core], needed: int = 0) -> tuple[Core, ...]:
    """One processor of each core before the others, where so many are enough; else core by core. Both node by node."""
    by_number = sorted(cores, key=lambda core: core.number)
    first = {core.physical: core.number for core in reversed(by_number)}
    if needed > len(first):
        return tuple(sorted(by_number, key=lambda core: (core.node, core.physical)))
    return tuple(sorted(by_number, key=lambda core: (core.number != first[core.physical], core.node)))


def cores_of_nodes(root: Path = Path("/")) -> dict[int, frozenset[int]]:
    """By memory node; empty where the kernel does not say."""
    folders = (root / "sys/devices/system/node").glob("node[0-9]*")
    return {int(folder.name[4:]): parse_spans(text_of(folder / "cpulist") or "") for folder in folders}


def processors_here(root: Path = Path("/")) -> tuple[Core, ...]:
    """Those that this process may use, ascending."""
    nodes = {core: node for node, cores in cores_of_nodes(root).items() for core in cores}
    return tuple(
        Core(number, nodes.get(number, 0), thread_siblings(number, root)[0], *_cache_and_socket(number, root))
        for number in sorted(own_cores())
    )


def topology_here(root: Path = Path("/")) -> Topology:
    """The part of this machine that this process may use."""
    facts, no_gpus = nvml.gpus(root)
    devices = tuple(device for gpu in facts for device in nvml.slices(gpu))
    gpus = tuple(TopologyGpu(gpu.uuid, gpu.node or 0, gpu.memory, gpu.exclusive, nvml.outlets(gpu.uuid))
                 for gpu in devices)  # fmt: skip # node 0 where it is unknown
    return Topology(processors_here(root), gpus, no_gpus, links=nvml.peers([gpu.uuid for gpu in gpus]))


def _cache_and_socket(cpu: int, root: Path) -> tuple[int, int]:
    """The lowest number among the processors that share its last-level cache, or -1; the number of its socket, or 0."""
    folder = root / f"sys/devices/system/cpu/cpu{cpu}"
    caches = ((text_of(index / "level"), text_of(index / "shared_cpu_list")) for index in folder.glob("cache/index*"))
    last = max(((int(level), min(parse_spans(shared))) for level, shared in caches if level and shared),
               default=(0, -1))  # fmt: skip
    socket = text_of(folder / "topology/physical_package_id") or "0"
    return last[1], max(int(socket), 0)  # -1 where the kernel does not know


def container() -> str | None:
    """Name of the container of this process: from its launcher, else its hostname; None on a host."""
    inside = Path("/.dockerenv").exists() or Path("/run/.containerenv").exists()
    return os.environ.get("COLLBENCH_CONTAINER") or (os.uname().nodename if inside else None)


@dataclass(frozen=True)
class RankFacts:
    """Where one rank runs. Equal `clock_id` means one CLOCK_MONOTONIC; equal `kernel_id` means one machine.

    It may use `cores`; `siblings` are all hardware threads of each of their cores that has several.
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
        return format_spans(self.cores)

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
    boot, cores = machine_id(), own_cores()
    offsets = " ".join((text_of("/proc/self/timens_offsets") or "").split())
    siblings = tuple(sorted({threads for cpu in cores if len(threads := thread_siblings(cpu)) > 1}))
    return RankFacts(host_name(), boot, clock or f"{boot} {offsets}", cores, container(), confinement(), gpu, siblings)


def have_common_clock(facts: Iterable[RankFacts]) -> bool:
    """Whether all ranks read one CLOCK_MONOTONIC: same boot of one kernel, same time namespace."""
    return len({rank.clock_id for rank in facts}) == 1


def is_oversubscribed(facts: Iterable[RankFacts]) -> bool:
    """Whether any machine has more ranks than cores they may use; the hardware threads of a core are one."""
    cores: dict[str, list[frozenset[int]]] = {}
    for rank in facts:
        cores.setdefault(rank.kernel_id, []).append(rank.physical)
    return any(len(of_ranks) > len(frozenset().union(*of_ranks)) for of_ranks in cores.values())


# Contention -----------------------------------------------------------------------------------------------------------


def cpu_stall_seconds() -> float | None:
    """Seconds in which some task waited for a CPU, since boot (PSI); None where the kernel does not say."""
    some = re.search(r"^some .*\btotal=(\d+)", text_of("/proc/pressure/cpu") or "", re.MULTILINE)
    return int(some[1]) * 1e-6 if some else None


@dataclass(frozen=True)
class CoreTimes:
    """Seconds since boot that cores were used, by programs and by the kernel; `steal`: by other virtual machines."""

    cores: int
    user: float
    system: float
    steal: float


def core_times() -> CoreTimes | None:
    """Of the cores that this process may use, without its own use (/proc/stat, proc(5)); None: not said."""
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
    """Seconds since boot that tasks waited for a CPU; by control group, CPU seconds of throttling. None: not said.

    `used` is what the cores of this process were used for, without what it used itself.
    """

    stalled: float | None = None
    throttled: Mapping[str, float] = field(default_factory=dict)
    used: CoreTimes | None = None

    def since(self, before: Waited) -> Waited:
        """The increase since an earlier look; unknown where one of the two is."""
        return self.combined(before, -1)

    def combined(self, other: Waited, sign: Literal[1, -1]) -> Waited:
        """The sum of both or their difference; unknown where one of the two is."""
        stalled = None if self.stalled is None or other.stalled is None else self.stalled + sign * other.stalled
        groups = self.throttled.keys() & other.throttled
        throttled = {group: self.throttled[group] + sign * other.throttled[group] for group in groups}
        if self.used is None or other.used is None:
            return Waited(stalled, throttled)
        times = (getattr(self.used, name) + sign * getattr(other.used, name) for name in ("user", "system", "steal"))
        return Waited(stalled, throttled, CoreTimes(self.used.cores, *times))


def waited_now() -> Waited:
    return Waited(cpu_stall_seconds(), cgroup.throttled_seconds(), core_times())


@dataclass(frozen=True)
class Stretch:
    """The increase in so many seconds, which need not be in one piece."""

    seconds: float
    added: Waited

    def and_then(self, other: Stretch) -> Stretch:
        """Both together."""
        return Stretch(self.seconds + other.seconds, self.added.combined(other.added, 1))


class ContentionMeter:
    """The time in which something is measured, without what lies between `stop` and `start`. `clock` is in ns."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns, look: Callable[[], Waited] = waited_now) -> None:
        self._clock, self._look = clock, look
        self._began: tuple[Waited, int] | None = None
        self._passed: Stretch | None = None
        self._allowed = 0.0

    def start(self, allowed: float = 0.0) -> None:
        """`allowed`: the share of each core that others may use until `stop`: so much of their use does not count."""
        self._allowed = allowed
        self._began = (self._look(), self._clock())

    def stop(self) -> None:
        """Without effect where it does not run."""
        if self._began is not None:
            before, began = self._began
            seconds, added = (self._clock() - began) * 1e-9, self._look().since(before)
            if added.used is not None:
                allowed = self._allowed * seconds * added.used.cores
                added = replace(added, used=replace(added.used, user=added.used.user - allowed))
            stretch = Stretch(seconds, added)
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
    lines = (text_of("/proc/cpuinfo") or "").splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return Host(
        name=host_name(), ranks=tuple(ranks), kernel=os.uname().release, cpu=next(models, os.uname().machine),
        cores=os.cpu_count() or 1, memory=memory_size(), cgroup_cpus=cgroup.cpu_quota(),
        cgroup_memory=cgroup.memory_limit(), governor=text_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        boot_id=boot_id(), clock_step=clock_step() * 1e-9, gpus=tuple(gpus), cache=last_level_cache(),
        priority=priority(), disks=disks(), huge_pages=huge_pages(),
    )  # fmt: skip


def huge_pages(root: Path = Path("/")) -> str | None:
    """Which memory gets transparent huge pages: `always`, `madvise` (on request), `never`; None: it cannot be known."""
    text = text_of(root / "sys/kernel/mm/transparent_hugepage/enabled") or ""
    return text.partition("[")[2].partition("]")[0] or None


def memory_size() -> int:
    """Bytes of this machine; 0 where the system does not say."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0


def last_level_cache(root: Path = Path("/")) -> int | None:
    """Bytes of the highest cache of the first processor; None where the kernel does not say."""
    folders = (root / "sys/devices/system/cpu/cpu0/cache").glob("index*")
    caches = ((text_of(folder / "level"), text_of(folder / "size")) for folder in folders)
    sizes = ((int(level), int(size[:-1]) * 1024) for level, size in caches if level and size and size.endswith("K"))
    return max(sizes, default=(0, None))[1]


def sha256_of(path: str) -> str:
    """SHA-256 of a file, in hexadecimal, or OSError. Read once by a process as long as it stays what it is."""
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
