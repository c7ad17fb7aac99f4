"""The torch dialect: tensors on the host or on a GPU, and access to their elements."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from collbench.bindings.host_buffers import HostArguments, as_parts, numpy_dtype
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Array, Collective, Prepared
from collbench.errors import Unsupported
from collbench.timing.call import Call, Stage

OP = {"sum": "SUM", "prod": "PRODUCT", "min": "MIN", "max": "MAX", "avg": "AVG"}


class TorchArguments(HostArguments):
    """See `collbench.collectives.dialects.TorchDialectArguments`: tensors over page-aligned NumPy memory."""

    def __init__(self, torch: Any, case: CollectiveCase, row: Collective, count: int, rank: int) -> None:
        super().__init__(case, row, count, rank)
        self._torch = torch
        self.dist: Any = torch.distributed
        self.op = None if case.op is None else getattr(torch.distributed.ReduceOp, OP[case.op])

    def buffer(self, blocks: int) -> Any:
        """A tensor [blocks, count] on a page boundary."""
        array = super().buffer(blocks)
        return self._torch.from_numpy(array.view(np.uint8)).view(getattr(self._torch, self.dtype)).reshape(array.shape)

    def function(self, *names: str) -> Any:
        """The first of these names that this torch has.

        Raises:
            Unsupported: it has none of them.
        """
        existing = next((name for name in names if hasattr(self._torch.distributed, name)), None)
        if existing is None:
            raise Unsupported(f"this torch.distributed has none of {', '.join(names)}")
        return getattr(self.dist, existing)

    def out_of_place_only(self, function: str) -> None:
        """Raises `Unsupported` in in-place cases."""
        if self.in_place:
            raise Unsupported(f"torch.distributed.{function} has no in-place form")

    def exchange(self, send: Any, after: int, recv: Any, before: int) -> Callable[[], object]:
        """An isend, a receive, and a wait for the send."""

        def perform() -> None:
            sent = self.dist.isend(send, after)
            self.dist.recv(recv, before)
            sent.wait()

        return perform


class TorchBuffer:
    """`Buffer` over a tensor [blocks, count], on the host or on a GPU."""

    def __init__(self, torch: Any, tensor: Any, dtype: str) -> None:
        self._torch, self._tensor = torch, tensor
        self.shape: tuple[int, int] = (int(tensor.shape[0]), int(tensor.shape[1]))
        self.dtype = numpy_dtype(dtype)

    @cached_property
    def _bytes(self) -> Any:
        """[blocks, bytes], the same memory."""
        return self._tensor.view(self._torch.uint8) if self.shape[1] else self._tensor

    def load(self, block: int, start: int, stop: int) -> Array:
        size = self.dtype.itemsize
        raw: Array = self._bytes[block, start * size : stop * size].cpu().numpy()
        return raw.view(self.dtype)

    def store(self, block: int, start: int, values: Array) -> None:
        """Complete on return: torch waits for copies from memory that is not pinned."""
        size = self.dtype.itemsize
        raw = self._torch.from_numpy(np.ascontiguousarray(values).view(np.uint8).copy())
        self._bytes[block, start * size : start * size + len(raw)].copy_(raw)


def torch_buffers(torch: Any, prepared: Prepared, dtype: str) -> tuple[TorchBuffer | None, tuple[TorchBuffer, ...]]:
    """Where a row's input is written and its result appears."""
    source = None if prepared.input is None else TorchBuffer(torch, prepared.input, dtype)
    return source, tuple(TorchBuffer(torch, part, dtype) for part in as_parts(prepared.output))


def torch_call(prepared: Prepared, arguments: TorchArguments) -> Call:
    """The call of a prepared row, in Python alone."""
    stages = tuple(Stage(part.python, None, part.name) for part in prepared.all_parts)
    return Call(stages, why_not_native="torch has no C function to call", keep=(arguments, prepared))
