"""speech-recurrent: `speech` as it was meant. The recurrent layer stands between the third product and the last.

A layer of 1024 in each direction, frame by frame; the last layer reads the sum of both, as in Hannun et al., "Deep
Speech" (2014). The original would hand on the two states of the last frame side by side, which do not fit that layer.
The weights are drawn, and CTC looks at all frames. What has no use for this stays as it runs: the ReLU on the logits.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from collbench.workloads.fathom_networks.network import glorot
from collbench.workloads.fathom_networks.speech import FRAMES, WIDTH, Speech, clipped


class SpeechRecurrent(Speech):
    """See the module."""

    repeatable_on_gpu = False  # there CTC adds up gradients in any order

    def __init__(self) -> None:
        super().__init__()
        self.forwards, self.backwards = (nn.Linear(2 * WIDTH, WIDTH) for _ in range(2))
        glorot(self)

    def features(self, frames: Tensor) -> Tensor:
        in_time = super().features(frames).unbind(1)
        there = run_through(self.forwards, in_time)
        back = run_through(self.backwards, in_time[::-1])
        return torch.stack(there, 1) + torch.stack(back[::-1], 1)

    def frames_of(self, lengths: Tensor) -> Tensor:
        return torch.full_like(lengths, FRAMES)


def run_through(layer: nn.Linear, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """The states [size, WIDTH] after each input, each one from its input and the state before."""
    state, states = torch.zeros_like(inputs[0]), []
    for one in inputs:
        state = clipped(layer(torch.cat((one, state), 1)))
        states.append(state)
    return states


NETWORK = SpeechRecurrent
