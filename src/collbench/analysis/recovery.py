"""What a policy costs, and how much of it each step of the ladder gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from collbench.analysis.blocks import together
from collbench.analysis.estimate import centre, ratio_in_blocks
from collbench.analysis.observations import Cell
from collbench.analysis.options import FACTORS, Option, Question
from collbench.schema.axes import STEPS
from collbench.schema.policy import PolicyOrder

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A share beyond this, either way, says no more than that almost nothing was to be given back.
_MOST = 100.0


@dataclass(frozen=True)
class Recovery:
    """At one size: `isolated` takes `cost` times as long as `free`, and `step` gives back `share` of the difference.

    1 is all of it; above 1 it is faster than `free`. Every block has a cost and a share; theirs are the medians and
    intervals, which are None with too few launches.
    """

    bytes: int
    free: Option
    isolated: Option
    step: Option
    cost: float
    cost_interval: tuple[float, float] | None
    share: float
    share_interval: tuple[float, float] | None


def recoveries(question: Question, size: int, in_blocks: bool) -> list[Recovery]:
    """For each library and each policy in containers: the most isolated step, and what each other step gives back.

    `free` is the same library on the host, or else in one container for all at its least isolated step. Only steps of a
    policy that costs something are listed.
    """
    measured = {option: cell for option, cell in question.cells[size].items() if cell.medians and min(cell.medians) > 0}
    found = []
    for isolated in measured:
        steps = [option for option in measured if _same_but_step(option, isolated)]
        if isolated["isolation"] not in STEPS or len(steps) < 2 or isolated != max(steps, key=_isolation):
            continue
        free = _free(measured, isolated)
        if free is not None:
            found += [_recovered(size, measured, free, isolated, step, in_blocks) for step in steps if step != isolated]
    return [one for one in found if one is not None]


def _isolation(option: Option) -> tuple[PolicyOrder, int]:
    return option.isolation_order


def _same_but_step(option: Option, other: Option) -> bool:
    return all(option[factor] == other[factor] for factor in FACTORS if factor != "isolation")


_PLACE = ("policy", "isolation", "engine")


def _free(measured: dict[Option, Cell], isolated: Option) -> Option | None:
    """The least isolated option that differs in policy and step alone, and whose policy is surely less isolated.

    Of two policies between `multi` and `single` nobody knows which is, nor of near and far.
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
    """Of blocks that have all three; None where there are none, or where isolation costs nothing in most of them."""
    rows = together([measured[option] for option in (free, isolated, step)], in_blocks)
    if not len(rows):
        return None
    steps = (measured[isolated].half_step, measured[free].half_step)
    cost = ratio_in_blocks(rows[:, 1], rows[:, 0], half_steps=steps)
    back = centre(shares(rows))
    if cost.value <= 1:
        return None
    return Recovery(size, free, isolated, step, cost.value, cost.interval, back.value, back.interval)


def shares(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of times [n, 3] free, isolated, step: the part [n] of what isolation costs that the step saves.

    Where isolation costs nothing, there is nothing to give back: what the step saves counts as all or nothing of it.
    """
    free, isolated, step = rows.T
    cost, saved = isolated - free, isolated - step
    nothing = np.where(saved > 0, _MOST, -_MOST)
    return np.clip(np.where(cost > 0, saved / np.where(cost > 0, cost, 1.0), nothing), -_MOST, _MOST)
