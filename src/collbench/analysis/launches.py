"""What launches show besides a median: drift, dependence on the launch before, and occasional slow ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import NamedTuple

import numpy as np

from collbench.analysis.bounds import bounds
from collbench.analysis.estimate import CONFIDENCE, FEWEST, Estimate, Floats, stats, welch_freedom
from collbench.analysis.pairs import Pair
from collbench.analysis.results import Cell, grouped

_TREND = 0.025  # a trend of one side counts at this p: half of 5 %, because there are two sides
_OF_DRIFT = 2.0  # a difference is distinguished from drift when it exceeds what the drift can make this many times
SLOW = 1.25  # a launch that takes so many times the median is called slow
_KINDS = 0.01  # the shares of slow launches differ at this p: there is one such test for every cell
_FEWEST_BLOCKS = 7  # the fewest blocks with a bound at that p: one of 128 ways
TAIL_SAMPLES = 200  # from so many samples of a launch on its mean is looked at beside its median
_MEMORY = 10  # the fewest launches of which an autocorrelation is estimated

#: The mean normal score of autocorrelations above which it is mentioned that launches depend on those before them, and
#: above which there is no verdict: 5 and 1 % on one side.
MENTIONED, REFUSED = 1.645, 2.326

#: CPU seconds that differ by less are called the same, and times that differ by more are not explained by them.
SAME, APART = 0.03, 0.05


def drift(base: Sequence[float], other: Sequence[float]) -> float | None:
    """By what share one side drifts over its launches, where that can explain the difference; else None.

    One side is measured after the other. The trend is Mann and Kendall's (Econometrica 13 (1945) 245-259), its slope
    that of Theil and Sen; from the middle of one side to that of the other it makes slope times half of all launches.
    """
    effect = abs(math.log(median(other) / median(base)))
    largest = 0.0
    for side in (base, other):
        logs = np.log(side)
        if len(logs) > 2 and stats().kendalltau(np.arange(len(logs)), logs).pvalue <= _TREND:
            slope = abs(float(stats().theilslopes(logs)[0]))
            if effect <= _OF_DRIFT * slope * (len(base) + len(other)) / 2:
                largest = max(largest, math.expm1(slope * (len(side) - 1)))
    return largest or None


@dataclass(frozen=True)
class Slow:
    """What medians hide: how many launches of each side, of how many, take `SLOW` times a median (`slow` says which).

    Or, with `means`, samples within launches: the ratio of the launch means, the other side's over the base's.
    """

    base: int
    other: int
    launches: tuple[int, int]
    means: float | None = None

    @property
    def on_other(self) -> bool:
        """Whether the other side is the one that is slow at times."""
        if self.means is not None:
            return self.means > 1
        return self.other * self.launches[0] > self.base * self.launches[1]


def slow_samples(pair: Pair, blocks: Sequence[int]) -> Slow | None:
    """Samples that are far slower on one side, within launches of these blocks: by more than `SLOW` in their means.

    By a bound at 1 % on one side (`bounds`). None too where there are too few blocks for it, or samples in a launch.
    """
    base, other = pair.base, pair.other
    if len(blocks) < _FEWEST_BLOCKS or any(cell.samples < TAIL_SAMPLES * len(cell.launches) for cell in (base, other)):
        return None
    of_base, of_other = (dict(zip(cell.launches, np.log(cell.means).tolist(), strict=True)) for cell in (base, other))
    logs = {number: of_other[number] - of_base[number] for number in blocks}
    middle = median(logs.values())
    if abs(middle) <= math.log(SLOW):
        return None
    turn = math.copysign(1.0, middle)
    (ratio,) = bounds([{number: turn * log for number, log in logs.items()}], _KINDS)
    if ratio.lower <= math.log(SLOW):
        return None
    return Slow(0, 0, (len(blocks), len(blocks)), math.exp(turn * ratio.value))


def slow(base: Sequence[float], other: Sequence[float], one_median: bool = True) -> Slow | None:
    """The slow launches of two sides, where one side has more of them (Fisher's exact test).

    Slow relative to the median of both where there is `one_median`, however many they are; else to that of the side.
    """
    middles = [median((*base, *other))] * 2 if one_median else [median(base), median(other)]
    of_base, of_other = (sum(time > SLOW * middle for time in side)
                         for side, middle in zip((base, other), middles, strict=True))  # fmt: skip
    if of_base == of_other:
        return None
    table = [[of_base, len(base) - of_base], [of_other, len(other) - of_other]]
    if stats().fisher_exact(table).pvalue > _KINDS:
        return None
    return Slow(of_base, of_other, (len(base), len(other)))


def serial(base: Sequence[float], other: Sequence[float], in_blocks: bool) -> float | None:
    """Autocorrelation of neighbouring launches as a normal score, above 0 where they are alike; None below 10 launches.

    In blocks that of the blocks' log ratios, else the larger one of both sides. Of n independent values it has mean
    -1/n and variance about 1/n (Kendall and Ord, Time Series, 3rd ed., section 6.4).
    """
    logs = [np.log(base), np.log(other)]
    series = [logs[1] - logs[0]] if in_blocks else logs
    scores = [score for values in series if (score := _score(values)) is not None]
    return max(scores, default=None)


def _score(values: Floats) -> float | None:
    n = len(values)
    centred = values - values.mean()
    power = float((centred * centred).sum())
    if n < _MEMORY or power <= 1e-24:
        return None
    lag1 = float((centred[1:] * centred[:-1]).sum() / power)
    return (lag1 + 1 / n) * math.sqrt(n)


def dependent(scores: Iterable[float | None], beyond: float = REFUSED) -> bool:
    """Whether launches depend on those before them, by the autocorrelations (`serial`) of several cells."""
    numbers = [score for score in scores if score is not None]
    return bool(numbers) and sum(numbers) / len(numbers) > beyond


def together(cells: Sequence[Cell], in_blocks: bool) -> Floats:
    """Medians [n, cells] in seconds, a row for each block that all cells have, without blocks that were contended.

    Without blocks launches are combined as they were measured, as many as the cell with the fewest has.
    """
    if in_blocks:
        medians = [cell.by_launch for cell in cells]
        disturbed = set[int]().union(*(cell.disturbed for cell in cells))
        common = sorted(set.intersection(*map(set, medians)) - disturbed)
        return np.array([[of_cell[launch] for of_cell in medians] for launch in common]).reshape(-1, len(cells))
    quiet = [cell.without(cell.disturbed) if cell.disturbed else cell for cell in cells]
    fewest = min(len(cell.medians) for cell in quiet)
    return np.array([cell.medians[:fewest] for cell in quiet], dtype=float).T


class ProcessorTime(NamedTuple):
    """Of a side, medians over its launches: CPU seconds for each sample, and the time (s) that passed for it."""

    seconds: float
    wall: float

    @property
    def share(self) -> float:
        """CPU seconds in a second: how many processors were busy for it."""
        return self.seconds / self.wall if self.wall > 0 else 0.0


def cpu_time(cell: Cell) -> ProcessorTime | None:
    """None where the cell is of ranks, or was recorded without."""
    if not cell.cpu:
        return None
    seconds, walls = zip(*cell.cpu.values(), strict=True)
    return ProcessorTime(median(seconds), median(walls))


def only_waited(base: ProcessorTime, other: ProcessorTime) -> bool:
    """Whether one side needed more time for the same CPU seconds."""
    (little, much), (short, long) = sorted((base.seconds, other.seconds)), sorted((base.wall, other.wall))
    return much <= little * (1 + SAME) and long > short * (1 + APART)


@dataclass(frozen=True)
class Unequal:
    """A figure with more than one value, such as the loss after so many steps: the values of each side, sorted.

    `between_sides`: no value is common to sides that should give the same; else each side varies by itself.
    """

    name: str
    base: tuple[float, ...]
    other: tuple[float, ...]
    between_sides: bool


def unequal(pair: Pair) -> tuple[Unequal, ...]:
    """Figures that the same software gives wherever it runs the case: between the sides, and from launch to launch.

    Sides that ask for something else, such as more threads, or that have other software, may differ from each other.
    """
    base, other = pair.base.repeatable, pair.other.repeatable
    values = {name: (base.get(name, set()), other.get(name, set())) for name in sorted(base.keys() | other.keys())}
    case, other_case = pair.base.case, pair.other.case
    texts = (*pair.factor_differences, *pair.remarks)
    software = any(text.startswith(("library: ", "library-file: ")) for text in texts)
    alike = (case.workload, case.what, case.how) == (other_case.workload, other_case.what, other_case.how)
    together = alike and not software
    return tuple(Unequal(name, tuple(sorted(of_base)), tuple(sorted(of_other)), together and not of_base & of_other)
                 for name, (of_base, of_other) in values.items()
                 if (len(of_base | of_other) if together else max(len(of_base), len(of_other))) > 1)  # fmt: skip


@dataclass(frozen=True)
class DuetEffects:
    """Of launches in turns, factors over all sizes; None: too few launches tell.

    `start`: of a side's time where it was started first. Of the other side's over the base's time, `before`: in slices
    after its own rather than another world, `age`: in second halves of slices rather than first ones.
    """

    launches: int
    start: Estimate | None
    before: Estimate | None
    age: Estimate | None


def duet_effects(pairs: Sequence[Pair]) -> DuetEffects | None:
    """Of pairs of one table; None where no launch of both sides was in turns."""
    common = {id(pair): sorted(pair.base.turns.keys() & pair.other.turns.keys()) for pair in pairs}
    launches = sorted({launch for of_pair in common.values() for launch in of_pair})
    if not launches:
        return None

    def effect(name: str) -> Estimate | None:
        """Of what a turn has under this name, by launch the mean difference of the sides."""
        turns = ((launch, getattr(pair.base.turns[launch], name), getattr(pair.other.turns[launch], name))
                 for pair in pairs for launch in common[id(pair)])  # fmt: skip
        differences = grouped((launch, other - base) for launch, base, other in turns if None not in (base, other))
        logs = [fmean(values) for values in differences.values()]
        if len(logs) < FEWEST:
            return None
        return _estimate(fmean(logs), stdev(logs) / math.sqrt(len(logs)), len(logs) - 1, len(logs))

    return DuetEffects(len(launches), _of_start(pairs, common, launches), effect("before"), effect("age"))


def _of_start(pairs: Sequence[Pair], common: dict[int, list[int]], launches: Sequence[int]) -> Estimate | None:
    """Half the difference of mean log ratios between launches in which either side was first, with Welch's interval."""
    relative = grouped(
        ((pair.other.turns[launch].started < pair.base.turns[launch].started, launch), log)
        for pair in pairs for launch, log in _relative(pair, common[id(pair)]).items()
    )  # fmt: skip
    first = {other_first: [fmean(logs) for (started, _), logs in relative.items() if started is other_first]
             for other_first in (True, False)}  # fmt: skip
    if min(map(len, first.values())) < 2:
        return None
    spreads = [stdev(values) ** 2 / len(values) for values in first.values()]
    value, error = (fmean(first[True]) - fmean(first[False])) / 2, math.sqrt(sum(spreads)) / 2
    if error == 0.0:
        return Estimate(math.exp(value), (math.exp(value), math.exp(value)), len(launches))
    freedom = welch_freedom(spreads, [len(values) - 1 for values in first.values()])
    return _estimate(value, error, freedom, len(launches))


def _relative(pair: Pair, launches: Sequence[int]) -> dict[int, float]:
    base, other = pair.base.by_launch, pair.other.by_launch
    logs = {launch: math.log(other[launch] / base[launch]) for launch in launches
            if min(base.get(launch, 0.0), other.get(launch, 0.0)) > 0}  # fmt: skip
    middle = fmean(logs.values()) if logs else 0.0
    return {launch: log - middle for launch, log in logs.items()}


def _estimate(log: float, error: float, freedom: float, n: int) -> Estimate:
    half = float(stats().t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
    return Estimate(math.exp(log), (math.exp(log - half), math.exp(log + half)), n)
