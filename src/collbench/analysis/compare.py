"""Two sides, cell by cell: both medians, the difference with its interval, p, and a verdict against a margin."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, NamedTuple

from collbench.analysis.estimate import FEWEST, Estimate, centre, ratio_in_blocks, ratio_of_sides
from collbench.analysis.pairs import Pair
from collbench.analysis.significance import ALPHA, adjusted, either, mann_whitney, signed_rank

#: Differences below this are called negligible.
MARGIN = 0.02

#: Nobody starts more launches than this to settle a cell.
MOST = 1000

Verdict = Literal["same", "negligible", "faster", "slower", "inconclusive", "not comparable"]


@dataclass(frozen=True)
class Comparison:
    """One cell. Times in seconds; `ratio` is the other side over the base, so above 1 the other is slower.

    `p` is Mann and Whitney's; `p_blocks`, where launches are paired, Wilcoxon's signed-rank. The first sees what stands
    out from all launches, the second what is the same in every block while blocks differ. `p_adjusted` is
    that of both together (`significance.either`) after Benjamini and Hochberg, over all cells compared together.
    `paper_diff` is the Diff% of Xu, Shi and Chu (2017), (base - other) / base x 100 on means: negative where the other
    is slower. `launches_more` is what the verdict lacks, None where none is lacking or more than `MOST` would be.
    `blocks`: launches of both sides were paired.
    """

    pair: Pair
    base: Estimate | None
    other: Estimate | None
    ratio: Estimate | None
    p: float | None
    p_blocks: float | None
    p_adjusted: float | None
    paper_diff: float | None
    verdict: Verdict
    why: str
    launches_more: int | None
    blocks: bool

    @property
    def percent(self) -> float | None:
        """Difference in per cent of the base; positive where the other side is slower."""
        return None if self.ratio is None else (self.ratio.value - 1) * 100


def compare(pairs: Sequence[Pair], margin: float = MARGIN, in_blocks: bool = True) -> list[Comparison]:
    """A comparison of each pair, in their order. `in_blocks`: launches of equal number belong together.

    Raises:
        RequestError: SciPy is not installed.
    """
    values = [_values(pair, in_blocks) for pair in pairs]
    reasons = [_not_comparable(pair, *values[index], in_blocks) for index, pair in enumerate(pairs)]
    tests = tests_of([value for value, reason in zip(values, reasons, strict=True) if not reason], in_blocks)
    return [
        _not_compared(pair, reason, in_blocks) if reason else _compared(pair, *value, next(tests), margin, in_blocks)
        for pair, value, reason in zip(pairs, values, reasons, strict=True)
    ]


class Tests(NamedTuple):
    """The p values of one cell."""

    p: float
    p_blocks: float | None
    p_adjusted: float


def tests_of(values: list[tuple[list[float], list[float]]], in_blocks: bool) -> Iterator[Tests]:
    """Of every cell that can be compared, in their order."""
    sides = mann_whitney([(other, base) for base, other in values])
    blocks: list[float | None] = [None] * len(values)
    if in_blocks:
        blocks = list(signed_rank([[math.log(b / a) for a, b in zip(*both, strict=True)] for both in values]))
    corrected = adjusted([either(*both) for both in zip(sides, blocks, strict=True)])
    return iter([Tests(*row) for row in zip(sides, blocks, corrected, strict=True)])


def _values(pair: Pair, in_blocks: bool) -> tuple[list[float], list[float]]:
    """Launch medians of the base and of the other side; in blocks, of the launches that both have, in one order."""
    if not in_blocks:
        return list(pair.base.medians), list(pair.other.medians)
    mine, theirs = pair.base.by_launch, pair.other.by_launch
    both = sorted(mine.keys() & theirs.keys())
    return [mine[launch] for launch in both], [theirs[launch] for launch in both]


def _compared(
    pair: Pair,
    base: list[float],
    other: list[float],
    tests: Tests,
    margin: float,
    in_blocks: bool,
) -> Comparison:
    ratio = ratio_in_blocks(other, base) if in_blocks else ratio_of_sides(other, base)
    verdict, why, more = judge(ratio, tests.p_adjusted, margin)
    sides = (centre(base), centre(other))
    return Comparison(pair, *sides, ratio, *tests, _paper_diff(pair), verdict, why, more, in_blocks)


def _not_compared(pair: Pair, reason: str, in_blocks: bool) -> Comparison:
    """What was measured is shown all the same, of every launch."""
    base, other = (centre(cell.medians) if cell.medians else None for cell in (pair.base, pair.other))
    return Comparison(pair, base, other, None, None, None, None, None, "not comparable", reason, None, in_blocks)


def _not_comparable(pair: Pair, base: list[float], other: list[float], in_blocks: bool) -> str:
    """Why a cell has no verdict; empty where it can have one."""
    if pair.refused:
        return "; ".join(pair.refused)
    for cell, name in ((pair.base, pair.base_name), (pair.other, pair.other_name)):
        if not cell.medians:
            reasons = "; ".join(sorted(cell.reasons)) or "not measured"
            return f"{name}: {'failed' if cell.failed else 'skipped'}: {reasons}"
    if not base or not other:
        return "no block of launches has both sides" if in_blocks else "not measured"
    if min(*base, *other) <= 0.0:
        return "a median of 0: the clock does not resolve this operation"
    return ""


def judge(ratio: Estimate, p_adjusted: float, margin: float) -> tuple[Verdict, str, int | None]:
    """The verdict on a ratio, why, and how many launches a side it lacks (None: none, or more than `MOST`).

    `same` and `negligible` need the whole interval within the margin; `faster` and `slower` an interval that excludes
    1, a p that says so too, and a ratio beyond the margin. Everything else is inconclusive.
    """
    if ratio.interval is None:
        return "inconclusive", f"needs {FEWEST - ratio.n} more launches at least", FEWEST - ratio.n
    significant = ratio.excludes(1.0) and p_adjusted <= ALPHA
    if ratio.within(1 / (1 + margin), 1 + margin):
        verdict: Verdict = "negligible" if significant else "same"
        return verdict, "the whole interval lies within the margin", None
    if significant and abs(math.log(ratio.value)) > math.log1p(margin):
        return ("slower" if ratio.value > 1 else "faster"), "the interval excludes no difference", None
    more = launches_more(ratio, p_adjusted, margin)
    text = f"more than {MOST}" if more is None else f"about {more}"
    return "inconclusive", f"needs {text} more launches", more


def launches_more(ratio: Estimate, p_adjusted: float, margin: float) -> int | None:
    """Launches a side that a verdict lacks, if ratio and spread stay as they are; None above `MOST`.

    An interval narrows with the root of the launches; the normal score of p grows with it.
    """
    assert ratio.interval is not None
    effect, bound = abs(math.log(ratio.value)), math.log1p(margin)
    half = (math.log(ratio.interval[1]) - math.log(ratio.interval[0])) / 2
    if effect > bound:
        score = NormalDist().inv_cdf(1 - min(p_adjusted, 0.999) / 2)
        wanted = NormalDist().inv_cdf(1 - ALPHA / 2)
        needed = ratio.n * max((half / effect) ** 2, (wanted / score) ** 2)
    elif effect < bound:
        needed = ratio.n * (half / (bound - effect)) ** 2
    else:
        return None
    more = max(math.ceil(needed) - ratio.n, 1) if needed < math.inf else MOST + 1
    return more if more <= MOST else None


def _paper_diff(pair: Pair) -> float | None:
    base, other = (sum(cell.means) / len(cell.means) for cell in (pair.base, pair.other))
    found = (base - other) / base * 100 if base > 0 else math.inf
    return found if math.isfinite(found) else None
