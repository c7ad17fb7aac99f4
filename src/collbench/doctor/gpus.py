"""Checks of GPUs: driver and devices, how they are connected, NCCL, and whether MPI takes their memory.

Where NVML lists no GPU: whether there is none, or one that cannot be used, and what a container lacks.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from collbench.analysis.results import grouped
from collbench.backends import mpi_cuda as support
from collbench.backends.mpi_cuda import LEVELS, YES_NO, Levels
from collbench.bindings.gpu.device import package_folders
from collbench.bindings.gpu.nccl import SONAME
from collbench.bindings.mpi import library_path, load_mpi, vendor, version_line
from collbench.doctor import Finding, Machine, Problem, check, finding
from collbench.errors import BackendUnavailable
from collbench.machine import nvml
from collbench.machine.facts import cores_of_nodes
from collbench.machine.nvml import GpuFacts
from collbench.units import format_bytes, format_spans

NONE_HERE = "no NVIDIA GPU: backends mpi-staged, mpi-cuda, nccl and torch-nccl are not usable here"

_UNUSABLE = "backends mpi-staged, mpi-cuda, nccl and torch-nccl do not start here; mpi and torch-gloo are not affected"
_ASK_KERNEL = "sudo dmesg | grep -i nvrm (messages of the driver)"

#: On a host, by NVML's error.
_HOST_FIXES = {
    "Driver Not Loaded": "sudo modprobe nvidia; where that fails: sudo dmesg | grep -i nvrm",
    "NVML Shared Library Not Found": "sudo ubuntu-drivers install --gpgpu (Ubuntu; elsewhere its own driver)",
    "RM has detected an NVML/RM version mismatch.": "sudo reboot (the driver was replaced while it was loaded)",
}

GIVE_GPUS = "docker run --gpus all ..."
CAPABLE = f"{GIVE_GPUS[:-4]} -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ..."


@check
def gpus(machine: Machine) -> Finding:
    """Driver, GPUs and their memory nodes, MIG, throttling, whether CUDA starts in a child process."""
    devices, reason = nvml.gpus(machine.root)
    if not devices:
        return _without_gpus(machine, reason)
    version, cuda = nvml.driver()
    cores = machine.launcher_cores or machine.allowed()  # of all ranks: this one may be bound to fewer
    nodes = frozenset(node for node, local in cores_of_nodes(machine.root).items() if local & cores)
    kinds: dict[str, list[int]] = defaultdict(list)
    for gpu in devices:
        size = "memory unknown" if gpu.memory is None else format_bytes(gpu.memory)
        node = "node unknown" if gpu.node is None else f"node {gpu.node}"
        kinds[f"{gpu.name}, {size}, {node}{', MIG on' if gpu.mig else ''}"].append(gpu.index)
    titles = (f"GPU{'s' if len(alike) > 1 else ''} {format_spans(alike)}: {kind}" for kind, alike in kinds.items())
    where = f"cores {format_spans(cores)}" + (f" on node {format_spans(nodes)}" if nodes else "")
    seen = "; ".join((f"driver {version or 'unknown'} (CUDA up to {cuda or 'unknown'})", *titles, where))
    return finding(seen, _cuda_refused(machine), *_far(machine, devices, nodes), *_mig(devices), *_slowed(devices))


def _without_gpus(machine: Machine, reason: str) -> Finding:
    files = tuple(sorted(path.name for path in machine.path("dev").glob("nvidia*")))
    folders = machine.path("sys/bus/pci/devices").glob("*")
    ids = ((machine.read(f"{folder}/vendor"), machine.read(f"{folder}/class") or "") for folder in folders)
    # NVIDIA's, of PCI class display; a container sees all of its host's.
    cards = sum(maker == "0x10de" and kind.startswith("0x03") for maker, kind in ids)
    if not files and not cards:
        return finding(NONE_HERE)
    seen = f"NVIDIA devices: {cards} on the PCI bus, {', '.join(files) or 'none'} in /dev"
    if machine.container is not None and not files:
        # A warning only: backends without a GPU work in a container without GPUs.
        requested = machine.environ.get("NVIDIA_VISIBLE_DEVICES")
        setting = f" (NVIDIA_VISIBLE_DEVICES={requested})" if requested is not None else ""
        cause = f"this container was given none of its host's GPUs{setting}: no nvidia* in its /dev"
        fix = (f"{GIVE_GPUS}; where the engine refuses that, on the host: sudo apt-get install -y "
               "nvidia-container-toolkit && sudo nvidia-ctk runtime configure --runtime=docker && "
               "sudo systemctl restart docker")  # fmt: skip
        return finding(f"no GPU in this container; {seen}", Problem("warn", cause, _UNUSABLE, fix))
    cause = f"{seen}, but {reason}"
    if "not installed" in reason:
        effect = "GPUs, their driver, clocks and connections cannot be examined"
        return finding(seen, Problem("unknown", cause, effect, "pip install nvidia-ml-py"))
    fix = _HOST_FIXES.get(reason.removeprefix("NVML: "), _ASK_KERNEL)
    if machine.container is not None:
        fix = f"{GIVE_GPUS} (a new container: a running one loses its GPUs when the host reloads systemd)"
        if "Library Not Found" in reason:
            cause, fix = f"{cause}; {_capabilities(machine)}", CAPABLE
    return finding(f"{seen}; {reason}", Problem("fail", cause, _UNUSABLE, fix))


def _capabilities(machine: Machine) -> str:
    """What the container requested of the NVIDIA runtime, by which that mounts the driver's libraries."""
    requested = machine.environ.get("NVIDIA_DRIVER_CAPABILITIES")
    return f"NVIDIA_DRIVER_CAPABILITIES is {requested or 'not set'}: libcuda needs compute, NVML needs utility"


_CU_INIT = """
import ctypes, json
try:
    answer = ctypes.CDLL("libcuda.so.1").cuInit(0)
except OSError as error:
    answer = str(error)
print(json.dumps(answer))
"""

_NO_COMPAT = "unset LD_LIBRARY_PATH (if it puts a CUDA compat folder before the driver's libcuda)"

#: By the error of cuInit: what it means, what to do.
_CU_ERRORS = {
    100: ("no device is visible to CUDA", "unset CUDA_VISIBLE_DEVICES"),
    802: ("the system is not ready: NVSwitches need their fabric manager", "sudo systemctl start nvidia-fabricmanager"),
    803: ("libcuda is not that of the loaded driver", _NO_COMPAT),
    804: ("this GPU does not support a newer libcuda", _NO_COMPAT),
}


def _cuda_refused(machine: Machine) -> Problem | None:
    try:
        output = machine.execute((sys.executable, "-I", "-S", "-c", _CU_INIT))
        last = (output.text.strip().splitlines() or ["nothing"])[-1]
        answer: int | str = json.loads(last)
    except (OSError, ValueError) as error:
        why = f"exit code {output.code}, it printed {last}" if isinstance(error, ValueError) else str(error)
        cause = f"the child process that starts CUDA did not answer: {why or type(error).__name__}"
        command = f"{sys.executable} -c 'import ctypes; print(ctypes.CDLL(\"libcuda.so.1\").cuInit(0))'"
        return Problem("unknown", cause, f"if CUDA does not start, {_UNUSABLE}", command)
    if isinstance(answer, str):
        if machine.container is not None:
            cause = f"no libcuda.so.1 in this container ({answer}); {_capabilities(machine)}"
            return Problem("fail", cause, _UNUSABLE, CAPABLE)
        fix = "sudo ldconfig; where libcuda.so.1 is not installed: sudo apt-get install -y libcuda1 (Debian)"
        return Problem("fail", f"the driver's libcuda.so.1 is not loaded: {answer}", _UNUSABLE, fix)
    if answer == 0:
        return None
    meaning, fix = _CU_ERRORS.get(answer, ("an error without an explanation", _ASK_KERNEL))
    return Problem("fail", f"CUDA does not start: cuInit returns {answer}, {meaning}", _UNUSABLE, fix)


#: How each launcher distributes its ranks over the memory nodes. A rank gets all cores of its node: on a single core
#: NCCL's threads would compete with it.
_SPREAD = {"openmpi": "mpirun --map-by numa --bind-to numa", "mpich": "mpiexec -bind-to numa -map-by numa",
           "intelmpi": "mpiexec -genv I_MPI_PIN_DOMAIN numa",
           "slurm": "srun --distribution=*:cyclic --cpu-bind=ldoms", "torchrun": "torchrun"}  # fmt: skip


def _far(machine: Machine, devices: tuple[GpuFacts, ...], nodes: frozenset[int]) -> Iterator[Problem]:
    """A problem for each node with GPUs and without cores. Which GPU a rank will use is not known here.

    Of the GPUs that CUDA_VISIBLE_DEVICES names by index or by the beginning of a UUID; of all where it is not set.
    """
    if not nodes or (machine.launcher.kind != "none" and machine.launcher_cores is None):
        return
    visible = machine.environ.get("CUDA_VISIBLE_DEVICES")
    names = [name.strip() for name in (visible or "").split(",") if name.strip()]
    used = [gpu for gpu in devices if visible is None
            or any(name == str(gpu.index) or gpu.uuid.startswith(name) for name in names)]  # fmt: skip
    far = grouped((gpu.node, gpu.index) for gpu in used if gpu.node is not None and gpu.node not in nodes)
    for node, indices in sorted(far.items()):
        cause = (f"GPU {format_spans(indices)} is on memory node {node}, and all cores that may be used are on node "
                 f"{format_spans(nodes)}")  # fmt: skip
        effect = "copies between host and device cross to another node: less bandwidth, more latency"
        yield Problem("warn", cause, effect, _nearer(machine, node, nodes))


def _nearer(machine: Machine, node: int, nodes: Iterable[int]) -> str:
    cores = format_spans(cores_of_nodes(machine.root).get(node, ()))
    if machine.container is not None:
        return f"docker run --cpuset-cpus={cores} --cpuset-mems={node} ..."
    if machine.launcher.kind == "none":
        return f"numactl --cpunodebind={node} --membind={node} collbench ... (or taskset -c {cores} collbench ...)"
    return f"numactl --cpunodebind={format_spans({*nodes, node})} {_SPREAD[machine.launcher.kind]} ..."


def _mig(devices: tuple[GpuFacts, ...]) -> Iterator[Problem]:
    if split := [gpu.index for gpu in devices if gpu.mig]:
        effect = ("NCCL cannot use peer-to-peer between MIG instances, and a process sees one instance only: what is "
                  "measured is a part of a GPU")  # fmt: skip
        fix = f"sudo nvidia-smi -i {','.join(map(str, split))} -mig 0 (while nothing runs on it)"
        yield Problem("warn", f"MIG is on for GPU {format_spans(split)}", effect, fix)


def _slowed(devices: tuple[GpuFacts, ...]) -> Iterator[Problem]:
    number = {gpu.uuid: gpu.index for gpu in devices}
    slow = grouped((", ".join(reading.throttled), number[reading.uuid])
                   for reading in nvml.readings(list(number)) if reading.throttled)  # fmt: skip
    effect = "its clocks are lower and change while it is measured: times are longer and vary more"
    for reasons, indices in slow.items():
        fix = (f"nvidia-smi -i {','.join(map(str, indices))} -q -d PERFORMANCE,POWER,TEMPERATURE shows which limit is "
               "hit: stop other programs on it, and let it cool")  # fmt: skip
        yield Problem("warn", f"GPU {format_spans(indices)} is throttled now: {reasons}", effect, fix)


GpuPair = tuple[int, int]


@check
def peers(machine: Machine) -> Finding:
    """How the GPUs are connected, with access to each other or not; MIG instances, which have none, are left out."""
    devices = tuple(gpu for gpu in nvml.gpus(machine.root)[0] if not gpu.mig)
    if len(devices) < 2:
        return finding("fewer than two GPUs")
    uuids = [gpu.uuid for gpu in devices]
    access: dict[GpuPair, bool | None] = {}
    for i, j in combinations(range(len(devices)), 2):
        directions = (nvml.peer_access(uuids[i], uuids[j]), nvml.peer_access(uuids[j], uuids[i]))
        access[i, j] = False if False in directions else None if None in directions else True
    return judge_peers(devices, nvml.peers(uuids), access)


def judge_peers(
    devices: tuple[GpuFacts, ...], links: Mapping[GpuPair, str], access: Mapping[GpuPair, bool | None]
) -> Finding:
    """`links` has both orders of a pair, `access` one (true: in both directions); pairs are indices of `devices`."""
    refused = [pair for pair, allowed in access.items() if allowed is False]
    unknown = [pair for pair, allowed in access.items() if allowed is None]
    show = "nvidia-smi topo -p2p r names the reason for each pair"
    problems = []
    if refused:
        connected = next((pair for pair, allowed in access.items() if allowed), ())
        visible = ",".join(devices[index].uuid for index in connected)  # CUDA may number GPUs differently than NVML
        fix = f"export CUDA_VISIBLE_DEVICES={visible} measures on two with peer access; {show}" if connected else show
        cause = f"no peer access between GPUs {_pairs_text(devices, refused)}"
        effect = "NCCL and CUDA-aware MPI go through host memory between them: another path, several times slower"
        problems.append(Problem("warn", cause, effect, fix))
    if unknown:
        cause = f"NVML does not report peer access between GPUs {_pairs_text(devices, unknown)}"
        problems.append(Problem("unknown", cause, "NCCL may go through host memory between them", show))
    lacking = len(refused) + len(unknown)
    extent = {0: "all", len(access): "none"}.get(lacking, f"{len(access) - lacking} of {len(access)} pairs")
    return finding(f"{_matrix(devices, links)}; peer access between {extent}", *problems)


def _matrix(devices: tuple[GpuFacts, ...], links: Mapping[GpuPair, str]) -> str:
    """A row for each GPU, with a dash for itself; one word where all pairs are alike."""
    if len({*links.values()}) == 1:
        return f"{len(devices)} GPUs, each pair {next(iter(links.values()))}"
    places = range(len(devices))
    rows = (" ".join("-" if i == j else links.get((i, j), nvml.UNKNOWN) for j in places) for i in places)
    return "; ".join(f"GPU {gpu.index}: {row}" for gpu, row in zip(devices, rows, strict=True))


def _pairs_text(devices: tuple[GpuFacts, ...], pairs: list[GpuPair]) -> str:
    """The first four pairs, as NVML numbers GPUs."""
    shown = ", ".join(f"{devices[i].index}-{devices[j].index}" for i, j in pairs[:4])
    return shown if len(pairs) <= 4 else f"{shown} and {len(pairs) - 4} more"


#: Prints file and version of a libnccl. In a child process, because two in one process would disturb each other.
_NCCL_VERSION = """
import ctypes, json, re, sys
library, version = ctypes.CDLL(sys.argv[1]), ctypes.c_int()
error = library.ncclGetVersion(ctypes.byref(version))
path = re.search(r"(/.*/libnccl\\.so.*)$", open("/proc/self/maps").read(), re.MULTILINE)
print(json.dumps([path and path[1], None if error else version.value]))
"""

#: Distributions that are built for one CUDA, by the number in their name.
_BUILT_FOR = re.compile(r"(?:cupy-cuda|nvidia-nccl-cu)(\d+)x?")


@dataclass(frozen=True)
class NcclInstallation:
    """A libnccl by origin (`nvidia-nccl wheel`, `torch`, `dynamic linker`), file and version; None: it is not said."""

    origin: str
    path: str
    version: str | None


@check
def nccl(machine: Machine) -> Finding:
    """Which libnccl a process here would load, whether there are several, and whether the driver is too old."""
    return judge_nccl(nccl_libraries(machine), nccl_wheels(), nvml.driver()[1], bool(nvml.gpus(machine.root)[0]))


def nccl_wheels() -> frozenset[str]:
    """The installed distributions that are built for one CUDA: `cupy-cuda12x`, `nvidia-nccl-cu12`."""
    distributions = importlib.metadata.distributions()
    names = (str(distribution.metadata["Name"]).lower().replace("_", "-") for distribution in distributions)
    return frozenset(name for name in names if _BUILT_FOR.fullmatch(name))


def nccl_libraries(machine: Machine) -> tuple[NcclInstallation, ...]:
    """Those of Python packages, then what the dynamic linker finds; each file once."""
    candidates = [(origin, str(file)) for origin, package in (("torch", "torch"), ("nvidia-nccl wheel", "nvidia.nccl"))
                  for folder in package_folders(package) if (file := folder / "lib" / SONAME).exists()]  # fmt: skip
    by_path: dict[str, NcclInstallation] = {}
    for origin, name in (*candidates, ("dynamic linker", SONAME)):
        try:
            output = machine.execute((sys.executable, "-I", "-S", "-c", _NCCL_VERSION, name))
            loaded, code = json.loads(output.text.strip().splitlines()[-1])
        except (OSError, TimeoutError, ValueError, IndexError, TypeError):
            if name == SONAME:
                continue
            loaded, code = None, None  # a path that cannot be loaded is kept
        path = str(Path(loaded or name).resolve())
        by_path.setdefault(path, NcclInstallation(origin, path, None if code is None else nccl_version(code)))
    return tuple(by_path.values())


def nccl_version(code: int) -> str:
    """`2.27.5` for 22705. Before NCCL 2.9 the minor version had one digit less: 2804."""
    unit = 10000 if code >= 10000 else 1000
    return f"{code // unit}.{code % unit // 100}.{code % 100}"


def judge_nccl(
    installations: tuple[NcclInstallation, ...], wheels: frozenset[str], cuda: str | None, gpu: bool
) -> Finding:
    """`cuda` is the highest version that the driver supports, None without a driver; `gpu`: there is one."""
    major = int(cuda.partition(".")[0]) if cuda else None
    seen = "; ".join(
        f"{installation.version or 'version unknown'} ({installation.origin}: {installation.path})"
        for installation in installations
    )
    problems = []
    if gpu and not installations:
        cause = f"there is a GPU, but no {SONAME} that can be loaded"
        effect = "backends nccl and torch-nccl are not usable (unless NCCL is built into torch, which is not checked)"
        problems.append(Problem("warn", cause, effect, f"pip install nvidia-nccl-cu{major or 12}"))
    same_folder = sorted(name for name in wheels if name.startswith("nvidia-nccl-"))
    if len(same_folder) > 1:
        kept = next((name for name in reversed(same_folder) if major and int(name[-2:]) <= major), same_folder[0])
        cause = f"{' and '.join(same_folder)} are installed in the same folder"
        effect = ("the one that was installed last has overwritten the other: which NCCL is measured depends on the "
                  "order")  # fmt: skip
        fix = f"pip uninstall -y {' '.join(same_folder)} && pip install {kept}"
        problems.append(Problem("warn", cause, effect, fix))
    if len(installations) > 1:
        paths = ", ".join(installation.path for installation in installations)
        cause = f"{len(installations)} different libraries: {paths}"
        effect = "two backends could measure different libraries; collbench refuses two in one process"
        fix = f"export LD_LIBRARY_PATH={Path(installations[0].path).parent}:$LD_LIBRARY_PATH"
        problems.append(Problem("warn", cause, effect, fix))
    for installation in installations:
        if installation.version is None:
            cause = f"{installation.path} ({installation.origin}) cannot be loaded, or does not say its version"
            fix = f"{sys.executable} -c 'import ctypes; ctypes.CDLL(\"{installation.path}\").ncclGetVersion'"
            problems.append(Problem("warn", cause, "a backend that uses it does not start", fix))
    too_old = (_driver_too_old(name, cuda, major) for name in sorted(wheels))
    return finding("; ".join(filter(None, (seen or "not installed", ", ".join(sorted(wheels))))), *problems, *too_old)


def _driver_too_old(wheel: str, cuda: str | None, major: int | None) -> Problem | None:
    match = _BUILT_FOR.fullmatch(wheel)
    if match is None or major is None or int(match[1]) <= major:
        return None
    fitting = wheel.replace(f"cu{match[1]}", f"cu{major}").replace(f"cuda{match[1]}", f"cuda{major}")
    cause = f"{wheel} is built for CUDA {match[1]}, and the driver supports CUDA up to {cuda}: the driver is too old"
    effect = "it cannot use a GPU (cudaErrorInsufficientDriver)"
    return Problem("fail", cause, effect, f"pip uninstall -y {wheel} && pip install {fitting}, or update the driver")


#: How each MPI is made to look for CUDA at its start, and to print what it finds.
_CLAIM = {
    "openmpi": "export OMPI_MCA_accelerator=cuda (mpirun --mca accelerator_base_verbose 10 shows why it was not taken)",
    "mpich": "export MPIR_CVAR_ENABLE_GPU=1 MPICH_GPU_SUPPORT_ENABLED=1 (the second is Cray's)",
    "intelmpi": "export I_MPI_OFFLOAD=1",
}


@check
def cuda_aware(machine: Machine) -> Finding:
    """Whether the MPI of mpi4py is built for device pointers, claims to take them, and takes them."""
    try:
        mpi = load_mpi()
    except BackendUnavailable:
        return finding("no MPI library for mpi4py")
    uuids = tuple(gpu.uuid for gpu in nvml.gpus(machine.root)[0])
    levels = cuda_levels(mpi.Get_library_version(), library_path(), uuids)
    return judge_cuda_aware(vendor(mpi), version_line(mpi), levels, bool(uuids))


def cuda_levels(version: str, library: str | None, uuids: tuple[str, ...]) -> Levels:
    """What can be found out here. `version` is the text of MPI_Get_library_version, `uuids` are those of the GPUs."""
    built = support.built(version)
    if built is False:
        return Levels(built, why="backend mpi-cuda needs an MPI that is built with CUDA")
    if uuids:
        return support.levels(version, library, uuids[0])
    return Levels(built, support.claimed(library), why="no GPU here to try it on")


def judge_cuda_aware(library: str, name: str, levels: Levels, gpu: bool) -> Finding:
    """`library` is the MPI's vendor, `name` with its version. Without a GPU no level is a problem."""
    words = []
    for level in LEVELS:  # up to the first that is not reached, which decides the others
        reached = getattr(levels, level)
        words.append(f"{level}: {YES_NO[reached]}")
        if not reached:
            break
    seen = f"{name}: {', '.join(words)}" + (f" ({levels.why})" if levels.why else "")
    effect = "backend mpi-cuda is refused: it would abort the job, or send what is not in the buffer"
    staged = "--backend mpi-staged (measures copies through the host instead)"
    if gpu and levels.built and levels.claimed is False:
        cause = (f"{name} was built with CUDA, and says that it takes no device pointers: its CUDA component did not "
                 "start")  # fmt: skip
        return finding(seen, Problem("warn", cause, effect, f"{_CLAIM.get(library, _CLAIM['mpich'])}; or {staged}"))
    if gpu and levels.claimed and levels.works is False:
        cause = f"{name} says that it takes device pointers, but did not send a device buffer correctly"
        fix = f"{staged}; ucx_info -d | grep -i cuda shows whether its UCX knows CUDA"
        return finding(seen, Problem("warn", cause, effect, fix))
    return finding(seen)
