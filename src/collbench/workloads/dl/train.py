"""`python -m collbench.workloads.dl.train --network NAME --batch N ...`: train a network by torch.

The examples are those of `datasets` in the current folder, read by torch's DataLoader. Prints JSON: `ns`, by measure
the time of the `first` epoch with everything that it loads, and those of each `batch` after it; `slices`, what was
added on its cores while it measured in turns, else null; `nonfinite`, how many losses are no finite numbers; `loss`,
that of step `--steps`; and `notes`. A GPU that is not there ends it with exit code 77.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from collbench.units import counted
from collbench.workloads.dl.datasets import ABOUT, FILE, About
from collbench.workloads.dl.networks import NETWORKS, Network
from collbench.workloads.dl.suite import TRAIN
from collbench.workloads.protocol import RankGroup, arguments, printed, refuse_without_gpu, sampled_in_turns

#: Of the parameters.
SEED = 2017

#: Of stochastic gradient descent, as in the benchmarks of Xu, Shi and Chu (2017).
MOMENTUM = 0.9


@dataclass(frozen=True)
class Batches:
    """The batches of an epoch in the order of the file: entry k are inputs and targets, as the network takes them."""

    network: Network
    about: About
    batch: int

    def __len__(self) -> int:
        return self.about.examples // self.batch

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        dtype, values = np.dtype(self.about.dtype), self.batch * self.about.width
        rows = np.fromfile(FILE, dtype, values, offset=number * values * dtype.itemsize).reshape(self.batch, -1)
        if self.network.tokens:
            words = torch.from_numpy(rows.astype(np.int64))
            return words[:, :-1], words[:, 1:]
        pixels = torch.from_numpy(rows[:, :-1].astype(np.float32)).div_(255)
        return pixels.reshape(self.batch, *self.network.example), torch.from_numpy(rows[:, -1].astype(np.int64))


class Training:
    """A network in training: parameters from a fixed seed, and the loss of every step."""

    def __init__(self, network: Network, device: str) -> None:
        torch.manual_seed(SEED)
        torch.backends.cudnn.deterministic = True  # or losses would differ by the order of atomic additions
        self._network, self._device = network, torch.device(device)
        self._module = network.build().to(self._device).train()
        parameters = self._module.parameters()
        self._optimizer = torch.optim.SGD(parameters, lr=network.learning_rate, momentum=MOMENTUM)
        self.losses: list[float] = []

    def step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> int:
        """Nanoseconds of a step on a batch, which is on the device before."""
        inputs, targets = (tensor.to(self._device) for tensor in batch)
        self._wait()
        began = time.perf_counter_ns()
        self._optimizer.zero_grad()
        loss: Any = self._network.loss(self._module, inputs, targets)
        loss.backward()
        self._optimizer.step()
        self._wait()
        ns = time.perf_counter_ns() - began
        self.losses.append(float(loss.detach()))
        return ns

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def run(flags: argparse.Namespace) -> dict[str, Any]:
    """The first epoch, then as many batches as samples are asked for, and steps up to the one whose loss is."""
    refuse_without_gpu(torch, flags.device)
    torch.set_num_threads(flags.threads)
    network, about = NETWORKS[flags.network], About(**json.loads(Path(ABOUT).read_text(encoding="utf-8")))
    training = Training(network, flags.device)
    data_loader: Any = torch.utils.data.DataLoader
    loader = data_loader(  # whole batches, in their order; workers live on from epoch to epoch
        Batches(network, about, flags.batch), batch_size=None, num_workers=flags.loaders,
        persistent_workers=flags.loaders > 0,
    )  # fmt: skip
    later = itertools.chain.from_iterable(itertools.repeat(loader))

    @functools.cache  # a case that begins again has no second first epoch
    def first() -> dict[str, list[int]]:
        began = time.perf_counter_ns()
        for batch in loader:
            training.step(batch)
        return {"first": [time.perf_counter_ns() - began]}

    def batches(times: int) -> dict[str, list[int]]:
        return {"batch": [training.step(batch) for batch in itertools.islice(later, times)]}

    in_turns = sampled_in_turns(batches, flags.times, RankGroup(), first)
    taken, slices = in_turns or (first() | batches(flags.times), None)
    for batch in itertools.islice(later, max(flags.steps - len(training.losses), 0)):
        training.step(batch)
    losses = training.losses
    gpu = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, " if flags.device == "cuda" else ""
    threads = counted(torch.get_num_threads(), "thread")
    software = f"torch {torch.__version__}, {gpu}{torch.backends.cpu.get_cpu_capability()}, {threads}"
    return {
        "ns": taken,
        "slices": msgspec.to_builtins(slices),
        "nonfinite": sum(not math.isfinite(loss) for loss in losses),
        "loss": losses[flags.steps - 1],
        "notes": [f"{software}, batches of {flags.batch}", f"data: {about.label}, sha256 {about.sha256}"],
    }


def main() -> None:
    """Print what `run` finds."""
    flags = arguments(__doc__, TRAIN, "network", "device", "batch", "steps", "threads", "loaders")
    printed(lambda: run(flags), f"{flags.network} in batches of {flags.batch}")


if __name__ == "__main__":
    main()
