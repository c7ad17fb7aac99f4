"""The mpi dialect with device memory handed to the library, which must be CUDA-aware."""

from __future__ import annotations

from typing import Any

from collbench.bindings.gpu.device import Device, DeviceBlocks
from collbench.bindings.mpi.arguments import HostMpiArguments
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import Collective
from collbench.schema.dtypes import DTYPES


class CudaMpiArguments(HostMpiArguments):
    """`MpiArguments` in device memory; of a rank without a device in host memory."""

    def __init__(self, mpi: Any, case: CollectiveCase, row: Collective, count: int, device: Device | None) -> None:
        super().__init__(mpi, case, row, count)
        self._device = device

    def buffer(self, blocks: int) -> Any:
        """[blocks, count]."""
        if self._device is None:
            return super().buffer(blocks)
        memory = self._device.allocate(blocks * self.count * DTYPES[self.dtype])
        return DeviceBlocks(self._device, memory, blocks, self.count, self.dtype)

    def spec(self, buffer: Any) -> Any:
        """Device memory as the array that a Python user would pass."""
        return [buffer.array(), self.datatype] if isinstance(buffer, DeviceBlocks) else super().spec(buffer)
