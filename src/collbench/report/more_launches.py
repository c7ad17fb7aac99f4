"""What would decide cells that are undecided: so many more launches, or something else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from collbench.analysis.compare import Comparison
from collbench.analysis.planning import MOST
from collbench.units import counted

#: Reasons that are named, before the rest is counted.
_MOST_REASONS = 2

#: Numbers of launches that differ by less than this factor are told as the largest of them.
_FAR = 3

_OVER = f"needs more than {MOST} more launches"

#: What measures more of a run, and no longer what is decided.
EXTEND = (
    "more launches: collbench launch PLAN --resume RUN --until decided --launches N "
    "(at most N blocks in all; what is too noisy is given up)"
)

#: Instead, of sides that were not measured by one launch plan.
IN_TURNS = "more launches: measure both sides in turns, by one launch plan (collbench launch PLAN)"


def ways_to_tell(comparisons: Iterable[Comparison]) -> list[str]:
    """What measures more of those that more launches may decide; none where launches would decide nothing."""
    open_ = [one for one in comparisons if one.verdict == "inconclusive" and _may_tell(one)]
    in_one_run = [_in_one_run(one) for one in open_]
    return [*([EXTEND] if any(in_one_run) else []), *([IN_TURNS] if not all(in_one_run) else [])]


def _may_tell(comparison: Comparison) -> bool:
    """A run until decided may always be given more launches; how many would tell is not known."""
    judged_by_bets = comparison.blocks and comparison.pair.base.until_decided and comparison.ratio is not None
    return comparison.launches_more is not None or judged_by_bets


def _in_one_run(comparison: Comparison) -> bool:
    base, other = comparison.pair.base.experiment, comparison.pair.other.experiment
    return bool(base) and base == other


def what_tells(comparisons: Sequence[Comparison]) -> str:
    """How many launches would decide how many of these cells, or why launches would not."""
    few = [one.launches_more for one in comparisons if one.launches_more and _few(one)]
    if few:
        return f"at least {counted(max(few), 'more launch', 'more launches')} needed"
    counts = sorted(one.launches_more for one in comparisons if one.launches_more is not None)
    why = sorted({_reason(one) for one in comparisons if one.launches_more is None})
    said = []
    if counts:
        said.append(_would_tell(counts, len(comparisons)))
    elif _OVER in why:
        said.append(f"not even {MOST} more launches would tell")
    others = list({re.sub(r"[0-9.]+ %", "", text): text for text in why if text != _OVER}.values())
    left = len(others) - _MOST_REASONS
    more = [counted(left, "other reason")] if left > 0 else []
    return "; ".join((*said, *others[:_MOST_REASONS], *more))


def tells_in_brief(comparisons: Sequence[Comparison]) -> str:
    """The same without numbers of cells: `about 20 to 1000 more launches would tell for some of them`."""
    counts = sorted(one.launches_more for one in comparisons if one.launches_more is not None)
    if not counts or any(one.launches_more and _few(one) for one in comparisons):
        return what_tells(comparisons)
    least, most = counts[0], counts[-1]
    number = counted(most, "more launch", "more launches")
    some = "" if len(counts) == len(comparisons) else " for some of them"
    return f"about {f'{least} to ' if least * _FAR <= most else ''}{number} would tell{some}"


def _would_tell(counts: Sequence[int], cells: int) -> str:
    """`about 5 more launches would tell for 1 of 15 cells, 794 for 8`: the fewest, and all that can be told."""
    least, most = counts[0], counts[-1]
    of = "" if len(counts) == cells else f" for {len(counts)} of {cells} cells"
    if least * _FAR > most:
        return f"about {counted(most, 'more launch', 'more launches')} would tell{of}"
    first = sum(count < least * _FAR for count in counts)
    number = counted(counts[first - 1], "more launch", "more launches")
    return f"about {number} would tell for {first} of {cells} cells, {most} for {len(counts)}"


def _few(comparison: Comparison) -> bool:
    return comparison.ratio is None or comparison.ratio.interval is None


def _reason(comparison: Comparison) -> str:
    """Why it is undecided, without slow launches, of which the same is not true of all cells."""
    about_slow = "" if comparison.slow is None else f"; {comparison.slow.text}"
    return comparison.why.removesuffix(about_slow)
