"""memnet: an end-to-end memory network of three hops, for the first of the bAbI tasks. It tests what launches cost.

Kept: every gradient is clipped at 40 by itself, then noise of deviation 0.001 is added, then the row of the word that
stands for nothing is set to zero; products with the memory are element by element and added up; the same words are
what the memory is asked by and what it answers.
Data: stories of two to ten sentences of up to six of 19 words, in a memory of ten, which are the sizes of that task.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from collbench.workloads.fathom_networks.network import Network

#: Word 0 fills sentences and stories up.
WORDS, SENTENCES, LENGTH, QUESTION = 20, 10, 6, 3

WIDTH, HOPS = 20, 3

DEVIATION, CLIP, NOISE = 0.1, 40.0, 1e-3


def positions() -> Tensor:
    """The weight [LENGTH, WIDTH] of a word by its place (Sukhbaatar et al., "End-To-End Memory Networks", 4.1)."""
    place, element = torch.arange(1.0, LENGTH + 1)[:, None], torch.arange(1.0, WIDTH + 1)
    return 1 + 4 * (element - WIDTH / 2) * (place - LENGTH / 2) / WIDTH / LENGTH


def drawn(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) * DEVIATION)


class Memnet(Network):
    """See the module."""

    positions: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.story_words, self.question_words = drawn(WORDS, WIDTH), drawn(WORDS, WIDTH)
        self.times, self.hop, self.answer = drawn(SENTENCES, WIDTH), drawn(WIDTH, WIDTH), drawn(WIDTH, WORDS)
        self.register_buffer("positions", positions())
        with torch.no_grad():
            self.story_words[0], self.question_words[0] = 0.0, 0.0

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Stories [size, SENTENCES, LENGTH], questions [size, LENGTH], and answers [size, WORDS] as ones and zeros."""
        stories = torch.randint(1, WORDS, (size, SENTENCES, LENGTH), generator=generator)
        sentences = 2 * torch.randint(1, SENTENCES // 2 + 1, (size, 1), generator=generator)
        stories[torch.arange(SENTENCES) >= sentences] = 0
        questions = torch.randint(1, WORDS, (size, LENGTH), generator=generator)
        questions[:, QUESTION:] = 0
        answers = torch.randint(1, WORDS, (size,), generator=generator)
        return stories, questions, nn.functional.one_hot(answers, WORDS).float()

    def loss(self, *batch: Tensor) -> Tensor:
        stories, questions, answers = batch
        embedding = nn.functional.embedding
        asked = (embedding(questions, self.question_words) * self.positions).sum(1)
        memory = (embedding(stories, self.story_words) * self.positions).sum(2) + self.times
        for _ in range(HOPS):
            attention = (memory * asked[:, None]).sum(2).softmax(1)
            asked = asked @ self.hop + (memory * attention[:, :, None]).sum(1)
        return nn.functional.cross_entropy(asked @ self.answer, answers, reduction="sum")

    def change_gradients(self) -> None:
        for parameter in self.parameters():
            nn.utils.clip_grad_norm_((parameter,), CLIP)
            assert parameter.grad is not None
            parameter.grad += torch.randn_like(parameter) * NOISE
        for words in (self.story_words, self.question_words):
            assert words.grad is not None
            words.grad[0] = 0.0

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


NETWORK = Memnet
