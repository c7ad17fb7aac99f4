"""collbench whose torch-nccl has host tensors and gloo underneath: everything of the backend but the GPU.

`python -m tests.double.torch_main collbench-arguments...`, under mpirun or torchrun. Variables: DOUBLE_GPUS (how many
every rank sees), DOUBLE_MEMORY and DOUBLE_PINNED (bytes of a GPU, and those that can be page-locked at once),
DOUBLE_SAYS_MEMORY (when torch's allocator gives back what it kept).
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from types import SimpleNamespace
from typing import Any
from weakref import finalize

import torch

from collbench.backends import torch_nccl
from collbench.cli import main
from collbench.schema.manifest import Gpu
from collbench.timing.loop import Stage, Stopwatch


def stopwatch(_: Any) -> Stopwatch:
    at = [0.0, 0.0]

    def note(which: int) -> Stage:
        return Stage(lambda: at.__setitem__(which, time.monotonic()))

    return Stopwatch(note(0), note(1), lambda: (at[1] - at[0]) * 1e3)


class Gpus:
    """The current device, and barriers that must name it."""

    def __init__(self) -> None:
        self.current, self.groups = 0, list[Any]()
        self._barrier = torch.distributed.barrier

    def barrier(self, group: Any = None, device_ids: list[int] | None = None) -> None:
        if device_ids != ([self.current] if group in self.groups else None):
            raise RuntimeError(f"double: a barrier on {device_ids} of a process on GPU {self.current}")
        self._barrier(group)


def limit(variable: str) -> int:
    return int(os.environ.get(variable, 1 << 40))


class Memory:
    """Tensors on a GPU, which has so much room, and in page-locked memory."""

    def __init__(self) -> None:
        self._used, self._empty = 0, torch.empty

    def empty(self, *shape: Any, dtype: Any, device: str) -> torch.Tensor:
        tensor = self._empty(*shape, dtype=dtype)
        free = limit("DOUBLE_MEMORY") - self._used
        if tensor.nbytes > free:
            text = f"CUDA out of memory. Tried to allocate {tensor.nbytes} bytes, of which {free} are free."
            raise torch.cuda.OutOfMemoryError(f"{text}\nMore about it.")
        self._used += tensor.nbytes
        finalize(tensor, self._freed, tensor.nbytes)
        return tensor

    def _freed(self, size: int) -> None:
        self._used -= size

    @staticmethod
    def pin_memory(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.nbytes > limit("DOUBLE_PINNED"):
            raise RuntimeError("CUDA error: out of memory\nMore about it.")
        return tensor


def empty_cache() -> None:
    if "DOUBLE_SAYS_MEMORY" in os.environ:
        os.write(2, b"double: torch gave its memory back\n")


def install() -> None:
    """Host memory and gloo in the GPU's place."""
    uuids = tuple(f"GPU-{number}" for number in range(int(os.environ.get("DOUBLE_GPUS", "8"))))
    replaced: dict[str, Any] = {
        "missing_gpu": lambda: None,
        "visible_gpus": lambda: uuids,
        "gpu_facts": lambda _, uuid: Gpu(uuid=uuid, name="Double", memory=1 << 30, bus="0"),
        "torch_nccl_version": lambda _: (2, 30, 1),
        "nccl_of": lambda _: torch_nccl.TorchNccl("2.30.1", "/nowhere/libdouble.so", None),
        "stopwatch": stopwatch,
    }
    vars(torch_nccl).update(replaced)
    new_group = torch.distributed.new_group
    distributed: Any = torch.distributed
    gpus, memory = Gpus(), Memory()

    def gloo(members: list[int], backend: str, timeout: Any) -> Any:
        gpus.groups.append(new_group(members, timeout, backend="gloo"))
        return gpus.groups[-1]

    distributed.new_group, distributed.barrier = gloo, gpus.barrier
    plain: Any = torch
    plain.empty = memory.empty
    cuda: Any = torch.cuda
    cuda.set_device = partial(setattr, gpus, "current")
    cuda.current_device = lambda: gpus.current
    cuda.empty_cache = empty_cache
    cuda.current_stream = lambda: SimpleNamespace(synchronize=lambda: None)
    plain.Tensor.pin_memory = memory.pin_memory


if __name__ == "__main__":
    install()
    sys.argv[0] = "collbench"
    main()
