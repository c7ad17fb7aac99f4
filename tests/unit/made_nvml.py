"""A pynvml that is made up: GPUs with connections, on which NVML answers as each test says, in pynvml's own numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pynvml as real

GIB = 1 << 30

SWITCH = "a switch"


@dataclass(frozen=True)
class MadeGpu:
    """`links` are the ends of its NVLinks: buses of GPUs, or SWITCH. `refuses` are questions that get no answer."""

    uuid: str = "GPU-a"
    bus: str = "00000000:65:00.0"
    name: str = "NVIDIA H200"
    memory: int = 139 * GIB
    mig: tuple[int, int] | None = (0, 0)
    mode: int = real.NVML_COMPUTEMODE_DEFAULT
    reasons: int = 0
    links: tuple[str, ...] = ()
    refuses: tuple[str, ...] = ()
    part_of: Any = None


TWO = (MadeGpu("GPU-a", "00000000:65:00.0"), MadeGpu("GPU-b", "00000000:C1:00.0"))


def linked(links: int, through: str | None = None) -> tuple[MadeGpu, ...]:
    """Two GPUs with so many NVLinks, to each other or through a switch."""
    return (
        replace(TWO[0], links=(through or TWO[1].bus,) * links),
        replace(TWO[1], links=(through or TWO[0].bus,) * links),
    )


@dataclass
class MadeNvml:
    """Stands in for the module. `parts` are MIG devices, `status` what nvmlDeviceGetP2PStatus says both ways."""

    gpus: tuple[MadeGpu, ...] = TWO
    parts: tuple[MadeGpu, ...] = ()
    start: int | None = None
    level: int | None = real.NVML_TOPOLOGY_SYSTEM
    status: dict[int, int] = field(default_factory=lambda: dict.fromkeys((0, 1), real.NVML_P2P_STATUS_OK))
    cuda: int = 12080
    started: int = 0
    lacks: tuple[str, ...] = ()
    NVMLError = real.NVMLError

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """What is not defined below: one value of a GPU."""
        if not name.startswith("nvml") or name in self.lacks:
            raise AttributeError(name)
        answers: dict[str, Callable[[MadeGpu], Any]] = {
            "nvmlDeviceGetUUID": lambda gpu: gpu.uuid,
            "nvmlDeviceGetName": lambda gpu: gpu.name,
            "nvmlDeviceGetPciInfo": lambda gpu: SimpleNamespace(busId=gpu.bus),
            "nvmlDeviceGetMemoryInfo": lambda gpu: SimpleNamespace(total=gpu.memory),
            "nvmlDeviceGetCudaComputeCapability": lambda gpu: (9, 0),
            "nvmlDeviceGetMigMode": lambda gpu: list(gpu.mig) if gpu.mig else refuse(),
            "nvmlDeviceGetComputeMode": lambda gpu: gpu.mode,
            "nvmlDeviceGetPowerUsage": lambda gpu: 123456,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: gpu.reasons,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: gpu.reasons,
            "nvmlDeviceGetMaxMigDeviceCount": lambda gpu: len(self._slices(gpu)),
            "nvmlDeviceGetMaxPcieLinkGeneration": lambda gpu: 5,
            "nvmlDeviceGetMaxPcieLinkWidth": lambda gpu: 16,
            "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": lambda gpu: gpu.part_of or refuse(),
        }
        return lambda gpu: refuse() if name in gpu.refuses else answers[name](gpu)

    def nvmlInit(self) -> None:  # noqa: N802 - its names are NVML's
        self.started += 1
        if self.start is not None:
            raise real.NVMLError(self.start)

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "570.86.15"

    def nvmlSystemGetCudaDriverVersion(self) -> int:  # noqa: N802
        return self.cuda

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> MadeGpu:  # noqa: N802
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> MadeGpu:  # noqa: N802
        for gpu in (*self.gpus, *self.parts):
            if gpu.uuid == uuid:
                return gpu
        raise real.NVMLError(real.NVML_ERROR_NOT_FOUND)

    def _slices(self, gpu: MadeGpu) -> list[MadeGpu]:
        return [part for part in self.parts if part.part_of == gpu]

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: MadeGpu, index: int) -> MadeGpu:  # noqa: N802
        return self._slices(gpu)[index]

    def nvmlDeviceGetFieldValues(self, gpu: MadeGpu, fields: list[int]) -> list[SimpleNamespace]:  # noqa: N802
        assert fields == [real.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON]
        return [SimpleNamespace(value=SimpleNamespace(uiVal=26562), nvmlReturn=0)]

    def nvmlDeviceGetClockInfo(self, gpu: MadeGpu, kind: int) -> int:  # noqa: N802
        clocks = {real.NVML_CLOCK_SM: 1980, real.NVML_CLOCK_MEM: 3201}
        return refuse() if "nvmlDeviceGetClockInfo" in gpu.refuses else clocks[kind]

    def nvmlDeviceGetTemperature(self, gpu: MadeGpu, sensor: int) -> int:  # noqa: N802
        assert sensor == real.NVML_TEMPERATURE_GPU
        return refuse() if "nvmlDeviceGetTemperature" in gpu.refuses else 41

    def nvmlDeviceGetNvLinkState(self, gpu: MadeGpu, link: int) -> int:  # noqa: N802
        return int(link < len(gpu.links)) if link < 18 else refuse(real.NVML_ERROR_INVALID_ARGUMENT)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, gpu: MadeGpu, link: int) -> int:  # noqa: N802
        switch = gpu.links[link] == SWITCH
        return int(real.NVML_NVLINK_DEVICE_TYPE_SWITCH if switch else real.NVML_NVLINK_DEVICE_TYPE_GPU)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu: MadeGpu, link: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(busId=gpu.links[link])

    def nvmlDeviceGetTopologyCommonAncestor(self, one: MadeGpu, other: MadeGpu) -> int:  # noqa: N802
        return refuse() if self.level is None else self.level

    def nvmlDeviceGetP2PStatus(self, one: MadeGpu, other: MadeGpu, way: int) -> int:  # noqa: N802
        return self.status[way] if way in self.status else refuse()


def refuse(code: int = real.NVML_ERROR_NOT_SUPPORTED) -> Any:
    """As NVML does."""
    raise real.NVMLError(code)
