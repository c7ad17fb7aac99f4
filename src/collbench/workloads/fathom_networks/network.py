"""What networks of Fathom have in common: made-up data, losses, recurrent layers, and a step of training.

Jean, Cho, Memisevic, Bengio, "On Using Very Large Target Vocabulary for Neural Machine Translation", ACL 2015; drawn as
TensorFlow's sampled_softmax_loss does: frequent words, whose numbers are low, more often, and none twice.
"""

from __future__ import annotations

import math
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


#: With one for the background, which no image has.
CLASSES = 1001

SIDE = 224


class ImageNetwork(Network):
    """Layers from images [n, 3, 224, 224] to CLASSES logits; cross entropy; Adam at `rate`."""

    rate: float

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Pixels from -1 to 1, as the original scales them, and a class for each image."""
        images = torch.rand(size, 3, SIDE, SIDE, generator=generator) * 2 - 1
        return images, torch.randint(1, CLASSES, (size,), generator=generator)

    def loss(self, *batch: Tensor) -> Tensor:
        images, classes = batch
        return nn.functional.cross_entropy(self.layers(images), classes)

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.rate)


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


SAMPLES = 512

#: So many draws from 40,000 words hit about SAMPLES different ones.
DRAWS = 813.8


def chances(words: int) -> Tensor:
    """Of each word in one draw, by Zipf's law: ln((k + 2) / (k + 1)) / ln(words + 1)."""
    numbers = torch.arange(1.0, words + 1, dtype=torch.float64)
    return ((numbers + 1) / numbers).log() / math.log(words + 1)


def expected(words: int) -> Tensor:
    """The logarithm of how likely each word is among the samples."""
    return (-torch.expm1(DRAWS * torch.log1p(-chances(words)))).log().float()


class SampledSoftmax(nn.Module):
    """From outputs [steps, n, size] and right words [steps, n] to the loss of each [steps, n]."""

    chances: Tensor
    expected: Tensor

    def __init__(self, size: int, words: int) -> None:
        super().__init__()
        self.weights, self.biases = nn.Parameter(torch.empty(words, size)), nn.Parameter(torch.empty(words))
        self.register_buffer("chances", chances(words).float())
        self.register_buffer("expected", expected(words))

    def forward(self, outputs: Tensor, words: Tensor) -> Tensor:
        others = torch.multinomial(self.chances.expand(len(outputs), -1), SAMPLES)
        right = (outputs * self.rows(words)).sum(2) + self.offsets(words)
        wrong = outputs @ self.rows(others).transpose(1, 2) + self.offsets(others)[:, None]
        wrong = wrong.masked_fill(others[:, None] == words[:, :, None], -torch.inf)
        return -torch.cat((right[:, :, None], wrong), 2).log_softmax(2)[:, :, 0]

    def rows(self, words: Tensor) -> Tensor:
        return nn.functional.embedding(words, self.weights)

    def offsets(self, words: Tensor) -> Tensor:
        """What is added to the logits of these words."""
        return nn.functional.embedding(words, self.biases[:, None])[..., 0] - self.expected[words]
