"""GPUs through torch: which ones it sees, facts, events, and the NCCL that it calls."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

from collbench.bindings.gpu.nccl_library import SONAME, nccl_version
from collbench.bindings.gpu.shared_library import load, loaded
from collbench.errors import BackendUnavailable
from collbench.machine import nvml
from collbench.schema.manifest import Gpu
from collbench.timing.call import Stage, Stopwatch


def missing() -> str | None:
    """Why this torch finds no GPU or no NCCL here; None when it does. Imports torch."""
    import torch

    if torch.version.cuda is None:
        return "this torch was built without CUDA; install a CUDA build of torch"
    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        return "this torch was built without NCCL"
    if torch.cuda.is_available():
        return None
    return f"torch (CUDA {torch.version.cuda}) sees no usable GPU: none is visible, or the driver is too old for it"


@cache
def visible() -> tuple[str, ...]:
    """UUIDs in CUDA's order."""
    import torch

    gpus = (torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count()))
    return tuple(nvml.spelled(str(gpu.uuid)) for gpu in gpus)


def facts(torch: Any, uuid: str) -> Gpu:
    nvml_facts = {gpu.uuid: gpu for gpu in nvml.gpus()[0]}.get(uuid)
    properties = torch.cuda.get_device_properties(visible().index(uuid))
    return Gpu(
        uuid=uuid,
        name=properties.name,
        memory=int(properties.total_memory),
        bus="" if nvml_facts is None else nvml_facts.bus_id,
        node=None if nvml_facts is None else nvml_facts.node,
        driver=nvml.driver()[0],
    )


def stopwatch(torch: Any) -> Stopwatch:
    """Two torch events; torch has no C form."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    return Stopwatch(Stage(start.record), Stage(stop.record), lambda: float(start.elapsed_time(stop)))


@dataclass(frozen=True)
class TorchNccl:
    """The NCCL that torch calls. Without a `handle` it is compiled into torch, and `path` is torch's."""

    version: str
    path: str
    handle: ctypes.CDLL | None

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(map(int, self.version.split(".")))

    def reread_settings(self) -> bool:
        """Make it look at NCCL_DEBUG and its like again; False where this version cannot."""
        function = getattr(self.handle, "ncclResetDebugInit", None)
        if function is not None:
            function()
        return function is not None


def nccl(torch: Any) -> TorchNccl:
    """What torch calls.

    Raises:
        BackendUnavailable: two libnccl are in this process, or the only one is not torch's.
    """
    version = ".".join(map(str, torch.cuda.nccl.version()[:3]))
    if not loaded("nccl"):
        return TorchNccl(version, str(torch.__file__), None)
    library = load("nccl", SONAME)
    loaded_version = ".".join(map(str, nccl_version(library.handle)))
    if loaded_version != version:
        raise BackendUnavailable(
            f"torch calls NCCL {version}, and libnccl {loaded_version} ({library.path}) is in this process too. "
            "Measure torch-nccl in a separate run"
        )
    return TorchNccl(version, library.path, library.handle)
