"""Backend `torch-gloo`: torch.distributed on CPU tensors over gloo, as a DDP user without a GPU pays for it.

Started by torchrun, or by mpirun: then MPI only carries the address of the rendezvous, once.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Literal

from collbench.bindings.calls import dialect_of
from collbench.bindings.host_buffers import as_parts
from collbench.bindings.spec import Operation, Options, Session
from collbench.bindings.torch.arguments import TorchArguments, TorchBuffer
from collbench.bindings.torch.world import TorchBackend, TorchSession, join, missing_torch, torch_version
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Collective
from collbench.errors import BackendUnavailable, Unsupported
from collbench.machine import launcher
from collbench.schema.axes import Op
from collbench.schema.dtypes import DTYPES
from collbench.schema.manifest import Library
from collbench.timing.call import Call, Stage

#: What gloo's dispatch over scalar types accepts (torch 2.4 to 2.13); it refuses the others at the first call.
_GLOO_DTYPES = ("int8", "int32", "int64", "uint8", "float16", "bfloat16", "float32", "float64")
_OPS: tuple[Op, ...] = ("sum", "prod", "min", "max")


class GlooSession(TorchSession):
    """One rank of torch's default process group."""

    transport: str | None = "tcp"

    def prepare(self, case: CollectiveCase, row: Collective, count: int) -> Operation:
        """Tensors, and the call from the row's torch dialect."""
        dialect = dialect_of(row, "torch", "torch.distributed")
        if case.dtype not in _GLOO_DTYPES and row.moves_data:
            raise Unsupported(f"gloo has no {case.dtype} (it has {', '.join(_GLOO_DTYPES)})")
        if case.op not in (None, *_OPS):
            raise Unsupported(f"gloo has no {case.op} (it has {', '.join(_OPS)})")
        arguments = TorchArguments(self._torch, case, row, count, self.world.rank)
        prepared = dialect(arguments)
        stage = Stage(prepared.python)
        call = Call((stage,), why_not_native="torch has no C function to call", keep=(arguments, prepared))
        contributed = None if prepared.input is None else TorchBuffer(self._torch, prepared.input, case.dtype)
        received = tuple(TorchBuffer(self._torch, part, case.dtype) for part in as_parts(prepared.output))
        return Operation(contributed, received, call, prepared.in_place, arguments.blocks_held)


class TorchGlooBackend(TorchBackend):
    """See the module."""

    name = "torch-gloo"
    summary = "torch.distributed on CPU tensors over gloo"
    device: Literal["cpu", "gpu"] = "cpu"
    streams = False
    axes: frozenset[str] = frozenset()
    ops = _OPS

    def missing(self) -> str | None:
        """Whether torch is installed and we were started in a way that gives ranks an address."""
        return missing_torch()

    def dtypes(self) -> tuple[str, ...]:
        """What gloo dispatches on."""
        return tuple(dtype for dtype in DTYPES if dtype in _GLOO_DTYPES)

    def libraries(self) -> tuple[Library, ...]:
        """torch; gloo is compiled into it."""
        spec = importlib.util.find_spec("torch")
        return (Library(name="torch (gloo)", version=torch_version(), path=spec.origin if spec else None),)

    def run(self, options: Options, body: Callable[[Session], None]) -> None:
        """Rendezvous, body, and the group is taken down."""
        import torch

        if not torch.distributed.is_available():
            raise BackendUnavailable("backend torch-gloo: this torch was built without torch.distributed")
        level = join(self.name, torch.distributed, launcher.detect(), options)
        body(GlooSession(torch, level))
        torch.distributed.destroy_process_group()


BACKEND = TorchGlooBackend()
