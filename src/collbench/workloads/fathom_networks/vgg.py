"""vgg: twelve convolutions of 3 x 3 and three layers of products, 25088-4096-4096-1001.

Kept: it is called VGG-19, and has 12 convolutions (2, 2, 2, 3 and 3); the logits pass a ReLU like every layer; all
weights have a deviation of 0.1, whatever the number of inputs, so that the loss begins in the tens of millions.
Dropout of 0.2 after the first two products is applied, here as there.
"""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from collbench.workloads.fathom_networks.network import CLASSES, ImageNetwork, filled

#: Outputs of the convolutions between two poolings.
BLOCKS = ((64, 64), (128, 128), (256, 256), (512, 512, 512), (512, 512, 512))

DEVIATION = 0.1


def block(inputs: int, outputs: tuple[int, ...]) -> nn.Sequential:
    """Convolutions, and a pooling that halves the side."""
    layers: list[nn.Module] = []
    for before, after in pairwise((inputs, *outputs)):
        layers += [filled(nn.Conv2d(before, after, 3, padding=1), DEVIATION), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(2))


def product(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(filled(nn.Linear(inputs, outputs), DEVIATION), nn.ReLU())


class Vgg(ImageNetwork):
    """See the module."""

    rate = 0.0001

    def __init__(self) -> None:
        before = (3, *(outputs[-1] for outputs in BLOCKS))
        convolutions = [block(inputs, outputs) for inputs, outputs in zip(before, BLOCKS, strict=False)]
        super().__init__(
            *convolutions, nn.Flatten(),
            product(512 * 7 * 7, 4096), nn.Dropout(0.2),
            product(4096, 4096), nn.Dropout(0.2),
            product(4096, CLASSES),
        )  # fmt: skip


NETWORK = Vgg
