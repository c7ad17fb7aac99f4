"""`--fail-on` of `compare` and `history`: what makes a check fail, so that one that passes means something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from collbench.analysis.compare import Comparison
from collbench.analysis.estimate import FEWEST
from collbench.analysis.history import History, Trend
from collbench.analysis.launches import unequal
from collbench.analysis.results import Cell
from collbench.units import counted

#: What --fail-on takes, and the verdicts that it fails on.
FAILING = {"slower": ("slower",), "faster": ("faster",), "different": ("slower", "faster"),
           "unclear": ("slower", "unclear")}  # fmt: skip


def failures(comparisons: Sequence[Comparison], fail_on: str, missing: int, flaws: Sequence[str]) -> list[str]:
    """Why a check fails, in words; empty where it passes. `missing`: cells of the base that the other side lacks.

    Besides the verdicts asked for, whatever was not measured fails every check: a cell that is missing, failed, was
    skipped, measured differently or unchecked, whose results differ, which has launches that the other side lacks, or
    too few for a verdict; and `flaws`, such as samples files that do not agree with their records. What both sides
    skipped fails no check.
    """
    comparisons = [comparison for comparison in comparisons if not all(map(_skipped, _sides(comparison)))]
    verdicts = Counter[str](comparison.verdict for comparison in comparisons)
    reasons = [f"{verdicts[verdict]} {verdict}" for verdict in FAILING[fail_on] if verdicts[verdict]]
    counts = {what: sum(map(holds, comparisons)) for what, holds in _UNMEASURED.items()}
    counts = {"failed": counts.pop("failed"), "missing": missing, **counts}
    reasons += [f"{number} {what}" for what, number in counts.items() if number]
    few = [
        comparison
        for comparison in comparisons
        if comparison.verdict != "not comparable" and min(comparison.launches) < FEWEST
    ]
    if few:
        reasons.append(f"{len(few)} with fewer than {FEWEST} launches a side")
    return reasons + ([f"what was read is in doubt ({flaws[0]})"] if flaws else [])


def _sides(comparison: Comparison) -> tuple[Cell, Cell]:
    return comparison.pair.base, comparison.pair.other


def _skipped(cell: Cell) -> bool:
    return cell.skipped > 0 and not cell.medians and not cell.failed


def _failed(comparison: Comparison) -> bool:
    return any(cell.failed for cell in _sides(comparison))


def _lacks_launches(comparison: Comparison) -> bool:
    most = max(len(cell.medians) for cell in _sides(comparison))
    used = min(comparison.launches) + comparison.left_out + comparison.contended
    paired = comparison.blocks and not comparison.pair.base.until_decided  # there each pair has launches of its own
    return paired and comparison.verdict != "not comparable" and most > used


def _slow_at_times(comparison: Comparison) -> bool:
    """Whether the other side has more launches, or samples, that are far slower than most, which no median shows."""
    return comparison.slow is not None and comparison.slow.on_other


#: What makes a cell count as not measured, or as measured differently from the other side.
_UNMEASURED: dict[str, Callable[[Comparison], bool]] = {
    "failed": _failed,
    "skipped": lambda comparison: any(cell.skipped for cell in _sides(comparison)),
    "not comparable": lambda comparison: comparison.verdict == "not comparable" and not _failed(comparison),
    "with launches measured differently": lambda comparison: bool(comparison.left_out),
    "with launches that one side lacks": _lacks_launches,
    "with unchecked results": lambda comparison: (
        _sides(comparison)[1].unchecked > 0 and not _sides(comparison)[0].unchecked
    ),
    "with results that differ": lambda comparison: bool(unequal(comparison.pair)),
    "unclear because times drift": lambda comparison: comparison.why.kind == "drift",
    "with more launches or samples that are far slower on the other side": _slow_at_times,
    "on a shared GPU": lambda comparison: any(cell.shared_gpu for cell in _sides(comparison)),
    "with most samples late": lambda comparison: any(2 * cell.late > cell.samples for cell in _sides(comparison)),
}


#: What --fail-on takes of levels: the time now over the shortest and over the longest of the earlier levels.
FAILING_LEVELS: dict[str, Callable[[float, float, float], bool]] = {
    "slower": lambda over_shortest, over_longest, margin: over_shortest > 1 + margin,
    "faster": lambda over_shortest, over_longest, margin: over_longest < 1 / (1 + margin),
    "different": lambda over_shortest, over_longest, margin: (
        over_shortest > 1 + margin or over_longest < 1 / (1 + margin)
    ),
}

#: And of the latest run.
OUTSIDE = "outside"


def history_failures(history: History, fail_on: Sequence[str], since: int) -> list[str]:
    """Why a check fails, in words; empty where it passes. `since`: the number of the first run that counts.

    Besides the cells of each kind in `fail_on` (of `FAILING_LEVELS`, or `OUTSIDE`), what the latest runs did not
    measure fails every check, and so does a history without a run that counts, or without any cell that could be
    judged.
    """
    reasons = []
    for kind in fail_on:
        if kind == OUTSIDE:
            number, where = sum(len(one.cells) for one in history.latest), "of its level in the latest run"
        else:
            number = sum(FAILING_LEVELS[kind](*one.now, history.margin) for one in history.cells)
            where = "now than before"
        reasons += [f"{counted(number, 'cell')} {kind} {where}"] if number else []
    current = [one for one in history.cells if one.series.last >= since or (one.series.missing or -1) >= since]
    lacking = sum(map(_not_measured, current))
    if lacking:
        reasons.append(f"{counted(lacking, 'cell')} not measured in the latest run")
    if since >= len(history.runs):
        reasons.append("no run since then")
    if not any(one.series.tested for one in history.cells):
        reasons.append("too few runs to judge any cell")
    return reasons


def _not_measured(one: Trend) -> bool:
    series = one.series
    return series.missing is not None or bool(series.lacks)
