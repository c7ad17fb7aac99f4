"""Backend `torch-nccl`: torch.distributed on GPU tensors over NCCL, as DDP uses it.

Control plane, gates and the messages of a parameter server go over gloo: torch has no MPI. Started as torch-gloo.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Literal

from collbench.bindings.calls import binder_of
from collbench.bindings.gpu import torch_gpu
from collbench.bindings.gpu.nccl import NCCL_PACKAGES, NCCL_VARIABLES, NcclLog, says_lost, share_variables
from collbench.bindings.gpu.runtime import CUDA_VARIABLES, agree, on_all, take_seats
from collbench.bindings.gpu.torch_gpu import GpuTorchArguments, ServedTorchArguments
from collbench.bindings.spec import Backend, Operation, Options, Session
from collbench.bindings.torch.arguments import TorchArguments, torch_buffers, torch_call
from collbench.bindings.torch.world import TorchBackend, TorchSession, join, missing_torch, torch_version
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Collective
from collbench.errors import BackendUnavailable, Unsupported
from collbench.machine import launcher
from collbench.machine.process import set_own
from collbench.schema.axes import Op, ThreadLevel
from collbench.schema.manifest import Gpu, Library
from collbench.timing.call import Stage

#: The dtypes that torch's process group passes to NCCL (torch 2.4 to 2.13).
_DTYPES = ("int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64")


class TorchNcclSession(TorchSession):
    """One rank, with a GPU or as parameter server without one."""

    def __init__(self, backend: Backend, torch: Any, level: ThreadLevel, options: Options) -> None:
        super().__init__(backend, torch, level)
        self.taken = take_seats(backend.name, self.world, options, torch_gpu.missing(), torch_gpu.visible)
        self._nccl = on_all(self.world, backend.name, lambda: torch_gpu.nccl(torch))
        agree(self.world, backend.name, "NCCL", f"{self._nccl.version} ({self._nccl.path})")
        self._log = NcclLog()
        self._log.begin()
        self._nccl.reread_settings()  # it may be loaded already, with another log
        set_own(share_variables(self._nccl.numbers, self.world.rank) if self.taken.shared else {})
        self.gpu = on_all(self.world, backend.name, self._open)
        # Longer than the watchdog's, which can say what was being done.
        self._timeout = timedelta(seconds=options.timeout + 10)
        self._groups: dict[int | None, Any] = {}

    def _open(self) -> Gpu | None:
        """Make the GPU current; the synchronisation makes a context, and fails where the GPU cannot be used."""
        if self.taken.gpu is None:
            return None
        self._torch.cuda.set_device(torch_gpu.visible().index(self.taken.gpu))
        self._torch.cuda.current_stream().synchronize()
        return torch_gpu.facts(self._torch, self.taken.gpu)

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
        self.taken.refuse(row)
        self._torch.cuda.empty_cache()  # what earlier cases freed, NCCL may need
        group = self._group(case.root if row.has_server else None)
        arguments = self._arguments(case, row, count, group)
        prepared = binder(arguments)
        call = torch_call(prepared, arguments)
        if not row.has_server:
            call = replace(call, completion=Stage(self._wait), stopwatch=torch_gpu.stopwatch(self._torch))
        buffers = torch_buffers(self._torch, prepared, case.dtype)
        observe = partial(self._log.observe, self._nccl.reread_settings)
        return Operation(*buffers, call, prepared.in_place, arguments.blocks_held, observe)

    def _arguments(self, case: CollectiveCase, row: Collective, count: int, group: Any) -> TorchArguments:
        torch, rank = self._torch, self.world.rank
        if row.has_server:
            return ServedTorchArguments(torch, case, row, count, rank, group, self._wait)
        return GpuTorchArguments(torch, case, row, count, rank, group)

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
            return torch_gpu.missing()
        return None

    def dtypes(self) -> tuple[str, ...]:
        return _DTYPES

    def libraries(self) -> tuple[Library, ...]:
        """torch, and the libnccl that it uses."""
        import torch

        spec = importlib.util.find_spec("torch")
        own = Library(name="torch", version=torch_version(), path=spec.origin if spec else None)
        nccl = torch_gpu.nccl(torch)
        return (own, Library(name="NCCL", version=nccl.version, path=nccl.path))

    def run(self, options: Options, body: Callable[[Session], None]) -> None:
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
