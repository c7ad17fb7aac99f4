"""Conclusions of papers on host and container, each with a verdict from a run and the cells that decide it.

A conclusion bounds Diff%, (host - container) / host x 100 in the quantity that the paper prints. A cell confirms it
where the whole interval lies within the bounds, refutes it where the whole interval lies outside, and is undecided
otherwise. The intervals are not adjusted for the number of cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from collbench.analysis.compare import Comparison
from collbench.analysis.estimate import Estimate
from collbench.analysis.paper.judgement import Finding, Judgement
from collbench.analysis.paper.reference import ProgramConclusion, ProgramsPaper, Selector
from collbench.analysis.paper.sides import Sides, other_device
from collbench.units import counted

#: More programs without a measurement are counted and not named.
_MOST_NAMED = 3


@dataclass(frozen=True)
class Found:
    """A cell that bears on a conclusion: its Diff% with the interval; what it finds, and why.

    `finding` is None for what others are compared with, and what is only shown. `figures` are those of the check that
    its selector names: `561 kernels`.
    """

    comparison: Comparison
    diff: Estimate | None
    finding: Finding | None
    why: str
    figures: str = ""


def judge(published: ProgramsPaper, sides: Sides) -> list[Judgement[Found]]:
    """Every conclusion of the paper on host and container, in its order."""
    return [_judged(conclusion, sides) for conclusion in published.conclusions if not conclusion.claims]


def diff_percent(ratio: Estimate, shown: Literal["time", "rate"]) -> Estimate:
    """Diff% of a quantity, from the ratio of times container over host; with its interval, in per cent."""

    def percent(value: float) -> float:
        return (1 - (1 / value if shown == "rate" else value)) * 100

    ends = None if ratio.interval is None else sorted(map(percent, ratio.interval))
    return Estimate(percent(ratio.value), None if ends is None else (ends[0], ends[1]), ratio.n)


def _judged(conclusion: ProgramConclusion, sides: Sides) -> Judgement[Found]:
    if conclusion.lacking:
        return Judgement(conclusion.number, "not measurable here", conclusion.lacking, ())
    references = [_measured(selector, sides) for selector in conclusion.more_than]
    test = _further_than(references) if references else _between(*(conclusion.diff_percent or (None, None)))
    groups = [_tested_cells(selector, test, sides) for selector in conclusion.cells]
    by_selector = list(zip(conclusion.cells, groups, strict=True))
    finding, why = _together(conclusion, [_of_group(group, one.needs) for one, group in by_selector])
    about = zip((*conclusion.cells, *conclusion.more_than), (*groups, *references), strict=True)
    missing = [selector for selector, measured in about if not measured]
    evidence = [found for group in groups for found in group]
    shares = [_share(one, group) for one, group in by_selector if one.needs == "most" and group]
    reasons = _reasons(evidence) if finding == "not measurable here" else ()
    words = "; ".join(word for word in (why, *shares, *reasons, *_absent(missing, sides)) if word)
    shown = [_measured(selector, sides) for selector in conclusion.beside]
    held = [replace(found, finding=None) for group in (*references, *shown) for found in group]
    return Judgement(conclusion.number, finding, words, (*evidence, *held))


def _tested_cells(selector: Selector, test: Test, sides: Sides) -> list[Found]:
    """Its cells of the run, tested by the bounds of its own, if it has any."""
    own = test if selector.diff_percent is None else _between(*selector.diff_percent)
    return [_tested(found, own) for found in _measured(selector, sides)]


def _measured(selector: Selector, sides: Sides) -> list[Found]:
    """Its cells of the run, each undecided, or with the reason for which nothing can be found."""
    compared = sides.far if selector.by == "affinity" else sides.comparisons
    found = [(_readable(comparison, selector, sides.in_turns), comparison.pair.base.figures) for comparison in compared
             if selector.takes(comparison.pair.base.case)]  # fmt: skip
    return [
        replace(one, figures=", ".join(f"{figures[name]:,.10g} {name}" for name in selector.figures if name in figures))
        for one, figures in found
    ]


def _readable(comparison: Comparison, selector: Selector, in_turns: bool) -> Found:
    if comparison.ratio is None:
        return Found(comparison, None, "not measurable here", comparison.why)
    diff = diff_percent(comparison.ratio, selector.shown)
    if apart := other_device(comparison.pair):
        return Found(comparison, diff, "not measurable here", apart)
    if not in_turns:
        return Found(comparison, diff, "undecided", "host and container were not measured in turns")
    return Found(comparison, diff, "undecided", comparison.why if diff.interval is None else "")


#: What a Diff% with an interval finds, and why.
Test = Callable[[tuple[float, float]], tuple[Finding, str]]


def _tested(found: Found, test: Test) -> Found:
    interval = _known(found)
    if interval is None:
        return found
    finding, why = test(interval)
    return replace(found, finding=finding, why=why)


def _between(low: float | None, high: float | None) -> Test:
    words = _bounds(low, high)
    least, most = -math.inf if low is None else low, math.inf if high is None else high

    def test(interval: tuple[float, float]) -> tuple[Finding, str]:
        if least <= interval[0] and interval[1] <= most:
            return "confirmed", f"the whole interval lies {words}"
        if interval[1] < least or most < interval[0]:
            return "refuted", f"no part of the interval lies {words}"
        return "undecided", f"a part of the interval lies {words}"

    return test


def _bounds(low: float | None, high: float | None) -> str:
    if low is None:
        return f"below {high:g} %"
    return f"above {low:g} %" if high is None else f"within {low:g} .. {high:g} %"


def _further_than(references: Sequence[Sequence[Found]]) -> Test:
    """Further from 0 than all of these, each of which must be known."""
    known = [_known(found) for group in references for found in group]
    sizes = [_size(interval) for interval in known if interval is not None]
    complete = None not in known and all(references)

    def test(interval: tuple[float, float]) -> tuple[Finding, str]:
        nearest, furthest = _size(interval)
        if any(furthest < low for low, _ in sizes):
            return "refuted", "less affected than what it is compared with"
        if not complete:
            return "undecided", "not all that it is compared with is known"
        if all(nearest > high for _, high in sizes):
            return "confirmed", "more affected than all that it is compared with"
        return "undecided", "its interval overlaps that of what it is compared with"

    return test


def _known(found: Found) -> tuple[float, float] | None:
    """The interval of what can be relied on."""
    return None if found.why or found.diff is None else found.diff.interval


def _size(interval: tuple[float, float]) -> tuple[float, float]:
    """The least and the largest distance from 0 within an interval."""
    low, high = interval
    distances = (abs(low), abs(high))
    return (0.0 if low <= 0 <= high else min(distances), max(distances))


def _of_group(group: Iterable[Found], needs: Literal["all", "most"]) -> Finding:
    """What all cells of one selector find together: refuted where too few are left to confirm it."""
    findings = [one.finding for one in group if one.finding != "not measurable here"]
    if not findings:
        return "not measurable here"
    needed = len(findings) if needs == "all" else len(findings) // 2 + 1
    if findings.count("refuted") > len(findings) - needed:
        return "refuted"
    return "confirmed" if findings.count("confirmed") >= needed else "undecided"


def _share(selector: Selector, group: Sequence[Found]) -> str:
    """`deepbench_gemm: 66 of 68 cells`, which show what is said."""
    support = sum(found.finding == "confirmed" for found in group)
    return f"{selector.text}: {support} of {counted(len(group), 'cell')}"


def _reasons(evidence: Iterable[Found]) -> dict[str, None]:
    """Why nothing can be found, each reason once."""
    return dict.fromkeys(found.why for found in evidence if found.finding == "not measurable here")


def _together(conclusion: ProgramConclusion, findings: Sequence[Finding]) -> tuple[Finding, str]:
    """Refuted where too few cells are left to confirm it; of a chain, not measurable without one of its links."""
    total, chain = len(findings), conclusion.needs == "chain"
    needed = total // 2 + 1 if conclusion.needs == "most" else total
    support, against = findings.count("confirmed"), findings.count("refuted")
    if against > total - needed:
        return "refuted", _counted(against, total, "contradict")
    if support >= needed:
        return "confirmed", _counted(support, total, "support")
    lacking = findings.count("not measurable here")
    if lacking == total or (chain and lacking):
        return "not measurable here", "" if lacking == total else _counted(support, total, "support")
    if total == 1:
        return "undecided", "its cell leaves it open"
    words = f"{_counted(support, total, 'support')}, {needed} are needed"
    return "undecided", f"{words}; {against} contradict it" if against else words


def _counted(number: int, total: int, verb: str) -> str:
    return f"its cell {verb}s it" if total == 1 else f"{number} of {total} cells {verb} it"


def _absent(missing: Sequence[Selector], sides: Sides) -> list[str]:
    """Why sides are not compared, and what the run has not measured."""
    reasons = dict.fromkeys(
        f"{name}: {sides.refused[name]}" for one in missing if (name := one.workload) in sides.refused
    )
    rest = [one.text for one in missing if one.workload not in sides.refused]
    named = ", ".join(rest) if len(rest) <= _MOST_NAMED else f"{len(rest)} of the cells"
    return [*reasons, *([f"not measured: {named}"] if rest else [])]
