"""Sizes in sentences of advice: what has no size, as most programs, is spoken of without one."""

from __future__ import annotations

from collections.abc import Iterable

from collbench.analysis.options import Question
from collbench.units import format_size


def sized(question: Question) -> bool:
    return any("size" in cell.case.what for cells in question.cells.values() for cell in cells.values())


def at(question: Question, *sizes: int) -> str:
    """` at 64K, 1M`, or nothing."""
    return f" at {', '.join(map(format_size, sizes))}" if sized(question) else ""


def led(question: Question, sizes: Iterable[int], text: str) -> str:
    """A sentence behind its first and last size, as `8 to 1M: take host`, or alone."""
    ends = list(map(format_size, sizes))
    return f"{' to '.join(dict.fromkeys((ends[0], ends[-1])))}: {text}" if sized(question) else text
