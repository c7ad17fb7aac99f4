"""What a policy costs, and how much of it each step of the ladder gives back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from collbench.analysis.estimate import FEWEST
from collbench.analysis.observations import Cell
from collbench.analysis.options import FACTORS, Option, Question
from collbench.analysis.places import STEPS
from collbench.analysis.resample import middle, resampled


@dataclass(frozen=True)
class Recovery:
    """At one size: `isolated` takes `cost` times as long as `free`, and `step` gives back `share` of the difference.

    1 is all of it; above 1 it is faster than `free`. Intervals are None with too few launches.
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
    return [one for one in found if one.cost > 1]


def _isolation(option: Option) -> tuple[tuple[int, int, str], int]:
    return option.isolation_order


def _same_but_step(option: Option, other: Option) -> bool:
    return all(option[factor] == other[factor] for factor in FACTORS if factor != "isolation")


def _free(measured: dict[Option, Cell], isolated: Option) -> Option | None:
    """The least isolated option that differs in policy and step alone, and is of a less isolated policy."""
    others = [
        option
        for option in measured
        if all(option[factor] == isolated[factor] for factor in FACTORS if factor not in ("policy", "isolation"))
        and option.isolation_order[0] < isolated.isolation_order[0]
    ]
    return min(others, key=_isolation) if others else None


def _recovered(
    size: int, measured: dict[Option, Cell], free: Option, isolated: Option, step: Option, in_blocks: bool
) -> Recovery:
    cells = [measured[option] for option in (free, isolated, step)]
    centre = np.array([[float(np.median(cell.medians)) for cell in cells]])
    drawn = resampled(cells, in_blocks)
    costs, shares = _cost_and_share(drawn) if len(drawn) else (np.empty(0), np.empty(0))
    cost, share = (float(value[0]) for value in _cost_and_share(centre))
    found = Recovery(size, free, isolated, step, cost, middle(costs), share, middle(shares))
    enough = min(len(cell.medians) for cell in cells) >= FEWEST
    return found if enough else replace(found, cost_interval=None, share_interval=None)


def _cost_and_share(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of times [n, 3] free, isolated, step: isolated over free, and the part of their difference that step saves."""
    free, isolated, step = times.T
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(isolated > free, (isolated - step) / (isolated - free), np.nan)
    return isolated / free, share
