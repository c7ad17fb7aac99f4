"""The network of `parameter_server`: weights as one vector and in shards, what it learns from, and Adam."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from collbench.workloads._datasets import SOURCES, Rows
from collbench.workloads.networks import NETWORKS

INPUTS, HIDDEN, CLASSES = 784, 100, 10

#: The variables, in the order in which the weights stand in the vector: weights and biases of both layers.
SHAPES = ((INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))

#: Where each variable lies in the vector.
PLACES = tuple(slice(*ends) for ends in pairwise(accumulate(map(math.prod, SHAPES), initial=0)))

#: Length of the vector: 79,510.
WEIGHTS = PLACES[-1].stop

#: Parts of the vector.
Share = tuple[slice, ...]


def shares(servers: int, shard: str) -> tuple[Share, ...]:
    """What each server holds.

    `even`: one part each, of lengths that differ by at most 1. `variable`: whole variables in turn, of which the
    first is the number of steps, as TensorFlow's `replica_device_setter` places those of its example mnist_replica.
    """
    if shard == "even":
        ends = [WEIGHTS * number // servers for number in range(servers + 1)]
        return tuple((slice(*both),) for both in pairwise(ends))
    turns = list(enumerate(PLACES, start=1))
    return tuple(tuple(place for turn, place in turns if turn % servers == server) for server in range(servers))


def length(share: Share) -> int:
    """Weights in it."""
    return sum(part.stop - part.start for part in share)


def initial(seed: int) -> torch.Tensor:
    """The weights of a new network [79510]: normal, of standard deviation 1/sqrt(inputs); biases are 0."""
    generator = torch.Generator().manual_seed(seed)
    vector = torch.zeros(WEIGHTS)
    for place, shape in zip(PLACES, SHAPES, strict=True):
        if len(shape) == 2:
            vector[place].normal_(0.0, shape[0] ** -0.5, generator=generator)
    return vector


class Network:
    """`weights` and `gradient` [79510] share their memory with the variables."""

    def __init__(self, seed: int) -> None:
        self.weights, self.gradient = initial(seed), torch.zeros(WEIGHTS)
        self._variables = []
        for place, shape in zip(PLACES, SHAPES, strict=True):
            variable = self.weights[place].view(shape).detach().requires_grad_()
            variable.grad = self.gradient[place].view(shape)
            self._variables.append(variable)

    def learn(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """Set the gradient to that of the cross entropy, summed over a batch."""
        self.gradient.zero_()
        torch.autograd.backward(cross_entropy(self._answers(images), labels, reduction="sum"))

    def judge(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
        """Accuracy, and mean cross entropy."""
        with torch.no_grad():
            answers = self._answers(images)
        right = (answers.argmax(dim=1) == labels).float().mean()
        return right.item(), cross_entropy(answers, labels).item()

    def _answers(self, images: torch.Tensor) -> torch.Tensor:
        hidden, hidden_bias, output, output_bias = self._variables
        return torch.relu(images @ hidden + hidden_bias) @ output + output_bias


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


BATCH = 100

#: Images that are made up.
IMAGES = 60_000

#: One of so many images is held out to measure the accuracy: 5000 of 60,000, as in the tutorials on MNIST.
HELD_OUT = 12

#: Made-up images are mostly dark, as digits are: for each class a fifth of the pixels is likelier to be bright than the
#: others. Of 256, in how many images it is.
DRAWN, LIKELY = 0.2, (64, 32)


@dataclass(frozen=True)
class Examples:
    """`images` [n, 784] uint8, `labels` [n]; the last twelfth is not trained with. `label` names them honestly."""

    label: str
    images: torch.Tensor
    labels: torch.Tensor

    def batch(self, which: torch.Tensor | slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Pixels from 0 to 1, and labels."""
        return self.images[which].float().div_(255), self.labels[which]

    def held_out(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.batch(slice(self._trained, None))

    def batches(self, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Without an end: every epoch in another order."""
        generator = torch.Generator().manual_seed(seed)
        while True:
            for which in torch.split(torch.randperm(self._trained, generator=generator), BATCH):
                if len(which) == BATCH:
                    yield self.batch(which)

    @property
    def _trained(self) -> int:
        return len(self.labels) - len(self.labels) // HELD_OUT


def examples(data: str, seed: int) -> Examples:
    """The data set of that name, in an order that follows from the seed; what is made up follows from it too.

    Raises:
        BadData, OSError: its file is damaged, or cannot be read.
    """
    random = np.random.default_rng(seed)
    if data == "made-up":
        rows, label = _made_up(random), f"made-up {IMAGES} x {INPUTS}, mostly dark"
    else:
        found = SOURCES[data].read(NETWORKS["fcn5"], IMAGES)
        rows, label = random.permutation(found.rows), found.label
    return Examples(label, torch.from_numpy(rows[:, :-1]), torch.from_numpy(rows[:, -1].astype(np.int64)))


def _made_up(random: np.random.Generator) -> Rows:
    likely = np.where(random.random((CLASSES, INPUTS)) < DRAWN, *LIKELY).astype(np.uint8)
    labels = random.integers(0, CLASSES, IMAGES)
    pixels = random.integers(0, 256, (IMAGES, INPUTS), dtype=np.uint8)
    rows = np.empty((IMAGES, INPUTS + 1), np.uint8)
    rows[:, :-1], rows[:, -1] = np.where(pixels < likely[labels], ~pixels, np.uint8(0)), labels
    return rows
