"""What options trade: how much factors matter, where two options cross, what isolation costs and a step saves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collbench.analysis.advise import AtSize
from collbench.analysis.bounds import ratio_in_blocks_of
from collbench.analysis.estimate import centre
from collbench.analysis.launches import together
from collbench.analysis.options import FACTORS, Option, Question
from collbench.analysis.results import Cell
from collbench.schema.axes import STEPS

if TYPE_CHECKING:
    from numpy.typing import NDArray


class FactorEffect(NamedTuple):
    """How much a factor matters: the ratio of its slowest to its fastest value, and which value is slowest.

    The least and the largest ratio among groups of options that are alike in everything else, and the slowest value
    where the ratio is largest.
    """

    least: float
    largest: float
    slowest: str


def factor_effects(question: Question, size: AtSize) -> dict[str, FactorEffect]:
    """By factor that varies how much it matters at a size; the host has no step, so it is in one group with each."""
    effects = {}
    for factor in question.varying:
        groups = [group for group in _groups(question, size, factor) if len(group) > 1]
        ratios = [max(group.values()) / min(group.values()) for group in groups]
        if ratios:
            widest = groups[ratios.index(max(ratios))]
            effects[factor] = FactorEffect(min(ratios), max(ratios), max(widest, key=lambda value: widest[value]))
    return effects


def _groups(question: Question, size: AtSize, factor: str) -> list[dict[str, float]]:
    """Ratios of options by their value, in groups that are alike in all other factors; of equal values the fastest."""
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
    return [*groups.values()]


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
    sizes = [size for size in question.sizes if _has_times(question, size, below) and _has_times(question, size, above)]
    if len(sizes) < 2:
        return sizes, np.empty(0)
    rows = together([question.cells[size][option] for option in (below, above) for size in sizes], in_blocks)
    logs = np.log(rows).reshape(len(rows), 2, len(sizes))
    return sizes, np.array([crossing(_axis(sizes), upper - lower) for lower, upper in logs])


def _has_times(question: Question, size: int, option: Option) -> bool:
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


#: A share of which the whole interval lies within this, either way, is none.
NOTHING = 0.1

#: Shares are cut off here, either way: beyond it there was almost nothing to recover.
_MOST = 100.0


@dataclass(frozen=True)
class Recovery:
    """At one size asked for (bytes): `isolated` takes `cost` times as long as `free`; `step` recovers `share` of that.

    A share of 1 is all of the difference; above 1 the step is faster than `free`. Every block has a cost and a share;
    these are their medians and intervals, which are None with too few launches.
    """

    size: int
    free: Option
    isolated: Option
    step: Option
    cost: float
    cost_interval: tuple[float, float] | None
    share: float
    share_interval: tuple[float, float] | None

    @property
    def decided(self) -> bool:
        """Whether the interval of the share excludes 0, or lies close around it."""
        if self.share_interval is None:
            return False
        low, high = self.share_interval
        return low > 0 or high < 0 or max(-low, high) <= NOTHING


def recoveries(question: Question, size: int, in_blocks: bool) -> list[Recovery]:
    """For each library and each policy in containers: the most isolated step, and what each other step recovers.

    `free` is the same library on the host, or else in one container for all at its least isolated step. Only steps of a
    policy that costs something are listed.
    """
    measured = _measured(question, size)
    recovered = [
        _recovered(size, measured, free, isolated, step, in_blocks)
        for free, isolated in isolated_pairs(question, size)
        for step in measured
        if _same_but_step(step, isolated) and step != isolated
    ]
    return [recovery for recovery in recovered if recovery is not None]


def isolated_pairs(question: Question, size: int) -> list[tuple[Option, Option]]:
    """At one size asked for (bytes), for each library and policy `free` and the most isolated of several steps."""
    measured = _measured(question, size)
    pairs = []
    for isolated in measured:
        steps = [option for option in measured if _same_but_step(option, isolated)]
        if (
            isolated["isolation"] not in STEPS
            or len(steps) < 2
            or isolated != max(steps, key=lambda option: option.isolation_order)
        ):
            continue
        free = _free(measured, isolated)
        if free is not None:
            pairs.append((free, isolated))
    return pairs


def _measured(question: Question, size: int) -> dict[Option, Cell]:
    return {option: cell for option, cell in question.cells[size].items() if cell.medians and min(cell.medians) > 0}


def _same_but_step(option: Option, other: Option) -> bool:
    return all(option[factor] == other[factor] for factor in FACTORS if factor != "isolation")


_PLACE = ("policy", "isolation", "engine")


def _free(measured: dict[Option, Cell], isolated: Option) -> Option | None:
    """The least isolated option that differs in policy and step alone, and whose policy is certainly less isolated.

    Policies between `multi` and `single` have no such order, nor have near and far memory.
    """
    others = [
        option
        for option in measured
        if all(option[factor] == isolated[factor] for factor in FACTORS if factor not in _PLACE)
        and option["engine"] in ("", isolated["engine"])  # the host has none
        and option.isolation_order[0][0] < isolated.isolation_order[0][0]
    ]
    return min(others, key=lambda option: option.isolation_order, default=None)


def _recovered(
    size: int, measured: dict[Option, Cell], free: Option, isolated: Option, step: Option, in_blocks: bool
) -> Recovery | None:
    """From blocks that have all three; None where there are none, or where isolation costs nothing in most of them."""
    rows = together([measured[option] for option in (free, isolated, step)], in_blocks)
    if not len(rows):
        return None
    steps = (measured[isolated].half_step, measured[free].half_step)
    cost = ratio_in_blocks_of(measured[free])(rows[:, 1], rows[:, 0], half_steps=steps)
    share = centre(shares(rows))
    if cost.value <= 1:
        return None
    return Recovery(size, free, isolated, step, cost.value, cost.interval, share.value, share.interval)


def shares(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of times [n, 3] free, isolated, step: the share [n] of what isolation costs that the step saves.

    Where isolation costs nothing, there is nothing to recover: what the step saves counts as all or nothing of it.
    """
    free, isolated, step = rows.T
    cost, saved = isolated - free, isolated - step
    nothing = np.where(saved > 0, _MOST, -_MOST)
    return np.clip(np.where(cost > 0, saved / np.where(cost > 0, cost, 1.0), nothing), -_MOST, _MOST)
