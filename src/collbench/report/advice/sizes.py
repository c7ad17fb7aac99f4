"""Sizes in sentences of advice: what has no size, as most programs, is spoken of without one."""

from __future__ import annotations

from collections.abc import Iterable

from collbench.analysis.options import Question
from collbench.units import format_size


def sized(question: Question) -> bool:
    return any("size" in cell.case.what for cells in question.cells.values() for cell in cells.values())


def at(question: Question, *sizes: int) -> str:
    """` at 64K, 1M`, or nothing; neighbours of those measured as ` at 8 to 64K`."""
    return f" at {', '.join(_spans(question.sizes, set(sizes)))}" if sized(question) else ""


def at_some(question: Question, *sizes: int) -> str:
    """The same, or nothing where these are all sizes."""
    return at(question, *sizes) if set(question.sizes) - set(sizes) else ""


def led(question: Question, sizes: Iterable[int], text: str) -> str:
    """A sentence behind its first and last size, as `8 to 1M: take host`, or alone."""
    ends = list(map(format_size, sizes))
    return f"{' to '.join(dict.fromkeys((ends[0], ends[-1])))}: {text}" if sized(question) else text


def _spans(measured: list[int], chosen: set[int]) -> list[str]:
    """Three neighbours or more as `8 to 64K`."""
    runs: list[list[int]] = [[]]
    for size in measured:
        if size in chosen:
            runs[-1].append(size)
        elif runs[-1]:
            runs.append([])
    listed: list[str] = []
    for run in runs:
        if len(run) > 2:
            listed.append(f"{format_size(run[0])} to {format_size(run[-1])}")
        else:
            listed += map(format_size, run)
    return listed
