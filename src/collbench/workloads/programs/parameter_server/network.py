"""The network, 784-100-10 with ReLU: its weights and its gradient are one vector each."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy

from collbench.workloads.programs.parameter_server.sharding import PLACES, SHAPES, WEIGHTS


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
