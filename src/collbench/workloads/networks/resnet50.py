"""ResNet-50: bottlenecks in four stages of 3, 4, 6 and 3 blocks, with ten classes.

After K. He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, table 1: the network for ImageNet with
its first layers, which leave 8 x 8 of 32 x 32 pixels. It has 27 times the parameters of ResNet-56.
"""

from __future__ import annotations

from torch import Tensor, nn

#: Width and blocks of each stage.
STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))

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


def build() -> nn.Module:
    layers: list[nn.Module] = [*convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
    inputs = 64
    for width, blocks in STAGES:
        for number in range(blocks):
            layers.append(Bottleneck(inputs, width, 2 if number == 0 and width > STAGES[0][0] else 1))
            inputs = EXPANSION * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))
