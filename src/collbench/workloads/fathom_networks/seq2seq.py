"""seq2seq: translation by an encoder and a decoder of three LSTM layers of 256 each, with attention.

Kept: sentences belong to the smallest of four buckets that holds them, and are filled up to its size; the loss is a
softmax over the right word and 512 others; all layers are unrolled step by step; the source is reversed. The original
reads a single pair of sentences, so a batch is 64 copies of it and every step is of its bucket; so it is here, and the
bucket is the largest, (40, 50).
Not kept: gradients of the embeddings are dense here, of those words that occur there; the embeddings and the softmax of
all steps are computed at once. The learning rate does not fall.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from collbench.workloads.fathom_networks.network import Layers, Network, SampledSoftmax, State, chances, glorot

WORDS, SIZE, LAYERS = 40_000, 256, 3

#: The words that fill up, begin and end a sentence; one that is unknown would be 3.
PAD, BEGIN, END, FIRST = 0, 1, 2, 4

#: Most words of source and target, less one.
BUCKETS = ((5, 10), (10, 15), (20, 25), (40, 50))

#: Words of the made-up pair of sentences.
SOURCE, TARGET = 37, 43

CLIP = 5.0


class Attention(nn.Module):
    """A mean of what the encoder gave, weighted by the state of the decoder (Vinyals et al., arXiv:1412.7449)."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Linear(SIZE, SIZE, bias=False)
        self.query = nn.Linear(2 * LAYERS * SIZE, SIZE)
        self.weigh = nn.Linear(SIZE, 1, bias=False)

    def forward(self, values: Tensor, keys: Tensor, state: State) -> Tensor:
        query = self.query(torch.cat([part for layer in state for part in layer], 1))
        weights = (self.weigh.weight * (keys + query[:, None]).tanh()).sum(2).softmax(1)
        mean: Tensor = (weights[:, :, None] * values).sum(1)
        return mean


class Seq2Seq(Network):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.source_words, self.target_words = nn.Embedding(WORDS, SIZE), nn.Embedding(WORDS, SIZE)
        self.encoder, self.decoder = Layers(SIZE, LAYERS), Layers(SIZE, LAYERS)
        self.attention = Attention()
        self.enter, self.leave = nn.Linear(2 * SIZE, SIZE), nn.Linear(2 * SIZE, SIZE)
        self.softmax = SampledSoftmax(SIZE, WORDS)
        glorot(self)
        nn.init.uniform_(self.source_words.weight, -math.sqrt(3), math.sqrt(3))
        self.pair = tuple(FIRST + torch.multinomial(chances(WORDS - FIRST), words, True) for words in (SOURCE, TARGET))

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Words of the source [40, size], of the target before and after each step, and their weights [50, size]."""
        source, target = (sentence.tolist() for sentence in self.pair)
        longest, steps = next(one for one in BUCKETS if len(source) < one[0] and len(target) + 1 < one[1])
        reversed_source = [PAD] * (longest - len(source)) + source[::-1]
        fed = ([BEGIN, *target, END] + [PAD] * steps)[:steps]
        wanted = [*fed[1:], PAD]
        weights = [float(word != PAD) for word in wanted]
        return tuple(
            torch.tensor(row)[:, None].repeat(1, size) for row in (reversed_source, fed, wanted, weights)
        )  # the same for all: there is but one pair

    def loss(self, *batch: Tensor) -> Tensor:
        source, fed, wanted, weights = batch
        losses = self.softmax(self.decoded(fed, *self.encoded(source)), wanted) * weights
        mean: Tensor = (losses.sum(0) / weights.sum(0)).mean()
        return mean

    def encoded(self, source: Tensor) -> tuple[Tensor, State]:
        """What the last layer gives for each word [n, words, SIZE], and the state after the last."""
        inputs = self.source_words(source)
        state, given = self.encoder.begin(inputs[0]), []
        for one in inputs:
            output, state = self.encoder(one, state)
            given.append(output)
        return torch.stack(given, 1), state

    def decoded(self, fed: Tensor, values: Tensor, state: State) -> Tensor:
        """The output of every step [steps, n, SIZE]."""
        keys, outputs = self.attention.keys(values), []
        context = torch.zeros_like(values[:, 0])
        for one in self.target_words(fed):
            output, state = self.decoder(self.enter(torch.cat((one, context), 1)), state)
            context = self.attention(values, keys, state)
            outputs.append(self.leave(torch.cat((output, context), 1)))
        return torch.stack(outputs)

    def change_gradients(self) -> None:
        nn.utils.clip_grad_norm_(self.parameters(), CLIP)

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.5)


NETWORK = Seq2Seq
