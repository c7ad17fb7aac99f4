"""Which launches of two cells can be held against each other: those that were measured in the same way."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from collbench.analysis.estimate import FEWEST
from collbench.analysis.observations import Cell, How
from collbench.analysis.pairs import Pair, methods


class Alike(NamedTuple):
    """Medians (s) of the launches that count; in blocks, entry i of both is of one block.

    `refused` says in what the sides differ where too few launches agree, and `left_out` how many launches were measured
    in another way.
    """

    base: list[float]
    other: list[float]
    refused: str = ""
    left_out: int = 0


def alike(pair: Pair, in_blocks: bool) -> Alike:
    """The launches of both sides that were measured alike; all that there are where not enough of them were."""
    return _in_blocks(pair) if in_blocks else _of_sides(pair)


def _in_blocks(pair: Pair) -> Alike:
    base, other = pair.base, pair.other
    mine = dict(zip(base.launches, zip(base.medians, base.ways, strict=True), strict=True))
    theirs = dict(zip(other.launches, zip(other.medians, other.ways, strict=True), strict=True))
    common = sorted(mine.keys() & theirs.keys())
    agreed = [n for n in common if not _apart(mine[n][1], theirs[n][1], pair.free)]
    refused = "" if len(agreed) >= min(FEWEST, len(common)) else _said(pair)
    kept = common if refused else agreed
    return Alike([mine[n][0] for n in kept], [theirs[n][0] for n in kept], refused, len(common) - len(kept))


def _of_sides(pair: Pair) -> Alike:
    """All launches where both sides have one way; else those of the way that both have the most launches of."""
    base, other = pair.base, pair.other
    if not any(_apart(mine, theirs, pair.free) for mine in base.how for theirs in other.how):
        return Alike(list(base.medians), list(other.medians))
    counts: Counter[How] = Counter()
    for way in base.how:
        counts[way] = min(len(_of_way(base, way, pair.free)), len(_of_way(other, way, pair.free)))
    way, most = max(counts.items(), key=lambda one: (one[1], one[0]))
    if most < FEWEST:
        return Alike(list(base.medians), list(other.medians), _said(pair))
    mine, theirs = _of_way(base, way, pair.free), _of_way(other, way, pair.free)
    left_out = len(base.medians) - len(mine) + len(other.medians) - len(theirs)
    return Alike(mine, theirs, "", left_out)


def _of_way(cell: Cell, way: How, free: frozenset[str]) -> list[float]:
    return [time for time, own in zip(cell.medians, cell.ways, strict=True) if not _apart(own, way, free)]


@lru_cache(maxsize=1024)  # few ways, a million records
def _apart(mine: How, theirs: How, free: frozenset[str]) -> bool:
    one, other = dict(mine), dict(theirs)
    return any(one[name] != other[name] for name in one.keys() & other.keys() if name not in free)


def _said(pair: Pair) -> str:
    """`gate barrier against roundtime`: each way of measuring in which the sides differ."""
    mine, theirs = methods(pair.base), methods(pair.other)
    names = sorted(name for name in mine.keys() & theirs.keys() if name not in pair.free)
    return "; ".join(f"{name} {mine[name]} against {theirs[name]}" for name in names if mine[name] != theirs[name])
