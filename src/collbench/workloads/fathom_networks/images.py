"""What the networks for ImageNet have in common: images, classes, loss and optimizer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from collbench.workloads.fathom_networks.network import Network

#: With one for the background, which no image has.
CLASSES = 1001

SIDE = 224


class ImageNetwork(Network):
    """Layers from images [n, 3, 224, 224] to CLASSES logits; cross entropy; Adam at `rate`."""

    def __init__(self, layers: nn.Module, rate: float) -> None:
        super().__init__()
        self.layers, self.rate = layers, rate

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Pixels from -1 to 1, as the original scales them, and a class for each image."""
        images = torch.rand(size, 3, SIDE, SIDE, generator=generator) * 2 - 1
        return images, torch.randint(1, CLASSES, (size,), generator=generator)

    def loss(self, *batch: Tensor) -> Tensor:
        images, classes = batch
        return nn.functional.cross_entropy(self.layers(images), classes)

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.rate)
