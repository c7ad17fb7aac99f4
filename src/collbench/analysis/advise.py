"""Advice: for each operation and size the options that may be the best, and what each may lose to the best of them.

One operation and size is a question. In it every option is compared with the best one, whichever that is: each in turn
is the control, and as only one of them is the best, one family of comparisons is all that must hold. An option may be
the best unless some other is faster. What an option loses is at most what it may lose to one of those: these bounds
hold at once with a confidence of 95 %, whichever option is taken (Hsu, Annals of Statistics 9 (1981) 1026-1034).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median
from typing import TYPE_CHECKING

import numpy as np

from collbench.analysis.bounds import Launches, of_controls
from collbench.analysis.compare import MARGIN, not_comparable
from collbench.analysis.estimate import FEWEST, centre, ratio_in_blocks, ratio_of_sides
from collbench.analysis.launches import drift, slow, slow_samples, together
from collbench.analysis.observations import Cell, Pair
from collbench.analysis.options import Option, Question
from collbench.analysis.pairs import alike, undisturbed
from collbench.analysis.sequential import of_controls_at_any_time

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Standing:
    """An option at a size. `ratio`: its time over that of the fastest measured.

    `at_most`: its time over that of the best of these, whichever that is; None with too few launches. `out`: another
    option is faster, and it may lose more than the margin. `slow_at_times`: it has more launches than another that are
    far slower than most.
    """

    ratio: float
    at_most: float | None
    out: bool
    slow_at_times: bool


@dataclass(frozen=True)
class AtSize:
    """One size asked for (bytes): what is known of each option that was compared, the one to take first.

    The one to take may be the best, and may lose least. Without bounds it is the fastest measured, and not `known` to
    be good. `apart`: why other options were not compared. `failing`: in how many of how many launches options failed.
    """

    size: int
    options: Mapping[Option, Standing]
    apart: Mapping[Option, str]
    failing: Mapping[Option, tuple[int, int]]

    @property
    def take(self) -> Option:
        return next(iter(self.options))

    @property
    def at_most(self) -> float | None:
        """What the time of the one to take is at most, over that of the best; None with too few launches."""
        return self.options[self.take].at_most

    @property
    def known(self) -> bool:
        return len(self.options) > 1 and self.at_most is not None

    @property
    def possible(self) -> list[Option]:
        """Those that may be the best, in the order of what they may lose."""
        return [option for option, found in self.options.items() if not found.out]


@dataclass(frozen=True)
class Range:
    """Neighbouring sizes at each of which one option may be the best."""

    sizes: tuple[AtSize, ...]
    option: Option

    @property
    def at_most(self) -> float | None:
        """What its time is at most over that of the best, at any of these sizes."""
        found = [one.options[self.option].at_most for one in self.sizes]
        known = [bound for bound in found if bound is not None]
        return max(known) if len(known) == len(found) else None

    @property
    def rivals(self) -> list[Option]:
        """Other options that may be the best at each of these sizes."""
        common = set.intersection(*(set(one.possible) for one in self.sizes)) - {self.option}
        return sorted(common)


@dataclass(frozen=True)
class Advice:
    """What is advised for one operation on so many ranks; no sizes where nothing could be measured."""

    question: Question
    sizes: tuple[AtSize, ...]
    ranges: tuple[Range, ...]


def advise(questions: Sequence[Question], in_blocks: bool, margin: float = MARGIN) -> list[Advice]:
    """Advice for each question. `in_blocks`: launches of equal number are paired.

    What loses at most the margin may be taken as well as the best.
    """
    found = []
    for question in questions:
        each = [_at_size(question, size, in_blocks, margin) for size in question.sizes]
        sizes = [one for one in each if one is not None]
        found.append(Advice(question, tuple(sizes), tuple(_ranges(sizes))))
    return found


def _at_size(question: Question, size: int, in_blocks: bool, margin: float) -> AtSize | None:
    cells = question.cells[size]
    best = fastest(question, size, in_blocks)
    if best is None:
        return None
    apart = {option: "not measured" for option in question.options if option not in cells}
    ratios, members = {best: 1.0}, [best]
    for option in sorted(cells):
        if option != best:
            _, launches, why = _launches(question, size, best, option, in_blocks)
            ratio = None if why or launches is None else _ratio_of(launches, in_blocks)
            if ratio is None:
                apart[option] = why
                continue
            ratios[option] = ratio
            members.append(option)
    bounded = _bounds(question, size, members, in_blocks, apart)
    unsteady = _slow_at_times(question, size, [one for one in members if one not in apart], in_blocks)
    standings = {
        option: _standing(ratios[option], *bounded[option], option in unsteady, margin)
        for option in members
        if option not in apart
    }
    failing = {option: (cell.failed, cell.failed + len(cell.medians)) for option, cell in cells.items() if cell.failed}

    def order(option: Option) -> tuple[bool, bool, float, float, Option]:
        one = standings[option]
        return (one.out, one.slow_at_times or option in failing, one.at_most or math.inf, one.ratio, option)

    return AtSize(size, {option: standings[option] for option in sorted(standings, key=order)}, apart, failing)


def _standing(ratio: float, at_most: float | None, slower: bool, unsteady: bool, margin: float) -> Standing:
    return Standing(ratio, at_most, slower and (at_most is None or at_most > 1 + margin), unsteady)


def _launches(
    question: Question, size: int, base: Option, other: Option, in_blocks: bool
) -> tuple[Pair, Launches | None, str]:
    """What both options were measured with, or why they cannot be compared."""
    pair = pair_of(question, size, base, other)
    used, _ = undisturbed(pair, in_blocks)
    if not used.base.medians or not used.other.medians:
        contended = pair.base.medians and pair.other.medians
        return pair, None, "tasks waited for a CPU in every launch" if contended else _why_missing(pair)
    both = alike(used, in_blocks)
    why = not_comparable(pair, both, in_blocks)
    return pair, None if why else Launches(*both[:4]), why


def _why_missing(pair: Pair) -> str:
    cell = pair.other if not pair.other.medians else pair.base
    return f"{'failed' if cell.failed else 'skipped'}: {'; '.join(sorted(cell.reasons)) or 'not measured'}"


def _ratio_of(launches: Launches, in_blocks: bool) -> float:
    return (ratio_in_blocks if in_blocks else ratio_of_sides)(launches.other, launches.base).value


def _bounds(
    question: Question, size: int, members: Sequence[Option], in_blocks: bool, apart: dict[Option, str]
) -> dict[Option, tuple[float | None, bool]]:
    """What each option loses at most (a ratio), and whether another is faster; those with few launches are put `apart`.

    Where all have too few, none has a bound.
    """
    pairs = {(base, other): _launches(question, size, base, other, in_blocks)[1]
             for base, other in combinations(members, 2)}  # fmt: skip
    enough = {key: found for key, found in pairs.items() if found and min(len(found.base), len(found.other)) >= FEWEST}
    beside_best = {option for key in enough if members[0] in key for option in key}
    if not beside_best:
        return dict.fromkeys(members, (None, False))
    for option in members:
        if option not in beside_best:
            apart[option] = f"fewer than {FEWEST} launches"
    used = {key: found for key, found in enough.items() if beside_best.issuperset(key)}
    until_decided = in_blocks and any(cell.until_decided for cell in question.cells[size].values())
    least = of_controls_at_any_time(used) if until_decided else of_controls(used, in_blocks)
    if not in_blocks:
        for (base, other), found in used.items():
            if drift(found.base, found.other):
                least[base, other] = least[other, base] = -math.inf
    out = {option: any(bound > 0 for (_, control), bound in least.items() if control == option)
           for option in beside_best}  # fmt: skip
    return {option: (_at_most(option, least, out), out[option]) for option in beside_best}


def _at_most(option: Option, least: Mapping[tuple[Option, Option], float], out: Mapping[Option, bool]) -> float | None:
    """The most that an option may lose to one that may be the best; None where that is unbounded."""
    losses = [-bound for (other, control), bound in least.items() if other == option and not out[control]]
    most = max(losses, default=0.0)
    return math.exp(max(most, 0.0)) if most < math.log(MOST_LOSS) else None


#: A bound above this ratio says nothing.
MOST_LOSS = 1e6


def _slow_at_times(question: Question, size: int, options: Sequence[Option], in_blocks: bool) -> set[Option]:
    """Options with more launches or samples that are far slower than most, as against another about as fast."""
    found = set()
    for one, other in combinations(options, 2):
        pair = pair_of(question, size, one, other)
        base, far = pair.base, pair.other
        if base.medians and far.medians and _near(median(base.medians), median(far.medians)):
            common = sorted({*base.launches} & {*far.launches})
            kinds = slow(base.medians, far.medians) or (slow_samples(pair, common) if in_blocks else None)
            if kinds is not None:
                found.add(other if kinds.on_other else one)
    return found


def _near(base: float, other: float) -> bool:
    return max(base, other) <= NEAR * min(base, other)


#: Medians that differ by less are about equal.
NEAR = 1.25


def _ranges(sizes: Sequence[AtSize]) -> list[Range]:
    """As few ranges as possible: each extends while one option may be the best at all of its sizes."""
    ranges: list[Range] = []
    held: list[AtSize] = []
    common: set[Option] = set()
    for size in sizes:
        own = set(size.possible) if size.known else {size.take}
        if held and (size.known != held[-1].known or not common & own):
            ranges.append(_range(held, common))
            held = []
        common = common & own if held else own
        held.append(size)
    return [*ranges, _range(held, common)] if held else ranges


def _range(sizes: Sequence[AtSize], common: set[Option]) -> Range:
    """Of the options that will do at every size the steadiest, and then the one that may lose least."""

    def worst(option: Option) -> tuple[bool, float, Option]:
        own = [size.options[option] for size in sizes]
        unsteady = any(one.slow_at_times for one in own) or any(option in size.failing for size in sizes)
        return (unsteady, max(one.at_most or math.inf for one in own), option)

    return Range(tuple(sizes), min(common, key=worst))


def effects(question: Question, size: AtSize) -> dict[str, tuple[float, float]]:
    """By factor that varies how much it matters at a size: the ratio of its slowest to its fastest value.

    The least and the largest ratio among groups of options that are alike in everything else; the host has no step, so
    it is in one group with every step.
    """
    found = {}
    for factor in question.varying:
        groups = _groups(question, size, factor)
        ratios = [max(times) / min(times) for times in groups if len(times) > 1]
        if ratios:
            found[factor] = (min(ratios), max(ratios))
    return found


def _groups(question: Question, size: AtSize, factor: str) -> Iterable[list[float]]:
    """Ratios of options by all other factors; of equal values the fastest."""
    rest = [name for name in question.varying if name != factor]
    keys = {option: tuple(option[name] for name in rest) for option in size.options}
    steps = {key for option, key in keys.items() if option["isolation"] or "isolation" not in rest}
    groups: dict[tuple[str, ...], dict[str, float]] = {key: {} for key in steps}
    for option, one in size.options.items():
        own = keys[option]
        for key, values in groups.items():
            same = all(mine == theirs or (name == "isolation" and not mine)
                       for name, mine, theirs in zip(rest, own, key, strict=True))  # fmt: skip
            if same:
                value = option[factor]
                values[value] = min(values.get(value, math.inf), one.ratio)
    return [[*values.values()] for values in groups.values()]


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
    _, launches, _ = _launches(question, size, best, option, in_blocks)
    return None if launches is None else _ratio_of(launches, in_blocks)


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
