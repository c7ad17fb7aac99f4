"""Networks that are trained: those of Xu, Shi and Chu (2017), and ResNet-50.

Importing this file imports no torch; building a network imports their modules, which are ours (`network_modules.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

#: Core seconds in which gradient descent with momentum changes a parameter.
_CHANGE = 5e-9


@dataclass(frozen=True)
class Network:
    """A network, with the shape of what it is trained on.

    `example` is the shape of one example: float32 from 0 to 1, as [784] or [3, 32, 32]; of `tokens` int64 words, [32]
    of them, each below `classes`. Its target is a class, or for every word the one after it. `batch` are the examples
    of a batch by default, `examples` those of the data set that the paper trained on. `learning_rate` is that of
    stochastic gradient descent. `kib` is about what an example needs (KiB) while a processor trains with it: by so much
    the largest memory of a process grows with the batch. `ms` is about how long a core takes for an example (ms).
    """

    name: str
    title: str
    example: tuple[int, ...]
    classes: int
    batch: int
    examples: int
    parameters: int
    learning_rate: float
    kib: int
    ms: float
    tokens: bool = False

    def step(self, batch: int) -> float:
        """Core seconds of a step, about, for plans: those of the examples, and of the change of the parameters."""
        return batch * self.ms * 1e-3 + self.parameters * _CHANGE

    def memory(self, copies: int, batch: int, device: str) -> int:
        """Bytes of the host, about, for so many copies of the parameters and a batch; with a GPU weights alone."""
        weights = 4 * self.parameters
        return weights * copies + batch * self.kib * 1024 if device == "cpu" else weights

    @property
    def targets(self) -> tuple[int, ...]:
        """Shape of the target of one example."""
        return self.example if self.tokens else ()

    def build(self) -> nn.Module:
        """With random parameters, from torch's generator on the CPU."""
        from collbench.workloads.dl import network_modules

        module: nn.Module = getattr(network_modules, self.name)()
        return module

    def loss(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """The mean cross entropy of a batch: `inputs` [batch, *example], `targets` int64 [batch, *self.targets]."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(module(inputs).flatten(0, -2), targets.flatten())


#: By name. MNIST has 60,000 images to train on and CIFAR-10 50,000; PTB has 929,589 words, 29,049 sequences of 32.
NETWORKS: dict[str, Network] = {
    network.name: network
    for network in (
        Network("fcn5", "FCN5, fully connected 784-2048-4096-1024-10",
                (784,), 10, 512, 60_000, 14_205_962, 0.05, 52, 1.0),
        Network("alexnet", "AlexNet for CIFAR-10", (3, 32, 32), 10, 256, 50_000, 85_098, 0.01, 370, 1.2),
        Network("resnet56", "ResNet-56 for CIFAR-10", (3, 32, 32), 10, 16, 50_000, 855_050, 0.05, 5_000, 15.0),
        Network("resnet50", "ResNet-50 of ImageNet on images of 32 x 32",
                (3, 32, 32), 10, 16, 50_000, 23_528_522, 0.01, 2_300, 12.0),
        Network("lstm", "two layers of LSTM over 32 words",
                (32,), 10_000, 128, 29_049, 6_182_672, 0.1, 4_000, 12.0, tokens=True),
    )
}  # fmt: skip
