"""Advice: for each operation and range of sizes the option to take, what the others cost, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median
from typing import Literal

from collbench.analysis.compare import MARGIN, Comparison, compare
from collbench.analysis.observations import Cell
from collbench.analysis.options import Option, Question
from collbench.analysis.pairs import Pair

#: Verdicts by which an option is no worse than the best, as far as is known.
NOT_WORSE = ("same", "negligible", "faster", "inconclusive")

Sure = Literal["sure", "tied", "undecided", "alone"]


@dataclass(frozen=True)
class AtSize:
    """One size asked for (bytes): the fastest option, and every other one compared with it (ratios over the best).

    `unknown`: options that could not be compared with it at this size, with the reason. Those that were compared at a
    smaller and at a larger size are `missed`, unless they failed here: a gap in the measurements says nothing against
    them. `failing`: options of which some launches failed here, and how many of how many.
    """

    size: int
    best: Option
    others: dict[Option, Comparison]
    unknown: dict[Option, str]
    missed: frozenset[Option]
    failing: dict[Option, tuple[int, int]]

    @property
    def not_worse(self) -> set[Option]:
        """The best and those that are not known to be slower, without those with more of far slower launches."""
        equal = {option for option, comparison in self.others.items() if comparison.verdict in NOT_WORSE}
        return ({self.best} | equal | self.missed) - set(self.slow_at_times)

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
        return not self.missed and all(comparison.ratio is None for comparison in self.others.values())

    @property
    def undecided(self) -> dict[Option, Comparison]:
        """Those of which the evidence does not say whether they are worse."""
        return {
            option: comparison for option, comparison in self.others.items() if comparison.verdict == "inconclusive"
        }

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
        if self.undecided or option in self.unknown or any(other in self.others for other in self.unknown):
            return "undecided"
        if option in self.failing:
            return "undecided"
        return "tied" if self.not_worse - {option} else "sure"


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
    """What is advised for one operation on so many ranks."""

    question: Question
    sizes: tuple[AtSize, ...]
    ranges: tuple[Range, ...]


def advise(questions: Sequence[Question], in_blocks: bool, margin: float = MARGIN) -> list[Advice]:
    """Advice for each question.

    Raises:
        RequestError: SciPy is not installed.
    """
    return [_advised(question, in_blocks, margin) for question in questions]


def _advised(question: Question, in_blocks: bool, margin: float) -> Advice:
    """All pairs of options at a size are tested together, of all sizes.

    Each of them might have been the best and another one: so the test holds although the best is chosen by the times
    that are tested (as Tukey's test of all pairs does).
    """
    chosen = {size: best for size in question.sizes if (best := _best(question.cells[size], in_blocks)) is not None}
    keys = [(size, option) for size, best in chosen.items() for option in question.cells[size] if option != best]
    pairs = [_pair(question, size, chosen[size], option) for size, option in keys]
    beside = [
        _pair(question, size, *two)
        for size, best in chosen.items() for two in combinations(question.cells[size], 2) if best not in two
    ]  # fmt: skip
    compared = dict(zip(keys, compare(pairs, margin, in_blocks, beside), strict=True))
    rows = [
        (size, best, {option: compared[size, option] for option in question.cells[size] if option != best})
        for size, best in chosen.items()
    ]
    known = [{best} | {option for option, other in others.items() if other.ratio} for _, best, others in rows]
    sizes = []
    for index, (size, best, others) in enumerate(rows):
        unknown, failing = _unknown(question, best, others), _failing(question.cells[size])
        missed = (frozenset(unknown) & _between(known, index)) - frozenset(failing)
        sizes.append(AtSize(size, best, others, unknown, missed, failing))
    return Advice(question, tuple(sizes), tuple(_ranges(sizes)))


def _failing(cells: dict[Option, Cell]) -> dict[Option, tuple[int, int]]:
    """Options of which launches failed or had wrong results: how many, of how many."""
    return {option: (cell.failed, cell.failed + len(cell.medians)) for option, cell in cells.items() if cell.failed}


def _unknown(question: Question, best: Option, others: dict[Option, Comparison]) -> dict[Option, str]:
    """Options of the question that were not compared with the best of a size, and why."""
    apart = {option: comparison.why for option, comparison in others.items() if comparison.ratio is None}
    absent = (option for option in question.options if option != best and option not in others)
    return apart | dict.fromkeys(absent, "not measured")


def _between(known: Sequence[set[Option]], index: int) -> set[Option]:
    """Options that were compared at a smaller size and at a larger one."""
    return set[Option]().union(*known[:index]) & set[Option]().union(*known[index + 1 :])


def _best(cells: dict[Option, Cell], in_blocks: bool) -> Option | None:
    """The option with the lowest median of launch medians (in blocks: relative to the block's mean), if there is one.

    An option that had a wrong result is never the best.
    """
    right = {option: cell.without(cell.disturbed) for option, cell in cells.items() if cell.medians and not cell.wrong}
    right = {option: cell for option, cell in right.items() if cell.medians}
    measured = {option: cell.by_launch for option, cell in right.items() if min(cell.medians) > 0}
    blocks: dict[int, list[float]] = {}
    for times in measured.values():
        for launch, time in times.items():
            blocks.setdefault(launch, []).append(math.log(time))
    centre = {launch: fmean(logs) if in_blocks else 0.0 for launch, logs in blocks.items()}
    scores = {
        option: median(math.log(time) - centre[launch] for launch, time in times.items())
        for option, times in measured.items()
    }
    return min(scores, key=lambda option: (scores[option], option)) if scores else None


def _pair(question: Question, size: int, best: Option, option: Option) -> Pair:
    base, other = question.cells[size][best], question.cells[size][option]
    return Pair(base, other, question.name(best), question.name(option), frozenset({"driver", "place"}))


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
