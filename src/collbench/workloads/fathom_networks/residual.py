"""residual: 41 convolutions in twelve bottlenecks, and a product, 1024-1001.

Kept: after the first pooling everything stays at 56 x 56, so that it does eight times the work of a ResNet-50; there is
no batch normalization; the last convolution of a bottleneck has a ReLU and the sum after it has none; what widens the
channels between blocks has no bias, nor has the product. The biases of convolutions are drawn like weights.
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from collbench.workloads.fathom_networks.network import CLASSES, ImageNetwork, filled

#: Channels of a block, and of its bottlenecks; there are three bottlenecks in each block.
BLOCKS = ((128, 32), (256, 64), (512, 128), (1024, 256))

DEVIATION = 0.02


def convolution(inputs: int, outputs: int, side: int, stride: int = 1, bias: bool = True) -> nn.Module:
    """Without padding, but for the 3 x 3 of a bottleneck."""
    padding = 1 if side == 3 else 0
    return filled(nn.Conv2d(inputs, outputs, side, stride, padding, bias=bias), DEVIATION, None)


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            convolution(channels, inner, 1), nn.ReLU(),
            convolution(inner, inner, 3), nn.ReLU(),
            convolution(inner, channels, 1), nn.ReLU(),
        )  # fmt: skip

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layers(inputs) + inputs
        return outputs


class Residual(ImageNetwork):
    """See the module. Padding and rounding are as TensorFlow's SAME has them: the odd one comes last."""

    rate = 0.01

    def __init__(self) -> None:
        blocks: list[nn.Module] = []
        for channels, inner in BLOCKS:
            blocks += [Bottleneck(channels, inner) for _ in range(3)]
        for number, ((before, _), (after, _)) in enumerate(pairwise(BLOCKS), start=1):
            blocks.insert(4 * number - 1, convolution(before, after, 1, bias=False))
        super().__init__(
            nn.ZeroPad2d((2, 3, 2, 3)), convolution(3, 64, 7, stride=2), nn.ReLU(),
            nn.MaxPool2d(3, 2, ceil_mode=True), convolution(64, BLOCKS[0][0], 1),
            *blocks,
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), product(BLOCKS[-1][0], CLASSES),
        )  # fmt: skip


def product(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=DEVIATION)
    return layer


NETWORK = Residual
