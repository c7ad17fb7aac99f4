"""Decoder-only transformers: GPT-2 small, and a smaller one of the same layers for processors.

After A. Radford et al., "Language Models are Unsupervised Multitask Learners", OpenAI 2019, section 2.3, and the code
that OpenAI published with it (openai/gpt-2, src/model.py): normalisation before each part of a block and once after
the last block, GELU by its approximation with tanh, learned positions, and an output layer that shares its weights with
the embedding. Nothing is dropped out.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import linear, scaled_dot_product_attention

from collbench.workloads.dl.datasets import Network

#: By the name of the network: width of a position, layers, heads. Context and words are in `NETWORKS`.
SIZES = {"gpt2": (768, 12, 12), "gpt-tiny": (128, 4, 4)}

#: Standard deviations of weights before training, and of the embedding of positions.
WEIGHTS, POSITIONS = 0.02, 0.01


class Attention(nn.Module):
    """Masked self-attention of several heads over [batch, steps, width]: no position sees a later one."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, steps, width = hidden.shape
        query, key, value = self.inputs(hidden).view(batch, steps, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        # on GPUs by separate products: the fused kernel for float32 adds gradients in random order, and losses differ
        kernel: Any = sdpa_kernel(SDPBackend.MATH) if hidden.is_cuda else contextlib.nullcontext()
        with kernel:
            mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        added: Tensor = self.output(mixed.transpose(1, 2).reshape(batch, steps, width))
        return added


class Block(nn.Module):
    """Attention, and two layers for each position alone; each is added to what it normalised."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before_attention, self.before_layers = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.before_attention(hidden))
        added: Tensor = hidden + self.layers(self.before_layers(hidden))
        return added


class Transformer(nn.Module):
    """[batch, steps] of int64 words to [batch, steps, words], the logits of the word after each.

    Weights are drawn from N(0, 0.02), positions from N(0, 0.01), and biases are 0. The weights of layers whose output
    is added are divided by the square root of how many there are (Radford et al.).
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        width, layers, heads = SIZES[network.name]
        self.embedding, self.positions = nn.Embedding(network.classes, width), nn.Embedding(network.example[0], width)
        blocks = [Block(width, heads) for _ in range(layers)]
        self.blocks, self.last = nn.Sequential(*blocks), nn.LayerNorm(width)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=POSITIONS if module is self.positions else WEIGHTS)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        for block in blocks:
            for added in (block.attention.output.weight, block.layers[-1].weight):
                nn.init.normal_(added, std=WEIGHTS / math.sqrt(2 * layers))  # type: ignore[arg-type]

    def forward(self, words: Tensor) -> Tensor:
        hidden = self.embedding(words) + self.positions.weight[: words.shape[1]]
        return linear(self.last(self.blocks(hidden)), self.embedding.weight)
