"""One rank of data-parallel training: the ranks that take part, and this one's copy of the network."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from collbench.units import counted
from collbench.workloads.networks import Network
from collbench.workloads.program import threads_of_rank
from collbench.workloads.programs.ending import Unusable, refuse_without_gpu

#: The network begins with the same parameters everywhere, and each rank has examples of its own.
SEED = 2017

#: Of stochastic gradient descent, as in the benchmark `train`.
MOMENTUM = 0.9

#: Which of torch's libraries reduces on a device.
LIBRARIES = {"cpu": "gloo", "cuda": "nccl"}


class World:
    """The ranks of torch's default process group, on one kind of device. Entered to join them."""

    def __init__(self, device: str, threads: int) -> None:
        torch.set_num_threads(threads_of_rank(threads))
        torch.backends.cudnn.deterministic = True  # or losses would differ by the order of atomic additions
        self.device = torch.device("cuda", _gpu()) if device == "cuda" else torch.device(device)

    def __enter__(self) -> World:
        bound = None
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            bound = self.device
        dist.init_process_group(LIBRARIES[self.device.type], init_method="env://", device_id=bound)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """After an error the other ranks are not waited for."""
        if kind is None:
            dist.barrier()
            dist.destroy_process_group()

    @property
    def rank(self) -> int:
        return dist.get_rank()

    @property
    def about(self) -> str:
        """`torch 2.13.0+cpu, gloo, 1 thread a rank`."""
        threads = counted(torch.get_num_threads(), "thread")
        return f"torch {torch.__version__}, {LIBRARIES[self.device.type]}, {threads} a rank"

    def wait(self) -> None:
        """Until the device has done what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def of_first(self, value: float) -> float:
        """What rank 0 has."""
        tensor = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.broadcast(tensor, 0)
        return float(tensor)

    def apart(self, parameters: Iterable[Tensor]) -> int:
        """How many ranks have other parameters than rank 0, by the bits of every one."""
        digest = hashlib.blake2b(digest_size=7)
        for parameter in parameters:
            digest.update(parameter.detach().cpu().numpy().tobytes())
        own = torch.tensor([int.from_bytes(digest.digest(), "big")], device=self.device)
        every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(every, own)
        return sum(int(other) != int(every[0]) for other in every)


class Replica:
    """A network with a batch of made-up examples, trained by gradient descent over all ranks.

    Without `reduces` a hook takes the place of DDP's all-reduces and leaves each rank its own gradients; nothing else
    differs. `messages` are then the bytes that would have been reduced in the last step. Buffers, such as statistics
    of a batch norm, stay each rank's own, so that gradients are all that is communicated.
    """

    def __init__(self, network: Network, batch: int, bucket: int, world: World, reduces: bool = True) -> None:
        torch.manual_seed(SEED)
        self._network = network
        on_gpu = world.device.type == "cuda"
        self._module: Any = DistributedDataParallel(
            network.build().to(world.device),
            device_ids=[world.device] if on_gpu else None,
            bucket_cap_mb=bucket or None,  # its own choice is not its cap of 25 for all: the first bucket is smaller
            broadcast_buffers=False,
        )
        self.messages: list[int] = []
        if not reduces:
            self._module.register_comm_hook(None, lambda state, bucket: self._kept(bucket.buffer()))
        self._optimizer = torch.optim.SGD(self.parameters, lr=network.learning_rate, momentum=MOMENTUM)
        torch.manual_seed(SEED + 1 + world.rank)
        self._inputs, self._targets = (tensor.to(world.device) for tensor in _examples(network, batch))
        self._loss = torch.tensor(float("nan"))

    def step(self) -> None:
        """Forward, loss, backward, and the optimizer's step."""
        self.messages.clear()
        self._optimizer.zero_grad()
        loss: Any = self._network.loss(self._module, self._inputs, self._targets)
        loss.backward()
        self._optimizer.step()
        self._loss = loss.detach()

    @property
    def loss(self) -> float:
        """Of the last step."""
        return float(self._loss)

    @property
    def parameters(self) -> list[Tensor]:
        return list(self._module.parameters())

    def _kept(self, gradients: Tensor) -> torch.futures.Future[Tensor]:
        """In the place of an all-reduce, done at once."""
        self.messages.append(gradients.numel() * gradients.element_size())
        done = torch.futures.Future[Tensor](devices=[gradients.device] if gradients.is_cuda else None)
        done.set_result(gradients)
        return done


def _examples(network: Network, batch: int) -> tuple[Tensor, Tensor]:
    """Inputs [batch, *example] and targets that are made up, from torch's generator."""
    shape = (batch, *network.example)
    inputs = torch.randint(network.classes, shape) if network.tokens else torch.rand(shape)
    return inputs, torch.randint(network.classes, (batch, *network.targets))


def _gpu() -> int:
    """That of this rank: the only one it sees, or the one of its number.

    Raises:
        Unusable: there are too few.
    """
    refuse_without_gpu(torch, "cuda")
    known, ranks = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    if known == 0 or 1 < known < ranks:
        raise Unusable(f"device=cuda: {counted(known, 'GPU')} for {counted(ranks, 'rank')}, and each needs one; "
                       "start fewer ranks, or use device=cpu")  # fmt: skip
    return int(os.environ["LOCAL_RANK"]) if known > 1 else 0
