"""FCN5: four fully connected layers, 784-2048-4096-1024-10, with the sigmoid between them (Xu, Shi and Chu, 2017)."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

WIDTHS = (784, 2048, 4096, 1024, 10)


def build() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(WIDTHS):
        layers += [nn.Linear(inputs, outputs), nn.Sigmoid()]
    return nn.Sequential(*layers[:-1])  # the softmax is part of the loss
