"""Experiments that end when decided, in numbers: what is measured in each block, what that costs, and the verdicts.

What is asked for is decided as in `collbench launch`, by the same functions; only times are made up.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from collbench.analysis.compare import MARGIN, verdict_on
from collbench.analysis.deciding import LEAST_CHANCE, Executed, chance_of_verdict, next_block, questions
from collbench.analysis.estimate import FEWEST, Estimate
from collbench.analysis.observations import Cell, observe
from collbench.analysis.sequential import evidence, ratio_at_any_time
from collbench.cli.duration import CASE, EXECUTION
from collbench.launch import engines
from collbench.schema.case import Case

#: A place, and what is measured there.
Side = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """Which sides of an experiment are compared, and what measuring takes (s): `start` of a place, `case` of a side.

    `programs`: they are programs, which are measured or not executed at all.
    """

    pairs: list[tuple[Side, Side]]
    start: dict[int, float]
    case: dict[Side, float]
    programs: bool = False

    def measured(self, block: dict[int, Executed[int]]) -> set[Side]:
        """The sides of which a block has records."""
        of_place = {place: found.here | (found.elsewhere if self.programs else set()) for place, found in block.items()}
        return {side for side in self.case if side[1] in of_place.get(side[0], ())}

    def cost(self, block: dict[int, Executed[int]]) -> NDArray[np.float64]:
        """Of one block: launches, measurements, seconds."""
        sides, briefly = self.measured(block), sum(len(found.elsewhere) for found in block.values())
        seconds = sum(self.start[place] for place in block) + sum(self.case[side] for side in sides)
        return np.array([len(block), len(sides), seconds + (0 if self.programs else CASE * briefly)])

    @property
    def whole(self) -> NDArray[np.float64]:
        """The cost of a block in which everything is measured."""
        everything = Executed(frozenset(subject for _, subject in self.case), frozenset[int]())
        return self.cost(dict.fromkeys(self.start, everything))


def made_up(sizes: int, places: int = 2) -> Layout:
    """So many comparisons: a base and other places, each with its part of them as sizes. A size takes 0.3 s."""
    each = sizes // places
    pairs = [((0, pair % each), (1 + pair // each, pair % each)) for pair in range(sizes)]
    start = {place: engines.get("docker").start_seconds[0] for place in range(places + 1)}
    return Layout(pairs, start, {(place, size): 0.3 for place in start for size in range(each)})


def as_in(run: Path) -> tuple[Layout, NDArray[np.float64]]:
    """The layout of a run, and the logarithms of its launches' times [sides, launches, pairs]."""
    cells = [cell for cell in observe(run).cells.values() if cell.medians]
    found = [pair for of_factor in questions(cells).values() for pair in of_factor]
    found = [pair for pair in found if len(pair.base.medians) > 2 and pair.base.launches == pair.other.launches]
    launches = min(len(pair.base.medians) for pair in found)
    times = [[cell.medians[:launches] for cell in (pair.base, pair.other)] for pair in found]
    places = {where: number for number, where in enumerate(dict.fromkeys(cell.case.where for cell in cells))}
    subjects = {what: number for number, what in enumerate(dict.fromkeys(_subject(cell) for cell in cells))}
    side = {id(cell): (places[cell.case.where], subjects[_subject(cell)]) for cell in cells}
    start = {}
    for where, place in places.items():
        first, more = engines.get(where.engine).start_seconds
        start[place] = first + more * (where.ranks - 1) * (where.policy == "single")
    pairs = [(side[id(pair.base)], side[id(pair.other)]) for pair in found]
    programs = not any(cell.case["backend"] for cell in cells)
    case = {side[id(cell)]: _seconds(cell) for cell in cells}
    return Layout(pairs, start, case, programs), np.log(times).transpose(1, 2, 0)


def _subject(cell: Cell) -> Case:
    return Case(workload=cell.case.workload, what=cell.case.what, how=cell.case.how)


def _seconds(cell: Cell) -> float:
    """What a case takes in a launch: its samples, and what `plan` estimates for the rest."""
    samples = cell.samples / len(cell.medians) * median(cell.medians)
    return samples + (CASE if cell.case["backend"] else EXECUTION)


def at_any_time(logs: NDArray[np.float64]) -> Estimate:
    """The ratio of one pair, by its log ratios."""
    return ratio_at_any_time(np.exp(logs).tolist(), [1.0] * len(logs))


@dataclass(frozen=True)
class Ended:
    """An experiment that has ended. `verdicts` are those of `compare` on all that was measured.

    `decided` are those with which pairs were first settled, decided or given up, and `blocks` how many they had then;
    `cost` is as that of `Layout`.
    """

    verdicts: list[str]
    decided: list[str]
    blocks: NDArray[np.int64]
    cost: NDArray[np.float64]


def until(logs: NDArray[np.float64], layout: Layout) -> Ended:
    """Pairs [blocks, pairs] in an experiment of at most so many blocks that ends when they are decided."""
    most, pairs = logs.shape
    measured = np.zeros(logs.shape, dtype=bool)
    measured[:FEWEST] = True
    cost, blocks, decided = FEWEST * layout.whole, np.full(pairs, most), ["inconclusive"] * pairs
    verdicts = decided
    for number in range(FEWEST, most + 1):
        verdicts, hopeless = _judged(logs[:number], measured[:number], most)
        settled = [verdict != "inconclusive" or gone for verdict, gone in zip(verdicts, hopeless, strict=True)]
        for pair in np.flatnonzero(settled & (blocks == most)).tolist():
            blocks[pair], decided[pair] = number, verdicts[pair]
        sides = {side for pair, done in zip(layout.pairs, settled, strict=True) if not done for side in pair}
        if not sides or number == most:
            break
        wanted = next_block(layout.pairs, sides)
        cost, of_block = cost + layout.cost(wanted), layout.measured(wanted)
        measured[number] = [base in of_block and other in of_block for base, other in layout.pairs]
    return Ended(verdicts, decided, blocks, cost)


def _judged(logs: NDArray[np.float64], measured: NDArray[np.bool_], most: int) -> tuple[list[str], list[bool]]:
    """Verdicts after these blocks, and whether a later one is too unlikely."""
    of_pairs = [np.flatnonzero(column) for column in measured.T]
    found = evidence([{n: logs[n, pair] for n in own.tolist()} for pair, own in enumerate(of_pairs)])
    verdicts, hopeless = list[str](), list[bool]()
    for pair, own in enumerate(of_pairs):
        mine = logs[own, pair]
        verdicts.append(verdict_on(at_any_time(mine), found[pair].p_adjusted, MARGIN))
        hopeless.append(chance_of_verdict(mine.tolist(), most - len(logs), MARGIN) < LEAST_CHANCE)
    return verdicts, hopeless
