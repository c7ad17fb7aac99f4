"""The loss of seq2seq: a softmax over the right word and 512 others that are drawn, instead of over all words.

Jean, Cho, Memisevic, Bengio, "On Using Very Large Target Vocabulary for Neural Machine Translation", ACL 2015; drawn as
TensorFlow's sampled_softmax_loss does: frequent words, whose numbers are low, more often, and none twice.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

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
