"""Launches that would count twice: a run under two names, a folder and a run in it, a copy of either."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from collbench.analysis.compare import MARGIN, Comparison, compare
from collbench.analysis.factors import FACTORS, find_factor
from collbench.analysis.observations import Observed
from collbench.analysis.pairs import within
from collbench.analysis.suites import by_suite, factors_of
from collbench.errors import RequestError
from collbench.schema import record as records
from collbench.schema.store import RecordStream


class Source(NamedTuple):
    """A run on disk: where it was found, as part of what, and when and by which command it was begun."""

    folder: Path
    part_of: str
    created: str
    command: tuple[str, ...]

    def __str__(self) -> str:
        return str(self.folder) + (f" (in {self.part_of})" if str(self.folder) != self.part_of else "")


def sources(observed: Observed) -> Iterator[Source]:
    """The runs on disk that were read; of a baseline none."""
    for (_, folder), manifest in zip(observed.folders, observed.manifests, strict=False):
        yield Source(folder, observed.name, manifest.created, manifest.command)


def refuse_same(runs: Iterable[Observed]) -> None:
    """Raises RequestError where two of what was read are the same run."""
    refuse_same_sources(source for observed in runs for source in sources(observed))


def refuse_same_sources(found: Iterable[Source]) -> None:
    """Of runs that began at one moment by one command, those are the same whose first measured record is.

    Raises:
        RequestError: two of them are the same run.
        RunReadError: a record cannot be read.
    """
    begun: dict[tuple[str, tuple[str, ...]], list[Source]] = {}
    for source in found:
        begun.setdefault((source.created, source.command), []).append(source)
    for alike in begun.values():
        if len(alike) > 1:
            _refuse_equal_records(alike)


def _refuse_equal_records(alike: Iterable[Source]) -> None:
    known: dict[bytes, Source] = {}
    for source in alike:
        first = next((records.encode(one) for one in RecordStream(source.folder) if one.status == "ok"), None)
        if first is None:
            continue
        other = known.setdefault(first, source)
        if other is not source:
            raise RequestError(
                f"{other} and {source} hold the same launches: one start, one command, one first measurement. Launches "
                "that count twice look like evidence. Name each run once; for more evidence measure again."
            )


def refuse_own_baseline(baseline: Observed, run: Observed) -> None:
    """Raises RequestError where the baseline was saved of this run: same start, command, and times of a cell."""
    begun = {(manifest.created, manifest.command) for manifest in baseline.manifests}
    if not any((manifest.created, manifest.command) in begun for manifest in run.manifests):
        return
    for case, cell in baseline.cells.items():
        own = run.cells.get(case)
        if own is not None and cell.medians and own.medians[: len(cell.medians)] == cell.medians:
            raise RequestError(
                f"{baseline.name} was saved of {run.name}, so both hold the same launches, and nothing would be "
                "compared. Name a run that was measured later."
            )


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
