"""The networks of Fathom, without those of sequences: our own definitions, of the source of 2019-12.

That is rdadolf/fathom, 1dc013d. Oddities that change what is computed are kept: docs/plans.md has the layers and the
oddities, and each network here the others. What differs from the original everywhere: the data are made up; the
optimizers are torch's, whose epsilon stands elsewhere in the formula; images are [3, height, width]; nothing that the
original does between two steps is here (reading data, decoding, evaluation, summaries).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import chain, pairwise
from typing import ClassVar, TypeVar

import torch
from torch import Tensor, nn


class FathomNetwork(nn.Module):
    """A network with weights drawn from torch's own generator, on the host."""

    #: Whether a GPU adds up its gradients in the same order each time.
    repeatable_on_gpu = True

    #: The original's optimizer, with its learning rate.
    algorithm: ClassVar[Callable[..., torch.optim.Optimizer]] = torch.optim.Adam
    rate: float

    @abstractmethod
    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Made-up data for one step of `size` samples, on the host."""

    @abstractmethod
    def loss(self, *batch: Tensor) -> Tensor:
        """A number, of what `batch` gave, wherever that has been moved."""

    def optimizer(self) -> torch.optim.Optimizer:
        """For the weights where they are now."""
        return self.algorithm(self.parameters(), lr=self.rate)

    def change_gradients(self) -> None:
        """Between the backward pass and the optimizer: nothing."""


#: Draws the values of a parameter where they are.
Draw = Callable[[Tensor], object]

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def drawn(module: ModuleT, weights: Draw, biases: Draw = nn.init.zeros_) -> ModuleT:
    """The module, whose matrices and filters are drawn in one way, and its vectors in another."""
    for parameter in module.parameters():
        (weights if parameter.dim() > 1 else biases)(parameter)
    return module


#: TensorFlow's usual distribution for matrices (Glorot, Bengio, AISTATS 2010).
glorot: Draw = nn.init.xavier_uniform_


def cut_off(deviation: float) -> Draw:
    """A normal distribution that is cut off at twice its deviation."""
    return partial(nn.init.trunc_normal_, std=deviation, a=-2 * deviation, b=2 * deviation)


#: Classes with one for the background, which no image has, and pixels along a side.
CLASSES, SIDE = 1001, 224


class ImageNetwork(FathomNetwork):
    """Layers from images [n, 3, 224, 224] to CLASSES logits; cross entropy; Adam at `rate`."""

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


class Normalized(nn.Module):
    """Divided by what nine channels add up to, four on each side.

    The same as nn.LocalResponseNorm(9, 0.001), which averages in three dimensions: a GPU adds up the gradient of that
    in any order. TensorFlow's alpha, which no window divides, is 0.001 / 9.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        squares = nn.functional.avg_pool2d(inputs.square().flatten(2), (9, 1), 1, (4, 0)).view_as(inputs)
        outputs: Tensor = inputs / (1 + 0.001 * squares) ** 0.75
        return outputs


class Alexnet(ImageNetwork):
    """alexnet: the loss begins at a hundred million; responses are normalized over nine channels after the pooling."""

    rate = 0.001

    def __init__(self) -> None:
        def convolution(inputs: int, outputs: int, side: int, stride: int = 1, padding: int = 0) -> nn.Module:
            return nn.Sequential(drawn(nn.Conv2d(inputs, outputs, side, stride, padding), cut_off(0.1)), nn.ReLU())

        def product(inputs: int, outputs: int) -> nn.Module:
            return drawn(nn.Linear(inputs, outputs), nn.init.normal_, nn.init.normal_)

        super().__init__(
            nn.ZeroPad2d((3, 4, 3, 4)), convolution(3, 64, 11, stride=4), nn.MaxPool2d(3, 2), Normalized(),
            convolution(64, 192, 5, padding=2), nn.MaxPool2d(3, 2), Normalized(),
            convolution(192, 384, 3, padding=1), convolution(384, 256, 3, padding=1),
            convolution(256, 256, 3, padding=1), nn.MaxPool2d(3, 2), nn.Flatten(),
            product(256 * 6 * 6, 4096), nn.ReLU(), product(4096, 4096), nn.ReLU(), product(4096, CLASSES),
        )  # fmt: skip


class Vgg(ImageNetwork):
    """vgg: the loss begins in the tens of millions; dropout after the first two products is applied, here as there."""

    rate = 0.0001

    #: Outputs of the convolutions between two poolings.
    blocks = ((64, 64), (128, 128), (256, 256), (512, 512, 512), (512, 512, 512))

    def __init__(self) -> None:
        def layer(of: nn.Module) -> tuple[nn.Module, nn.Module]:
            return drawn(of, cut_off(0.1)), nn.ReLU()

        convolutions, inputs = list[nn.Module](), 3
        for block in self.blocks:
            layers = (layer(nn.Conv2d(*both, 3, padding=1)) for both in pairwise((inputs, *block)))
            convolutions.append(nn.Sequential(*chain.from_iterable(layers), nn.MaxPool2d(2)))
            inputs = block[-1]
        super().__init__(
            *convolutions, nn.Flatten(),
            nn.Sequential(*layer(nn.Linear(512 * 7 * 7, 4096))), nn.Dropout(0.2),
            nn.Sequential(*layer(nn.Linear(4096, 4096))), nn.Dropout(0.2),
            nn.Sequential(*layer(nn.Linear(4096, CLASSES))),
        )  # fmt: skip


def _unpadded(inputs: int, outputs: int, side: int, stride: int = 1, bias: bool = True) -> nn.Module:
    """A convolution of `residual`, without padding, but for the 3 x 3 of a bottleneck."""
    draw = cut_off(Residual.deviation)
    return drawn(nn.Conv2d(inputs, outputs, side, stride, 1 if side == 3 else 0, bias=bias), draw, draw)


class ShortcutBlock(nn.Module):
    """Three convolutions beside a shortcut."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            _unpadded(channels, inner, 1), nn.ReLU(), _unpadded(inner, inner, 3), nn.ReLU(),
            _unpadded(inner, channels, 1), nn.ReLU(),
        )  # fmt: skip

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layers(inputs) + inputs
        return outputs


class Residual(ImageNetwork):
    """residual: it does eight times the work of a ResNet-50.

    The last convolution of a bottleneck has a ReLU and the sum after it has none; what widens the channels between
    blocks has no bias, nor has the product. The biases of convolutions are drawn like weights. Padding and rounding are
    as TensorFlow's SAME has them: the odd one comes last.
    """

    rate, deviation = 0.01, 0.02

    #: Channels of a block, and of its bottlenecks; there are three bottlenecks in each block.
    blocks = ((128, 32), (256, 64), (512, 128), (1024, 256))

    def __init__(self) -> None:
        layers: list[nn.Module] = [ShortcutBlock(*sizes) for sizes in self.blocks for _ in range(3)]
        for number, ((before, _), (after, _)) in enumerate(pairwise(self.blocks), start=1):
            layers.insert(4 * number - 1, _unpadded(before, after, 1, bias=False))
        super().__init__(
            nn.ZeroPad2d((2, 3, 2, 3)), _unpadded(3, 64, 7, stride=2), nn.ReLU(),
            nn.MaxPool2d(3, 2, ceil_mode=True), _unpadded(64, self.blocks[0][0], 1),
            *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            drawn(nn.Linear(self.blocks[-1][0], CLASSES, bias=False), partial(nn.init.normal_, std=self.deviation)),
        )  # fmt: skip


class Autoenc(FathomNetwork):
    """autoenc: for digits; its activation (softplus) is declared and not applied; the decoder begins at zero."""

    rate, pixels, code = 0.001, 784, 200

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.log_variance = nn.Linear(self.pixels, self.code), nn.Linear(self.pixels, self.code)
        self.decoder = nn.Linear(self.code, self.pixels)
        drawn(self, glorot)
        nn.init.zeros_(self.decoder.weight)

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Pixels of mean 0 and deviation 1, to which the original scales its digits."""
        return (torch.randn(size, self.pixels, generator=generator),)

    def loss(self, *batch: Tensor) -> Tensor:
        (images,) = batch
        mean, log_variance = self.mean(images), self.log_variance(images)
        code = mean + log_variance.exp().sqrt() * torch.randn_like(mean)
        error = 0.5 * (self.decoder(code) - images).square().sum()
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1)
        loss: Tensor = (error + divergence).mean()
        return loss


class Deepq(FathomNetwork):
    """deepq: what the four actions of Breakout are worth, as the largest element of a vector that is zero elsewhere.

    The error is quadratic up to 1 and linear beyond, and summed over the batch. The target network is a copy, which the
    original renews every 10,000 steps, and which is never renewed here. A transition is four frames that follow each
    other. Choosing actions, which goes on between steps, is left out.
    """

    actions, memory, side, seen, discount = 4, 1000, 84, 4, 0.99

    def __init__(self) -> None:
        super().__init__()
        self.rating, self.target = self._rating(), self._rating()
        self.target.load_state_dict(self.rating.state_dict())
        self.target.requires_grad_(False)
        self.frames = torch.randint(256, (self.memory, self.side, self.side), dtype=torch.uint8)

    def _rating(self) -> nn.Sequential:
        """From `seen` frames to a value of each action."""
        return drawn(nn.Sequential(
            nn.Conv2d(self.seen, 32, 8, stride=4), nn.ReLU(), nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
            nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(),
            nn.Linear(64 * 7 * 7, 512), nn.ReLU(), nn.Linear(512, self.actions),
        ), partial(nn.init.normal_, std=0.01), partial(nn.init.constant_, val=0.1))  # fmt: skip

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Frames and those one later [size, seen, side, side], actions as ones and zeros, ends and rewards [size]."""

        def numbers(below: int) -> Tensor:
            return torch.randint(below, (size,), generator=generator)

        first = numbers(self.memory - self.seen)[:, None] + torch.arange(self.seen)
        seen, after = (self.frames[first + later].float() / 255 for later in (0, 1))
        actions = nn.functional.one_hot(numbers(self.actions), self.actions).float()
        return seen, after, actions, (numbers(100) == 0).float(), (numbers(10) == 0).float()

    def loss(self, *batch: Tensor) -> Tensor:
        seen, after, actions, ends, rewards = batch
        with torch.no_grad():
            wanted = rewards + (1 - ends) * self.discount * self.target(after).amax(1)
        rated = (self.rating(seen) * actions).amax(1)
        return nn.functional.huber_loss(rated, wanted, reduction="sum")

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(self.rating.parameters(), lr=0.00025, alpha=0.95, eps=0.01)


#: By name.
NETWORKS: dict[str, type[FathomNetwork]] = {
    "alexnet": Alexnet, "autoenc": Autoenc, "deepq": Deepq, "residual": Residual, "vgg": Vgg,
}  # fmt: skip
