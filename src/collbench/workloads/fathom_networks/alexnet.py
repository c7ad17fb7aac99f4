"""alexnet: five convolutions and three layers of products, 9216-4096-4096-1001.

Kept: dropout is declared in the original and not applied; the weights and biases of the last three layers have a
deviation of 1, so that the loss begins at a hundred million; responses are normalized over nine channels after the
pooling.
"""

from __future__ import annotations

from torch import Tensor, nn

from collbench.workloads.fathom_networks.network import CLASSES, ImageNetwork, filled


def convolution(inputs: int, outputs: int, side: int, stride: int = 1, padding: int = 0) -> nn.Sequential:
    return nn.Sequential(filled(nn.Conv2d(inputs, outputs, side, stride, padding), 0.1), nn.ReLU())


class Normalized(nn.Module):
    """Divided by what nine channels add up to, four on each side.

    The same as nn.LocalResponseNorm(9, 0.001), which averages in three dimensions: a GPU adds up the gradient of that
    in any order. TensorFlow's alpha, which no window divides, is 0.001 / 9.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        squares = nn.functional.avg_pool2d(inputs.square().flatten(2), (9, 1), 1, (4, 0)).view_as(inputs)
        outputs: Tensor = inputs / (1 + 0.001 * squares) ** 0.75
        return outputs


def product(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    return layer


class Alexnet(ImageNetwork):
    """See the module."""

    rate = 0.001

    def __init__(self) -> None:
        super().__init__(
            nn.ZeroPad2d((3, 4, 3, 4)), convolution(3, 64, 11, stride=4), nn.MaxPool2d(3, 2), Normalized(),
            convolution(64, 192, 5, padding=2), nn.MaxPool2d(3, 2), Normalized(),
            convolution(192, 384, 3, padding=1),
            convolution(384, 256, 3, padding=1),
            convolution(256, 256, 3, padding=1), nn.MaxPool2d(3, 2), nn.Flatten(),
            product(256 * 6 * 6, 4096), nn.ReLU(),
            product(4096, 4096), nn.ReLU(),
            product(4096, CLASSES),
        )  # fmt: skip


NETWORK = Alexnet
