"""How many times as long: two sides of an experiment, compared block by block, with an exact interval."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from collbench.schema.record import Record
from collbench.schema.summary import median_interval_ranks

#: Below this number of blocks no interval of a median reaches 95 %.
FEWEST = 6


@dataclass(frozen=True)
class Ratio:
    """The median of the blocks' ratios, and its 95 % interval; None with fewer than six blocks.

    A block holds one launch of each side, close in time and in a random order, so what drifts divides out. The
    interval asks nothing of the distribution (`median_interval_ranks`); it speaks of launches on this machine.
    """

    value: float
    interval: tuple[float, float] | None
    blocks: int


def ratio(of: Iterable[Record], over: Iterable[Record]) -> Ratio | None:
    """Launch medians of one side over those of the other, for the blocks (launch numbers) that both have.

    None where they have no block in common.
    """
    mine, theirs = _by_block(of), _by_block(over)
    found = sorted(mine[block] / theirs[block] for block in mine.keys() & theirs.keys() if theirs[block] > 0)
    if not found:
        return None
    low, high = median_interval_ranks(len(found))
    interval = (found[low], found[high]) if len(found) >= FEWEST else None
    return Ratio(median(found), interval, len(found))


def _by_block(records: Iterable[Record]) -> dict[int, float]:
    return {record.launch: record.seconds.p50 for record in records if record.seconds is not None}
