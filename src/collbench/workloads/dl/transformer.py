"""Decoder-only transformers: GPT-2 small, and a smaller one of the same layers for processors.

After A. Radford et al., "Language Models are Unsupervised Multitask Learners", OpenAI 2019, section 2.3, and the code
that OpenAI published with it (openai/gpt-2, src/model.py): normalisation before each part of a block and once after
the last block, GELU by its approximation with tanh, learned positions, and an output layer that shares its weights with
the embedding. Nothing is dropped out.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import linear, scaled_dot_product_attention

from collbench.workloads.dl.datasets import Network


@dataclass(frozen=True)
class Size:
    """`heads` divide `width`, the elements by which a position is represented."""

    width: int
    layers: int
    heads: int


#: By the name of the network. Context and words are in `NETWORKS`.
SIZES = {"gpt2": Size(768, 12, 12), "gpt-tiny": Size(128, 4, 4)}

#: Standard deviations of weights before training, and of the embedding of positions.
WEIGHTS, POSITIONS = 0.02, 0.01


class Attention(nn.Module):
    """Masked self-attention of several heads over [batch, steps, width]: no position sees a later one."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.inputs = nn.Linear(size.width, 3 * size.width)
        self.output = nn.Linear(size.width, size.width)

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

    def __init__(self, size: Size) -> None:
        super().__init__()
        width = size.width
        self.before_attention, self.before_layers = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(size)
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.before_attention(hidden))
        added: Tensor = hidden + self.layers(self.before_layers(hidden))
        return added


class Transformer(nn.Module):
    """[batch, steps] of int64 words to [batch, steps, words]: logits of the word after each; at most `context` steps.

    Weights are drawn from N(0, 0.02), positions from N(0, 0.01), and biases are 0. The weights of layers whose output
    is added are divided by the square root of how many there are (Radford et al.).
    """

    def __init__(self, words: int, context: int, size: Size) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(words, size.width), nn.Embedding(context, size.width)
        blocks = [Block(size) for _ in range(size.layers)]
        self.blocks, self.last = nn.Sequential(*blocks), nn.LayerNorm(size.width)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=POSITIONS if module is self.positions else WEIGHTS)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        for block in blocks:
            for added in (block.attention.output.weight, block.layers[-1].weight):
                nn.init.normal_(added, std=WEIGHTS / math.sqrt(2 * size.layers))  # type: ignore[arg-type]

    def forward(self, words: Tensor) -> Tensor:
        hidden = self.embedding(words) + self.positions.weight[: words.shape[1]]
        return linear(self.last(self.blocks(hidden)), self.embedding.weight)


def gpt(network: Network) -> nn.Module:
    """The transformer of this name, with random parameters."""
    return Transformer(network.classes, network.example[0], SIZES[network.name])


def adamw(module: nn.Module, rate: float) -> torch.optim.Optimizer:
    """AdamW as for GPT-3 (T. Brown et al., NeurIPS 2020, appendix B), because the paper of GPT-2 does not name its own.

    Matrices decay and vectors do not, as in minGPT. The rate is constant, and gradients are not clipped.
    """
    matrices = [parameter for parameter in module.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in module.parameters() if parameter.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95))
