"""Advice: for each operation and range of sizes the option to take, what others cost, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

from collbench.analysis.compare import MARGIN, Comparison, compare
from collbench.analysis.observations import Cell
from collbench.analysis.options import Option, Question
from collbench.analysis.pairs import Pair
from collbench.schema.case import Case

#: Verdicts by which an option is no worse than the best, as far as is known.
NOT_WORSE = ("same", "negligible", "faster", "inconclusive")

Sure = Literal["sure", "tied", "undecided", "alone"]


@dataclass(frozen=True)
class AtSize:
    """One size: the option that is quickest, and every other one held against it (ratios over the best).

    `unknown`: options that could not be held against it here, with the reason. Those of them that were at a smaller and
    at a larger size are `missed`, unless they failed here: a hole in what was measured says nothing against them.
    `failing`: options of which some launches failed here, and how many of how many.
    """

    bytes: int
    best: Option
    others: dict[Option, Comparison]
    unknown: dict[Option, str]
    missed: frozenset[Option]
    failing: dict[Option, tuple[int, int]]

    @property
    def not_worse(self) -> set[Option]:
        """The best and those that it does not beat, without those that have far slower launches than one of these."""
        equal = {option for option, one in self.others.items() if one.verdict in NOT_WORSE}
        return ({self.best} | equal | self.missed) - set(self.slow_at_times)

    @property
    def slow_at_times(self) -> dict[Option, Comparison]:
        """Options with a median as good as another's, and more launches that are far slower than it."""
        unlike = {option: (one, one.slow) for option, one in self.others.items()
                  if one.slow is not None and one.verdict in NOT_WORSE}  # fmt: skip
        found = {option: one for option, (one, slow) in unlike.items() if slow.other > slow.base}
        steadier = [one for one, slow in unlike.values() if slow.other < slow.base]
        return found | ({self.best: steadier[0]} if steadier else {})

    @property
    def alone(self) -> bool:
        """Whether nothing was compared, or would have been without a hole in what was measured."""
        return not self.missed and all(one.ratio is None for one in self.others.values())

    @property
    def undecided(self) -> dict[Option, Comparison]:
        """Those of which the evidence does not say whether they are worse."""
        return {option: one for option, one in self.others.items() if one.verdict == "inconclusive"}

    def cost(self, option: Option) -> float | None:
        """How many times the time of the best this option takes; None where it was not compared."""
        if option == self.best:
            return 1.0
        found = self.others.get(option)
        return None if found is None or found.ratio is None else found.ratio.value

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
    """Advice for each question; p is adjusted over all of them together.

    Raises:
        RequestError: SciPy is not installed.
    """
    chosen = [
        (question, size, best, option)
        for question in questions
        for size in question.sizes
        if (best := _best(question.cells[size], in_blocks)) is not None
        for option in question.cells[size]
        if option != best
    ]
    pairs = [_pair(question, size, best, option) for question, size, best, option in chosen]
    keys = ((question.case, size, option) for question, size, _, option in chosen)
    found = dict(zip(keys, compare(pairs, margin, in_blocks), strict=True))
    return [_advised(question, found, in_blocks) for question in questions]


def _advised(question: Question, found: dict[tuple[Case, int, Option], Comparison], in_blocks: bool) -> Advice:
    compared = []
    for size in question.sizes:
        best = _best(question.cells[size], in_blocks)
        if best is not None:
            others = {option: found[question.case, size, option] for option in question.cells[size] if option != best}
            compared.append((size, best, others))
    known = [{best} | {option for option, one in others.items() if one.ratio} for _, best, others in compared]
    sizes = []
    for index, one in enumerate(compared):
        unknown, failing = _unknown(question, *one), _failing(question.cells[one[0]])
        missed = (frozenset(unknown) & _between(known, index)) - frozenset(failing)
        sizes.append(AtSize(*one, unknown, missed, failing))
    return Advice(question, tuple(sizes), tuple(_ranges(sizes)))


def _failing(cells: dict[Option, Cell]) -> dict[Option, tuple[int, int]]:
    """Options of which launches failed or had wrong results: how many, of how many."""
    return {option: (cell.failed, cell.failed + len(cell.medians)) for option, cell in cells.items() if cell.failed}


def _unknown(question: Question, size: int, best: Option, others: dict[Option, Comparison]) -> dict[Option, str]:
    """Options of the question that were not held against the best at this size, and why."""
    apart = {option: one.why for option, one in others.items() if one.ratio is None}
    absent = (option for option in question.options if option != best and option not in others)
    return apart | dict.fromkeys(absent, "not measured")


def _between(known: Sequence[set[Option]], index: int) -> set[Option]:
    """Options that are known at a smaller size and at a larger one."""
    return set[Option]().union(*known[:index]) & set[Option]().union(*known[index + 1 :])


def _best(cells: dict[Option, Cell], in_blocks: bool) -> Option | None:
    """The option with the lowest median of launch medians (in blocks: over the block's) that had no wrong result.

    None if there is none.
    """
    right = {option: cell for option, cell in cells.items() if cell.medians and not cell.wrong}
    measured = {option: cell.by_launch for option, cell in right.items() if min(cell.medians) > 0}
    blocks: dict[int, list[float]] = {}
    for found in measured.values():
        for launch, time in found.items():
            blocks.setdefault(launch, []).append(math.log(time))
    centre = {launch: fmean(logs) if in_blocks else 0.0 for launch, logs in blocks.items()}
    scores = {
        option: median(math.log(time) - centre[launch] for launch, time in found.items())
        for option, found in measured.items()
    }
    return min(scores, key=lambda option: (scores[option], option)) if scores else None


def _pair(question: Question, size: int, best: Option, option: Option) -> Pair:
    base, other = question.cells[size][best], question.cells[size][option]
    return Pair(base, other, question.name(best), question.name(option), frozenset({"driver", "place"}))


def _ranges(sizes: Sequence[AtSize]) -> list[Range]:
    """As few ranges as possible: each goes on while one option is not known to be worse at any of its sizes.

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
