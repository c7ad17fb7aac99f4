"""Launches until decided: before each block, which comparisons are decided, and which cases are measured again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from collbench.analysis.deciding import TRIED, OpenAtPlace, PairStatus, next_block, questions, standing, still_open
from collbench.analysis.estimate import FEWEST
from collbench.analysis.results import Cell, cells_of, some_from
from collbench.cli.duration import seconds_of_launch
from collbench.launch.cells import LaunchCell, Part
from collbench.launch.collect import placed_case
from collbench.launch.expansion import ExpandedPlan, at_once
from collbench.report.headings import versus
from collbench.report.verdict import whole_reason
from collbench.schema.case import Case
from collbench.schema.manifest import Manifest
from collbench.schema.plan import MOST_LAUNCHES
from collbench.schema.record import Record
from collbench.units import counted, format_long, format_size
from collbench.workloads.program import ProgramCase

#: The comparisons that decide an experiment, of its cells after so many blocks of at most so many.
StandingOf = Callable[[list[Cell], int, int], list[PairStatus]]

#: How many open comparisons are named.
_NAMED = 3


def launch_cells(expanded: ExpandedPlan) -> dict[Case, LaunchCell]:
    """The launch cell that measures each case, by the case as it is recorded."""
    return {placed_case(case, cell): cell for cell, cases in expanded.expected.items() for case in cases}


def decides(expanded: ExpandedPlan) -> str:
    """`decides 12 comparisons (8 by policy, 4 by image) ...`: what `until = "decided"` asks of a plan."""
    found = questions([*cells_of((), cases=launch_cells(expanded)).values()])
    number = sum(map(len, found.values()))
    if not number:
        return "decides nothing: no two of its cells are compared, so every cell has all its launches"
    listed = ", ".join(f"{len(pairs)} by {name}" for name, pairs in found.items())
    return f"decides {counted(number, 'comparison')} ({listed}), each side with the first one that it is compared with"


class Decider:
    """Asked before each block, with the records so far. `say` gets a line, and how many launches may still come."""

    def __init__(
        self, expanded: ExpandedPlan, manifest: Manifest, records: Sequence[Record], say: Callable[[str, int], None],
        clock: Callable[[], float] = time.monotonic,
        standing: StandingOf = standing,
    ) -> None:  # fmt: skip
        self._standing_of = standing
        self._expanded, self._manifest, self._records, self._say, self._clock = expanded, manifest, records, say, clock
        self._cells, self._at_once = launch_cells(expanded), at_once(expanded)
        self._as_asked = {placed_case(case, cell): case for cell, cases in expanded.expected.items() for case in cases}
        self._begun, self._before, self._over = clock(), len(records), False
        self._fixed = some_from(manifest) or 0

    def __call__(self, block: int) -> Mapping[LaunchCell, Part] | None:
        """What is executed in a block, by what is open. The records of the blocks before it decide alone."""
        if block < max(TRIED, self._fixed):
            return None
        found = self._standing(block, self._expanded.plan.launches)
        if not found:
            return None
        wanted = self._wanted(found, block)
        self._over = not wanted
        if all(record.launch < block for record in self._records):  # else it was said before the run was interrupted
            more = self._expanded.plan.launches - block
            said = f"after {counted(block, 'block')}: {_said(found, self._expanded.plan.launches)}"
            self._say(f"{said}{self._next(wanted, more)}", len(wanted) * more)
        return wanted

    def _standing(self, block: int, most: int) -> list[PairStatus]:
        """As it stands before a block, of at most so many."""
        before = (record for record in self._records if record.launch < block)
        cells = cells_of(before, self._manifest, self._cells)
        return self._standing_of(list(cells.values()), block, most)

    def _wanted(self, found: Sequence[PairStatus], block: int) -> dict[LaunchCell, Part]:
        sides = {case: (cell, _subject(case)) for case, cell in self._cells.items()}
        compared = [(sides[one.pair.base.case], sides[one.pair.other.case]) for one in found]
        wanted = {sides[cell.case] for cell in still_open(found)}
        if block < FEWEST:  # what is compared with nothing gets as many launches as an interval needs
            wanted |= set(sides.values()).difference(*compared)
        return {cell: _part(self._expanded, cell, open_) for cell, open_ in next_block(compared, wanted).items()}

    def finish(self) -> int | None:
        """Say how it ended, unless that was said when nothing was left; and what was measured of all that could be.

        Returns the number of launches with which it can be resumed, and would start some; None: there is none.
        """
        most = self._expanded.plan.launches
        if not (found := self._standing(most, most)):
            return None
        if not self._over:
            self._say(f"in the end: {_said(found, most, ended=True)}", 0)
        launches = {(record.case.where, record.launch) for record in self._records}
        measured = {(record.case, record.launch) for record in self._records}
        of_launches, of_cases = len(self._expanded.order), most * len(self._cells)
        self._say(f"{len(launches)} of {of_launches} launches, {len(measured)} of {of_cases} measurements", 0)
        more, block = min(2 * most, MOST_LAUNCHES), 1 + max(record.launch for record in self._records)
        return more if more > most and any(True for _ in still_open(self._standing(block, more))) else None

    def _next(self, wanted: Mapping[LaunchCell, Part], more: int) -> str:
        if not wanted:
            return ". Nothing is left to decide"
        launches, cases = len(wanted) * more, sum(len(part.measured) for part in wanted.values())
        each = f"{len(wanted)} of {counted(len(self._expanded.cells), 'cell')}"
        again = f"{cases} of {counted(len(self._cells), 'case')} measured again, in {each}"
        return f"; {again}; at most {counted(launches, 'launch', 'launches')}{self._time_left(wanted, more)}"

    def _time_left(self, wanted: Mapping[LaunchCell, Part], more: int) -> str:
        """`, 3 min`: as it took so far, by what the launches measured; empty where none was performed."""
        performed: dict[tuple[LaunchCell, int], set[Case]] = {}
        for record in self._records[self._before :]:
            launch = (self._cells[record.case], record.launch)
            performed.setdefault(launch, set()).add(self._as_asked[record.case])
        estimated = sum(self._seconds(cell, Part(frozenset(cases))) for (cell, _), cases in performed.items())
        if not estimated:
            return ""
        later = more * sum(self._seconds(cell, part) for cell, part in wanted.items())
        return f", {format_long((self._clock() - self._begun) / estimated * later)}"

    def _seconds(self, cell: LaunchCell, part: Part) -> float:
        return seconds_of_launch(self._expanded, cell, part, isinstance(self._at_once[cell], int))


def _subject(case: Case) -> Case:
    """What is measured, and how, wherever."""
    return Case(workload=case.workload, what=case.what, how=case.how)


def _part(expanded: ExpandedPlan, cell: LaunchCell, found: OpenAtPlace[Case]) -> Part:
    """What a launch of a cell executes. A brief execution of a program would take as long, so it is measured then."""
    measured, brief = set[Case](), set[Case]()
    for case in expanded.cases[cell]:
        subjects = {_subject(identity) for identity in case.identities}
        if subjects & found.here or (isinstance(case, ProgramCase) and subjects & found.elsewhere):
            measured.update(case.identities)
        elif subjects & found.elsewhere:
            brief.update(case.identities)
    return Part(frozenset(measured), frozenset(brief))


def _refused(found: Sequence[PairStatus]) -> str:
    """` (bcast 64K, single strict vs host: gate barrier against roundtime; and 2 more)`."""
    refused = [one for one in found if one.state == "impossible"]
    if not refused:
        return ""
    one = min(refused, key=lambda one: (one.pair.base.case.workload, one.pair.base.case["size"] or 0))
    case, sides = one.pair.base.case, versus(one.pair)
    size = f" {format_size(case['size'])}" if "size" in case.what else ""
    more = f"; and {len(refused) - 1} more" if len(refused) > 1 else ""
    return f" ({case.workload}{size}, {sides}: {whole_reason(one.comparison)}{more})"


def _said(found: Sequence[PairStatus], most: int, ended: bool = False) -> str:
    """`9 of 14 comparisons decided (5 same, 4 slower), 2 given up as too noisy for 20 launches, 3 open (...)`."""
    states = Counter(one.state for one in found)
    verdicts = Counter(one.comparison.verdict for one in found if one.state == "decided").most_common()
    listed = f" ({', '.join(f'{number} {verdict}' for verdict, number in verdicts)})" if verdicts else ""
    names = dict.fromkeys(versus(one.pair) for one in found if one.state == "open")
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    parts = {
        f"of {counted(len(found), 'comparison')} decided{listed}": states["decided"],
        f"given up as too noisy for {counted(most, 'launch', 'launches')}": 0 if ended else states["hopeless"],
        f"not comparable{_refused(found)}": states["impossible"],
        f"open ({', '.join(list(names)[:_NAMED])}{more})": 0 if ended else states["open"],
        "not decided": states["open"] + states["hopeless"] if ended else 0,
    }
    return ", ".join(f"{number} {text}" for text, number in parts.items() if number or text.startswith("of "))
