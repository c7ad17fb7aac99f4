"""Advice: for each operation and range of sizes the option to take, what others cost, and where the best one changes.

A pair that the run was measured to compare, as a place with the host, has the verdict of that comparison: it was asked
before there were times. The fastest option is chosen by the times. So its comparisons are tested together with all
other pairs of options, at all sizes of all operations: each of them might have been among those that are told. Then
the test holds whichever option is chosen (as Tukey's test of all pairs does).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean, median
from typing import TYPE_CHECKING, Literal

import numpy as np

from collbench.analysis.compare import MARGIN, Comparison, Known, compare
from collbench.analysis.estimate import centre, ratio_in_blocks, ratio_of_sides
from collbench.analysis.observations import Cell, Pair
from collbench.analysis.options import Option, Question
from collbench.analysis.pairs import alike, undisturbed
from collbench.analysis.recovery import isolated_pairs
from collbench.analysis.significance import ALPHA, together

if TYPE_CHECKING:
    from numpy.typing import NDArray


def fastest(question: Question, size: int, in_blocks: bool) -> Option | None:
    """The option over which no other has a ratio below 1; None where none was measured with right results.

    Medians of ratios can form a cycle (A below B, B below C, C below A): then the option over which the least ratio is
    the largest. Options are tried in the order of their typical times, and that decides between equal ones.
    """
    typical = _typical(question.cells[size], in_blocks)
    ordered = sorted(typical, key=lambda option: (typical[option], option))
    least: dict[Option, float] = {}
    for option in ordered:
        ratios = (_ratio(question, size, option, other, in_blocks) for other in ordered if other != option)
        least[option] = min((ratio for ratio in ratios if ratio is not None), default=1.0)
        if least[option] >= 1.0:
            return option
    return max(least, key=lambda option: least[option]) if least else None


def pair_of(question: Question, size: int, best: Option, option: Option) -> Pair:
    """An option against the best one; they may differ in the driver and in the place."""
    base, other = question.cells[size][best], question.cells[size][option]
    return Pair(base, other, question.name(best), question.name(option), frozenset({"driver", "place"}))


def _ratio(question: Question, size: int, best: Option, option: Option, in_blocks: bool) -> float | None:
    """The time of an option over that of the best, as `compare` has it; None where they cannot be compared."""
    used, _ = undisturbed(pair_of(question, size, best, option), in_blocks)
    found = alike(used, in_blocks)
    if found.refused or not found.base or not found.other:
        return None
    return (ratio_in_blocks if in_blocks else ratio_of_sides)(found.other, found.base).value


def _typical(cells: Mapping[Option, Cell], in_blocks: bool) -> dict[Option, float]:
    """Logarithm of the median of launch medians (in blocks: relative to the block's mean) of options that are right.

    An option that had a wrong result is none of them, nor is one whose every launch was contended.
    """
    right = {option: cell.without(cell.disturbed) for option, cell in cells.items() if cell.medians and not cell.wrong}
    measured = {option: cell.by_launch for option, cell in right.items() if cell.medians and min(cell.medians) > 0}
    blocks: dict[int, list[float]] = {}
    for times in measured.values():
        for launch, time in times.items():
            blocks.setdefault(launch, []).append(math.log(time))
    centre = {launch: fmean(logs) if in_blocks else 0.0 for launch, logs in blocks.items()}
    return {
        option: median(math.log(time) - centre[launch] for launch, time in times.items())
        for option, times in measured.items()
    }


@dataclass(frozen=True)
class Gap:
    """Why an option was not compared with the best of a size, and what is known of it nevertheless.

    `worse`: whether it is worse at the nearest smaller size and at the nearest larger size at which it was compared;
    one value at an end of the sizes, none where it was compared nowhere. `possible` is False where it failed, had wrong
    results or was skipped, so that it cannot be taken.
    """

    why: str
    possible: bool
    worse: tuple[bool, ...] = ()

    @property
    def between(self) -> bool:
        """Whether it was compared at a smaller and at a larger size, so that only measurements are missing."""
        return self.possible and len(self.worse) == 2

    @property
    def as_good(self) -> bool:
        """Whether it is no worse at both sizes around: the gap says nothing against it."""
        return self.between and not any(self.worse)

    @property
    def open(self) -> bool:
        """Whether it might be the best one here: nothing says that it is worse."""
        return self.possible and not (self.worse and all(self.worse))


def gaps(question: Question, size: int, best: Option, others: Mapping[Option, Comparison]) -> dict[Option, Gap]:
    """Options of the question that were not compared with the best of a size, and why."""
    apart = {
        option: Gap(comparison.why, _possible(question.cells[size][option]))
        for option, comparison in others.items()
        if comparison.ratio is None
    }
    absent = (option for option in question.options if option != best and option not in others)
    return apart | dict.fromkeys(absent, Gap("not measured", True))


def around(option: Option, worse: Sequence[Mapping[Option, bool]], index: int) -> tuple[bool, ...]:
    """Of `worse`, by size whether each option that was compared is worse, the entries nearest to `index`."""
    before = [of_size[option] for of_size in worse[:index] if option in of_size][-1:]
    after = [of_size[option] for of_size in worse[index + 1 :] if option in of_size][:1]
    return (*before, *after)


def _possible(cell: Cell) -> bool:
    return not cell.failed and not (cell.skipped and not cell.medians)


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


#: Verdicts by which an option is no worse than the best, as far as is known.
NOT_WORSE = ("same", "negligible", "faster", "inconclusive")

Sure = Literal["sure", "tied", "undecided", "alone"]

#: What is known of an option that may be recommended: all others are slower, or some are equally fast.
ESTABLISHED = ("sure", "tied")


@dataclass(frozen=True)
class AtSize:
    """One size asked for (bytes): the fastest option, and every other one compared with it (ratios over the best).

    `unknown`: options that could not be compared with it at this size, with what the sizes around say of them.
    `failing`: options of which some launches failed here, and how many of how many.
    """

    size: int
    best: Option
    others: dict[Option, Comparison]
    unknown: dict[Option, Gap]
    failing: dict[Option, tuple[int, int]]

    @property
    def missed(self) -> frozenset[Option]:
        """Options without a comparison here that are no worse at the sizes around."""
        return frozenset(option for option, gap in self.unknown.items() if gap.as_good)

    @property
    def equal(self) -> set[Option]:
        """The best and those compared that are not known to be slower, without those with more far slower launches."""
        equal = {option for option, comparison in self.others.items() if comparison.verdict in NOT_WORSE}
        return ({self.best} | equal) - set(self.slow_at_times)

    @property
    def not_worse(self) -> set[Option]:
        """What may be taken: a gap in the measurements says nothing against an option."""
        return self.equal | self.missed

    @property
    def slow_at_times(self) -> dict[Option, Comparison]:
        """Options with a median as good as another's, and more launches that are far slower than it."""
        unlike = {option: (comparison, comparison.slow) for option, comparison in self.others.items()
                  if comparison.slow is not None and comparison.verdict in NOT_WORSE}  # fmt: skip
        unsteady = {option: comparison for option, (comparison, slow) in unlike.items() if slow.other > slow.base}
        steadier = [comparison for comparison, slow in unlike.values() if slow.other < slow.base]
        return unsteady | ({self.best: steadier[0]} if steadier else {})

    @property
    def alone(self) -> bool:
        """Whether nothing was compared, nor would have been without a gap in the measurements."""
        gap = any(gap.between for gap in self.unknown.values())
        return not gap and all(comparison.ratio is None for comparison in self.others.values())

    @property
    def undecided(self) -> dict[Option, Comparison]:
        """Those of which the evidence does not say whether they are worse."""
        return {
            option: comparison for option, comparison in self.others.items() if comparison.verdict == "inconclusive"
        }

    @property
    def slower_alone(self) -> dict[Option, Comparison]:
        """Of those the ones that are slower by their own interval, but not among all that were tested together."""
        return {option: one for option, one in self.undecided.items() if slower_alone(one)}

    def cost(self, option: Option) -> float | None:
        """The time of this option over that of the best; None where it was not compared."""
        if option == self.best:
            return 1.0
        comparison = self.others.get(option)
        return None if comparison is None or comparison.ratio is None else comparison.ratio.value

    def sure(self, option: Option) -> Sure:
        """What is known of `option` here: `sure` where all others are worse, `alone` where none was compared."""
        if self.alone:
            return "alone"
        if self.undecided or option in self.unknown or option in self.failing:
            return "undecided"
        if any(gap.open for gap in self.unknown.values()):
            return "undecided"
        return "tied" if self.equal - {option} else "sure"


def slower_alone(comparison: Comparison) -> bool:
    """Whether its own interval says that it is slower by more than `MARGIN`, and the test of all cells does not."""
    ratio, adjusted = comparison.ratio, comparison.p_adjusted
    if comparison.verdict != "inconclusive" or ratio is None or ratio.interval is None or adjusted is None:
        return False
    return ratio.interval[0] > 1 + MARGIN and adjusted > ALPHA


@dataclass(frozen=True)
class Range:
    """Neighbouring sizes for which one option can be taken: no size in it has one that is known to be better."""

    sizes: tuple[AtSize, ...]
    option: Option

    @property
    def sure(self) -> Sure:
        """`alone` where nothing was compared, else the least that is known at any of its sizes."""
        known = {size.sure(self.option) for size in self.sizes}
        return next(state for state in ("alone", "undecided", "tied", "sure") if state in known)

    @property
    def open(self) -> tuple[AtSize, ...]:
        """The sizes at which it is not sure."""
        return tuple(size for size in self.sizes if size.sure(self.option) != "sure")

    @property
    def rivals(self) -> set[Option]:
        """Other options that are not known to be worse at any size of the range."""
        return set.intersection(*(size.not_worse for size in self.sizes)) - {self.option}


@dataclass(frozen=True)
class Advice:
    """What is advised for one operation on so many ranks.

    `isolation`: at the largest size each most isolated step compared with the least isolated place of the same library,
    by these two (`isolated_pairs`).
    """

    question: Question
    sizes: tuple[AtSize, ...]
    ranges: tuple[Range, ...]
    isolation: Mapping[tuple[Option, Option], Comparison] = field(default_factory=dict)

    @property
    def comparisons(self) -> list[Comparison]:
        """All of which something is said."""
        return [*self.isolation.values(), *(one for size in self.sizes for one in size.others.values())]


def advise(
    questions: Sequence[Question], in_blocks: bool, margin: float = MARGIN, planned: Sequence[Comparison] = ()
) -> list[Advice]:
    """Advice for each question. Pairs that are in `planned` have its verdict; all others are tested together.

    Raises:
        RequestError: SciPy is not installed.
    """
    asked = [asked_in(question, in_blocks) for question in questions]
    found = between_options(asked, planned, margin, in_blocks)
    return [_advised(one, compared) for one, compared in zip(asked, found, strict=True)]


def _advised(asked: Asked, compared: Mapping[Key, Comparison]) -> Advice:
    question, rows = asked.question, []
    for size, best in asked.fastest.items():
        others = {option: compared[size, best, option] for option in question.cells[size] if option != best}
        failing = {option: (cell.failed, cell.failed + len(cell.medians))
                   for option, cell in question.cells[size].items() if cell.failed}  # fmt: skip
        unknown = gaps(question, size, best, others)
        rows.append(AtSize(size, best, others, unknown, failing))
    worse = [{option: option not in row.equal for option in (row.best, *row.others) if option not in row.unknown}
             for row in rows]  # fmt: skip
    sizes = []
    for index, row in enumerate(rows):
        unknown = {option: replace(gap, worse=around(option, worse, index)) for option, gap in row.unknown.items()}
        sizes.append(replace(row, unknown=unknown))
    isolation = {(free, isolated): compared[size, free, isolated] for size, free, isolated in asked.places}
    return Advice(question, tuple(sizes), tuple(_ranges(sizes)), isolation)


def _ranges(sizes: Sequence[AtSize]) -> list[Range]:
    """As few ranges as possible: each extends while one option is not known to be worse at any of its sizes.

    Sizes at which nothing was compared have ranges of their own.
    """
    ranges: list[Range] = []
    held: list[AtSize] = []
    common: set[Option] = set()
    for size in sizes:
        if held and (size.alone != held[-1].alone or not common & size.not_worse):
            ranges.append(_range(held, common))
            held = []
        common = common & size.not_worse if held else size.not_worse
        held.append(size)
    return [*ranges, _range(held, common)] if held else ranges


def _range(sizes: Sequence[AtSize], common: set[Option]) -> Range:
    """Of the options that will do at every size, the one that costs least at the size where it costs most."""

    def worst(option: Option) -> tuple[float, Option]:
        return (max(size.cost(option) or 1.0 for size in sizes), option)

    return Range(tuple(sizes), min(common, key=worst))


#: Logarithms of sizes closer than this are those of the same size.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Crossover:
    """Below `size` take `below`, above it `above`.

    `size` (bytes asked for) is the crossing by linear interpolation between measured sizes. The ends of the interval
    are measured sizes, because nothing is known about the times between two of them: libraries change their protocol
    there. An end of 0 or infinity lies beyond the sizes that were measured. None with too few launches.
    """

    below: Option
    above: Option
    size: float
    interval: tuple[float, float] | None


def crossover(question: Question, below: Option, above: Option, in_blocks: bool) -> Crossover | None:
    """The crossing between two options; None where most blocks have none at sizes measured with both options.

    Every block has a crossing. The median of these counts, and its interval reaches to the measured sizes around it.
    """
    sizes, logs = crossings(question, below, above, in_blocks)
    if not len(logs):
        return None
    axis, middle = _axis(sizes), centre(logs)
    if not axis[0] <= middle.value <= axis[-1]:
        return None
    return Crossover(below, above, 2.0**middle.value, middle.interval and _around(sizes, *middle.interval))


def crossings(
    question: Question, below: Option, above: Option, in_blocks: bool
) -> tuple[list[int], NDArray[np.float64]]:
    """Sizes measured with both options in bytes, and the crossing of each block as binary logarithm of bytes.

    By linear interpolation between measured sizes, both axes logarithmic. No crossings where fewer than two sizes were
    measured with both options, or no block has all of them.
    """
    sizes = [size for size in question.sizes if _measured(question, size, below) and _measured(question, size, above)]
    if len(sizes) < 2:
        return sizes, np.empty(0)
    rows = together([question.cells[size][option] for option in (below, above) for size in sizes], in_blocks)
    logs = np.log(rows).reshape(len(rows), 2, len(sizes))
    return sizes, np.array([crossing(_axis(sizes), upper - lower) for lower, upper in logs])


def _measured(question: Question, size: int, option: Option) -> bool:
    cell = question.cells[size].get(option)
    return cell is not None and bool(cell.medians) and min(cell.medians) > 0


def _axis(sizes: list[int]) -> NDArray[np.float64]:
    return np.asarray(np.log2(np.maximum(np.array(sizes, dtype=float), 1.0)))


def _around(sizes: list[int], low: float, high: float) -> tuple[float, float]:
    """The last measured size before `low` and the first that is not before `high`, both binary logarithms."""
    logs = _axis(sizes)
    before = [float(size) for size, log in zip(sizes, logs, strict=True) if log < low - _ROUNDING]
    after = [float(size) for size, log in zip(sizes, logs, strict=True) if log >= high - _ROUNDING]
    return (before[-1] if before else 0.0, after[0] if after else math.inf)


def crossing(axis: NDArray[np.float64], difference: NDArray[np.float64]) -> float:
    """Where `difference` [n] over `axis` [n] last goes from positive to negative.

    The last one: from there on the upper option stays the better one. One octave before the axis where it is never
    positive, one after it where it is positive at the end.
    """
    if difference[-1] > 0:
        return float(axis[-1] + 1)
    falls = np.flatnonzero((difference[:-1] > 0) & (difference[1:] <= 0))
    if not len(falls):
        return float(axis[0] - 1)
    i = falls[-1]
    share = difference[i] / (difference[i] - difference[i + 1])
    return float(axis[i] + share * (axis[i + 1] - axis[i]))
