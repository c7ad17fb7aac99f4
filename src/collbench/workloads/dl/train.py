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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from collbench.units import counted
from collbench.workloads.dl.datasets import ABOUT, FILE, NETWORKS, About, Network
from collbench.workloads.dl.suite import TRAIN
from collbench.workloads.dl.transformer import SIZES, Transformer
from collbench.workloads.protocol import RankGroup, arguments, printed, refuse_without_gpu, sampled_in_turns

# Networks: a function each -------------------------------------------------------------------------------------------


def alexnet() -> nn.Module:
    """The small AlexNet for CIFAR-10, as Torch has it in the benchmarks of Xu, Shi and Chu (2017), hclhkbu/dlbench.

    After the layers of A. Krizhevsky's cuda-convnet that err on 18 % of the images (layers-18pct), without its
    normalisation of local responses, and with the maximum in the second pooling too, as all five of their tools.
    """
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2), nn.MaxPool2d(3, 2), nn.ReLU(inplace=True),
        nn.Conv2d(32, 32, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(inplace=True), nn.AvgPool2d(3, 2),
        nn.Flatten(), nn.Linear(64 * 3 * 3, 10),
    )  # fmt: skip


def fcn5() -> nn.Module:
    """FCN5: fully connected layers, 784-2048-4096-1024-10, the sigmoid between them (Xu, Shi and Chu, 2017)."""
    sizes = itertools.pairwise((784, 2048, 4096, 1024, 10))
    layers = [layer for both in sizes for layer in (nn.Linear(*both), nn.Sigmoid())]
    return nn.Sequential(*layers[:-1])  # the softmax is part of the loss


class WordLayer(nn.Module):
    """[batch, steps] of int64 words to [batch, steps, words]: how likely each is to come next, before the softmax."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.output = nn.Linear(width, words)

    def forward(self, words: Tensor) -> Tensor:
        cells, _ = self.lstm(self.embedding(words))
        likely: Tensor = self.output(cells)
        return likely


def lstm() -> nn.Module:
    """The language model of Xu, Shi and Chu (2017) on the Penn Treebank, of words and not of characters."""
    return WordLayer(10_000, 256)


#: Channels that a block gives, by its width.
EXPANSION = 4


def convolution(inputs: int, outputs: int, side: int, stride: int = 1) -> list[nn.Module]:
    """With batch normalisation, which makes a bias superfluous."""
    return [nn.Conv2d(inputs, outputs, side, stride, padding=side // 2, bias=False), nn.BatchNorm2d(outputs)]


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1, added to the input; to a projection of it where the shape changes."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = EXPANSION * width
        self.body = nn.Sequential(
            *convolution(inputs, width, 1), nn.ReLU(inplace=True),
            *convolution(width, width, 3, stride), nn.ReLU(inplace=True),
            *convolution(width, outputs, 1),
        )  # fmt: skip
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*convolution(inputs, outputs, 1, stride))
        self.last = nn.ReLU(inplace=True)

    def forward(self, images: Tensor) -> Tensor:
        added: Tensor = self.last(self.body(images) + self.shortcut(images))
        return added


def resnet50() -> nn.Module:
    """ResNet-50 with ten classes: the network for ImageNet with its first layers, which leave 8 x 8 of 32 x 32 pixels.

    After K. He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, table 1.
    """
    layers: list[nn.Module] = [*convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for number in range(blocks):
            layers.append(Bottleneck(inputs, width, 2 if number == 0 and width > 64 else 1))
            inputs = EXPANSION * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


class Block(nn.Module):
    """Two convolutions, added to their input; of that every `stride`-th pixel, and zeros for channels that are new."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride, self.new = stride, outputs - inputs
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        shortcut = pad(images[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new))
        added: Tensor = self.body(images) + shortcut
        return added


def resnet56() -> nn.Module:
    """ResNet-56 for CIFAR-10: 6 n + 2 layers with n = 9.

    After He et al. (see `resnet50`), section 4.2, with shortcuts that are padded with zeros (its option A). As Torch
    has it in the benchmarks of Xu, Shi and Chu (2017): convolutions have biases, no ReLU follows the addition.
    """
    blocks: list[nn.Module] = []
    inputs = 16
    for outputs in (16, 32, 64):
        for number in range(9):
            blocks.append(Block(inputs, outputs, 2 if number == 0 and outputs > 16 else 1))
            inputs = outputs
    stem = (nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


_MODULES = {build.__name__: build for build in (alexnet, fcn5, lstm, resnet50, resnet56)}


def module_of(network: Network) -> nn.Module:
    """With random parameters, from torch's generator on the CPU."""
    return Transformer(network) if network.name in SIZES else _MODULES[network.name]()


def loss_of(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """The mean cross entropy of a batch: `inputs` [batch, *example], `targets` int64 [batch, *network.targets]."""
    return cross_entropy(module(inputs).flatten(0, -2), targets.flatten())


# Training ------------------------------------------------------------------------------------------------------------

#: Of the parameters.
SEED = 2017


def optimizer_of(module: nn.Module, network: Network) -> torch.optim.Optimizer:
    """Stochastic gradient descent as Torch has it in the benchmarks of Xu, Shi and Chu (2017), tools/torch/Main.lua.

    Of GPTs AdamW, as for GPT-3 (T. Brown et al., NeurIPS 2020, appendix B): the paper of GPT-2 does not name its own.
    """
    if network.adamw:
        return torch.optim.AdamW(module.parameters(), lr=network.learning_rate, betas=(0.9, 0.95), weight_decay=0.1)
    nesterov = network.name.startswith("resnet")
    return torch.optim.SGD(
        module.parameters(), lr=network.learning_rate, momentum=0.9, weight_decay=1e-4, nesterov=nesterov
    )


@dataclass(frozen=True)
class Batches:
    """The batches of an epoch in the order of the file: entry k are inputs and targets, as the network takes them."""

    network: Network
    about: About
    batch: int

    def __len__(self) -> int:
        return self.about.examples // self.batch

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
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
        self._device = torch.device(device)
        self._module = module_of(network).to(self._device).train()
        self._optimizer = optimizer_of(self._module, network)
        self.losses: list[float] = []

    def step(self, batch: tuple[Tensor, Tensor]) -> int:
        """Nanoseconds of a step on a batch, which is on the device before."""
        inputs, targets = (tensor.to(self._device) for tensor in batch)
        self._wait()
        began = time.perf_counter_ns()
        self._optimizer.zero_grad()
        loss: Any = loss_of(self._module, inputs, targets)
        loss.backward()
        self._optimizer.step()
        self._wait()
        ns = time.perf_counter_ns() - began
        self.losses.append(float(loss.detach()))
        return ns

    def held_out(self, batches: Sequence[tuple[Tensor, Tensor]]) -> float:
        """The mean loss of batches that it is not trained on."""
        self._module.eval()
        with torch.no_grad():
            losses = [float(loss_of(self._module, *(tensor.to(self._device) for tensor in both))) for both in batches]
        self._module.train()
        return fmean(losses)

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def notes_of(flags: argparse.Namespace, about: About) -> list[str]:
    """What trains, and on which examples."""
    gpu = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, " if flags.device == "cuda" else ""
    threads = counted(torch.get_num_threads(), "thread")
    software = f"torch {torch.__version__}, {gpu}{torch.backends.cpu.get_cpu_capability()}, {threads}"
    return [f"{software}, batches of {flags.batch}", f"data: {about.label}, sha256 {about.sha256}"]


def run(flags: argparse.Namespace) -> dict[str, Any]:
    """The first epoch, then as many batches as samples are asked for, and steps up to the one whose loss is."""
    refuse_without_gpu(torch, flags.device)
    torch.set_num_threads(flags.threads)
    network, about = NETWORKS[flags.network], About(**json.loads(Path(ABOUT).read_text(encoding="utf-8")))
    training = Training(network, flags.device)
    data_loader: Any = torch.utils.data.DataLoader
    loading = {"num_workers": flags.loaders, "persistent_workers": flags.loaders > 0}  # from epoch to epoch
    loader = data_loader(Batches(network, about, flags.batch), batch_size=None, **loading)  # whole batches, in order
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
    return {
        "ns": taken, "slices": msgspec.to_builtins(slices), "loss": training.losses[flags.steps - 1],
        "nonfinite": sum(not math.isfinite(loss) for loss in training.losses),
        "notes": notes_of(flags, about),
    }  # fmt: skip


def main() -> None:
    """Print what `run` finds."""
    flags = arguments(__doc__, TRAIN, "network", "device", "batch", "steps", "threads", "loaders")
    printed(lambda: run(flags), f"{flags.network} in batches of {flags.batch}")


if __name__ == "__main__":
    main()
