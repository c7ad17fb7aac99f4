"""The recurrent layers of seq2seq: TensorFlow's BasicLSTMCell, one product for all gates, layer upon layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

#: For each layer what it remembers and what it gave [n, size].
State = tuple[tuple[Tensor, Tensor], ...]


class Cell(nn.Module):
    """A layer. Its forget gate has 1 added, which is no parameter."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gates = nn.Linear(2 * size, 4 * size)

    def forward(self, inputs: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """What it remembers and gives now."""
        memory, given = state
        enters, candidate, stays, leaves = self.gates(torch.cat((inputs, given), 1)).chunk(4, 1)
        memory = memory * (stays + 1).sigmoid() + enters.sigmoid() * candidate.tanh()
        return memory, memory.tanh() * leaves.sigmoid()


class Layers(nn.Module):
    """Layers of one size."""

    def __init__(self, size: int, number: int) -> None:
        super().__init__()
        self.cells = nn.ModuleList(Cell(size) for _ in range(number))

    def begin(self, inputs: Tensor) -> State:
        """Zeros, as many as `inputs` [n, size] asks for."""
        return tuple((torch.zeros_like(inputs), torch.zeros_like(inputs)) for _ in self.cells)

    def forward(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """What the last layer gives, and the state of all."""
        after: list[tuple[Tensor, Tensor]] = []
        for cell, before in zip(self.cells, state, strict=True):
            after.append(cell(inputs, before))
            inputs = after[-1][1]
        return inputs, tuple(after)
