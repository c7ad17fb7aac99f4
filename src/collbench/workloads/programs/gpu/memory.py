"""Arrays in device memory that are filled and read by parts, so that the host needs little memory beside them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collbench.bindings.gpu.device import Device
from collbench.collectives.row import Array

#: Bytes that are copied at once.
PART = 64 << 20


class Rows:
    """[rows, columns] float32 in device memory."""

    def __init__(self, device: Device, rows: int, columns: int) -> None:
        self.rows, self.columns, self._device = rows, columns, device
        self._memory = device.allocate(4 * rows * columns)
        self.address = self._memory.address

    def parts(self) -> Iterator[tuple[int, int]]:
        """First and last of rows that are copied together."""
        at_once = max(1, PART // (4 * self.columns))
        for first in range(0, self.rows, at_once):
            yield first, min(first + at_once, self.rows)

    def write(self, first: int, values: Array) -> None:
        """Rows from `first` on. Complete on return."""
        self._device.write(
            self.address + 4 * first * self.columns, np.ascontiguousarray(values, np.float32).reshape(-1)
        )

    def read(self, first: int, last: int) -> Array:
        """Rows from `first` to before `last`."""
        values = np.empty((last - first, self.columns), np.float32)
        self._device.read(self.address + 4 * first * self.columns, values.reshape(-1))
        return values

    def spoil(self) -> None:
        """Nothing that an operation should have written may be right by accident: NaN everywhere."""
        for first, last in self.parts():
            self.write(first, np.full((last - first, self.columns), np.nan, np.float32))
