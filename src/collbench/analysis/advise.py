"""Advice: for each operation and size the options that may be the best, and what each may lose to the best of them.

One operation and size is a question. In it every option is compared with the best one, whichever that is: each in turn
is the control, and as only one of them is the best, one family of comparisons is all that must hold. An option may be
the best unless some other is faster. What an option loses is at most what it may lose to one of those: these bounds
hold at once with a confidence of 95 %, whichever option is taken (Hsu, Annals of Statistics 9 (1981) 1026-1034).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median
from typing import Literal, NamedTuple

import numpy as np

from collbench.analysis.bounds import Launches, location, of_controls, of_controls_at_any_time
from collbench.analysis.compare import DEPENDENT, MARGIN, Reason, not_comparable
from collbench.analysis.estimate import FEWEST, open_to_clock
from collbench.analysis.launches import dependent, drift, serial, slow, slow_samples
from collbench.analysis.options import Option, Question
from collbench.analysis.pairs import Pair, alike, undisturbed
from collbench.analysis.results import Cell


class Apart(NamedTuple):
    """Why two options are not compared: `reasons` are what records say of it, `why` what `compare` says."""

    kind: Literal["not measured", "failed", "skipped", "contended", "few launches", "not comparable"]
    reasons: tuple[str, ...] = ()
    why: Reason | None = None


#: Two options, the first in order first, with what both were measured with, or why they are not compared.
Pairs = dict[tuple[Option, Option], "Launches | Apart"]

#: Why an option has no bound: too few launches; times that drift where sides were not measured alternately; launches
#: that depend on those before them.
Unbounded = Literal["few launches", "drift", "dependent"]


@dataclass(frozen=True)
class OptionResult:
    """An option at a size. `ratio`: its time over that of the fastest measured.

    `at_most`: its time over that of the best of these, whichever that is; else why that is not known. `out`: another
    option is faster, and it may lose more than the margin. `slow_at_times`: it has more launches or samples than
    another that are far slower than most.
    """

    ratio: float
    at_most: float | Unbounded
    out: bool
    slow_at_times: bool

    @property
    def bound(self) -> float:
        """`at_most`, infinite where it is not known."""
        return math.inf if isinstance(self.at_most, str) else self.at_most


@dataclass(frozen=True)
class AtSize:
    """One size asked for (bytes): what is known of each option that was compared, the one to take first.

    The one to take may be the best, and may lose least. Without bounds it is the fastest measured, and not `known` to
    be good. `apart`: why other options were not compared. `failing`: in how many of how many launches options failed.
    """

    size: int
    options: Mapping[Option, OptionResult]
    apart: Mapping[Option, Apart]
    failing: Mapping[Option, tuple[int, int]]

    @property
    def take(self) -> Option:
        return next(iter(self.options))

    @property
    def bound(self) -> float:
        """What the time of the one to take is at most, over that of the best."""
        return self.options[self.take].bound

    @property
    def known(self) -> bool:
        return len(self.options) > 1 and math.isfinite(self.bound)

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
    def bound(self) -> float:
        """What its time is at most over that of the best, at any of these sizes."""
        return max(size.options[self.option].bound for size in self.sizes)

    @property
    def known(self) -> bool:
        return all(size.known for size in self.sizes) and math.isfinite(self.bound)

    @property
    def rivals(self) -> list[Option]:
        """Other options that may be the best at each of these sizes."""
        common = set.intersection(*(set(size.possible) for size in self.sizes)) - {self.option}
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
        sizes = [size for size in each if size is not None]
        found.append(Advice(question, tuple(sizes), tuple(_ranges(sizes))))
    return found


def _at_size(question: Question, size: int, in_blocks: bool, margin: float) -> AtSize | None:
    cells = question.cells[size]
    pairs: Pairs = {two: _launches(pair_of(question, size, *two), in_blocks) for two in combinations(sorted(cells), 2)}
    ratios: dict[tuple[Option, Option], float] = {}  # by (one, other) the other's time over the one's
    for (one, other), launches in pairs.items():
        if isinstance(launches, Launches):
            log = location(launches, in_blocks)
            ratios |= {(one, other): math.exp(log), (other, one): math.exp(-log)}
    best = _fastest(cells, ratios, in_blocks)
    if best is None:
        return None
    apart = {option: Apart("not measured") for option in question.options if option not in cells}
    beside_best = {option: pairs.get((best, option)) or pairs.get((option, best)) for option in cells}
    apart |= {option: found for option, found in beside_best.items() if isinstance(found, Apart)}
    bounded = _bounds(best, cells, pairs, in_blocks)
    apart |= {option: Apart("few launches") for option in cells if bounded and option not in {*bounded, *apart}}
    unsteady = _slow_at_times(question, size, pairs, in_blocks)
    standings = {}
    for option in cells.keys() - apart.keys():
        at_most, slower = bounded.get(option, ("few launches", False))
        out = slower and (isinstance(at_most, str) or at_most > 1 + margin)
        standings[option] = OptionResult(ratios.get((best, option), 1.0), at_most, out, option in unsteady)
    failing = {option: (cell.failed, cell.failed + len(cell.medians)) for option, cell in cells.items() if cell.failed}

    def order(option: Option) -> tuple[bool, bool, float, float, Option]:
        one = standings[option]
        return (one.out, one.slow_at_times or option in failing, one.bound, one.ratio, option)

    return AtSize(size, {option: standings[option] for option in sorted(standings, key=order)}, apart, failing)


def pair_of(question: Question, size: int, base: Option, other: Option) -> Pair:
    """Two options, which may differ in the driver and in the place."""
    cells = question.cells[size]
    return Pair(
        cells[base], cells[other], question.name(base), question.name(other), frozenset({"driver", "place"})
    )  # fmt: skip


def _launches(pair: Pair, in_blocks: bool) -> Launches | Apart:
    used, _ = undisturbed(pair, in_blocks)
    for cell, whole in ((used.base, pair.base), (used.other, pair.other)):
        if not whole.medians:
            return Apart("failed" if whole.failed else "skipped", tuple(sorted(whole.reasons)))
        if not cell.medians:
            return Apart("contended")
    both = alike(used, in_blocks)
    why = not_comparable(pair, both, in_blocks)
    return Apart("not comparable", why=why) if why else Launches(*both[:4])


def _fastest(cells: Mapping[Option, Cell], ratios: Mapping[tuple[Option, Option], float],
             in_blocks: bool) -> Option | None:  # fmt: skip
    """The option over which no other has a ratio below 1; None where none was measured with right results.

    Such ratios can form a cycle (A below B, B below C, C below A): then the option over which the least ratio is the
    largest. Options are tried in the order of their typical times, and that decides between equal ones.
    """
    typical = _typical(cells, in_blocks)
    ordered = sorted(typical, key=lambda option: (typical[option], option))
    least = {one: min((ratios.get((one, other), 1.0) for other in ordered if other != one), default=1.0)
             for one in ordered}  # fmt: skip
    return max(ordered, key=lambda option: min(least[option], 1.0)) if ordered else None


def _bounds(
    best: Option, cells: Mapping[Option, Cell], pairs: Pairs, in_blocks: bool
) -> dict[Option, tuple[float | Unbounded, bool]]:  # fmt: skip
    """What each option loses at most (a ratio), and whether another is faster, of those with enough launches.

    Empty where none has enough beside the fastest.
    """
    enough = {key: launches for key, launches in pairs.items()
              if isinstance(launches, Launches) and min(len(launches.base), len(launches.other)) >= FEWEST}  # fmt: skip
    members = {option for key in enough if best in key for option in key}
    used = {key: launches for key, launches in enough.items() if members >= {*key}}
    many = [launches for launches in used.values() if min(len(launches.base), len(launches.other)) >= DEPENDENT]
    if dependent([serial(launches.base, launches.other, in_blocks) for launches in many]):
        return dict.fromkeys(members, ("dependent", False))
    least = of_controls_at_any_time(used) if _until_decided(cells, in_blocks) else of_controls(used, in_blocks)
    for (base, other), launches in used.items():
        drifts = not in_blocks and drift(launches.base, launches.other) is not None
        steps = (cells[other].half_step, cells[base].half_step)
        hidden = open_to_clock(np.asarray(launches.other), np.asarray(launches.base), steps)
        for key in ((base, other), (other, base)):
            least[key] = -math.inf if drifts else least[key] - hidden
    out = {option: any(least[other, option] > 0 for other in members if (other, option) in least)
           for option in members}  # fmt: skip
    return {option: (_at_most(option, least, out), out[option]) for option in members}


def _until_decided(cells: Mapping[Option, Cell], in_blocks: bool) -> bool:
    return in_blocks and any(cell.until_decided for cell in cells.values())


def _at_most(option: Option, least: Mapping[tuple[Option, Option], float],
             out: Mapping[Option, bool]) -> float | Unbounded:  # fmt: skip
    losses = [-bound for (other, control), bound in least.items() if other == option and not out[control]]
    most = max(losses, default=0.0)
    return math.exp(max(most, 0.0)) if most < math.log(MOST_LOSS) else "drift" if math.isinf(most) else "few launches"


#: A bound above this ratio says nothing.
MOST_LOSS = 1e6


def _slow_at_times(question: Question, size: int, pairs: Pairs, in_blocks: bool) -> set[Option]:
    """Options with more launches or samples that are far slower than most, as against another about as fast."""
    looked_once = in_blocks and not _until_decided(question.cells[size], in_blocks)
    options = set()
    for (one, other), found in pairs.items():
        if isinstance(found, Launches) and _near(median(found.base), median(found.other)):
            kinds = slow(found.base, found.other)
            if kinds is None and looked_once:
                kinds = slow_samples(pair_of(question, size, one, other), found.of_base)
            if kinds is not None:
                options.add(other if kinds.on_other else one)
    return options


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
        unsteady = any(evidence.slow_at_times for evidence in own) or any(option in size.failing for size in sizes)
        return (unsteady, max(evidence.bound for evidence in own), option)

    return Range(tuple(sizes), min(common, key=worst))


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
