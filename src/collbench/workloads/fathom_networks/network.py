"""What all networks have in common: made-up data, a loss, and how a step changes the weights."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn


class Network(nn.Module):
    """A network with weights drawn from torch's own generator, on the host."""

    #: Whether a GPU adds up its gradients in the same order each time.
    repeatable_on_gpu = True

    @abstractmethod
    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Made-up data for one step of `size` samples, on the host."""

    @abstractmethod
    def loss(self, *batch: Tensor) -> Tensor:
        """A number, of what `batch` gave, wherever that has been moved."""

    @abstractmethod
    def optimizer(self) -> torch.optim.Optimizer:
        """The original's, for the weights where they are now."""

    def change_gradients(self) -> None:
        """Between the backward pass and the optimizer: nothing."""


def filled(module: nn.Module, deviation: float, biases: float | None = 0.0) -> nn.Module:
    """Weights from a normal distribution that is cut off at twice its deviation; biases too where None is given."""
    for name, parameter in module.named_parameters():
        if name.endswith("bias") and biases is not None:
            nn.init.constant_(parameter, biases)
        else:
            nn.init.trunc_normal_(parameter, std=deviation, a=-2 * deviation, b=2 * deviation)
    return module


def glorot(module: nn.Module) -> None:
    """TensorFlow's usual distribution for matrices (Glorot, Bengio, AISTATS 2010); vectors are zero."""
    for parameter in module.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
        else:
            nn.init.zeros_(parameter)
