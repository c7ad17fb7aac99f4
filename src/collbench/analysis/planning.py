"""What launches decide: what a number of them can show, which comparisons are open, and what the next block measures.

A case that is executed behind fewer others may take another time, because of what is in caches or registered. So what
is open at one of the places that are compared is executed at all of them that are launched: measured where it is open,
and otherwise briefly, without a record.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar

import numpy as np

from collbench.analysis.bounds import ALPHA, Launches, excluded, fewest_wins, in_order
from collbench.analysis.compare import CHANCE, MARGIN, NORMAL, Comparison, compare
from collbench.analysis.estimate import CONFIDENCE, FEWEST, Estimate, stats
from collbench.analysis.factors import FACTORS
from collbench.analysis.gate import bounded, loses
from collbench.analysis.pairs import Pair, alike, apart, opposed, undisturbed
from collbench.analysis.results import Cell, grouped
from collbench.schema.axes import AXES
from collbench.schema.store import Margins, margin_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

SWAPS, SEED = 256, 1  # ways to swap names: all of them up to eight blocks, else so many at random
STEPS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)  # differences that are tried, as shares
LEAST_CHANCE = 0.1  # a comparison is given up when a verdict by the last block has a lower probability than this
TRIED = 3  # after so many blocks a side that was never measured is given up


class Power(NamedTuple):
    """What so many launches a side show of comparisons, each with probability `CHANCE`.

    `differences` are shares, ascending: of each comparison the least true difference that excludes equality. `same` is
    how many, if nothing differs, have their whole interval within the margin.
    """

    launches: int
    differences: tuple[float, ...]
    same: int


def power(ratios: Sequence[Estimate], launches: int, margin: float) -> Power:
    """Of `launches` a side, at least `FEWEST`, on sides whose launches spread as those of these ratios did.

    The half width of an interval of n launches is taken to be t of n - 1 degrees of freedom times the standard error,
    and that to fall with the square root of n. Ratios without a finite interval are left out.
    """
    quantile = stats().t.ppf
    critical = float(quantile(1 - ALPHA / 2, launches - 1))
    widths = []
    for ratio in ratios:
        if ratio.interval is None or not all(0 < end < math.inf for end in ratio.interval):
            continue
        half = max(math.log(ratio.interval[1] / ratio.interval[0]) / 2 - ratio.resolution, 0.0)
        error = half / float(quantile(1 - ALPHA / 2, ratio.n - 1)) * math.sqrt(ratio.n / launches)
        widths.append((critical * error + ratio.resolution, error))
    effects = sorted(math.expm1(half + NORMAL.inv_cdf(CHANCE) * error) for half, error in widths)
    within = NORMAL.inv_cdf((1 + CHANCE) / 2)
    return Power(launches, tuple(effects), sum(half + within * error <= math.log1p(margin) for half, error in widths))


def false_positives(cells: Sequence[Launches]) -> float:
    """The share of swaps in which the interval of any cell of a question excludes equality, without any difference."""
    swaps = _swaps(cells)
    none = [[0.0]] * len(cells)
    return sum(any(first for (first,) in excluded(_swapped(cells, signs), True, none)) for signs in swaps) / len(swaps)


def smallest(cells: Sequence[Launches], margin: float) -> list[float | None]:
    """For each cell of a question the least of `STEPS` that `CHANCE` of the swaps find; None where none is.

    The difference is in that cell alone, and none in all others: the hardest case for cells that are judged at once.
    """
    swaps, steps = _swaps(cells), [step for step in STEPS if step > margin]
    places = [[-math.log1p(step) for step in steps]] * len(cells)
    detected = np.mean([excluded(_swapped(cells, signs), True, places) for signs in swaps], axis=0)
    return [next((step for step, share in zip(steps, of_cell, strict=True) if share >= CHANCE), None)
            for of_cell in detected.tolist()]  # fmt: skip


def _swaps(cells: Sequence[Launches]) -> NDArray[np.int64]:
    """[swaps, blocks]: -1 where the names of a block are swapped; every cell of a block is swapped with it."""
    blocks = max(len(cell.base) for cell in cells)
    if 2**blocks <= SWAPS:
        every: NDArray[np.int64] = 1 - 2 * ((np.arange(2**blocks)[:, None] >> np.arange(blocks)) & 1)
        return every
    return np.random.default_rng(SEED).choice(np.array([1, -1]), (SWAPS, blocks))


def _swapped(cells: Sequence[Launches], signs: NDArray[np.int64]) -> list[Launches]:
    named = ((cell, signs[: len(cell.base)] > 0) for cell in cells)
    return [in_order(np.where(as_named, cell.base, cell.other).tolist(),
                     np.where(as_named, cell.other, cell.base).tolist()) for cell, as_named in named]  # fmt: skip


@dataclass(frozen=True)
class Movement:
    """The least and the largest value of a yardstick, in its unit, of so many readings."""

    name: str
    least: float
    largest: float
    readings: int

    @property
    def share(self) -> float:
        """By what share the largest exceeds the least."""
        return self.largest / self.least - 1


def movements(readings: Iterable[Mapping[str, float | None]]) -> tuple[Movement, ...]:
    """Of each yardstick that has a value in some reading, in the order of the first one."""
    values = grouped((name, value) for reading in readings for name, value in reading.items() if value is not None)
    return tuple(Movement(name, min(of_name), max(of_name), len(of_name)) for name, of_name in values.items())


@dataclass(frozen=True)
class Cost:
    """The standard deviation of log ratios in the cell that spreads most, and its launches that show a `difference`."""

    spread: float
    difference: float
    launches: int


def cost(cells: Sequence[Launches], difference: float) -> Cost | None:
    """The launches a side by which a difference (a share, above 0) of one cell alone is seen with probability `CHANCE`.

    n = ((z_0.975 + z_0.8) s / log(1 + difference))^2 blocks with a spread s of log ratios, at least `FEWEST`: a paired
    test of normal values (Cohen, Statistical Power Analysis, 2nd ed., section 2.3). Cells that are tested together, and
    other launches, need more. None for a difference of 0, and where no cell has two blocks.
    """
    several = [cell for cell in cells if len(cell.base) > 1]
    if not several or difference <= 0:
        return None
    spread = max(float(np.std(np.log(cell.other) - np.log(cell.base), ddof=1)) for cell in several)
    scores = NORMAL.inv_cdf((1 + CONFIDENCE) / 2) + NORMAL.inv_cdf(CHANCE)
    return Cost(spread, difference, max(FEWEST, math.ceil((scores * spread / math.log1p(difference)) ** 2)))


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
    return sum(math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
                        + _log_beta(a + k, b + n - k) - _log_beta(a, b))
               for k in range(max(least, 0), n + 1))  # fmt: skip


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


#: `impossible`: a side fails or is skipped in every block, or too few blocks can be compared. `hopeless`: too noisy.
PairState = Literal["decided", "impossible", "hopeless", "open"]


#: Factors of the place: sides that one of them compares with the same base are not compared again by the next.
_OF_PLACE = ("policy", "isolation", "seccomp")

#: Other factors whose values are options for the same work; those of what is measured are different questions.
_OTHERS = ("image", *(axis.spelled for axis in AXES.values() if axis.kind in ("where", "how")))


@dataclass(frozen=True)
class PairStatus:
    """A comparison, and what is known of it."""

    comparison: Comparison
    state: PairState

    @property
    def pair(self) -> Pair:
        return self.comparison.pair


def questions(cells: Sequence[Cell]) -> dict[str, list[Pair]]:
    """By factor the pairs that `compare --by FACTOR` compares, for every factor of place and method that varies."""
    cases = [cell.case for cell in cells]
    names = dict.fromkeys((*_OF_PLACE, *_OTHERS))
    varying = [name for name in names if name in FACTORS and FACTORS[name].varies(cases)]
    pairs_of: dict[str, list[Pair]] = {}
    base_of = dict[int, int]()
    for name in (name for name in _OF_PLACE if name in varying):
        pairs = opposed(cells, FACTORS[name])
        pairs_of[name] = [pair for pair in pairs if base_of.get(id(pair.base), -1) != base_of.get(id(pair.other), -2)]
        base_of |= {id(pair.other): id(pair.base) for pair in pairs_of[name]}
    for name in (name for name in varying if name not in (*_OF_PLACE, "engine")):
        pairs_of[name] = opposed(cells, FACTORS[name])
    return {name: pairs for name, pairs in pairs_of.items() if pairs}


def standing(cells: Sequence[Cell], blocks: int, most: int) -> list[PairStatus]:
    """Every comparison of these cells after so many blocks of at most so many; those of a question at once."""
    return [PairStatus(comparison, state_of(comparison, blocks, most, MARGIN))
            for pairs in questions(cells).values() for comparison in compare(pairs)]  # fmt: skip


def standing_of_sides(cells: Sequence[Cell], blocks: int, most: int, margins: Margins) -> list[PairStatus]:
    """The comparisons of a gate: of both sides of a plan, which are decided by a loss beyond the margin, or by none."""
    statuses = []
    for comparison in bounded(compare(opposed(cells, FACTORS["side"])), margins):
        margin = margin_of(margins, comparison.pair.base.case)
        judged = comparison if comparison.verdict == "not comparable" else replace(comparison, verdict="unclear")
        undecided = loses(comparison, margin) is None
        state: PairState = state_of(judged, blocks, most, margin) if undecided else "decided"
        statuses.append(PairStatus(comparison, state))
    return statuses


def still_open(statuses: Iterable[PairStatus]) -> Iterator[Cell]:
    """Both sides of every comparison that more launches can decide."""
    for comparison in statuses:
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

    `compared` are both sides of every comparison, each a place and what is measured there.
    """
    here = {place: frozenset(subjects) for place, subjects in grouped(still_open).items()}
    group_of = {place: frozenset({place}) for place in here}  # places that are compared, also over others
    for base, other in {(base, other) for (base, _), (other, _) in compared if base in here and other in here}:
        group = group_of[base] | group_of[other]
        group_of |= dict.fromkeys(group, group)
    open_in = {group: frozenset[CaseKey]().union(*(here[place] for place in group)) for group in {*group_of.values()}}
    return {place: OpenAtPlace(subjects, open_in[group_of[place]] - subjects) for place, subjects in here.items()}
