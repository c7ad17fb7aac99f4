"""`python -m collbench.workloads.dl.ddp`: steps of data-parallel training, also in turns with other worlds.

A rank of a data-parallel training; the variables of torch.distributed say which. Prints JSON: `ns`, by measure the
times of K samples; `slices`, what was added on its cores while it measured in turns, else null; `messages`, bytes of
the all-reduces of a step in their order; `loss`, that of rank 0 after `STEPS` steps; `nonfinite`, how many losses are
no finite numbers, of that one and the last; `apart`, how many ranks have other parameters than rank 0 at the end; and
`notes`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from collbench.units import counted
from collbench.workloads import protocol
from collbench.workloads.dl.datasets import NETWORKS, Network
from collbench.workloads.dl.suite import DDP
from collbench.workloads.dl.train import SEED, loss_of, module_of, optimizer_of
from collbench.workloads.program import threads_of_rank
from collbench.workloads.protocol import RankGroup, Unusable


def _gpu() -> int:
    """That of this rank: the only one it sees, or the one of its number. Unusable: there are too few."""
    protocol.refuse_without_gpu(torch, "cuda")
    visible, ranks = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    if visible == 0 or 1 < visible < ranks:
        raise Unusable(f"device=cuda: {counted(visible, 'GPU')} for {counted(ranks, 'rank')}, and each needs one; "
                       "start fewer ranks, or use device=cpu")  # fmt: skip
    return int(os.environ["LOCAL_RANK"]) if visible > 1 else 0


class TorchRanks(RankGroup):
    """The ranks of torch's default process group, on one kind of device. Entered to join them; `library` reduces."""

    def __init__(self, device: str, threads: int) -> None:
        torch.set_num_threads(threads_of_rank(threads))
        torch.backends.cudnn.deterministic = True  # or losses would differ by the order of atomic additions
        self.on_gpu = device == "cuda"
        self.library = "nccl" if self.on_gpu else "gloo"
        self.device = torch.device("cuda", _gpu()) if self.on_gpu else torch.device(device)

    def __enter__(self) -> TorchRanks:
        if self.on_gpu:
            torch.cuda.set_device(self.device)
        dist.init_process_group(self.library, init_method="env://", device_id=self.device if self.on_gpu else None)
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
        return f"torch {torch.__version__}, {self.library}, {threads} a rank"

    def total(self, value: float) -> float:
        return self._over_ranks([value], dist.ReduceOp.SUM)[0]

    def slowest(self, values: Sequence[int]) -> Sequence[float]:
        return self._over_ranks(values, dist.ReduceOp.MAX)

    def _over_ranks(self, values: Sequence[float], how: dist.ReduceOp.RedOpType) -> list[float]:
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor, how)
        return cast("list[float]", tensor.tolist())

    def wait(self) -> None:
        """Until the device has done what it was given."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def apart(self, parameters: Iterable[Tensor]) -> int:
        """How many ranks have other parameters than rank 0, by the bits of every one."""
        digest = hashlib.blake2b(digest_size=7)
        for parameter in parameters:
            digest.update(parameter.detach().cpu().numpy().tobytes())
        of_rank = torch.tensor([int.from_bytes(digest.digest(), "big")], device=self.device)
        of_all = [torch.empty_like(of_rank) for _ in range(dist.get_world_size())]
        dist.all_gather(of_all, of_rank)
        return sum(int(other) != int(of_all[0]) for other in of_all)


class Replica:
    """A network with a batch of made-up examples, trained by gradient descent over all ranks.

    Without `reduces` a hook takes the place of DDP's all-reduces and leaves each rank its own gradients; nothing else
    differs. `messages` are then the bytes that would have been reduced in the last step. Buffers, such as statistics
    of a batch norm, stay each rank's own, so that gradients are all that is communicated.
    """

    def __init__(self, network: Network, batch: int, bucket: int, world: TorchRanks, reduces: bool = True) -> None:
        torch.manual_seed(SEED)  # the same parameters everywhere, and each rank has examples of its own
        self._module: Any = DistributedDataParallel(
            module_of(network).to(world.device), broadcast_buffers=False,
            device_ids=[world.device] if world.on_gpu else None,
            bucket_cap_mb=bucket or None,  # its own choice is not its cap of 25 for all: the first bucket is smaller
        )  # fmt: skip
        self.messages: list[int] = []
        if not reduces:
            self._module.register_comm_hook(None, lambda state, bucket: self._kept(bucket.buffer()))
        self._optimizer = optimizer_of(self._module, network)
        torch.manual_seed(SEED + 1 + world.rank)
        shape = (batch, *network.example)
        inputs = torch.randint(network.classes, shape) if network.tokens else torch.rand(shape)
        targets = torch.randint(network.classes, (batch, *network.targets))
        self._inputs, self._targets = inputs.to(world.device), targets.to(world.device)
        self._loss = torch.tensor(float("nan"))

    def step(self) -> None:
        """Forward, loss, backward, and the optimizer's step."""
        self.messages.clear()
        self._optimizer.zero_grad()
        loss: Any = loss_of(self._module, self._inputs, self._targets)
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


#: Steps before the first sample. After the first one DDP makes its buckets anew, in the order of the gradients.
STEPS = 3


def train(flags: argparse.Namespace, world: TorchRanks) -> dict[str, Any]:
    """What is printed: the training, and a second one without all-reduces, sampled in turns."""
    network = NETWORKS[flags.network]
    batch = flags.batch or network.batch
    whole, silent = (Replica(network, batch, flags.bucket, world, reduces) for reduces in (True, False))
    for _ in range(STEPS):
        whole.step()
        silent.step()
    loss_of_first = torch.tensor([whole.loss], dtype=torch.float64, device=world.device)
    dist.broadcast(loss_of_first, 0)
    loss = float(loss_of_first)
    buffers = [torch.zeros(size // 4, device=world.device) for size in silent.messages]

    def reduce_alone() -> None:
        for buffer in buffers:
            dist.all_reduce(buffer)

    doing = {"step": whole.step, "compute": silent.step, "communication": reduce_alone}
    in_turns = protocol.sampled_in_turns(lambda times: sampled(doing, times, world), flags.times, world)
    taken, slices = in_turns or (sampled(doing, flags.times, world), None)
    return {
        "ns": taken, "slices": msgspec.to_builtins(slices), "messages": silent.messages, "loss": loss,
        "notes": [f"{world.about}, batches of {batch}"],
        "apart": world.apart(whole.parameters),
        "nonfinite": sum(not math.isfinite(value) for value in (loss, whole.loss)),
    }  # fmt: skip


def sampled(doing: Mapping[str, Callable[[], object]], times: int, world: TorchRanks) -> dict[str, list[int]]:
    """Nanoseconds of `times` samples of each, which all ranks begin together; in turns, every second time backwards."""
    taken: dict[str, list[int]] = {name: [] for name in doing}
    order = list(doing)
    for _ in range(times):
        for name in order:
            dist.barrier()
            began = time.perf_counter_ns()
            doing[name]()
            world.wait()
            taken[name].append(time.perf_counter_ns() - began)
        order.reverse()
    return taken


def main() -> None:
    """Print the result; on an error a line that says what it was, without waiting for other ranks."""
    flags = protocol.arguments(__doc__, DDP)
    try:
        with TorchRanks(flags.device, flags.threads) as world:
            result = train(flags, world)
    except Unusable as error:
        protocol.end(protocol.SKIPPED, str(error))
    except (MemoryError, RuntimeError) as error:  # of torch: no memory, a rank that is gone
        why = protocol.lacking_memory(error, f"{flags.network} with a batch of {flags.batch}")
        why = why or next(iter(str(error).splitlines()), repr(error))
        sys.stderr.write(f"rank {os.environ.get('RANK', '?')}: {why}\n")
        sys.stderr.flush()
        os._exit(1)  # its threads wait for other ranks
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
