"""A run's own sides: of collectives by every factor in which they differ, of programs benchmark by benchmark.

What cannot be compared stops nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from collbench.analysis.compare import MARGIN, Comparison, compare
from collbench.analysis.factors import FACTORS, find_factor
from collbench.analysis.pairs import Pair, listed_facts, within
from collbench.analysis.results import Cell
from collbench.analysis.runs import Observed
from collbench.errors import RequestError
from collbench.schema.axes import Value
from collbench.schema.case import Case

#: The suite of a benchmark that nobody knows here.
OTHER = "other"

#: What the sides of programs may differ in, the likeliest first.
OF_PROGRAMS = ("policy", "isolation", "storage", "seccomp", "image")


@dataclass(frozen=True)
class NotCompared:
    """What was not compared: a benchmark, or one on one storage or run in one way (`fio ioengine psync`).

    `why` is empty where nothing is wrong with it, but it was measured on one side only.
    """

    benchmark: str
    label: str
    why: str


@dataclass(frozen=True)
class Suite:
    """Benchmarks, by name with their comparisons, and those whose sides are not compared."""

    name: str
    compared: Mapping[str, Sequence[Comparison]]
    refused: tuple[NotCompared, ...] = ()

    @property
    def comparisons(self) -> list[Comparison]:
        return [comparison for of_benchmark in self.compared.values() for comparison in of_benchmark]

    @property
    def benchmarks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.compared, *(refused.benchmark for refused in self.refused))))


def factors_of(observed: Observed) -> list[str]:
    """Those in which the cells differ; isolation alone where the policy is the same everywhere."""
    varying = [name for name in OF_PROGRAMS if find_factor(name).varies(observed.cells)]
    policies = {case.where.policy for case in observed.cells}
    return [name for name in varying if name != ("isolation" if len(policies) > 1 else "policy")]


def by_suite(observed: Observed, factor: str, suite_of: Mapping[str, str], margin: float = MARGIN) -> tuple[Suite, ...]:
    """The programs `observed`, by the suite of each benchmark, those of unknown suites last.

    Raises:
        RequestError: SciPy is not installed.
    """
    pairs, refused = _pairs(observed, factor)
    compared = compare(pairs, margin, observed.interleaved)
    comparisons: dict[str, dict[str, list[Comparison]]] = {}
    for comparison in compared:
        name = comparison.pair.base.case.workload
        comparisons.setdefault(suite_of.get(name, OTHER), {}).setdefault(name, []).append(comparison)
    lacking: dict[str, list[NotCompared]] = {}
    for one in refused:
        lacking.setdefault(suite_of.get(one.benchmark, OTHER), []).append(one)
    names = sorted({*comparisons, *lacking}, key=lambda name: (name == OTHER, name))
    return tuple(Suite(name, comparisons.get(name, {}), tuple(lacking.get(name, ()))) for name in names)


def _pairs(observed: Observed, factor: str) -> tuple[list[Pair], list[NotCompared]]:
    """Of each benchmark, storage and way to run it by themselves: what is wrong with one stops no other."""
    groups: dict[tuple[str, tuple[tuple[str, Value], ...]], dict[Case, Cell]] = {}
    for case, cell in observed.cells.items():
        ways = {name: value for name, value in (*case.how.items(), ("storage", case.where.storage)) if name != factor}
        groups.setdefault((case.workload, tuple(ways.items())), {})[case] = cell
    pairs: list[Pair] = []
    refused: list[NotCompared] = []
    for (name, ways_of), cells in groups.items():
        try:
            pairs += within(replace(observed, cells=cells), find_factor(factor), frozenset())
        except RequestError as error:
            others = [dict(other) for workload, other in groups if workload == name]
            differing = [way for way, value in ways_of if any(other.get(way) != value for other in others)]
            label = " ".join([name, *(f"{way} {dict(ways_of)[way]}" for way in differing)])
            refused.append(NotCompared(name, label, listed_facts(error) if find_factor(factor).varies(cells) else ""))
    return pairs, refused


#: Factors by which the sides of collectives are compared, where a run has several.
OF_COLLECTIVES = ("policy", "image", "backend", "driver")


def planned(observed: Observed, margin: float = MARGIN) -> list[Comparison]:
    """Every comparison of a run's sides, those of each factor tested together: of collectives, then of programs.

    Raises:
        RequestError: SciPy is not installed.
    """
    parts = [
        replace(
            observed, cells={case: cell for case, cell in observed.cells.items() if bool(case["backend"]) == backend}
        )
        for backend in (True, False)
    ]
    return [*compared(of_collectives(parts[0], margin)), *of_programs(parts[1], margin)]


def of_collectives(observed: Observed, margin: float = MARGIN) -> dict[str, list[Comparison] | str]:
    """By every factor of `OF_COLLECTIVES`, or why they are not compared; by isolation where no two policies can be."""
    varying = [name for name in (*OF_COLLECTIVES, "isolation") if FACTORS[name].varies(observed.cells)]
    by_factor = {name: _by(observed, name, margin) for name in varying if name in OF_COLLECTIVES}
    if isinstance(by_factor.get("policy"), str) and "isolation" in varying:
        by_factor["isolation"] = _by(observed, "isolation", margin)
    return by_factor


def compared(of_factors: Mapping[str, list[Comparison] | str]) -> list[Comparison]:
    """The comparisons by all factors."""
    return [one for of_factor in of_factors.values() if not isinstance(of_factor, str) for one in of_factor]


def of_programs(observed: Observed, margin: float = MARGIN) -> list[Comparison]:
    """Those of programs by every factor in which they differ."""
    suites = (
        suite for name in factors_of(observed) for suite in by_suite(observed, name, MappingProxyType({}), margin)
    )
    return [comparison for suite in suites for comparison in suite.comparisons]


def _by(observed: Observed, name: str, margin: float) -> list[Comparison] | str:
    try:
        pairs = within(observed, find_factor(name), frozenset())
    except RequestError as error:
        return str(error)
    return compare(pairs, margin, observed.interleaved)
