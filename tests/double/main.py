"""collbench on the double: `python -m tests.double.main collbench-arguments...`; DOUBLE_GPUS=N says how many it has."""

from __future__ import annotations

import os
import sys

from collbench.backends.parts.gpu import opening
from collbench.cli import main
from tests.double.device import DoubleDevice
from tests.double.nccl import DoubleNccl


class DoubleRuntime:
    """See `collbench.backends.parts.gpu.opening.Runtime`."""

    def __init__(self) -> None:
        self.device: DoubleDevice | None = None
        self._nccl = DoubleNccl(lambda: self.device)

    def missing(self) -> str | None:
        return None if self.visible() else "no CUDA device is visible (the double has none)"

    def visible(self) -> tuple[str, ...]:
        return tuple(f"GPU-{number}" for number in range(int(os.environ.get("DOUBLE_GPUS", "8"))))

    def open(self, uuid: str) -> DoubleDevice:
        self.device = self.device or DoubleDevice(uuid)
        return self.device

    def nccl(self) -> DoubleNccl:
        return self._nccl


if __name__ == "__main__":
    opening.RUNTIME.append(DoubleRuntime())
    sys.argv[0] = "collbench"
    main()
