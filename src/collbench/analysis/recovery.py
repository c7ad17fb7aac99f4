"""What a policy costs, and how much of it each less isolated step recovers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from collbench.analysis.bounds import ratio_in_blocks_of
from collbench.analysis.estimate import centre
from collbench.analysis.launches import together
from collbench.analysis.options import FACTORS, Option, Question
from collbench.analysis.results import Cell
from collbench.schema.axes import STEPS
from collbench.schema.place import PolicyOrder

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
        if isolated["isolation"] not in STEPS or len(steps) < 2 or isolated != max(steps, key=_isolation):
            continue
        free = _free(measured, isolated)
        if free is not None:
            pairs.append((free, isolated))
    return pairs


def _measured(question: Question, size: int) -> dict[Option, Cell]:
    return {option: cell for option, cell in question.cells[size].items() if cell.medians and min(cell.medians) > 0}


def _isolation(option: Option) -> tuple[PolicyOrder, int]:
    return option.isolation_order


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
    return min(others, key=_isolation) if others else None


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
