"""The programs of a run, compared benchmark by benchmark: a benchmark that cannot be compared stops no other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from collbench.analysis.compare import MARGIN, Comparison, compare
from collbench.analysis.factors import find_factor
from collbench.analysis.pairs import Pair, within
from collbench.analysis.results import Cell
from collbench.analysis.runs import Observed
from collbench.errors import RequestError
from collbench.schema.axes import Value
from collbench.schema.case import Case

#: The suite of a benchmark that nobody knows here.
OTHER = "other"

#: What the sides of programs may differ in, the likeliest first.
SIDES = ("policy", "isolation", "storage", "seccomp", "image")


@dataclass(frozen=True)
class Refused:
    """What was not compared: a benchmark, or one on one storage or run in one way (`fio ioengine psync`), and why."""

    benchmark: str
    label: str
    why: str


@dataclass(frozen=True)
class Suite:
    """Benchmarks, by name with their comparisons, and those whose sides are not compared."""

    name: str
    compared: Mapping[str, Sequence[Comparison]]
    refused: tuple[Refused, ...] = ()

    @property
    def comparisons(self) -> list[Comparison]:
        return [comparison for of_benchmark in self.compared.values() for comparison in of_benchmark]

    @property
    def benchmarks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.compared, *(refused.benchmark for refused in self.refused))))


def factors_of(observed: Observed) -> list[str]:
    """Those in which the cells differ; isolation alone where the policy is the same everywhere."""
    varying = [name for name in SIDES if find_factor(name).varies(observed.cells)]
    policies = {case.where.policy for case in observed.cells}
    return [name for name in varying if name != ("isolation" if len(policies) > 1 else "policy")]


def by_suite(observed: Observed, factor: str, suite_of: Mapping[str, str], margin: float = MARGIN) -> tuple[Suite, ...]:
    """The programs `observed`, by the suite of each benchmark, those of unknown suites last.

    Raises:
        RequestError: SciPy is not installed.
    """
    pairs, refused = _pairs(observed, factor)
    compared = compare(pairs, margin, observed.interleaved)
    found: dict[str, dict[str, list[Comparison]]] = {}
    for comparison in compared:
        name = comparison.pair.base.case.workload
        found.setdefault(suite_of.get(name, OTHER), {}).setdefault(name, []).append(comparison)
    lacking: dict[str, list[Refused]] = {}
    for one in refused:
        lacking.setdefault(suite_of.get(one.benchmark, OTHER), []).append(one)
    names = sorted({*found, *lacking}, key=lambda name: (name == OTHER, name))
    return tuple(Suite(name, found.get(name, {}), tuple(lacking.get(name, ()))) for name in names)


def _pairs(observed: Observed, factor: str) -> tuple[list[Pair], list[Refused]]:
    """Of each benchmark, storage and way to run it by themselves: what is wrong with one stops no other."""
    apart: dict[tuple[str, tuple[tuple[str, Value], ...]], dict[Case, Cell]] = {}
    for case, cell in observed.cells.items():
        ways = {name: value for name, value in (*case.how.items(), ("storage", case.where.storage)) if name != factor}
        apart.setdefault((case.workload, tuple(ways.items())), {})[case] = cell
    pairs: list[Pair] = []
    refused: list[Refused] = []
    for (name, ways_of), cells in apart.items():
        try:
            pairs += within(replace(observed, cells=cells), find_factor(factor), frozenset())
        except RequestError as error:
            others = [dict(other) for workload, other in apart if workload == name]
            differing = [way for way, value in ways_of if any(other.get(way) != value for other in others)]
            label = " ".join([name, *(f"{way} {dict(ways_of)[way]}" for way in differing)])
            refused.append(Refused(name, label, _why(str(error), factor, cells)))
    return pairs, refused


#: Why a benchmark that nothing is wrong with is not compared.
ONE_SIDE = "measured on one side only"


def _why(refusal: str, factor: str, cases: Iterable[Case]) -> str:
    """The facts that a refusal lists on lines of their own; without any its first sentence."""
    if not find_factor(factor).varies(cases):
        return ONE_SIDE
    first, *lines = refusal.splitlines()
    listed = "; ".join(line.strip() for line in lines if line.startswith("  "))
    return listed or first.removesuffix(".")
