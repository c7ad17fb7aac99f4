"""Which cells of a comparison differ: p values of all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from collbench.analysis import joint
from collbench.analysis.estimate import FEWEST
from collbench.analysis.studentised import Cell


class Launches(NamedTuple):
    """Launch medians (s, above 0) of both sides of a cell and the number of each launch; in blocks those are equal."""

    base: Sequence[float]
    other: Sequence[float]
    of_base: Sequence[int]
    of_other: Sequence[int]


class PValues(NamedTuple):
    """The p values of one cell (`joint`): of it alone, and adjusted for the `cells` that were tested together.

    `left` of these stand out no more than it does, itself included: among so many it has to stand out. `arrangements`:
    how many were computed, and `seed` that of their sample, None where they are all there are.
    """

    p: float
    p_adjusted: float
    cells: int
    left: int
    arrangements: int
    seed: int | None


def p_values(cells: Sequence[Launches], in_blocks: bool) -> list[PValues | None]:
    """The p values of each cell; None for one with fewer than `FEWEST` launches a side, which no verdict is given on.

    Such a cell is not among those tested together: with two or three launches some are equal by chance, and then no
    other cell stands out.
    """
    enough = [index for index, cell in enumerate(cells) if min(len(cell.base), len(cell.other)) >= FEWEST]
    found: list[PValues | None] = [None] * len(cells)
    if enough:
        family = [cells[index] for index in enough]
        for index, p in zip(enough, _in_blocks(family) if in_blocks else _of_sides(family), strict=True):
            found[index] = p
    return found


def _in_blocks(family: Sequence[Launches]) -> list[PValues]:
    cells = paired(family)
    blocks = 1 + max(int(cell.positions.max()) for cell in cells)
    return _p_values(cells, joint.flips(blocks, sum(len(cell.positions) for cell in cells)), True)


def paired(family: Sequence[Launches]) -> list[Cell]:
    """Logarithms of the times; the blocks that any cell has are numbered in their order."""
    blocks = sorted({number for cell in family for number in cell.of_base})
    place = {number: position for position, number in enumerate(blocks)}
    return [
        Cell(np.log([cell.base, cell.other]),
                   np.array([place[number] for number in cell.of_base]))
        for cell in family
    ]  # fmt: skip


def _of_sides(family: Sequence[Launches]) -> list[PValues]:
    """The sides in an order that does not depend on which of them is the base: then neither does a sample."""
    if [list(cell.base) for cell in family] > [list(cell.other) for cell in family]:
        family = [Launches(cell.other, cell.base, cell.of_other, cell.of_base) for cell in family]
    others = sorted({number for cell in family for number in cell.of_other})
    bases = sorted({number for cell in family for number in cell.of_base})
    places = ({number: position for position, number in enumerate(others)},
              {number: position for position, number in enumerate(bases, start=len(others))})  # fmt: skip
    cells = [
        Cell(np.log(np.array([*cell.other, *cell.base])),
                   np.array([places[0][n] for n in cell.of_other] + [places[1][n] for n in cell.of_base]))
        for cell in family
    ]  # fmt: skip
    launches = sum(len(cell.values) for cell in cells)
    return _p_values(cells, joint.exchanges(len(bases), len(others), launches), False)


def _p_values(cells: list[Cell], arrangements: joint.Arrangements, in_blocks: bool) -> list[PValues]:
    found = joint.adjusted(cells, arrangements, in_blocks)
    seed = joint.SEED if arrangements.drawn else None
    rows = zip(found.p.tolist(), found.p_adjusted.tolist(), found.left.tolist(), strict=True)
    return [PValues(p, adjusted, len(cells), left, len(arrangements.rows), seed) for p, adjusted, left in rows]
