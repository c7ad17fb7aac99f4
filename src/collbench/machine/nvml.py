"""All that is read through NVML: GPUs, driver, connections, clocks. Nothing here raises: unknown is None.

NVML is opened once per process and never closed. `pynvml` is imported on the first question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

from collbench.schema.record import Reading

# Numbers of nvml.h: pynvml has some of them wrong (its NVML_P2P_CAPS_INDEX_READ is a tuple) and renames others.
_CLOCK_SM, _CLOCK_MEMORY, _TEMPERATURE_GPU = 1, 2, 0
_P2P_READ, _P2P_WRITE = 0, 1
_P2P_OK, _P2P_UNKNOWN = 0, 6
_REMOTE_IS_SWITCH = 2
_MANY_PROCESSES = 0  # of the compute modes the one in which several may use the GPU
_MOST_LINKS = 36
_NVLINK_RATE = 90  # a field: MB/s of an active NVLink, one way

_ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}

_SLOWDOWNS = {
    0x04: "power cap", 0x08: "hardware slowdown", 0x10: "sync boost",
    0x20: "thermal (software)", 0x40: "thermal (hardware)", 0x80: "power brake",
}  # fmt: skip

#: B/s of a lane, one way, by generation: transfers a second times the share that a line code leaves (PCI Express Base
#: Specification: 8b/10b, from 3.0 on 128b/130b, from 6.0 on 236 of 256 bytes of a flit).
_LANE = {1: 0.25e9, 2: 0.5e9, 3: 8e9 / 8 * 128 / 130, 4: 16e9 / 8 * 128 / 130, 5: 32e9 / 8 * 128 / 130,
         6: 64e9 / 8 * 236 / 256}  # fmt: skip

UNKNOWN = "unknown"  #: What `peers` says of a connection that NVML does not know.


@dataclass(frozen=True)
class GpuFacts:
    """`bus_id` as NVML spells it, `memory` in bytes, memory `node`, `capability` like `9.0`.

    `mig`: is it split now; `exclusive`: it takes one process at most.
    """

    index: int
    uuid: str
    name: str
    bus_id: str
    memory: int | None = None
    node: int | None = None
    capability: str | None = None
    mig: bool = False
    exclusive: bool = False


@dataclass(frozen=True)
class Outlets:
    """What leaves a GPU, in B/s one way: over each of so many active NVLinks, and over PCI; None: NVML does not say."""

    nvlinks: int = 0
    nvlink_rate: float | None = None
    pcie_rate: float | None = None


def outlets(uuid: str) -> Outlets:
    handle = _handle(uuid)
    links = 0 if uuid.startswith("MIG-") else sum(_links(handle).values())
    (field,) = _ask("nvmlDeviceGetFieldValues", handle, [_NVLINK_RATE]) or (None,)
    rate = field.value.uiVal * 1e6 if links and field is not None and field.nvmlReturn == 0 else None
    generation = _ask("nvmlDeviceGetMaxPcieLinkGeneration", handle)
    width = _ask("nvmlDeviceGetMaxPcieLinkWidth", handle)
    return Outlets(links, rate or None, _LANE[generation] * width if generation in _LANE and width else None)


def slices(gpu: GpuFacts) -> tuple[GpuFacts, ...]:
    """The MIG devices of a GPU that is split; of another the GPU itself."""
    if not gpu.mig:
        return (gpu,)
    whole = _handle(gpu.uuid)
    handles = [_ask("nvmlDeviceGetMigDeviceHandleByIndex", whole, number)
               for number in range(_ask("nvmlDeviceGetMaxMigDeviceCount", whole) or 0)]  # fmt: skip
    known = [(handle, uuid) for handle in handles if (uuid := _ask("nvmlDeviceGetUUID", handle)) is not None]
    memories = [_ask("nvmlDeviceGetMemoryInfo", handle) for handle, _ in known]
    return tuple(replace(gpu, uuid=uuid, memory=None if memory is None else memory.total)
                 for (_, uuid), memory in zip(known, memories, strict=True))  # fmt: skip


def gpus(root: Path = Path("/")) -> tuple[tuple[GpuFacts, ...], str]:
    """GPUs in NVML's order (by bus) and an empty text; or none and the reason. `root` is where `sys` is found."""
    library, reason = _open()
    if library is None:
        return (), reason
    try:
        handles = [library.nvmlDeviceGetHandleByIndex(index) for index in range(library.nvmlDeviceGetCount())]
        facts = tuple(_facts(library, root, index, handle) for index, handle in enumerate(handles))
    except library.NVMLError as error:
        return (), f"NVML: {error}"
    return facts, "" if facts else "NVML knows no GPU"


def driver() -> tuple[str | None, str | None]:
    """The driver's version and the highest CUDA version that it supports, like `570.86.15` and `12.8`."""
    cuda = _ask("nvmlSystemGetCudaDriverVersion")  # 12080 is 12.8
    return _ask("nvmlSystemGetDriverVersion"), f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None


def peers(uuids: Sequence[str]) -> dict[tuple[int, int], str]:
    """How each GPU is connected to each other one, by their indices in `uuids`; empty without NVML.

    `NV4` is four active NVLinks between the two, directly or through switches. Else it is what a path over PCI has
    to cross, in the words of `nvidia-smi topo -m`: `PIX`, `PXB`, `PHB`, `NODE`, `SYS`; or `unknown`.
    """
    if _open()[0] is None:
        return {}
    handles = [_handle(uuid) for uuid in uuids]
    buses = [_bus(_ask("nvmlDeviceGetPciInfo", handle)) for handle in handles]
    links = [_links(handle) for handle in handles]
    connections = {}
    for i, j in permutations(range(len(handles)), 2):
        sliced = any(uuids[number].startswith("MIG-") for number in (i, j))  # MIG devices use no NVLinks
        linked = 0 if sliced else links[i][buses[j]] + min(links[i][None], links[j][None])
        if linked:
            connections[i, j] = f"NV{linked}"
        elif sliced and buses[i] == buses[j]:
            connections[i, j] = "PIX"
        else:
            ancestor = _ask("nvmlDeviceGetTopologyCommonAncestor", handles[i], handles[j])
            connections[i, j] = _ANCESTORS.get(ancestor, UNKNOWN)
    return connections


def peer_access(first: str, second: str) -> bool | None:
    """Whether the GPU of UUID `first` may read and write the memory of `second` directly; None where unknown."""
    handles = _handle(first), _handle(second)
    statuses = [_ask("nvmlDeviceGetP2PStatus", *handles, access) for access in (_P2P_READ, _P2P_WRITE)]
    if any(status not in (None, _P2P_OK, _P2P_UNKNOWN) for status in statuses):
        return False
    return statuses == [_P2P_OK, _P2P_OK] or None


def spelled(uuid: str) -> str:
    """A UUID from CUDA, which has no prefix, as NVML writes it: `GPU-...` or `MIG-...`."""
    mig = f"MIG-{uuid}"
    return f"GPU-{uuid}" if _ask("nvmlDeviceGetHandleByUUID", mig) is None else mig


def readings(uuids: Sequence[str]) -> tuple[Reading, ...]:
    """Clocks, power and throttling of each GPU or MIG device now, in the order of `uuids`; empty without NVML."""
    return tuple(_reading(uuid, handle) for uuid in uuids if (handle := _handle(uuid)) is not None)


@cache
def _open() -> tuple[Any | None, str]:
    """`pynvml`, initialised; or None and why not."""
    try:
        import pynvml
    except ImportError:
        return None, "nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, f"NVML: {error}"
    return pynvml, ""


def _ask(question: str, *arguments: Any) -> Any:
    """NVML's answer; None without NVML, where the GPU, the driver or pynvml has none, or an argument is None."""
    library, _ = _open()
    function = getattr(library, question, None)
    if library is None or function is None or any(argument is None for argument in arguments):
        return None
    try:
        return function(*arguments)
    except library.NVMLError:
        return None


@cache
def _handle(uuid: str) -> Any | None:
    """Of a MIG device that of its GPU: only that one has clocks, links and a bus address."""
    handle = _ask("nvmlDeviceGetHandleByUUID", uuid)
    if handle is None or not uuid.startswith("MIG-"):
        return handle
    whole = _ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
    return handle if whole is None else whole


def _facts(library: Any, root: Path, index: int, handle: Any) -> GpuFacts:
    bus, uuid = library.nvmlDeviceGetPciInfo(handle).busId, library.nvmlDeviceGetUUID(handle)
    memory, mode = _ask("nvmlDeviceGetMemoryInfo", handle), _ask("nvmlDeviceGetMigMode", handle)
    capability = _ask("nvmlDeviceGetCudaComputeCapability", handle)
    return GpuFacts(
        index, uuid, library.nvmlDeviceGetName(handle), bus,
        memory=None if memory is None else memory.total,
        node=_node_of(root, bus),
        capability=None if capability is None else ".".join(map(str, capability)),
        mig=bool(mode and mode[0]),
        exclusive=_ask("nvmlDeviceGetComputeMode", handle) not in (None, _MANY_PROCESSES),
    )  # fmt: skip


def _node_of(root: Path, bus: str) -> int | None:
    """The memory node of a PCI device as NVML names it: `00000000:65:00.0`."""
    domain, _, rest = bus.lower().partition(":")
    try:
        node = int((root / f"sys/bus/pci/devices/{int(domain, 16):04x}:{rest}/numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return None if node < 0 else node  # -1 where the kernel does not know


def _bus(info: Any) -> str:
    return "" if info is None else info.busId.lower()


def _links(handle: Any | None) -> Counter[str | None]:
    """Active NVLinks by the bus of the GPU at the other end; None stands for a switch."""
    links = [link for link in range(_MOST_LINKS) if _ask("nvmlDeviceGetNvLinkState", handle, link)]
    return Counter(
        None if _ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link) == _REMOTE_IS_SWITCH
        else _bus(_ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link))
        for link in links
    )  # fmt: skip


def _reading(uuid: str, handle: Any) -> Reading:
    power = _ask("nvmlDeviceGetPowerUsage", handle)
    reasons = _ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:  # before driver 535 it had another name
        reasons = _ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return Reading(
        uuid=uuid, sm_clock=_ask("nvmlDeviceGetClockInfo", handle, _CLOCK_SM),
        memory_clock=_ask("nvmlDeviceGetClockInfo", handle, _CLOCK_MEMORY),
        power=None if power is None else power / 1000,  # NVML says milliwatts
        temperature=_ask("nvmlDeviceGetTemperature", handle, _TEMPERATURE_GPU),
        throttled=None if reasons is None else tuple(word for bit, word in _SLOWDOWNS.items() if reasons & bit),
    )  # fmt: skip
