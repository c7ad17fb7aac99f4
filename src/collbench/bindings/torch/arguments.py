"""The torch dialect: tensors on the host or on a GPU, and how their elements are looked at."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from collbench.bindings.host_buffers import HostArguments, numpy_dtype
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Array, Collective
from collbench.errors import Unsupported

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
        found = next((name for name in names if hasattr(self._torch.distributed, name)), None)
        if found is None:
            raise Unsupported(f"this torch.distributed has none of {', '.join(names)}")
        return getattr(self.dist, found)

    def out_of_place_only(self, function: str) -> None:
        """Refuse in-place cases."""
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
    """`Buffer` over a tensor [blocks, count], wherever it lives."""

    def __init__(self, torch: Any, tensor: Any, dtype: str) -> None:
        self._torch, self._tensor = torch, tensor
        self.shape: tuple[int, int] = (int(tensor.shape[0]), int(tensor.shape[1]))
        self.dtype = numpy_dtype(dtype)

    @cached_property
    def _bytes(self) -> Any:
        """[blocks, bytes], the same memory."""
        return self._tensor.view(self._torch.uint8) if self.shape[1] else self._tensor

    def load(self, block: int, start: int, stop: int) -> Array:
        """A copy, or on the host a view."""
        size = self.dtype.itemsize
        plain: Array = self._bytes[block, start * size : stop * size].cpu().numpy()
        return plain.view(self.dtype)

    def store(self, block: int, start: int, values: Array) -> None:
        """Copy in; complete on return, for torch waits for copies from memory that is not pinned."""
        size = self.dtype.itemsize
        given = self._torch.from_numpy(np.ascontiguousarray(values).view(np.uint8).copy())
        self._bytes[block, start * size : start * size + len(given)].copy_(given)
