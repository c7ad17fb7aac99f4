"""The small AlexNet for CIFAR-10: three convolutions of 5 x 5, and one fully connected layer.

After the layers of A. Krizhevsky's cuda-convnet that err on 18 % of the images (layers-18pct), without its
normalisation of local responses, as the benchmarks of Xu, Shi and Chu (2017) have them: 85,098 parameters, where the
AlexNet of ImageNet has 61 million.
"""

from __future__ import annotations

from torch import nn


def build() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2), nn.MaxPool2d(3, 2), nn.ReLU(inplace=True),
        nn.Conv2d(32, 32, 5, padding=2), nn.ReLU(inplace=True), nn.AvgPool2d(3, 2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(inplace=True), nn.AvgPool2d(3, 2),
        nn.Flatten(), nn.Linear(64 * 3 * 3, 10),
    )  # fmt: skip
