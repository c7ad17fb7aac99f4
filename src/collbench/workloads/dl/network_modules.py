"""The networks that are trained, a function of torch's each."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch.nn.functional import pad


def alexnet() -> nn.Module:
    """The small AlexNet for CIFAR-10: three convolutions of 5 x 5, and one fully connected layer.

    After the layers of A. Krizhevsky's cuda-convnet that err on 18 % of the images (layers-18pct), without its
    normalisation of local responses, as the benchmarks of Xu, Shi and Chu (2017) have them: 85,098 parameters, where
    the AlexNet of ImageNet has 61 million.
    """
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2), nn.MaxPool2d(3, 2), nn.ReLU(inplace=True),
        nn.Conv2d(32, 32, 5, padding=2), nn.ReLU(inplace=True), nn.AvgPool2d(3, 2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(inplace=True), nn.AvgPool2d(3, 2),
        nn.Flatten(), nn.Linear(64 * 3 * 3, 10),
    )  # fmt: skip


FCN5_WIDTHS = (784, 2048, 4096, 1024, 10)


def fcn5() -> nn.Module:
    """FCN5: fully connected layers, 784-2048-4096-1024-10, the sigmoid between them (Xu, Shi and Chu, 2017)."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(FCN5_WIDTHS):
        layers += [nn.Linear(inputs, outputs), nn.Sigmoid()]
    return nn.Sequential(*layers[:-1])  # the softmax is part of the loss


WORDS = 10_000
WIDTH = 256


class WordLayer(nn.Module):
    """[batch, steps] of int64 words to [batch, steps, words]: how likely each is to come next, before the softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True)
        self.output = nn.Linear(WIDTH, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        cells, _ = self.lstm(self.embedding(words))
        likely: Tensor = self.output(cells)
        return likely


def lstm() -> nn.Module:
    """A language model: words of 10,000, embedded in 256 numbers, through two layers of LSTM with 256 cells each.

    The one of Xu, Shi and Chu (2017) on the Penn Treebank, read as words and not as characters, in sequences of 32.
    """
    return WordLayer()


#: Width and blocks of each stage.
RESNET50_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))

#: Channels that a block gives, by its width.
EXPANSION = 4


def convolution(inputs: int, outputs: int, side: int, stride: int = 1) -> list[nn.Module]:
    """With batch normalisation, which makes a bias superfluous."""
    return [nn.Conv2d(inputs, outputs, side, stride, padding=side // 2, bias=False), nn.BatchNorm2d(outputs)]


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1, added to the input; to a projection of it where the shape changes."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = EXPANSION * width
        self.body = nn.Sequential(
            *convolution(inputs, width, 1), nn.ReLU(inplace=True),
            *convolution(width, width, 3, stride), nn.ReLU(inplace=True),
            *convolution(width, outputs, 1),
        )  # fmt: skip
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*convolution(inputs, outputs, 1, stride))
        self.last = nn.ReLU(inplace=True)

    def forward(self, images: Tensor) -> Tensor:
        added: Tensor = self.last(self.body(images) + self.shortcut(images))
        return added


def resnet50() -> nn.Module:
    """ResNet-50: bottlenecks in four stages of 3, 4, 6 and 3 blocks, with ten classes.

    After K. He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, table 1: the network for ImageNet
    with its first layers, which leave 8 x 8 of 32 x 32 pixels. It has 27 times the parameters of ResNet-56.
    """
    layers: list[nn.Module] = [*convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
    inputs = 64
    for width, blocks in RESNET50_STAGES:
        for number in range(blocks):
            layers.append(Bottleneck(inputs, width, 2 if number == 0 and width > RESNET50_STAGES[0][0] else 1))
            inputs = EXPANSION * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


RESNET56_BLOCKS = 9
RESNET56_WIDTHS = (16, 32, 64)


class Block(nn.Module):
    """Two convolutions, added to their input; of that every `stride`-th pixel, and zeros for channels that are new."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride, self.new = stride, outputs - inputs
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        shortcut = pad(images[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new))
        added: Tensor = self.body(images) + shortcut
        return added


def resnet56() -> nn.Module:
    """ResNet-56 for CIFAR-10: 6 n + 2 layers with n = 9.

    After K. He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2, with shortcuts that are
    padded with zeros (its option A). As in the benchmarks of Xu, Shi and Chu (2017), convolutions have biases, and no
    ReLU follows the addition.
    """
    blocks: list[nn.Module] = []
    inputs = RESNET56_WIDTHS[0]
    for outputs in RESNET56_WIDTHS:
        for number in range(RESNET56_BLOCKS):
            blocks.append(Block(inputs, outputs, 2 if number == 0 and outputs > RESNET56_WIDTHS[0] else 1))
            inputs = outputs
    stem = (nn.Conv2d(3, RESNET56_WIDTHS[0], 3, padding=1), nn.BatchNorm2d(RESNET56_WIDTHS[0]), nn.ReLU(inplace=True))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(RESNET56_WIDTHS[-1], 10))
