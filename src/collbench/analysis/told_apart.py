"""Cells of two runs, of which each is compared with one: matched by what tells them apart."""

from __future__ import annotations

from itertools import combinations

from collbench.analysis.factors import Factor
from collbench.analysis.observations import Cell, Observed
from collbench.errors import RequestError
from collbench.schema.axes import axis_of
from collbench.schema.case import Case

Keyed = dict[Case, Cell]


def told_apart(base: Observed, other: Observed, factor: Factor | None, ignored: tuple[str, ...]) -> tuple[Keyed, Keyed]:
    """The cells of both runs by what tells them apart without the factor: as few of its axes as give most pairs.

    Raises:
        RequestError: cells of one run differ in these axes alone.
    """
    axes = factor.axes if factor else ()
    found: list[tuple[Keyed, Keyed]] = []
    several: RequestError | None = None
    for dropped in (*(factor.fewer if factor else ()), axes):
        try:
            found.append((_keyed(base, dropped + ignored), _keyed(other, dropped + ignored)))
        except _SeveralCells as error:
            several = _several(error, dropped + ignored, factor, base, other)
    paired = [len(of_base.keys() & of_other.keys()) for of_base, of_other in found]
    if several is not None and not any(paired):
        raise several
    return found[paired.index(max(paired))]


class _SeveralCells(Exception):
    """Two cells of a run that differ only in what is left out of account."""

    def __init__(self, run: str, first: Case, second: Case) -> None:
        self.run, self.first, self.second = run, first, second


def _keyed(observed: Observed, dropped: tuple[str, ...]) -> Keyed:
    keyed: Keyed = {}
    for cell in observed.cells.values():
        key = cell.case.without(dropped)
        if key in keyed:
            raise _SeveralCells(observed.name, keyed[key].case, cell.case)
        keyed[key] = cell
    return keyed


def _several(found: _SeveralCells, dropped: tuple[str, ...], factor: Factor | None, *runs: Observed) -> RequestError:
    differing = [name for name in dropped if found.first[name] != found.second[name]]
    listed = "; ".join(f"{axis.spelled} {axis.label(found.first[axis.name])} and {axis.label(found.second[axis.name])}"
                       for axis in map(axis_of, differing))  # fmt: skip
    by = f"--by {factor.name if factor else 'FACTOR'}"
    chosen = _choosing(dropped, runs)
    return RequestError(
        f"{found.run} has several cells of one case, which differ in {listed}. Between two runs, or a run and a "
        f"baseline, only one can be compared. {f'Choose one of them: {chosen}. ' if chosen else ''}{by} within one run "
        f"compares its sides: collbench compare RUN {by}, without a second run and without --baseline."
    )


def _choosing(dropped: tuple[str, ...], runs: tuple[Observed, ...]) -> str:
    """`--given policy=multi`: values of as few axes as leave one cell of each case in both runs, and some in common."""
    cases = [list(run.cells) for run in runs]
    names = [name for name in dropped if any(len({case[name] for case in of_run}) > 1 for of_run in cases)]
    for chosen in (some for number in (1, 2) for some in combinations(names, number)):
        values = [{tuple(case[name] for name in chosen) for case in of_run} for of_run in cases]
        for wanted in sorted(set.intersection(*values), key=str, reverse=True):
            left = [[case for case in of_run if tuple(case[name] for name in chosen) == wanted] for of_run in cases]
            keys = [[case.without(dropped) for case in of_run] for of_run in left]
            if all(len(set(of_run)) == len(of_run) for of_run in keys) and set(keys[0]) & set(keys[1]):
                return " ".join(f"--given {axis_of(name).spelled}={axis_of(name).label(value)}"
                                for name, value in zip(chosen, wanted, strict=True))  # fmt: skip
    return ""
