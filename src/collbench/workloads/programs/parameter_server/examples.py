"""What is learned: images of 28 x 28 pixels in ten classes, and the batches that a worker takes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from collbench.workloads.datasets import SOURCES
from collbench.workloads.datasets.source import Rows
from collbench.workloads.networks import NETWORKS
from collbench.workloads.programs.parameter_server.sharding import CLASSES, INPUTS

BATCH = 100

#: Images that are made up.
IMAGES = 60_000

#: One of so many images is held out to measure the accuracy: 5000 of 60,000, as in the tutorials on MNIST.
HELD_OUT = 12

#: Made-up images are mostly dark, as digits are: for each class a fifth of the pixels is likelier to be bright than the
#: others. Of 256, in how many images it is.
DRAWN, LIKELY = 0.2, (64, 32)


@dataclass(frozen=True)
class Examples:
    """`images` [n, 784] uint8, `labels` [n]; the last twelfth is not trained with. `label` names them honestly."""

    label: str
    images: torch.Tensor
    labels: torch.Tensor

    def batch(self, which: torch.Tensor | slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Pixels from 0 to 1, and labels."""
        return self.images[which].float().div_(255), self.labels[which]

    def held_out(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.batch(slice(self._trained, None))

    def batches(self, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Without an end: every epoch in another order."""
        generator = torch.Generator().manual_seed(seed)
        while True:
            for which in torch.split(torch.randperm(self._trained, generator=generator), BATCH):
                if len(which) == BATCH:
                    yield self.batch(which)

    @property
    def _trained(self) -> int:
        return len(self.labels) - len(self.labels) // HELD_OUT


def examples(data: str, seed: int) -> Examples:
    """The data set of that name, in an order that follows from the seed; what is made up follows from it too.

    Raises:
        BadData, OSError: its file is damaged, or cannot be read.
    """
    random = np.random.default_rng(seed)
    if data == "made-up":
        rows, label = _made_up(random), f"made-up {IMAGES} x {INPUTS}, mostly dark"
    else:
        found = SOURCES[data].read(NETWORKS["fcn5"], IMAGES)
        rows, label = random.permutation(found.rows), found.label
    return Examples(label, torch.from_numpy(rows[:, :-1]), torch.from_numpy(rows[:, -1].astype(np.int64)))


def _made_up(random: np.random.Generator) -> Rows:
    likely = np.where(random.random((CLASSES, INPUTS)) < DRAWN, *LIKELY).astype(np.uint8)
    labels = random.integers(0, CLASSES, IMAGES)
    pixels = random.integers(0, 256, (IMAGES, INPUTS), dtype=np.uint8)
    rows = np.empty((IMAGES, INPUTS + 1), np.uint8)
    rows[:, :-1], rows[:, -1] = np.where(pixels < likely[labels], ~pixels, np.uint8(0)), labels
    return rows
