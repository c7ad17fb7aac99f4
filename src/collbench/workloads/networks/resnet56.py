"""ResNet-56 for CIFAR-10: 6 n + 2 layers with n = 9.

After K. He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2, with shortcuts that are
padded with zeros (its option A). As in the benchmarks of Xu, Shi and Chu (2017), convolutions have biases, and no ReLU
follows the addition.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import pad

BLOCKS = 9
WIDTHS = (16, 32, 64)


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


def build() -> nn.Module:
    blocks: list[nn.Module] = []
    inputs = WIDTHS[0]
    for outputs in WIDTHS:
        for number in range(BLOCKS):
            blocks.append(Block(inputs, outputs, 2 if number == 0 and outputs > WIDTHS[0] else 1))
            inputs = outputs
    stem = (nn.Conv2d(3, WIDTHS[0], 3, padding=1), nn.BatchNorm2d(WIDTHS[0]), nn.ReLU(inplace=True))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTHS[-1], 10))
