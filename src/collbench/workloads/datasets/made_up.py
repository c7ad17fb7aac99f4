"""Examples from a seed, of the shape that a network takes; they can be learned.

Of images, ten prototypes with noise; of words, draws by Zipf's law: the word of rank k has a probability of 1/k over
the sum of these. The generator is NumPy's RandomState, whose numbers are the same in every version.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from collbench.schema.manifest import Library
from collbench.workloads.datasets.source import SEED, Examples, Rows
from collbench.workloads.networks import Network

#: Levels of a pixel of a prototype; those of the noise fill the rest of a byte.
LEVELS = 192


@dataclass(frozen=True)
class MadeUp:
    """See the module."""

    def takes(self, network: Network) -> bool:
        return True

    def missing(self) -> str | None:
        return None

    def library(self) -> Library | None:
        return None

    def read(self, network: Network, examples: int) -> Examples:
        state, width = np.random.RandomState(SEED), prod(network.example)
        if network.tokens:
            return Examples(
                _words(state, (examples, width + 1), network.classes), f"made-up words {examples} x {width}"
            )
        return Examples(_images(state, examples, width, network.classes), f"made-up {examples} x {width}")


def _images(state: np.random.RandomState, examples: int, pixels: int, classes: int) -> Rows:
    prototypes = state.randint(0, LEVELS, (classes, pixels)).astype(np.uint8)
    of = np.arange(examples) % classes
    rows = np.empty((examples, pixels + 1), np.uint8)
    rows[:, :-1] = np.frombuffer(state.bytes(examples * pixels), np.uint8).reshape(examples, pixels) >> 2
    rows[:, :-1] += prototypes[of]
    rows[:, -1] = of
    return rows


def _words(state: np.random.RandomState, shape: tuple[int, int], words: int) -> Rows:
    cumulative = np.cumsum(1 / np.arange(1, words + 1))
    return np.searchsorted(cumulative / cumulative[-1], state.random_sample(shape)).astype(np.uint16)
