"""Backend `torch-nccl`: torch.distributed on GPU tensors over NCCL, as DDP uses it.

Control plane, alignment and the messages of a parameter server go over gloo: torch has no MPI. Started as torch-gloo.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, cached_property, partial
from typing import Any, Literal

from collbench.backends.torch_gloo import TorchArguments, TorchBackend, TorchSession, join, missing_torch, torch_library
from collbench.bindings.gpu.assignment import CUDA_VARIABLES, agree, assign_gpus, on_all
from collbench.bindings.gpu.device import load, loaded
from collbench.bindings.gpu.nccl import (
    NCCL_PACKAGES,
    NCCL_VARIABLES,
    SONAME,
    NcclLog,
    call_in,
    function_notes,
    library_settings,
    nccl_version,
    reread_settings,
    says_lost,
    share_variables,
)
from collbench.bindings.spec import Backend, Operation, Session, WorldSettings, binder_of
from collbench.collectives.row import Collective, CollectiveCase
from collbench.errors import BackendUnavailable, Unsupported
from collbench.machine import launcher, nvml
from collbench.machine.launcher import set_own
from collbench.schema.axes import Op, ThreadLevel
from collbench.schema.manifest import Gpu, Library
from collbench.timing.loop import Stage, Stopwatch
from collbench.units import format_bytes


def missing_gpu() -> str | None:
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
def visible_gpus() -> tuple[str, ...]:
    import torch

    gpus = (torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count()))
    return tuple(nvml.spelled(str(gpu.uuid)) for gpu in gpus)


def gpu_facts(torch: Any, uuid: str) -> Gpu:
    of_nvml = {gpu.uuid: gpu for gpu in nvml.gpus()[0]}.get(uuid)
    bus, node, driver = getattr(of_nvml, "bus_id", ""), getattr(of_nvml, "node", None), nvml.driver()[0]
    properties = torch.cuda.get_device_properties(visible_gpus().index(uuid))
    name, memory = properties.name, int(properties.total_memory)
    return Gpu(uuid=uuid, name=name, memory=memory, bus=bus, node=node, driver=driver)


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

    def call(self, function: str, *arguments: Any) -> int | None:
        """See `collbench.bindings.gpu.nccl.Nccl`."""
        return call_in(self.handle, function, *arguments)


def torch_nccl_version(torch: Any) -> tuple[int, ...]:
    """The version that torch was built with."""
    return tuple(torch.cuda.nccl.version()[:3])


def nccl_of(torch: Any) -> TorchNccl:
    """What torch calls. Raises BackendUnavailable: two libnccl are in this process, or the only one is not torch's."""
    version = ".".join(map(str, torch_nccl_version(torch)))
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

        Raises MemoryError: it does not fit; torch says how much is free.
        """
        try:
            return self._torch.empty((blocks, self.count), dtype=getattr(self._torch, self.dtype), device="cuda")
        except self._torch.cuda.OutOfMemoryError as error:
            raise MemoryError(str(error).splitlines()[0]) from error

    def exchange(self, send: Any, after: int, recv: Any, before: int) -> Callable[[], object]:
        """In one batch: issued one after the other, NCCL's send and receive would wait for each other."""
        dist, group = self._torch.distributed, self._group
        operations = [dist.P2POp(dist.isend, send, after, group), dist.P2POp(dist.irecv, recv, before, group)]

        def perform() -> None:
            for request in dist.batch_isend_irecv(operations):
                request.wait()

        return perform


class ServedTorchArguments(GpuTorchArguments):
    """See `collbench.collectives.dialects.TorchServedArguments`."""

    def __init__(
        self, torch: Any, case: CollectiveCase, row: Collective, count: int, rank: int, group: Any,
        wait: Callable[[], None],
    ) -> None:  # fmt: skip
        super().__init__(torch, case, row, count, rank, group)
        self.serving = rank == self.root
        self.chief_rank = int(self.root == 0)
        self.chief = rank == self.chief_rank
        self.link, self.wait = torch.distributed, wait
        self._pinned = case.staging == "pinned"

    def buffer(self, blocks: int) -> Any:
        return TorchArguments.buffer(self, blocks) if self.serving else super().buffer(blocks)

    def landing(self, blocks: int) -> Any:
        """Pinned or pageable, as the case says. Raises MemoryError: the system cannot page-lock that much."""
        plain = TorchArguments.buffer(self, blocks)
        try:
            return plain.pin_memory() if self._pinned else plain
        except RuntimeError as error:
            size, reason = format_bytes(plain.numel() * plain.element_size()), str(error).splitlines()[0]
            raise MemoryError(f"{size} of host memory cannot be page-locked: {reason}") from error


#: The dtypes that torch's process group passes to NCCL (torch 2.4 to 2.13).
_DTYPES = ("int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64")


class TorchNcclSession(TorchSession):
    """One rank, with a GPU or as parameter server without one."""

    def __init__(self, backend: Backend, torch: Any, level: ThreadLevel, options: WorldSettings) -> None:
        super().__init__(backend, torch, level)
        self.assigned = assign_gpus(backend.name, self.world, options, missing_gpu(), visible_gpus)
        self._nccl = on_all(self.world, backend.name, lambda: nccl_of(torch))
        agree(self.world, backend.name, "NCCL", f"{self._nccl.version} ({self._nccl.path})")
        self._log = NcclLog()
        self._reread = partial(reread_settings, self._nccl.call)
        self._reread()  # it may be loaded already, with another log
        version = tuple(map(int, self._nccl.version.split(".")))
        set_own(share_variables(version, self.world.rank) if self.assigned.shared else {})
        self.gpu = on_all(self.world, backend.name, self._open)
        # Longer than the watchdog's, which can say what was being done.
        self._timeout = timedelta(seconds=options.timeout + 10)
        self._groups: dict[int | None, Any] = {}

    def _open(self) -> Gpu | None:
        """Make the GPU current; the synchronisation makes a context, and fails where the GPU cannot be used."""
        if self.assigned.gpu is None:
            return None
        self._torch.cuda.set_device(visible_gpus().index(self.assigned.gpu))
        self._torch.cuda.current_stream().synchronize()
        return gpu_facts(self._torch, self.assigned.gpu)

    def _group(self, server: int | None) -> Any:
        """The NCCL group of all ranks, or of the workers. Collective."""
        if server not in self._groups:
            members = [rank for rank in range(self.world.size) if rank != server]
            self._groups[server] = self._torch.distributed.new_group(members, backend="nccl", timeout=self._timeout)
        return self._groups[server]

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> Operation:
        """Tensors on the GPU, the row's call, completed by a wait for the stream."""
        dialect = "torch served" if row.has_server else "torch"
        binder = binder_of(self.backend, row, dialect, "torch.distributed")
        if case.dtype not in _DTYPES and row.moves_data:
            raise Unsupported(f"torch passes no {case.dtype} to NCCL (it passes {', '.join(_DTYPES)})")
        self.assigned.refuse(row)
        self._torch.cuda.empty_cache()  # what earlier cases freed, NCCL may need
        group = self._group(case.root if row.has_server else None)
        how = (self._torch, case, row, count, self.world.rank, group)
        arguments = ServedTorchArguments(*how, self._wait) if row.has_server else GpuTorchArguments(*how)
        prepared = binder(arguments)
        completion, watch = (None, None) if row.has_server else (Stage(self._wait), stopwatch(self._torch))
        # torch calls ncclAlltoAll where it was built with an NCCL that has it, and groups for gather and scatter
        # (torch/csrc/cuda/nccl.cpp, 2.10)
        direct = row.name == "alltoall" and torch_nccl_version(self._torch) >= (2, 28)
        notes = function_notes(row.name, direct)
        observe = partial(self._log.observe, self._reread, notes=notes)
        return self.operation(prepared, arguments, completion, watch, observe)

    def _wait(self) -> None:
        self._torch.cuda.current_stream().synchronize()

    def is_lost_rank(self, error: BaseException) -> bool:
        return super().is_lost_rank(error) or says_lost(error)

    @property
    def transport(self) -> str | None:
        return self._log.transport()


class TorchNcclBackend(TorchBackend):
    """See the module."""

    name = "torch-nccl"
    summary = "torch.distributed on GPU tensors over NCCL"
    device: Literal["cpu", "gpu"] = "gpu"
    streams = True
    axes: frozenset[str] = frozenset({"server staging"})
    ops: tuple[Op, ...] = ("sum", "prod", "min", "max", "avg")
    variables = (*TorchBackend.variables, *CUDA_VARIABLES, *NCCL_VARIABLES, "TORCH_NCCL_")
    packages = (*TorchBackend.packages, *NCCL_PACKAGES)

    def missing(self) -> str | None:
        if (reason := missing_torch()) is not None:
            return reason
        import torch

        if torch.version.cuda is None or launcher.detect().size == 1:
            return missing_gpu()
        return None

    def dtypes(self) -> tuple[str, ...]:
        return _DTYPES

    def libraries(self) -> tuple[Library, ...]:
        import torch

        nccl = nccl_of(torch)
        has = library_settings(nccl.call)
        return (torch_library("torch"), Library(name="NCCL", version=nccl.version, path=nccl.path, settings=has))

    def run(self, options: WorldSettings, body: Callable[[Session], None]) -> None:
        """Rendezvous over gloo, the body, destruction of the process group and of the allocator's cache."""
        import torch

        level, _ = join(self.name, torch.distributed, launcher.detect(), options)
        try:
            session = TorchNcclSession(self, torch, level, options)
        except BackendUnavailable:  # raised on all ranks; the next backend may use torch, too
            torch.distributed.destroy_process_group()
            raise
        body(session)
        torch.distributed.destroy_process_group()
        torch.cuda.empty_cache()  # the next backend on this GPU needs the memory


BACKEND = TorchNcclBackend()
