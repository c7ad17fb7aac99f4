"""Every comparison of a run's sides: of collectives by each factor in which they differ, and of programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from collbench.analysis.compare import MARGIN, Comparison, compare
from collbench.analysis.factors import FACTORS, find_factor
from collbench.analysis.pairs import within
from collbench.analysis.runs import Observed
from collbench.analysis.suites import by_suite, factors_of
from collbench.errors import RequestError

#: Factors by which the sides of collectives are compared, where a run has several.
SIDES = ("policy", "image", "backend", "driver")


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
    """By every factor of `SIDES`, or why they are not compared; by isolation where no two policies can be compared."""
    varying = [name for name in (*SIDES, "isolation") if FACTORS[name].varies(observed.cells)]
    found = {name: _by(observed, name, margin) for name in varying if name in SIDES}
    if isinstance(found.get("policy"), str) and "isolation" in varying:
        found["isolation"] = _by(observed, "isolation", margin)
    return found


def compared(of_factors: Mapping[str, list[Comparison] | str]) -> list[Comparison]:
    """The comparisons by all factors."""
    return [one for of_factor in of_factors.values() if not isinstance(of_factor, str) for one in of_factor]


def of_programs(observed: Observed, margin: float = MARGIN) -> list[Comparison]:
    """Those of programs by every factor in which they differ."""
    suites = (
        suite for name in factors_of(observed) for suite in by_suite(observed, name, MappingProxyType({}), margin)
    )
    return [one for suite in suites for one in suite.comparisons]


def _by(observed: Observed, name: str, margin: float) -> list[Comparison] | str:
    try:
        pairs = within(observed, find_factor(name), frozenset())
    except RequestError as error:
        return str(error)
    return compare(pairs, margin, observed.interleaved)
