"""Which comparisons are decided, which more launches can still decide, and what the next block measures.

A case that is executed behind fewer others may take another time, because of what is in caches or registered. So what
is open at one of the places that are compared is executed at all of them that are launched: measured where it is open,
and otherwise briefly, without a record.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, Literal, NamedTuple, TypeVar

from collbench.analysis.bounds import ALPHA, fewest_wins
from collbench.analysis.compare import MARGIN, Comparison, compare
from collbench.analysis.estimate import FEWEST
from collbench.analysis.factors import FACTORS
from collbench.analysis.gate import bounded, no_slower, slower
from collbench.analysis.pairs import Pair, alike, apart, opposed, undisturbed
from collbench.analysis.results import Cell
from collbench.schema.axes import AXES
from collbench.schema.store import Margins, margin_of

#: A comparison is given up when a verdict by the last block has a lower probability than this.
LEAST_CHANCE = 0.1


def chance_of_verdict(logs: Sequence[float], later: int, margin: float, sizes: int = 1) -> float:
    """The probability, at most 1, that so many later blocks give a verdict to a pair with these log ratios.

    Signs of later blocks are drawn with a probability of which the earlier ones are all that is known: a beta-binomial
    distribution with Jeffreys' prior. `sizes` of its question have intervals that hold at once.
    """
    n, bound = len(logs), math.log1p(margin)
    needed = fewest_wins(n + later, 2 * sizes / ALPHA)

    def chance(wins: int) -> float:
        return _beta_binomial(needed - wins, later, wins + 0.5, n - wins + 0.5)

    same = min(chance(sum(sign * log < bound for log in logs)) for sign in (1, -1))
    return min(same + sum(chance(sum(sign * log > 0 for log in logs)) for sign in (1, -1)), 1.0)


@lru_cache(maxsize=100_000)  # few numbers of blocks, many comparisons
def _beta_binomial(least: int, n: int, a: float, b: float) -> float:
    """P(X >= least) of n draws, each with the probability that a Beta(a, b) distribution gave."""
    return sum(math.exp(_log_choose(n, k) + _log_beta(a + k, b + n - k) - _log_beta(a, b))
               for k in range(max(least, 0), n + 1))  # fmt: skip


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


#: `impossible`: a side fails or is skipped in every block, or too few blocks can be compared. `hopeless`: too noisy.
PairState = Literal["decided", "impossible", "hopeless", "open"]

#: After so many blocks a side that was never measured is given up.
TRIED = 3

#: Factors of the place: sides that one of them compares with the same base are not compared again by the next.
_OF_PLACE = ("policy", "isolation", "seccomp")

#: Other factors whose values are options for the same work; those of what is measured are different questions.
_OTHERS = ("image", *(axis.spelled for axis in AXES.values() if axis.kind in ("where", "how")))


@dataclass(frozen=True)
class PairStatus:
    """A comparison by a factor, and what is known of it."""

    factor: str
    comparison: Comparison
    state: PairState

    @property
    def pair(self) -> Pair:
        return self.comparison.pair


def questions(cells: Sequence[Cell]) -> dict[str, list[Pair]]:
    """By factor the pairs that `compare --by FACTOR` compares, for every factor of place and method that varies."""
    cases = [cell.case for cell in cells]
    varying = [
        name for name in dict.fromkeys((*_OF_PLACE, *_OTHERS)) if name in FACTORS and FACTORS[name].varies(cases)
    ]
    pairs_of: dict[str, list[Pair]] = {}
    base_of = dict[int, int]()
    for name in (name for name in _OF_PLACE if name in varying):
        pairs = opposed(cells, FACTORS[name])
        pairs_of[name] = [pair for pair in pairs if base_of.get(id(pair.base), -1) != base_of.get(id(pair.other), -2)]
        base_of |= {id(pair.other): id(pair.base) for pair in pairs_of[name]}
    for name in (name for name in varying if name not in (*_OF_PLACE, "engine")):
        pairs_of[name] = opposed(cells, FACTORS[name])
    return {name: pairs for name, pairs in pairs_of.items() if pairs}


def standing(cells: Sequence[Cell], blocks: int, most: int, margin: float = MARGIN) -> list[PairStatus]:
    """Every comparison of these cells after so many blocks of at most so many; those of a question at once.

    Raises:
        RequestError: SciPy is not installed.
    """
    return [
        PairStatus(name, comparison, state_of(comparison, blocks, most, margin))
        for name, pairs in questions(cells).items()
        for comparison in compare(pairs, margin)
    ]


def standing_of_sides(cells: Sequence[Cell], blocks: int, most: int, margins: Margins) -> list[PairStatus]:
    """The comparisons of a gate: of both sides of a plan, which are decided by a loss beyond the margin, or by none.

    Raises:
        RequestError: SciPy is not installed.
    """
    statuses = []
    for comparison in bounded(compare(opposed(cells, FACTORS["side"])), margins):
        margin = margin_of(margins, comparison.pair.base.case)
        statuses.append(PairStatus("side", comparison, _state_of_sides(comparison, blocks, most, margin)))
    return statuses


def _state_of_sides(comparison: Comparison, blocks: int, most: int, margin: float) -> PairState:
    if no_slower(comparison, margin) or slower(comparison, margin):
        return "decided"
    open_ = comparison if comparison.verdict == "not comparable" else replace(comparison, verdict="unclear")
    return state_of(open_, blocks, most, margin)


def still_open(found: Iterable[PairStatus]) -> Iterator[Cell]:
    """Both sides of every comparison that more launches can decide."""
    for comparison in found:
        if comparison.state == "open":
            yield from (comparison.pair.base, comparison.pair.other)


def state_of(comparison: Comparison, blocks: int, most: int, margin: float) -> PairState:
    """What is known of a comparison after so many blocks of at most so many."""
    if comparison.verdict == "not comparable":
        return "open" if blocks < TRIED or _may_agree(comparison.pair, most - blocks) else "impossible"
    if comparison.verdict != "unclear":
        return "decided"
    launches = alike(undisturbed(comparison.pair, True)[0], True)
    if len(launches.base) < FEWEST:
        return "open"
    logs = [math.log(b / a) for a, b in zip(launches.base, launches.other, strict=True)]
    chance = chance_of_verdict(logs, most - blocks, margin, max(comparison.sizes, 1))
    return "open" if chance >= LEAST_CHANCE else "hopeless"


def _may_agree(pair: Pair, later: int) -> bool:
    """Whether so many later blocks can give enough in which both sides are measured, and in one way."""
    if pair.base.wrong or pair.other.wrong or not pair.base.medians or not pair.other.medians:
        return False
    launches = alike(undisturbed(pair, True)[0], True)
    if launches.base and not launches.refused:
        return False  # something else is the reason
    base, other = (dict(zip(cell.launches, cell.ways, strict=True)) for cell in (pair.base, pair.other))
    agreed = sum(not apart(base[n], other[n], pair.free) for n in base.keys() & other.keys())
    ways = any(not apart(of_base, of_other, pair.free) for of_base in pair.base.how for of_other in pair.other.how)
    return ways and agreed + later >= FEWEST


PlaceKey = TypeVar("PlaceKey", bound=Hashable)
CaseKey = TypeVar("CaseKey", bound=Hashable)


class OpenAtPlace(NamedTuple, Generic[CaseKey]):
    """What is open at a place, and what only at others that it is compared with."""

    here: frozenset[CaseKey]
    elsewhere: frozenset[CaseKey]


def next_block(
    compared: Iterable[tuple[tuple[PlaceKey, CaseKey], tuple[PlaceKey, CaseKey]]],
    still_open: Collection[tuple[PlaceKey, CaseKey]],
) -> dict[PlaceKey, OpenAtPlace[CaseKey]]:
    """By place what it executes; places without anything that is open are left out.

    `compared` are both sides of every comparison, each a place and what is measured there; `still_open` the sides of
    those that are open. What is open elsewhere may be none of a place's own cases.
    """
    here: dict[PlaceKey, set[CaseKey]] = {}
    for place, subject in still_open:
        here.setdefault(place, set()).add(subject)
    joined = {place: place for place in here}

    def group(place: PlaceKey) -> PlaceKey:
        while joined[place] != place:
            joined[place] = place = joined[joined[place]]
        return place

    for base, other in {(base, other) for (base, _), (other, _) in compared}:
        if base in here and other in here:
            joined[group(base)] = group(other)
    of_group: dict[PlaceKey, set[CaseKey]] = {}
    for place, subjects in here.items():
        of_group.setdefault(group(place), set()).update(subjects)
    return {
        place: OpenAtPlace(frozenset(subjects), frozenset(of_group[group(place)] - subjects))
        for place, subjects in here.items()
    }
