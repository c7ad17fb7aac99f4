"""Backend `torch-gloo`: torch.distributed on CPU tensors over gloo, as DDP without GPUs uses it.

Started by torchrun, or by mpirun: then MPI only carries the address of the rendezvous, once.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from collbench.bindings.calls import binder_of
from collbench.bindings.spec import Operation, Options, Session
from collbench.bindings.torch.arguments import TorchArguments, torch_buffers, torch_call
from collbench.bindings.torch.world import TorchBackend, TorchSession, join, missing_torch, torch_version
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Collective
from collbench.errors import BackendUnavailable, Unsupported
from collbench.machine import launcher
from collbench.schema.axes import DTYPES, Op
from collbench.schema.manifest import Library

#: What gloo's dispatch over scalar types accepts (torch 2.4 to 2.13); it refuses the others at the first call.
_GLOO_DTYPES = ("int8", "int32", "int64", "uint8", "float16", "bfloat16", "float32", "float64")
_OPS: tuple[Op, ...] = ("sum", "prod", "min", "max")


class GlooSession(TorchSession):
    """One rank of torch's default process group."""

    transport: str | None = "tcp"

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> Operation:
        """Tensors, and the call from the row's torch dialect."""
        binder = binder_of(self.backend, row, "torch", "torch.distributed")
        if case.dtype not in _GLOO_DTYPES and row.moves_data:
            raise Unsupported(f"gloo has no {case.dtype} (it has {', '.join(_GLOO_DTYPES)})")
        if case.op not in (None, *_OPS):
            raise Unsupported(f"gloo has no {case.op} (it has {', '.join(_OPS)})")
        arguments = TorchArguments(self._torch, case, row, count, self.world.rank)
        prepared = binder(arguments)
        call = torch_call(prepared, arguments)
        buffers = torch_buffers(self._torch, prepared, case.dtype)
        return Operation(*buffers, call, prepared.in_place, arguments.blocks_held)


class TorchGlooBackend(TorchBackend):
    """See the module."""

    name = "torch-gloo"
    summary = "torch.distributed on CPU tensors over gloo"
    ops = _OPS

    def missing(self) -> str | None:
        return missing_torch()

    def dtypes(self) -> tuple[str, ...]:
        return tuple(dtype for dtype in DTYPES if dtype in _GLOO_DTYPES)

    def libraries(self) -> tuple[Library, ...]:
        """torch; gloo is compiled into it."""
        spec = importlib.util.find_spec("torch")
        return (Library(name="torch (gloo)", version=torch_version(), path=spec.origin if spec else None),)

    def run(self, options: Options, body: Callable[[Session], None]) -> None:
        """Rendezvous, the body, and destruction of the process group."""
        import torch

        if not torch.distributed.is_available():
            raise BackendUnavailable("backend torch-gloo: this torch was built without torch.distributed")
        level, _ = join(self.name, torch.distributed, launcher.detect(), options)
        body(GlooSession(self, torch, level))
        torch.distributed.destroy_process_group()


BACKEND = TorchGlooBackend()
