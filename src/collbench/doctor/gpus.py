"""Check `gpus`: driver, GPUs and their memory nodes, MIG, throttling, whether CUDA starts in a child process.

Where NVML lists no GPU: whether there is none, or one that cannot be used, and what a container lacks.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable

from collbench.doctor.parts.finding import Finding, Problem, found
from collbench.doctor.parts.processors import Machine, allowed, launcher_cores
from collbench.machine import nvml
from collbench.machine.facts import format_cores, parse_cores
from collbench.machine.nvml import GpuFacts
from collbench.schema.record import Reading
from collbench.units import format_bytes

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


def devices(machine: Machine) -> tuple[str, ...]:
    """The files of the NVIDIA driver in /dev."""
    return tuple(sorted(path.name for path in machine.path("dev").glob("nvidia*")))


def on_bus(machine: Machine) -> int:
    """How many NVIDIA devices of PCI class display there are. A container sees all of its host's."""
    folders = machine.path("sys/bus/pci/devices").glob("*")
    ids = ((machine.read(f"{folder}/vendor"), machine.read(f"{folder}/class") or "") for folder in folders)
    return sum(vendor == "0x10de" and kind.startswith("0x03") for vendor, kind in ids)


def explain(machine: Machine, reason: str) -> Finding:
    """The finding where NVML lists no GPU; `reason` is its own."""
    files, cards = devices(machine), on_bus(machine)
    if not files and not cards:
        return found(NONE_HERE)
    seen = f"NVIDIA devices: {cards} on the PCI bus, {', '.join(files) or 'none'} in /dev"
    if machine.container is not None and not files:
        return found(f"no GPU in this container; {seen}", _not_given(machine))
    cause = f"{seen}, but {reason}"
    if "not installed" in reason:
        effect = "GPUs, their driver, clocks and connections cannot be examined"
        return found(seen, Problem("unknown", cause, effect, "pip install nvidia-ml-py"))
    fix = _HOST_FIXES.get(reason.removeprefix("NVML: "), _ASK_KERNEL)
    if machine.container is not None:
        fix = f"{GIVE_GPUS} (a new container: a running one loses its GPUs when the host reloads systemd)"
        if "Library Not Found" in reason:
            cause, fix = f"{cause}; {capabilities(machine)}", CAPABLE
    return found(f"{seen}; {reason}", Problem("fail", cause, _UNUSABLE, fix))


def _not_given(machine: Machine) -> Problem:
    """A warning only: backends without a GPU work in a container without GPUs."""
    requested = machine.environ.get("NVIDIA_VISIBLE_DEVICES")
    setting = f" (NVIDIA_VISIBLE_DEVICES={requested})" if requested is not None else ""
    return Problem(
        "warn",
        f"this container was given none of its host's GPUs{setting}: no nvidia* in its /dev",
        _UNUSABLE,
        f"{GIVE_GPUS}; where the engine refuses that, on the host: sudo apt-get install -y nvidia-container-toolkit && "
        "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
    )


def capabilities(machine: Machine) -> str:
    """What the container requested of the NVIDIA runtime, by which that mounts the driver's libraries."""
    requested = machine.environ.get("NVIDIA_DRIVER_CAPABILITIES")
    return f"NVIDIA_DRIVER_CAPABILITIES is {requested or 'not set'}: libcuda needs compute, NVML needs utility"


_TRY = """
import ctypes, json
try:
    library = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    print(json.dumps(str(error)))
else:
    print(json.dumps(library.cuInit(0)))
"""

_NO_COMPAT = "unset LD_LIBRARY_PATH (if it puts a CUDA compat folder before the driver's libcuda)"

#: By the error of cuInit: what it means, what to do.
_ERRORS = {
    100: ("no device is visible to CUDA", "unset CUDA_VISIBLE_DEVICES"),
    802: ("the system is not ready: NVSwitches need their fabric manager", "sudo systemctl start nvidia-fabricmanager"),
    803: ("libcuda is not that of the loaded driver", _NO_COMPAT),
    804: ("this GPU does not support a newer libcuda", _NO_COMPAT),
}
_OTHER = ("an error without an explanation", _ASK_KERNEL)


def refusal(machine: Machine) -> Problem | None:
    """Why CUDA does not start here; None where it does."""
    try:
        output = machine.execute((sys.executable, "-I", "-S", "-c", _TRY))
        answer: int | str = json.loads(output.text.strip().splitlines()[-1])
    except (OSError, TimeoutError, ValueError, IndexError) as error:
        cause = f"the child process that starts CUDA did not answer: {error or type(error).__name__}"
        command = f"{sys.executable} -c 'import ctypes; print(ctypes.CDLL(\"libcuda.so.1\").cuInit(0))'"
        return Problem("unknown", cause, f"if CUDA does not start, {_UNUSABLE}", command)
    if isinstance(answer, str):
        if machine.container is not None:
            cause = f"no libcuda.so.1 in this container ({answer}); {capabilities(machine)}"
            return Problem("fail", cause, _UNUSABLE, CAPABLE)
        fix = "sudo ldconfig; where libcuda.so.1 is not installed: sudo apt-get install -y libcuda1 (Debian)"
        return Problem("fail", f"the driver's libcuda.so.1 is not loaded: {answer}", _UNUSABLE, fix)
    if answer == 0:
        return None
    meaning, fix = _ERRORS.get(answer, _OTHER)
    return Problem("fail", f"CUDA does not start: cuInit returns {answer}, {meaning}", _UNUSABLE, fix)


_NODES = "sys/devices/system/node"

#: How each launcher distributes its ranks over the memory nodes. A rank gets all cores of its node: on a single core
#: NCCL's threads would compete with it.
_SPREAD = {
    "openmpi": "mpirun --map-by numa --bind-to numa",
    "mpich": "mpiexec -bind-to numa -map-by numa",
    "slurm": "srun --distribution=*:cyclic --cpu-bind=ldoms",
    "torchrun": "torchrun",
}


def judge(machine: Machine, gpus: tuple[GpuFacts, ...], readings: tuple[Reading, ...]) -> Finding:
    """`gpus` are those that NVML shows, `readings` their clocks and throttling now."""
    version, cuda = nvml.driver()
    cores = launcher_cores(machine) or allowed(machine)  # of all ranks: this one may be bound to fewer
    nodes = nodes_of(machine, cores)
    kinds: dict[str, list[int]] = defaultdict(list)
    for gpu in gpus:
        kinds[_describe(gpu)].append(gpu.index)
    titles = (f"GPU{'s' if len(alike) > 1 else ''} {format_cores(alike)}: {kind}" for kind, alike in kinds.items())
    where = f"cores {format_cores(cores)}" + (f" on node {format_cores(nodes)}" if nodes else "")
    seen = "; ".join((f"driver {version or 'unknown'} (CUDA up to {cuda or 'unknown'})", *titles, where))
    far = _far(machine, used(machine, gpus), nodes)
    return found(seen, refusal(machine), *far, _mig(gpus), *_slowed(gpus, readings))


def _describe(gpu: GpuFacts) -> str:
    memory = "memory unknown" if gpu.memory is None else format_bytes(gpu.memory)
    node = "node unknown" if gpu.node is None else f"node {gpu.node}"
    return f"{gpu.name}, {memory}, {node}{', MIG on' if gpu.mig else ''}"


def nodes_of(machine: Machine, cores: Iterable[int]) -> frozenset[int]:
    """The memory nodes of the cores; none where the kernel does not say."""
    wanted = {*cores}
    return frozenset(node for node, own in _cores_of_nodes(machine).items() if own & wanted)


def _cores_of_nodes(machine: Machine) -> dict[int, frozenset[int]]:
    names = (folder.name for folder in machine.path(_NODES).glob("node[0-9]*"))
    return {int(name[4:]): parse_cores(machine.read(f"{_NODES}/{name}/cpulist") or "") for name in names}


def used(machine: Machine, gpus: tuple[GpuFacts, ...]) -> tuple[GpuFacts, ...]:
    """Those that CUDA_VISIBLE_DEVICES names by index or by the beginning of a UUID; all where it is not set."""
    visible = machine.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return gpus
    names = [name.strip() for name in visible.split(",") if name.strip()]
    return tuple(gpu for gpu in gpus if any(name == str(gpu.index) or gpu.uuid.startswith(name) for name in names))


def _far(machine: Machine, gpus: tuple[GpuFacts, ...], nodes: frozenset[int]) -> list[Problem]:
    """A problem for each node with GPUs and without cores. Which GPU a rank will use is not known here."""
    unknown = machine.launcher.kind != "none" and launcher_cores(machine) is None
    if unknown or not nodes:
        return []
    far: dict[int, list[int]] = defaultdict(list)
    for gpu in gpus:
        if gpu.node is not None and gpu.node not in nodes:
            far[gpu.node].append(gpu.index)
    return [
        Problem(
            "warn",
            f"GPU {format_cores(indices)} is on memory node {node}, and all cores that may be used are on node "
            f"{format_cores(nodes)}",
            "copies between host and device cross to another node: less bandwidth, more latency",
            _nearer(machine, node, nodes),
        )
        for node, indices in sorted(far.items())
    ]


def _nearer(machine: Machine, node: int, nodes: frozenset[int]) -> str:
    cores = format_cores(_cores_of_nodes(machine).get(node, frozenset()))
    if machine.container is not None:
        return f"docker run --cpuset-cpus={cores} --cpuset-mems={node} ..."
    if machine.launcher.kind == "none":
        return f"numactl --cpunodebind={node} --membind={node} collbench ... (or taskset -c {cores} collbench ...)"
    both = format_cores({*nodes, node})
    return f"numactl --cpunodebind={both} {_SPREAD[machine.launcher.kind]} ..."


def _mig(gpus: tuple[GpuFacts, ...]) -> Problem | None:
    split = [gpu.index for gpu in gpus if gpu.mig]
    if not split:
        return None
    return Problem(
        "warn",
        f"MIG is on for GPU {format_cores(split)}",
        "NCCL cannot use peer-to-peer between MIG instances, and a process sees one instance only: what is measured is "
        "a part of a GPU",
        f"sudo nvidia-smi -i {','.join(map(str, split))} -mig 0 (while nothing runs on it)",
    )


def _slowed(gpus: tuple[GpuFacts, ...], readings: tuple[Reading, ...]) -> list[Problem]:
    """A problem for each set of reasons, with the GPUs that are throttled by it."""
    number = {gpu.uuid: gpu.index for gpu in gpus}
    slow: dict[str, list[int]] = defaultdict(list)
    for reading in readings:
        if reading.throttled:
            slow[", ".join(reading.throttled)].append(number[reading.uuid])
    return [
        Problem(
            "warn",
            f"GPU {format_cores(indices)} is throttled now: {reasons}",
            "its clocks are lower and change while it is measured: times are longer and vary more",
            f"nvidia-smi -i {','.join(map(str, indices))} -q -d PERFORMANCE,POWER,TEMPERATURE shows which limit is "
            "hit: stop other programs on it, and let it cool",
        )
        for reasons, indices in slow.items()
    ]


def run(machine: Machine) -> Finding:
    gpus, reason = nvml.gpus(machine.root)
    if not gpus:
        return explain(machine, reason)
    return judge(machine, gpus, nvml.readings([gpu.uuid for gpu in gpus]))
