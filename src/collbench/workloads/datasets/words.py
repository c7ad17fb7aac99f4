"""The Penn Treebank as language models are trained on it: a text of 10,000 words, with the end of a line as a word."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from collbench.schema.manifest import Library
from collbench.workloads.datasets import files
from collbench.workloads.datasets.source import BadData, Examples
from collbench.workloads.networks import Network

TEXT = "ptb.train.txt"

#: Words and ends of lines of the text that T. Mikolov prepared, of which there are 10,000 different ones.
WORDS, DIFFERENT = 929_589, 10_000


@dataclass(frozen=True)
class Words:
    """The user's text."""

    def takes(self, network: Network) -> bool:
        return network.tokens

    def missing(self) -> str | None:
        return files.lacking((TEXT,))

    def library(self) -> Library | None:
        return files.library("data in PTB's format", TEXT)

    def read(self, network: Network, examples: int) -> Examples:
        """Sequences one after the other; the most frequent word is 0."""
        data, sha256 = files.content(TEXT)
        try:
            words = data.decode("utf-8").replace("\n", " <eos> ").split()
        except UnicodeDecodeError as error:
            raise BadData(f"{files.shown(TEXT)}: not a text ({error})") from error
        numbers = {word: number for number, (word, _) in enumerate(Counter(words).most_common())}
        steps = network.example[0]
        if len(numbers) > network.classes or len(words) <= steps:
            raise BadData(
                f"{files.shown(TEXT)}: {len(words)} words, {len(numbers)} different ones; the network takes more than "
                f"{steps}, of which at most {network.classes} are different"
            )
        text = np.array([numbers[word] for word in words], np.uint16)
        starts = np.arange(0, len(text) - steps, steps)
        label = "PTB" if (len(words), len(numbers)) == (WORDS, DIFFERENT) else "a text in PTB's format"
        return Examples(text[starts[:, None] + np.arange(steps + 1)], label, {TEXT: sha256})
