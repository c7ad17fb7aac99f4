"""speech: three products 26-1024-1024-1024 for every frame, a fourth to 62 labels, and CTC: Deep Speech as it runs.

Kept: the original makes a recurrent layer, and its last layer reads what that layer reads, so TensorFlow never runs it
(`speech-recurrent` has it). All weights begin at zero, and the ReLU on the logits lets no gradient pass there: nothing
is ever learnt, and the loss stays ln 62 for each label. CTC is told that a sample has as many frames as labels, and
looks at no others. Every activation is cut off at 20.
Not kept: the original copies each matrix for every sample, and multiplies sample by sample.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from collbench.workloads.fathom_networks.network import Network

FRAMES, COEFFICIENTS, WIDTH = 1566, 26, 1024

#: The last one is the blank. A sample has up to MOST of them.
LABELS, LEAST, MOST = 62, 20, 75


def clipped(values: Tensor) -> Tensor:
    """A ReLU up to 20, without a gradient at 0."""
    return nn.functional.hardtanh(values, 0.0, 20.0)


class Speech(Network):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        widths = ((COEFFICIENTS, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH))
        self.layers = nn.ModuleList(nn.Linear(*width) for width in widths)
        self.last = nn.Linear(WIDTH, LABELS)
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Frames [size, FRAMES, COEFFICIENTS], labels [size, MOST] and how many of them count [size].

        No label follows itself: CTC would then need a frame more.
        """
        frames = torch.randn(size, FRAMES, COEFFICIENTS, generator=generator)
        steps = torch.randint(1, LABELS - 1, (size, MOST), generator=generator)
        lengths = torch.randint(LEAST, MOST + 1, (size,), generator=generator)
        return frames, steps.cumsum(1) % (LABELS - 1), lengths

    def loss(self, *batch: Tensor) -> Tensor:
        frames, labels, lengths = batch
        logits = clipped(self.last(self.features(frames)))
        chances = logits.log_softmax(2).transpose(0, 1)
        return nn.functional.ctc_loss(
            chances, labels, self.frames_of(lengths), lengths, blank=LABELS - 1, reduction="sum"
        )

    def features(self, frames: Tensor) -> Tensor:
        """What the last layer reads [size, FRAMES, WIDTH]."""
        for layer in self.layers:
            frames = clipped(layer(frames))
        return frames

    def frames_of(self, lengths: Tensor) -> Tensor:
        """How many frames CTC looks at."""
        return lengths

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


NETWORK = Speech
