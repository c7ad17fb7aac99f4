"""What launches in turns show of the turns themselves: effects of start order, of the turn before, of a slice's age.

Each acts on the difference between two sides, with an interval over launches by Student's t.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from collbench.analysis.estimate import CONFIDENCE, FEWEST, Estimate
from collbench.analysis.optional import stats
from collbench.analysis.pairs import Pair
from collbench.analysis.results import Cell


@dataclass(frozen=True)
class Effects:
    """Of launches in turns, factors over all sizes together.

    `start`: of a side's time where it was started before the other. Of the other side's over the base's time, `before`:
    in slices after one of its own rather than of another world, `age`: in second halves of slices rather than first
    ones. None: too few launches tell.
    """

    launches: int
    start: Estimate | None
    before: Estimate | None
    age: Estimate | None


def effects(pairs: Sequence[Pair]) -> Effects | None:
    """Of pairs of one table; None where no launch of both sides was in turns."""
    common = {id(pair): sorted(pair.base.turns.keys() & pair.other.turns.keys()) for pair in pairs}
    launches = sorted({launch for of_pair in common.values() for launch in of_pair})
    if not launches:
        return None

    def by_launch(value: Callable[[Pair, int], float | None]) -> list[float]:
        found = [[value(pair, launch) for pair in pairs if launch in common[id(pair)]] for launch in launches]
        return [fmean(known) for one in found if (known := [item for item in one if item is not None])]

    def between(name: str) -> Callable[[Pair, int], float | None]:
        def difference(pair: Pair, launch: int) -> float | None:
            base, other = getattr(pair.base.turns[launch], name), getattr(pair.other.turns[launch], name)
            return None if base is None or other is None else float(other - base)

        return difference

    return Effects(
        len(launches), _of_start(pairs, common, launches), _mean(by_launch(between("before"))),
        _mean(by_launch(between("age"))),
    )  # fmt: skip


def _of_start(pairs: Sequence[Pair], common: dict[int, list[int]], launches: Sequence[int]) -> Estimate | None:
    """Half the difference of the mean log ratio between launches in which the other side, or the base, was first.

    Log ratios are taken relative to their pair's mean; Welch's interval.
    """
    first: dict[bool, list[float]] = {True: [], False: []}
    relative = {id(pair): _relative(pair, common[id(pair)]) for pair in pairs}
    for launch in launches:
        for other_first in (True, False):
            values = [
                relative[id(pair)][launch]
                for pair in pairs
                if launch in relative[id(pair)]
                and (pair.other.turns[launch].started < pair.base.turns[launch].started) is other_first
            ]
            if values:
                first[other_first].append(fmean(values))
    if min(map(len, first.values())) < 2:
        return None
    spreads = [stdev(values) ** 2 / len(values) for values in first.values()]
    value, error = (fmean(first[True]) - fmean(first[False])) / 2, math.sqrt(sum(spreads)) / 2
    if error == 0.0:
        return Estimate(math.exp(value), (math.exp(value), math.exp(value)), len(launches))
    freedom = sum(spreads) ** 2 / sum(
        spread**2 / (len(values) - 1) for spread, values in zip(spreads, first.values(), strict=True)
    )
    return _estimate(value, error, freedom, len(launches))


def _relative(pair: Pair, launches: Sequence[int]) -> dict[int, float]:
    base, other = pair.base.by_launch, pair.other.by_launch
    logs = {launch: math.log(other[launch] / base[launch]) for launch in launches
            if min(base.get(launch, 0.0), other.get(launch, 0.0)) > 0}  # fmt: skip
    middle = fmean(logs.values()) if logs else 0.0
    return {launch: log - middle for launch, log in logs.items()}


def _mean(logs: Sequence[float]) -> Estimate | None:
    if len(logs) < FEWEST:
        return None
    return _estimate(fmean(logs), stdev(logs) / math.sqrt(len(logs)), len(logs) - 1, len(logs))


def _estimate(log: float, error: float, freedom: float, n: int) -> Estimate:
    half = float(stats().t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
    return Estimate(math.exp(log), (math.exp(log - half), math.exp(log + half)), n)


def why_in_blocks(cells: Sequence[Cell]) -> dict[str, int]:
    """By the reason (`schema.record.Alone`), how many launches had no other world beside them."""
    found = Counter[str]()
    for cell in cells:
        found.update(cell.alone)
    return dict(found)
