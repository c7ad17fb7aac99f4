"""What is said of results that must come out equal, and do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collbench.analysis.compare import Comparison
from collbench.analysis.repeatable import Unequal, unequal
from collbench.report.parameters import row_words, varying

#: Of one side, more values are counted.
MOST = 3


def remarks(rows: Sequence[Comparison]) -> list[str]:
    """`results differ, network lstm: loss 9.21034 (host), 9.21041 (multi strict); ...`, once for all measures."""
    cases = [comparison.pair.base.case for comparison in rows]
    names = [name for name in varying(cases) if name != "measure" and len({case[name] for case in cases}) > 1]
    found = [_said(comparison, one, names) for comparison in rows for one in unequal(comparison.pair)]
    return list(dict.fromkeys(found))


def findings(comparisons: Sequence[Comparison]) -> list[str]:
    """The same of several benchmarks, whose names come first."""
    workloads = dict.fromkeys(comparison.pair.base.case.workload for comparison in comparisons)
    by_name = {name: [one for one in comparisons if one.pair.base.case.workload == name] for name in workloads}
    return [f"{name}: {line}" for name, own in by_name.items() for line in remarks(own)]


def _said(comparison: Comparison, one: Unequal, names: Sequence[str]) -> str:
    words = row_words(comparison.pair.base.case, names)
    sides = ((one.base, comparison.pair.base_name), (one.other, comparison.pair.other_name))
    values = ", ".join(f"{_listed(values)} ({name})" for values, name in sides if values)
    return (f"results differ{words and f', {words}'}: {one.name} {values}; the same software should give the same, so "
            "the sides do not compute alike")  # fmt: skip


def _listed(values: Sequence[float]) -> str:
    more = len(values) - MOST
    return " and ".join(f"{value:g}" for value in values[:MOST]) + (f" and {more} more" if more > 0 else "")


def document(comparison: Comparison) -> list[dict[str, Any]]:
    """For programs: the values of each side, of the figures that differ."""
    return [{"name": one.name, "base": one.base, "other": one.other} for one in unequal(comparison.pair)]
