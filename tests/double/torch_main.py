"""collbench whose torch-nccl has host tensors and gloo underneath: everything of the backend but the GPU.

`python -m tests.double.torch_main collbench-arguments...`, under mpirun or torchrun. Variables: DOUBLE_GPUS (how many
every rank sees), DOUBLE_SAYS_MEMORY (when torch's allocator gives back what it kept).
"""

from __future__ import annotations

import os
import sys
import time
from types import SimpleNamespace
from typing import Any

import torch

from collbench.backends.parts.gpu import torch_gpu
from collbench.cli import main
from collbench.schema.manifest import Gpu
from collbench.timing.call import Stage, Stopwatch


def stopwatch(_: Any) -> Stopwatch:
    at = [0.0, 0.0]

    def note(which: int) -> Stage:
        return Stage(lambda: at.__setitem__(which, time.monotonic()))

    return Stopwatch(note(0), note(1), lambda: (at[1] - at[0]) * 1e3)


def empty_cache() -> None:
    if "DOUBLE_SAYS_MEMORY" in os.environ:
        os.write(2, b"double: torch gave its memory back\n")


def install() -> None:
    """Host memory and gloo in the GPU's place."""
    gpus = tuple(f"GPU-{number}" for number in range(int(os.environ.get("DOUBLE_GPUS", "8"))))
    replaced: dict[str, Any] = {
        "missing": lambda: None,
        "visible": lambda: gpus,
        "facts": lambda _, uuid: Gpu(uuid=uuid, name="Double", memory=1 << 30, bus="0"),
        "nccl": lambda _: torch_gpu.TorchNccl("2.30.1", "/nowhere/libdouble.so", None),
        "stopwatch": stopwatch,
    }
    vars(torch_gpu).update(replaced)
    new_group, empty = torch.distributed.new_group, torch.empty
    distributed: Any = torch.distributed
    distributed.new_group = lambda members, backend, timeout: new_group(members, timeout, backend="gloo")
    plain: Any = torch
    plain.empty = lambda *shape, dtype, device: empty(*shape, dtype=dtype)
    cuda: Any = torch.cuda
    cuda.set_device = lambda number: None
    cuda.empty_cache = empty_cache
    cuda.current_stream = lambda: SimpleNamespace(synchronize=lambda: None)
    plain.Tensor.pin_memory = lambda self: self


if __name__ == "__main__":
    install()
    sys.argv[0] = "collbench"
    main()
