"""A language model: words of 10,000, embedded in 256 numbers, through two layers of LSTM with 256 cells each.

The one of Xu, Shi and Chu (2017) on the Penn Treebank, read as words and not as characters, in sequences of 32.
"""

from __future__ import annotations

from torch import Tensor, nn

WORDS = 10_000
WIDTH = 256


class Words(nn.Module):
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


def build() -> nn.Module:
    return Words()
