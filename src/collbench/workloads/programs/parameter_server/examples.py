"""What is learned: images of 28 x 28 pixels in ten classes, and the batches that a worker takes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from collbench.workloads.programs.parameter_server.sharding import CLASSES, INPUTS

BATCH = 100

#: Images, and how many of them are held out to measure the accuracy, as in the tutorials on MNIST.
IMAGES, HELD_OUT = 60_000, 5_000

#: Made-up images are mostly dark, as digits are: for each class a fifth of the pixels is likelier to be bright than the
#: others. Of 256, in how many images it is.
DRAWN, LIKELY = 0.2, (64, 32)


@dataclass(frozen=True)
class Examples:
    """`images` [n, 784] uint8, `labels` [n]; the last `HELD_OUT` are not trained with. `label` names them honestly."""

    label: str
    images: torch.Tensor
    labels: torch.Tensor

    def batch(self, which: torch.Tensor | slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Pixels from 0 to 1, and labels."""
        return self.images[which].float().div_(255), self.labels[which]

    def held_out(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.batch(slice(-HELD_OUT, None))

    def batches(self, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Without an end: every epoch in another order."""
        generator = torch.Generator().manual_seed(seed)
        trained = len(self.labels) - HELD_OUT
        while True:
            for which in torch.split(torch.randperm(trained, generator=generator), BATCH):
                if len(which) == BATCH:
                    yield self.batch(which)


def examples(data: str, seed: int) -> Examples:
    """The data set of that name: `made-up` is the only one."""
    random = np.random.default_rng(seed)
    likely = np.where(random.random((CLASSES, INPUTS)) < DRAWN, *LIKELY).astype(np.uint8)
    labels = random.integers(0, CLASSES, IMAGES)
    images = random.integers(0, 256, (IMAGES, INPUTS), dtype=np.uint8)
    images = np.where(images < likely[labels], ~images, np.uint8(0))
    return Examples(f"{data} {IMAGES} x {INPUTS}", torch.from_numpy(images), torch.from_numpy(labels))
