"""Changes that cells have in common: at the same run, in the same direction, with what else changed there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from collbench.analysis.environment import side_of
from collbench.analysis.history.levels import Change
from collbench.analysis.history.series import Series
from collbench.analysis.history.surroundings import Surroundings

#: Changes whose best places are farther apart than so many runs are never told as one.
_NEAR = 3


@dataclass(frozen=True)
class CellChange:
    """A change of a series; `run` is the first run after it, `between` the first and the last that it may be."""

    series: Series
    change: Change
    run: int
    between: tuple[int, int]

    @property
    def slower(self) -> bool:
        return self.change.ratio.value > 1


@dataclass(frozen=True)
class Event:
    """Changes that began with one run, in the order of their series.

    `facts` of the environment changed in this run, `nearby` in another that some of the changes may have begun with:
    by its number.
    """

    run: int
    slower: bool
    changes: tuple[CellChange, ...]
    facts: dict[str, str]
    nearby: dict[int, dict[str, str]]


def events(changes: Sequence[CellChange], around: Surroundings) -> list[Event]:
    """All changes, each in one event; the latest first."""
    left, found = list(changes), []
    while left:
        fits = Counter(place for change in left for place in _places(change))
        own = Counter((change.run, change.slower, change.series.machine) for change in left)
        run, slower, machine = max(own, key=lambda place: (fits[place], own[place], -place[0]))
        members = _together(left, run, slower, machine)
        left = [change for change in left if id(change) not in {*map(id, members)}]
        found.append(_event(run, slower, machine, members, around))
    return sorted(found, key=lambda event: (-event.run, not event.slower))


def _places(change: CellChange) -> list[tuple[int, bool, str]]:
    """Where it may have begun: runs near the best one."""
    first, last = max(change.between[0], change.run - _NEAR), min(change.between[1], change.run + _NEAR)
    return [(run, change.slower, change.series.machine) for run in range(first, last + 1)]


def _together(changes: Sequence[CellChange], run: int, slower: bool, machine: str) -> list[CellChange]:
    return [change for change in changes if (run, slower, machine) in _places(change)]


def _event(run: int, slower: bool, machine: str, members: list[CellChange], around: Surroundings) -> Event:
    sides = {side_of(change.series.case) for change in members}
    first, last = (end(change.between[index] for change in members) for index, end in ((0, min), (1, max)))
    before = min(_run_before(change) for change in members)
    by_run: dict[int, dict[str, str]] = {}
    for renewal in around.renewals:
        if (
            renewal.machine == machine
            and renewal.side in sides
            and min(first, before + 1) <= renewal.run <= max(last, run)
        ):
            by_run.setdefault(renewal.run, {}).update(renewal.facts)
    facts: dict[str, str] = {}
    for number in range(before + 1, run + 1):  # runs without a time of these cells may lie between
        facts |= by_run.pop(number, {})
    return Event(run, slower, tuple(members), facts, by_run)


def _run_before(change: CellChange) -> int:
    """The last run with a time before the change."""
    return change.series.points[change.change.at - 1].run
