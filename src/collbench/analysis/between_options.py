"""One verdict on each pair of options that an answer speaks of, whatever is said of the pair and where.

A pair that the run was measured to compare, as a place with the host, has the verdict of that comparison: it was asked
before there were times. The fastest option is chosen by the times. So its comparisons are tested together with all
other pairs of options, at all sizes of all operations: each of them might have been among those that are told. Then
the test holds whichever option is chosen (as Tukey's test of all pairs does).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from collbench.analysis.compare import Comparison, compare
from collbench.analysis.fastest import fastest, pair_of
from collbench.analysis.known import Known
from collbench.analysis.options import Option, Question
from collbench.analysis.pair import Pair
from collbench.analysis.recovery import isolated_pairs

#: A size asked for (bytes), and the options of which the second is compared with the first.
Key = tuple[int, Option, Option]


@dataclass(frozen=True)
class Asked:
    """What is compared in one question: the fastest option of each size, and places of which the cost is told."""

    question: Question
    fastest: Mapping[int, Option]
    places: Sequence[Key]

    @property
    def told(self) -> list[Key]:
        """All comparisons of which something is said."""
        keys = [(size, best, option) for size, best in self.fastest.items()
                for option in self.question.cells[size] if option != best]  # fmt: skip
        return [*keys, *(key for key in self.places if key not in keys)]

    def beside(self, told: Iterable[Key]) -> Iterator[Pair]:
        """All other pairs of options."""
        listed = {(size, frozenset(two)) for size, *two in told}
        for size in self.fastest:
            for two in combinations(self.question.cells[size], 2):
                if (size, frozenset(two)) not in listed:
                    yield pair_of(self.question, size, *two)


def asked_in(question: Question, in_blocks: bool) -> Asked:
    chosen = {size: best for size in question.sizes if (best := fastest(question, size, in_blocks)) is not None}
    largest = max(chosen, default=0)
    places = [(largest, *two) for two in (isolated_pairs(question, largest) if chosen else ())]
    return Asked(question, chosen, places)


def between_options(
    asked: Sequence[Asked], planned: Iterable[Comparison], margin: float, in_blocks: bool
) -> list[dict[Key, Comparison]]:
    """For each question what is told: where `planned` has the pair its verdict, else that of all other pairs.

    Raises:
        RequestError: SciPy is not installed.
    """
    known = Known(planned)
    keys = [(number, key) for number, one in enumerate(asked) for key in one.told]
    told = [pair_of(asked[number].question, *key) for number, key in keys]
    beside = [pair for one in asked for pair in one.beside(one.told)]
    own, others = ([pair for pair in pairs if known.of(pair) is None] for pairs in (told, beside))
    tested = iter(compare(own, margin, in_blocks, others))
    found: list[dict[Key, Comparison]] = [{} for _ in asked]
    for (number, key), pair in zip(keys, told, strict=True):
        found[number][key] = known.of(pair) or next(tested)
    return found
