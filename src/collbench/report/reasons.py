"""Words for why a comparison has its verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collbench.analysis.compare import Comparison, Reason
from collbench.analysis.launches import SLOW, Slow
from collbench.analysis.planning import MOST
from collbench.units import counted


def _launches(more: int | None) -> str:
    return f"needs more than {MOST} more launches" if more is None else f"needs about {_more(more)}"


def _more(launches: int) -> str:
    return counted(launches, "more launch", "more launches")


def _differences(*differences: tuple[str, str, str]) -> str:
    listed = "; ".join(f"{name} {base} against {other}" for name, base, other in differences)
    return listed + BARRIER * ([name for name, *_ in differences] == ["gate"])


#: After a difference of the gate alone: what would make it go.
BARRIER = '; gate = "barrier" in the plan (or --gate barrier) measures both'

#: By kind, from the values of a reason.
_WORDS: dict[str, Callable[..., str]] = {
    "not measured": lambda side, status, *reasons: f"{side}: {status}: {'; '.join(reasons) or 'not measured'}",
    "wrong results": lambda side, n: f"{side}: results were wrong in {counted(n, 'launch', 'launches')}",
    "measured differently": _differences,
    "other work": lambda base, other: " against ".join(f"{amount} {unit}" for amount, unit in (base, other)),
    "no common blocks": lambda: "the sides have no block of launches in common",
    "no launches": lambda: "not measured",
    "clock 0": lambda: "a median of 0: the clock does not resolve this operation",
    "few launches": lambda lacking: f"an interval needs at least {_more(lacking)}",
    "blocks": lambda n, most=None: f"not decided after {counted(n, 'block')}{f' of at most {most}' if most else ''}",
    "clock": lambda share: f"the clock resolves these times to {share * 100:.1f} % only",
    "launches": _launches,
    "drift": lambda share: (
        f"times drift by {share * 100:.0f} % within a run, and the runs were measured one after the other"
    ),
    "dependent": lambda: "launches depend on those before them",
    "within margin": lambda: "the whole interval lies within the margin",
    "excludes equality": lambda: "the interval excludes equality",
}


def reason(why: Reason, in_blocks: bool = True) -> str:
    """`needs about 12 more launches`."""
    values: tuple[Any, ...] = why.values
    if not why.contended:
        return _WORDS[why.kind](*values)
    words = ("block", "blocks") if in_blocks else ("launch", "launches")
    text = "no others are left" if why.kind == "no launches" else _WORDS[why.kind](*values)
    return f"{text}: tasks waited for a CPU in {counted(why.contended, *words)}"


def whole_reason(comparison: Comparison) -> str:
    """With the launches that are slow at times."""
    slow = comparison.slow
    return reason(comparison.why, comparison.blocks) + (f"; {slow_text(slow)}" if slow is not None else "")


def slow_text(slow: Slow) -> str:
    """`over 1.25 times the median: 0 of 60 launches of the base, 20 of 60 of the other`."""
    if slow.means is not None:
        return f"means of samples are {slow.means:.2f} times as long on the other side"
    of_base, of_other = slow.launches
    return (
        f"over {SLOW} times the median: {slow.base} of {of_base} launches of the base, "
        f"{slow.other} of {of_other} of the other"
    )
