"""GPUs through torch: which ones it sees, facts, events, the NCCL that it calls, and servers of parameters."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

from collbench.bindings.gpu.nccl import SONAME, nccl_version
from collbench.bindings.gpu.shared_library import load, loaded
from collbench.bindings.torch.arguments import TorchArguments
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Collective
from collbench.errors import BackendUnavailable
from collbench.machine import nvml
from collbench.schema.manifest import Gpu
from collbench.timing.call import Stage, Stopwatch
from collbench.units import format_bytes


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


class GroupOf:
    """torch.distributed with every call made in one group, on this rank's GPU."""

    def __init__(self, torch: Any, group: Any) -> None:
        self._torch, self._dist, self._group = torch, torch.distributed, group

    @cached_property
    def barrier(self) -> Callable[[], object]:
        """With this rank's GPU, which no tensor names: some versions of torch would guess it from the rank."""
        return partial(self._dist.barrier, group=self._group, device_ids=[self._torch.cuda.current_device()])

    def __getattr__(self, name: str) -> Any:
        return partial(getattr(self._dist, name), group=self._group)


class GpuTorchArguments(TorchArguments):
    """Tensors on a GPU; calls go to the group of those that have one."""

    def __init__(self, torch: Any, case: CollectiveCase, row: Collective, count: int, rank: int, group: Any) -> None:
        super().__init__(torch, case, row, count, rank)
        self._group = group
        self.dist = GroupOf(torch, group)

    def buffer(self, blocks: int) -> Any:
        """A tensor [blocks, count] from torch's own allocator.

        Raises:
            MemoryError: it does not fit; torch says how much is free.
        """
        try:
            return self._torch.empty((blocks, self.count), dtype=getattr(self._torch, self.dtype), device="cuda")
        except self._torch.cuda.OutOfMemoryError as error:
            raise MemoryError(str(error).splitlines()[0]) from error

    def exchange(self, send: Any, after: int, recv: Any, before: int) -> Callable[[], object]:
        """In one batch: issued one after the other, NCCL's send and receive would wait for each other."""
        dist = self._torch.distributed
        operations = [
            dist.P2POp(dist.isend, send, after, self._group),
            dist.P2POp(dist.irecv, recv, before, self._group),
        ]

        def perform() -> None:
            for request in dist.batch_isend_irecv(operations):
                request.wait()

        return perform


class ServedTorchArguments(GpuTorchArguments):
    """See `collbench.collectives.dialects.TorchServedArguments`."""

    def __init__(
        self,
        torch: Any,
        case: CollectiveCase,
        row: Collective,
        count: int,
        rank: int,
        group: Any,
        wait: Callable[[], None],
    ) -> None:
        super().__init__(torch, case, row, count, rank, group)
        self.serving = rank == self.root
        self.chief_rank = int(self.root == 0)
        self.chief = rank == self.chief_rank
        self.link, self.wait = torch.distributed, wait
        self._pinned = case.staging == "pinned"

    def buffer(self, blocks: int) -> Any:
        """On the GPU; the server's is on the host."""
        return TorchArguments.buffer(self, blocks) if self.serving else super().buffer(blocks)

    def landing(self, blocks: int) -> Any:
        """Pinned or pageable, as the case says.

        Raises:
            MemoryError: the system cannot page-lock that much.
        """
        plain = TorchArguments.buffer(self, blocks)
        try:
            return plain.pin_memory() if self._pinned else plain
        except RuntimeError as error:
            size = format_bytes(plain.numel() * plain.element_size())
            reason = str(error).splitlines()[0]
            raise MemoryError(f"{size} of host memory cannot be page-locked: {reason}") from error
