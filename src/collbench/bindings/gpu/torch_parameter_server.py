"""The torch dialect on GPUs; for collectives with a server also in host memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

from collbench.bindings.torch.arguments import TorchArguments
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Collective
from collbench.units import format_bytes


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
