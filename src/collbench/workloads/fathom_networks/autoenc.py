"""autoenc: a variational autoencoder, 784-200-784, for handwritten digits.

Kept: it declares an activation (softplus) and applies none; the decoder begins at zero; the error of the reconstruction
is summed over the batch, while the mean is taken of the divergence.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from collbench.workloads.fathom_networks.network import Network, glorot

PIXELS, CODE = 784, 200


class Autoenc(Network):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.log_variance = nn.Linear(PIXELS, CODE), nn.Linear(PIXELS, CODE)
        self.decoder = nn.Linear(CODE, PIXELS)
        glorot(self)
        nn.init.zeros_(self.decoder.weight)

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Pixels of mean 0 and deviation 1, to which the original scales its digits."""
        return (torch.randn(size, PIXELS, generator=generator),)

    def loss(self, *batch: Tensor) -> Tensor:
        (images,) = batch
        mean, log_variance = self.mean(images), self.log_variance(images)
        code = mean + log_variance.exp().sqrt() * torch.randn_like(mean)
        error = 0.5 * (self.decoder(code) - images).square().sum()
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1)
        loss: Tensor = (error + divergence).mean()
        return loss

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.001)


NETWORK = Autoenc
