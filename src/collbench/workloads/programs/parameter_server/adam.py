"""Adam, on one vector of weights. torch's own takes more than a second of its process to start."""

from __future__ import annotations

import math

import torch

RATE, BETA1, BETA2, EPSILON = 0.01, 0.9, 0.999, 1e-8


class Adam:
    """D. P. Kingma and J. Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015.

    In the form at the end of its section 2, which is that of TensorFlow. `weights` and `gradient` [n] are read and
    written where they are.
    """

    def __init__(self, weights: torch.Tensor, gradient: torch.Tensor) -> None:
        self._weights, self._gradient = weights, gradient
        self._mean, self._square = torch.zeros_like(weights), torch.zeros_like(weights)
        self._steps = 0

    def step(self) -> None:
        self._steps += 1
        self._mean.lerp_(self._gradient, 1 - BETA1)
        self._square.mul_(BETA2).addcmul_(self._gradient, self._gradient, value=1 - BETA2)
        rate = RATE * math.sqrt(1 - BETA2**self._steps) / (1 - BETA1**self._steps)
        self._weights.addcdiv_(self._mean, self._square.sqrt().add_(EPSILON), value=-rate)
