"""Advice: for each operation and range of sizes the option to take, what the others cost, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from collbench.analysis.between_options import Asked, Key, asked_in, between_options
from collbench.analysis.compare import MARGIN, Comparison
from collbench.analysis.gaps import Gap, around, gaps
from collbench.analysis.joint import ALPHA
from collbench.analysis.observations import Cell
from collbench.analysis.options import Option, Question

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
        unknown, failing = gaps(question, size, best, others), _failing(question.cells[size])
        rows.append(AtSize(size, best, others, unknown, failing))
    worse = [{option: option not in row.equal for option in (row.best, *row.others) if option not in row.unknown}
             for row in rows]  # fmt: skip
    sizes = []
    for index, row in enumerate(rows):
        unknown = {option: replace(gap, worse=around(option, worse, index)) for option, gap in row.unknown.items()}
        sizes.append(replace(row, unknown=unknown))
    isolation = {(free, isolated): compared[size, free, isolated] for size, free, isolated in asked.places}
    return Advice(question, tuple(sizes), tuple(_ranges(sizes)), isolation)


def _failing(cells: dict[Option, Cell]) -> dict[Option, tuple[int, int]]:
    """Options of which launches failed or had wrong results: how many, of how many."""
    return {option: (cell.failed, cell.failed + len(cell.medians)) for option, cell in cells.items() if cell.failed}


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
