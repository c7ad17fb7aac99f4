"""Which launches of two cells can be compared: those that were measured in the same way."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from collbench.analysis.estimate import FEWEST
from collbench.analysis.observations import Cell, methods
from collbench.analysis.pair import Pair
from collbench.analysis.ways import How

#: After a difference of the gate alone: what would make it go.
BARRIER = '; gate = "barrier" in the plan (or --gate barrier) measures both'


class Alike(NamedTuple):
    """Medians (s) of the launches that count and their numbers; in blocks, entry i of both is of one block.

    `refused` says in what the sides differ where too few launches agree, and `left_out` how many launches were measured
    in another way.
    """

    base: list[float]
    other: list[float]
    of_base: list[int]
    of_other: list[int]
    refused: str = ""
    left_out: int = 0


def alike(pair: Pair, in_blocks: bool) -> Alike:
    """The launches of both sides that were measured alike; all launches where too few were."""
    return _in_blocks(pair) if in_blocks else _of_sides(pair)


def _in_blocks(pair: Pair) -> Alike:
    base, other = (
        dict(zip(cell.launches, zip(cell.medians, cell.ways, strict=True), strict=True))
        for cell in (pair.base, pair.other)
    )
    common = sorted(base.keys() & other.keys())
    agreed = [n for n in common if not apart(base[n][1], other[n][1], pair.free)]
    refused = "" if len(agreed) >= min(FEWEST, len(common)) else method_differences(pair)
    kept = common if refused else agreed
    left_out = len(common) - len(kept)
    return Alike([base[n][0] for n in kept], [other[n][0] for n in kept], kept, kept, refused, left_out)


def _of_sides(pair: Pair) -> Alike:
    """All launches where both sides were measured in one way; else those of the way with the most launches of both."""
    base, other = pair.base, pair.other
    if not any(apart(of_base, of_other, pair.free) for of_base in base.how for of_other in other.how):
        return _all(base, other)
    counts: Counter[How] = Counter()
    for way in base.how:
        counts[way] = min(len(_of_way(base, way, pair.free)), len(_of_way(other, way, pair.free)))
    way, most = max(counts.items(), key=lambda item: (item[1], item[0]))
    if most < FEWEST:
        return _all(base, other, method_differences(pair))
    of_base, of_other = _of_way(base, way, pair.free), _of_way(other, way, pair.free)
    left_out = len(base.medians) - len(of_base) + len(other.medians) - len(of_other)
    return Alike([*of_base.values()], [*of_other.values()], [*of_base], [*of_other], "", left_out)


def _all(base: Cell, other: Cell, refused: str = "") -> Alike:
    return Alike(list(base.medians), list(other.medians), list(base.launches), list(other.launches), refused)


def _of_way(cell: Cell, way: How, free: frozenset[str]) -> dict[int, float]:
    """By launch."""
    rows = zip(cell.launches, cell.medians, cell.ways, strict=True)
    return {launch: time for launch, time, own in rows if not apart(own, way, free)}


@lru_cache(maxsize=1024)  # few ways, a million records
def apart(of_base: How, of_other: How, free: frozenset[str]) -> bool:
    """Whether two ways of measuring differ in what is recorded of both, but for what is free."""
    base, other = dict(of_base), dict(of_other)
    return any(base[name] != other[name] for name in base.keys() & other.keys() if name not in free)


def method_differences(pair: Pair) -> str:
    """`gate barrier against roundtime`: in what the sides were measured differently."""
    base, other = (
        {name: " and ".join(sorted(values)) for name, values in methods([cell]).items()}
        for cell in (pair.base, pair.other)
    )
    names = [name for name in sorted(base.keys() & other.keys() - pair.free) if base[name] != other[name]]
    said = "; ".join(f"{name} {base[name]} against {other[name]}" for name in names)
    return f"{said}{BARRIER}" if names == ["gate"] else said
