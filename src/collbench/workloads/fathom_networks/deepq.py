"""deepq: three convolutions and two products that rate the four actions of Breakout, beside a network for the targets.

Kept: what an action was rated is the largest element of a vector that is zero elsewhere, so a rating below zero counts
as zero; the error is quadratic up to 1 and linear beyond, and summed over the batch. The target network is a copy,
which the original renews every 10,000 steps; here it is never renewed.
Data: there is no emulator and no ROM. A memory of 1000 made-up frames takes their place, and a transition is four
frames that follow each other. Choosing actions, which goes on between steps, is left out.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from collbench.workloads.fathom_networks.network import Network

ACTIONS, FRAMES, SIDE, SEEN = 4, 1000, 84, 4

DISCOUNT = 0.99


def rating() -> nn.Sequential:
    """From SEEN frames to a value of each action."""
    layers = nn.Sequential(
        nn.Conv2d(SEEN, 32, 8, stride=4), nn.ReLU(),
        nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
        nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(64 * 7 * 7, 512), nn.ReLU(),
        nn.Linear(512, ACTIONS),
    )  # fmt: skip
    for name, parameter in layers.named_parameters():
        if name.endswith("bias"):
            nn.init.constant_(parameter, 0.1)
        else:
            nn.init.normal_(parameter, std=0.01)
    return layers


class Deepq(Network):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.rating, self.target = rating(), rating()
        self.target.load_state_dict(self.rating.state_dict())
        self.target.requires_grad_(False)
        self.frames = torch.randint(256, (FRAMES, SIDE, SIDE), dtype=torch.uint8)

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Frames and those one later [size, SEEN, SIDE, SIDE], actions as ones and zeros, ends and rewards [size]."""

        def drawn(below: int) -> Tensor:
            return torch.randint(below, (size,), generator=generator)

        first = drawn(FRAMES - SEEN)[:, None] + torch.arange(SEEN)
        seen, after = (self.frames[first + later].float() / 255 for later in (0, 1))
        actions = nn.functional.one_hot(drawn(ACTIONS), ACTIONS).float()
        return seen, after, actions, (drawn(100) == 0).float(), (drawn(10) == 0).float()

    def loss(self, *batch: Tensor) -> Tensor:
        seen, after, actions, ends, rewards = batch
        with torch.no_grad():
            wanted = rewards + (1 - ends) * DISCOUNT * self.target(after).amax(1)
        rated = (self.rating(seen) * actions).amax(1)
        return nn.functional.huber_loss(rated, wanted, reduction="sum")

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(self.rating.parameters(), lr=0.00025, alpha=0.95, eps=0.01)


NETWORK = Deepq
