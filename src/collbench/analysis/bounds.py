"""Intervals and bounds of the ratio of two sides, from launches: of all sizes of a question at once, or of one cell.

The order within blocks was drawn at random. So if the logarithm of the ratio is x in every block, apart from noise that
is as likely to be on one side as on the other, its differences from x may have any signs: exchanging the sides of some
blocks changes the differences' signs in these. Without blocks, if the other side's logarithms are larger by x, they can
be exchanged with those of the base once x is taken off. A bound is the x from which on this test no longer rejects, so
the interval that is printed is the test that decides (Pitman, Supplement to the Journal of the Royal Statistical
Society 4 (1937) 119-130; Tukey and McLaughlin, Sankhya A 25 (1963) 331-352, for bounded differences).

The statistic is t of differences that are bounded: those of more than 1.345 standard deviations count as so many
(Huber, Annals of Mathematical Statistics 35 (1964) 73-101: 95 % efficient where noise is normal), so launches that are
far off move it little. The standard deviation is taken from the distances to x, which no exchange changes: with one
that depends on the signs the test would not be exact.

Of all cells at once the largest statistic of all counts (a single step of Westfall and Young, Resampling-Based Multiple
Testing, Wiley 1993, section 2.6), where the others stand at their own locations; for what a gate's cells lose at least,
at the same place as the cell. All cells are exchanged together, so that their dependence is part of the distribution.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache, partial
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from collbench.analysis.estimate import (
    CONFIDENCE,
    Estimate,
    Floats,
    HalfSteps,
    in_logarithms,
    needed,
    open_to_clock,
    welch_freedom,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


ALPHA = 0.05  # the probability that anything false is said of one question: at most this
TUNING = 1.345  # differences of more than so many standard deviations of normal noise count as this many
_OF_NORMAL = 1.4826  # the standard deviation of normal noise over its median distance from the middle
_STEPS, _PLACES, _ROUNDS = 60, 24, 3  # steps to a location, places at which an end is looked for, rounds between two
_SHARED = 96  # at so many places at the most all cells are tested together, three times
_PASSES = 2 * _PLACES * _ROUNDS  # so many times as long as a sum it takes to find the bounds of a cell
_EQUAL = 1e-9  # statistics that differ by less are equal: rounding breaks no ties


class Launches(NamedTuple):
    """Launch medians (s, above 0) of both sides of a cell and the number of each launch; in blocks those are equal."""

    base: Sequence[float]
    other: Sequence[float]
    of_base: Sequence[int]
    of_other: Sequence[int]


def in_order(base: Sequence[float], other: Sequence[float]) -> Launches:
    """Of a cell in blocks: value i of both sides is from block i."""
    return Launches(base, other, range(len(base)), range(len(other)))


class Interval(NamedTuple):
    """Logarithms of a cell's ratio, the other side over the base: its location, and the ends of its interval."""

    value: float
    low: float
    high: float


class Bounds(NamedTuple):
    """Logarithms of a cell's ratio: its location; what it is at least, of all cells at once; at most, by itself.

    With a confidence of 95 % each: whatever x, no `lower` of cells with ratios of x at most is above x; `upper` holds.
    """

    value: float
    lower: float
    upper: float


def intervals(cells: Sequence[Launches], in_blocks: bool, alpha: float = ALPHA) -> list[Interval]:
    """Of a question's cells: all hold with a confidence of 1 - `alpha`; infinite ends below six launches a side."""
    statistics, turn = _question(cells, in_blocks)
    ends = []
    for statistic, others in zip(statistics, _others(statistics), strict=True):
        kept = partial(_kept, statistic, others, alpha, np.abs)
        low, high = sorted((turn * _end(statistic, kept, -1.0), turn * _end(statistic, kept, 1.0)))
        ends.append(Interval(turn * statistic.value, low, high))
    return ends


def _question(cells: Sequence[Launches], in_blocks: bool) -> tuple[Sequence[_Cell], float]:
    """The cells of a question; and -1 where their logarithms are those of the base over the other side, else 1."""
    if in_blocks:
        return _of_blocks([log_ratios(cell) for cell in cells]), 1.0
    if [list(cell.base) for cell in cells] <= [list(cell.other) for cell in cells]:
        return _of_sides(cells), 1.0
    return _of_sides([Launches(other, base, *of[::-1]) for base, other, *of in cells]), -1.0


def intervals_of_sides(cells: Sequence[Launches], in_blocks: bool) -> list[Interval]:
    """As `intervals`, of cells that need not be of the same two sides: without blocks each has its part of `ALPHA`."""
    if in_blocks:
        return intervals(cells, in_blocks)
    return [intervals([cell], in_blocks, ALPHA / len(cells))[0] for cell in cells]


def excluded(cells: Sequence[Launches], in_blocks: bool, places: Sequence[Sequence[float]]) -> list[list[bool]]:
    """For each cell which `places`, logarithms of its ratio, `intervals` would leave out: in less of its time."""
    statistics, turn = _question(cells, in_blocks)
    turned = [turn * np.array(place) for place in places]
    kept = [_kept(statistic, _NONE, ALPHA, np.abs, place) for statistic, place in zip(statistics, turned, strict=True)]
    if len(statistics) > 1 and not all(mask.all() for mask in kept):
        kept = [_kept(statistic, others, ALPHA, np.abs, place)
                for statistic, others, place in zip(statistics, _others(statistics), turned, strict=True)]  # fmt: skip
    return [(~mask).tolist() for mask in kept]


def bounds(cells: Sequence[dict[int, float]], alpha: float = ALPHA) -> list[Bounds]:
    """Of cells that are judged together, each the log ratios by block; may be infinite with fewer than six blocks."""
    made = _of_blocks(cells, either=True)
    lower = _lower_ends(made, alpha)
    return [Bounds(statistic.value, low, _end(statistic, partial(_kept, statistic, _NONE, alpha, np.negative), 1.0))
            for statistic, low in zip(made, lower, strict=True)]  # fmt: skip


def _lower_ends(cells: Sequence[_Blocks], alpha: float) -> list[float]:
    """The least places that the test of all cells at that same place keeps for each of them.

    What a statistic must exceed is found at some places for all cells, with straight lines in between, and at the ends
    that result and beside them. One of them is 0, so a bound is above 0 only if the test rejects there.
    """
    values, spreads = np.array([(cell.value, max(cell.spread, _EQUAL)) for cell in cells]).T
    new = np.unique(values - spreads * np.geomspace(0.02, 20, _PLACES)[:, None])
    places = np.zeros(1)
    critical = _critical(cells, places, alpha)
    for beside in (0.03, 0.003, 0.0):
        new = np.setdiff1d(new, places)
        new = new[np.unique(np.linspace(0, len(new) - 1, min(len(new), _SHARED)).astype(int))]
        order = np.argsort(merged := np.concatenate([places, new]))
        critical = np.concatenate([critical, _critical(cells, new, alpha)])[order]
        places = merged[order]
        ends = np.array([_lower_end(cell, places, critical) for cell in cells])
        known = np.isfinite(ends)
        around = ends[known] + beside * (ends - values)[known] * np.array([[-1.0], [0.0], [1.0]])
        new = np.unique(around)
    lowest: list[float] = ends.tolist()
    return lowest


def _lower_end(cell: _Blocks, places: Floats, critical: Floats) -> float:
    """The least place below the location whose critical score is not exceeded; `places` ascend."""
    below = np.flatnonzero(places < cell.value)
    if cell.spread < _EQUAL or not len(below):
        return cell.value
    kept = cell.measured(places[below]) <= critical[below] + _EQUAL
    first = int(np.argmax(kept)) if kept.any() else len(below)
    if first == 0:
        return -math.inf
    high = cell.value if first == len(below) else places[first]
    between = np.linspace(places[first - 1], high, _PLACES)
    kept = cell.measured(between) <= np.interp(between, places, critical) + _EQUAL
    return float(between[np.argmax(kept)])


def _critical(cells: Sequence[_Blocks], places: Floats, alpha: float) -> Floats:
    """[places]: the least normal score that too few arrangements reach: in each the largest of all cells counts."""
    beyond = int(alpha * len(cells[0].signs) + _EQUAL)
    if beyond == 0:
        return np.full(len(places), np.inf)
    largest = np.full((len(places), len(cells[0].signs) - 1), -np.inf)
    for cell in cells:
        np.maximum(largest, cell.scores_of(cell.shares(places)[:, 1:]), out=largest)
    critical: Floats = -np.partition(-largest, beyond - 1, axis=-1)[:, beyond - 1]
    return critical


def location(cell: Launches, in_blocks: bool) -> float:
    """The logarithm of a cell's ratio, however few its launches."""
    if in_blocks:
        return _middle_of_blocks(np.log(cell.other) - np.log(cell.base))
    return _middle_of_sides(np.log(cell.base), np.log(cell.other))


#: Of a comparison the name of its base, and that of the other side.
OptionKey = TypeVar("OptionKey", bound=Hashable)


def of_controls(pairs: Mapping[tuple[OptionKey, OptionKey], Launches],
                in_blocks: bool) -> dict[tuple[OptionKey, OptionKey], float]:  # fmt: skip
    """For every option in turn as the control, how much slower than each other one it is at least (logarithms).

    By (other, control), of `pairs`, each two options once, with six launches a side or more. The bounds of one control
    hold at once (without blocks each with its part of `ALPHA`), so those of the best option do, whichever that is: none
    is above 0 (Edwards and Hsu, Journal of the American Statistical Association 78 (1983) 965-971).
    """
    return {names: turn * _end(cell, kept, -turn) for names, cell, turn, kept in _of_controls(pairs, in_blocks, ALPHA)}


def _of_controls(pairs: Mapping[tuple[OptionKey, OptionKey], Launches], in_blocks: bool,
                 alpha: float) -> Iterator[tuple[tuple[OptionKey, OptionKey], _Cell, float, _Kept]]:  # fmt: skip
    """By (other, control): its cell, 1 or -1 where that has the control's time below, and which places are kept."""
    if in_blocks:
        made: Sequence[_Cell] = _of_blocks([log_ratios(cell) for cell in pairs.values()], either=True)
    else:
        made = [_of_sides([cell])[0] for cell in pairs.values()]
    cells = dict(zip(pairs, made, strict=True))
    scores = {key: cell.scores(cell.value) for key, cell in cells.items()} if in_blocks else {}
    for control in dict.fromkeys(name for key in pairs for name in key):
        turns = {key: 1.0 if key[1] == control else -1.0 for key in pairs if control in key}
        part = alpha if in_blocks else alpha / len(turns)
        for key, turn in turns.items():
            cell = cells[key]
            rest = [turns[other] * scores[other] for other in turns if other != key] if in_blocks else []
            others = cell.share_of(np.max(rest, axis=0)) if rest else _NONE
            kept: _Kept = partial(_kept, cell, others, part, np.positive if turn > 0 else np.negative)
            if isinstance(cell, _Sides):
                ratio, error, freedom = cell.unequal
                reach = error * float(needed("scipy.special", "SciPy").stdtrit(freedom, 1 - part))
                kept = partial(_kept_by_either, kept, turn * ratio - reach, turn)
            yield (key[0] if turn > 0 else key[1], control), cell, turn, kept


def _kept_by_either(kept: _Kept, end: float, turn: float, places: Floats) -> NDArray[np.bool_]:
    """[places]: those that a test keeps, and those above an end; `turn` -1: of the opposites."""
    return kept(places) | (turn * places >= end)


#: Which places a test keeps; and which statistics stand out: large and small ones (`np.abs`), or those on one side.
_Kept = Callable[["Floats"], "NDArray[np.bool_]"]
_Fold = Callable[["Floats"], "Floats"]


def _others(cells: Sequence[_Cell]) -> list[Floats]:
    """For each cell the largest statistic of all others at their locations, [arrangements], as its own share."""
    scores = np.abs([cell.scores(cell.value) for cell in cells])
    return [
        cell.share_of(np.delete(scores, index, axis=0).max(axis=0, initial=-np.inf)) for index, cell in enumerate(cells)
    ]


def _kept(cell: _Cell, others: Floats, alpha: float, fold: _Fold, places: Floats) -> NDArray[np.bool_]:
    """[places]: where it or `others` [arrangements] stand out as much in more than this share of arrangements."""
    shares = fold(cell.shares(places))
    as_large = np.count_nonzero(np.maximum(shares, others) >= shares[:, :1] - _EQUAL, axis=-1)
    kept: NDArray[np.bool_] = as_large > int(alpha * shares.shape[1] + _EQUAL)
    return kept


_NONE = np.full(1, -np.inf)  # the largest statistic where there are no other cells


def _end(cell: _Cell, kept: _Kept, direction: float) -> float:
    """The farthest place in a direction from the location that is kept; infinite if all are."""
    if cell.spread < _EQUAL:
        return cell.value
    away = np.concatenate([[0.0], cell.spread * np.geomspace(0.02, 20, _PLACES)])
    for _ in range(_ROUNDS):
        possible = np.flatnonzero(kept(cell.value + direction * away))
        if not len(possible):
            return cell.value
        if possible[-1] == len(away) - 1:
            return direction * np.inf
        away = np.linspace(away[possible[-1]], away[possible[-1] + 1], _PLACES)
    return float(cell.value + direction * away[-1])


class _Cell(ABC):
    """Logarithms of a cell, in the arrangements of all cells that are judged together, the first as measured."""

    freedom: int

    @cached_property
    @abstractmethod
    def value(self) -> float: ...

    @cached_property
    @abstractmethod
    def spread(self) -> float: ...

    @abstractmethod
    def shares(self, places: Floats) -> Floats:
        """[places, arrangements]: t of the bounded differences from a place, as a share of the most: a correlation.

        With t and f its degrees of freedom, t / sqrt(f + t^2).
        """

    def scores(self, place: float) -> Floats:
        """[arrangements]: the normal score of t at a place, by which cells of few launches do not outdo those of many.

        Wallace, Annals of Mathematical Statistics 30 (1959) 1124-1130.
        """
        return self.scores_of(self.shares(np.array([place]))[0])

    def scores_of(self, shares: Floats) -> Floats:
        """What normal scores these shares of this cell have."""
        share = np.clip(shares, -1 + 1e-12, 1 - 1e-12)
        score: Floats = np.sign(share) * self._factor * np.sqrt(-self.freedom * np.log1p(-(share**2)))
        return score

    def share_of(self, scores: Floats) -> Floats:
        """What share of this cell has these normal scores [arrangements]."""
        share: Floats = np.sign(scores) * np.sqrt(-np.expm1(-((scores / self._factor) ** 2) / self.freedom))
        return share

    @property
    def _factor(self) -> float:
        return (8 * self.freedom + 1) / (8 * self.freedom + 3)


def log_ratios(cell: Launches) -> dict[int, float]:
    """By block the logarithm of the other side's time over that of the base."""
    logs = np.log(cell.other) - np.log(cell.base)
    return dict(zip(cell.of_base, logs.tolist(), strict=True))


def _of_blocks(cells: Sequence[dict[int, float]], either: bool = False) -> list[_Blocks]:
    """`either`: with all signs and their opposites, as bounds on one side need; else one of the two."""
    numbers = sorted(set().union(*cells))
    rows = flips(len(numbers), _PASSES * sum(map(len, cells)))
    signs = (np.concatenate([rows, -rows]) if either else rows).astype(float)
    place = {number: index for index, number in enumerate(numbers)}
    return [_Blocks(np.array([*cell.values()]), signs[:, [place[number] for number in cell]]) for cell in cells]


class _Blocks(_Cell):
    """Of logarithms of ratios [n], and the signs of their blocks [arrangements, n]."""

    def __init__(self, logs: Floats, signs: Floats) -> None:
        self.logs, self.signs = logs, signs
        self.freedom = len(logs) - 1

    @cached_property
    def value(self) -> float:
        return _middle_of_blocks(self.logs)

    @cached_property
    def spread(self) -> float:
        return float(np.abs(self.logs - self.value).max())

    def shares(self, places: Floats, signs: Floats | None = None) -> Floats:
        differences = _bounded(self.logs - places[:, None])
        most = np.sqrt(np.maximum(len(self.logs) * (differences**2).sum(axis=-1), 1e-300))
        share: Floats = differences @ (self.signs if signs is None else signs).T / most[:, None]
        return share

    def measured(self, places: Floats) -> Floats:
        """[places]: the normal scores of the launches as measured."""
        return self.scores_of(self.shares(places, self.signs[:1])[:, 0])


def _of_sides(cells: Sequence[Launches]) -> list[_Sides]:
    """The launches of a side have the same names in all cells."""
    others = sorted({number for cell in cells for number in cell.of_other})
    bases = sorted({number for cell in cells for number in cell.of_base})
    names = exchanges(len(bases), len(others), _PASSES * sum(len(cell.base) + len(cell.other) for cell in cells))
    of_other = {number: index for index, number in enumerate(others)}
    of_base = {number: index for index, number in enumerate(bases, start=len(others))}
    return [
        _Sides(
            np.log(cell.base), np.log(cell.other),
            names[:, [*(of_other[n] for n in cell.of_other), *(of_base[n] for n in cell.of_base)]].astype(float),
        )
        for cell in cells
    ]  # fmt: skip


class _Sides(_Cell):
    """Of logarithms of times of the base [m] and the other side [n]; `names` [arrangements, n + m], 1 on the other."""

    def __init__(self, base: Floats, other: Floats, names: Floats) -> None:
        self.base, self.other, self.names = base, other, names
        self.freedom = len(base) + len(other) - 2

    @cached_property
    def value(self) -> float:
        return _middle_of_sides(self.base, self.other)

    @cached_property
    def spread(self) -> float:
        return float(np.ptp(np.concatenate([self.other - self.value, self.base])))

    @cached_property
    def unequal(self) -> tuple[float, float, float]:
        """The ratio, its standard error and degrees of freedom where the sides may spread unequally (logarithms).

        Of Welch's t (Biometrika 34 (1947) 28-35) of both middles. The variance of a middle is that of bounded distances
        over the square of the share that is not bounded (Huber, Robust Statistics, Wiley 1981, section 3.2).
        """
        middles, variances, freedoms = list[float](), list[float](), list[float]()
        for logs in (self.base, self.other):
            middles.append(_middle_of_blocks(logs))
            distances = logs - middles[-1]
            bounded = _bounded(distances)
            free = float(np.mean(np.abs(bounded - distances) < _EQUAL))
            freedoms.append(free * len(logs) - 1)
            variances.append(float((bounded**2).mean()) / max(free, _EQUAL) ** 2 / (len(logs) - 1))
        return middles[1] - middles[0], math.sqrt(sum(variances)), welch_freedom(variances, freedoms)

    def shares(self, places: Floats) -> Floats:
        bounded, launches = _bounded_sides(self.base, self.other, places), len(self.base) + len(self.other)
        of_other = self.names.sum(axis=1)
        sums, total = bounded @ self.names.T, bounded.sum(axis=-1, keepdims=True)
        most = np.sqrt(np.maximum((bounded**2).sum(axis=-1, keepdims=True) - total**2 / launches, 1e-300))
        of_both = of_other * (launches - of_other)  # 0: all launches of the cell are on one side, so nothing differs
        weight = np.where(of_both > 0, np.sqrt(launches / np.maximum(of_both, 1)), 0.0)
        share: Floats = (sums - total * of_other / launches) * weight / most
        return share


def _middle_of_blocks(logs: Floats) -> float:
    """Where bounded differences add up to 0."""
    return _root(float(np.median(logs)), lambda value: float(_bounded(logs - value).mean()))


def _middle_of_sides(base: Floats, other: Floats) -> float:
    """Where bounded distances from the middle of both sides have the same mean on either side."""

    def apart(value: float) -> float:
        bounded = _bounded_sides(base, other, np.array([value]))[0]
        return float(bounded[: len(other)].mean() - bounded[len(other) :].mean())

    return _root(float(np.median(other) - np.median(base)), apart)


def _root(value: float, away: Callable[[float], float]) -> float:
    """Where `away` is 0, from a value near by."""
    for _ in range(_STEPS):
        step = away(value)
        value += step
        if abs(step) < _EQUAL:
            break
    return value


def _bounded_sides(base: Floats, other: Floats, places: Floats) -> Floats:
    """[places, n + m], the other side first, from which a place is taken off."""
    both = np.concatenate([other - places[:, None], np.broadcast_to(base, (len(places), len(base)))], axis=-1)
    return _bounded(both - _medians(both))


def _bounded(differences: Floats) -> Floats:
    """Differences [..., n], none larger than `TUNING` standard deviations; where most are 0, hardly more than signs."""
    most = np.maximum(TUNING * _OF_NORMAL * _medians(np.abs(differences)), 1e-9)
    return np.clip(differences, -most, most)


def _medians(values: Floats) -> Floats:
    """Of [..., n] the medians [..., 1], in a tenth of the time that `numpy.median` takes for few values."""
    ordered, n = np.sort(values, axis=-1), values.shape[-1]
    middle: Floats = (ordered[..., (n - 1) // 2, None] + ordered[..., n // 2, None]) / 2
    return middle


ALL = 1 << 15  # up to so many arrangements are taken all: the signs of 16 blocks
DRAWN = (249, 1999)  # where there are more, or all would take too long, so many are drawn, at the least and at the most
SEED = 1
_WORK = 5 * 10**7  # arrangements x launches that are computed: what bounds the time, a few seconds


@lru_cache(maxsize=4)  # a million entries each, at the most
def flips(blocks: int, launches: int) -> NDArray[np.int8]:
    """Signs of blocks [arrangements, blocks]: 1 or -1, names as measured (all in the first) or exchanged.

    Opposites tell the same, and are left out. The more `launches` of all cells, the fewer: all, or a sample by `SEED`.
    """
    number = 1 << max(blocks - 1, 0)
    if number <= ALL and number * launches <= _WORK:
        bits = (np.arange(number)[:, None] >> np.arange(blocks)) & 1
        return (1 - 2 * bits).astype(np.int8)
    rows = np.random.default_rng(SEED).choice(np.array([1, -1], np.int8), (_drawn(launches) + 1, blocks))
    rows[0] = 1
    return rows


@lru_cache(maxsize=4)  # a million entries each, at the most
def exchanges(base: int, other: int, launches: int) -> NDArray[np.int8]:
    """Ways to deal launches to two sides of these numbers [arrangements, other + base]: 1 on the other side, else 0.

    The first is the one that was measured. `launches` as for `flips`.
    """
    positions = base + other
    number = math.comb(positions, other)
    if number <= ALL and number * launches <= _WORK:
        rows = np.zeros((number, positions), np.int8)
        chosen = np.array(list(combinations(range(positions), other)))
        np.put_along_axis(rows, chosen, 1, axis=1)
        return rows
    rows = np.tile((np.arange(positions) < other).astype(np.int8), (_drawn(launches) + 1, 1))
    rows[1:] = np.random.default_rng(SEED).permuted(rows[1:], axis=1)
    return rows


def _drawn(launches: int) -> int:
    return min(max(_WORK // max(launches, 1), DRAWN[0]), DRAWN[1])


#: Of these parts of the wealth these shares are staked in each block: the bold part reaches 40 with six blocks that
#: agree, the cautious one bears more that do not.
PARTS, STAKES = np.array([0.2, 0.8]), np.array([0.6, 0.9])


def ratio_at_any_time(
    of: ArrayLike, over: ArrayLike, confidence: float = CONFIDENCE, half_steps: HalfSteps = (0.0, 0.0)
) -> Estimate:
    """As `estimate.ratio_in_blocks`, with an interval that holds after every block at once (a confidence sequence)."""
    ordered = np.sort(np.log(of) - np.log(over))
    ends = _least(ordered, 2 / (1 - confidence)), _most(ordered, 2 / (1 - confidence))
    estimate = Estimate(float(np.median(ordered)), ends if math.isfinite(ends[0]) else None, len(ordered))
    return in_logarithms(estimate, open_to_clock(of, over, half_steps))


def _least(ordered: Floats, wealth: float) -> float:
    """The order statistic below which so few values lie that a bet on it would not have been lost; else infinite."""
    outside = len(ordered) - fewest_wins(len(ordered), wealth)
    return float(ordered[outside]) if outside >= 0 else -math.inf


def _most(ordered: Floats, wealth: float) -> float:
    return -_least(-ordered[::-1], wealth)


def bounds_at_any_time(cells: Sequence[dict[int, float]]) -> list[Bounds]:
    """As `bounds.bounds`, by bets: they hold after every block. Each bet on one side needs half the wealth of two."""
    ordered = [np.sort([*cell.values()]) for cell in cells]
    return [Bounds(float(np.median(of_cell)), _least(of_cell, len(cells) / ALPHA), _most(of_cell, 1 / ALPHA))
            for of_cell in ordered]  # fmt: skip


def of_controls_at_any_time(
    pairs: Mapping[tuple[OptionKey, OptionKey], Launches],
) -> dict[tuple[OptionKey, OptionKey], float]:
    """As `bounds.of_controls`, by bets: they hold after every block. Each has its part of `ALPHA`."""
    others = Counter(name for key in pairs for name in key)
    bounds = {}
    for (base, other), cell in pairs.items():
        ordered = np.sort(np.log(cell.other) - np.log(cell.base))
        bounds[base, other] = _least(ordered, others[other] / ALPHA)
        bounds[other, base] = -_most(ordered, others[base] / ALPHA)
    return bounds


@cache
def fewest_wins(n: int, wealth: float) -> int:
    """The least number of n bets that must be won to reach this wealth; n + 1 where all are not enough."""
    return next((wins for wins in range(n + 1)
                 if PARTS @ ((1 + STAKES) ** wins * (1 - STAKES) ** (n - wins)) >= wealth), n + 1)  # fmt: skip
