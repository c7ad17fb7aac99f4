"""Until when an experiment launches: until its comparisons are decided, and the run that `--resume` continues.

A run until decided may be given more launches at any time, whatever was seen of it: its verdicts are bets, which hold
after any number of blocks. So may a run with a fixed number of launches, if it is judged by bets from then on.
"""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from collbench.analysis.estimate import FEWEST
from collbench.analysis.planning import TRIED, OpenAtPlace, PairStatus, next_block, standing, still_open
from collbench.analysis.results import Cell, cells_of, grouped, some_from
from collbench.analysis.runs import shortage
from collbench.cli.command import OF_COMMAND
from collbench.cli.options import typed_margins, typed_share
from collbench.cli.plan import launch_cells, seconds_of_launch
from collbench.errors import RequestError
from collbench.launch.cells import LaunchCell, LaunchPart
from collbench.launch.collect import placed_case
from collbench.launch.expansion import ExpandedPlan, at_once
from collbench.report.headings import versus
from collbench.report.verdict import whole_reason
from collbench.schema.case import Case
from collbench.schema.manifest import Manifest, Until, read_manifest
from collbench.schema.plan import MOST_LAUNCHES, Plan, check_launch_plan
from collbench.schema.record import Record
from collbench.schema.store import RecordStream, RunWriter
from collbench.units import counted, format_long, format_size
from collbench.workloads.program import ProgramCase

_ADDRESSES = {"docker_host": "", "site": ""}  #: Where something runs is no part of the experiment.
_TOLD, _NAMED = 3, 3  #: Most keys of a plan whose values are told, and most open comparisons.
_SOFTWARE = ("id", "libraries", "sources", "files")  #: What makes an image or environment another build.
StandingOf = Callable[[list[Cell], int, int], list[PairStatus]]  #: By cells, blocks and most blocks.

# Until decided -------------------------------------------------------------------------------------------------------


class Decider:
    """Asked before each block, with the records so far. `say` gets a line, and how many launches may still come."""

    def __init__(
        self, expanded: ExpandedPlan, manifest: Manifest, records: Sequence[Record], say: Callable[[str, int], None],
        standing: StandingOf = standing,
    ) -> None:  # fmt: skip
        self._expanded, self._manifest, self._records, self._say = expanded, manifest, records, say
        self._standing_of, self._most, self._fixed = standing, expanded.plan.launches, some_from(manifest) or 0
        self._cells, self._at_once = launch_cells(expanded), at_once(expanded)
        self._as_asked = {placed_case(case, cell): case for cell, cases in expanded.expected.items() for case in cases}
        self._started, self._before, self._over = time.monotonic(), len(records), False

    def __call__(self, block: int) -> Mapping[LaunchCell, LaunchPart] | None:
        """What is executed in a block, by what is open. The records of the blocks before it decide alone."""
        if block < max(TRIED, self._fixed) or not (pairs := self._standing(block, self._most)):
            return None
        wanted = self._wanted(pairs, block)
        self._over = not wanted
        if all(record.launch < block for record in self._records):  # else it was said before the run was interrupted
            more = self._most - block
            decided = f"after {counted(block, 'block')}: {_said(pairs, self._most)}"
            launches, cases = len(wanted) * more, sum(len(part.measured) for part in wanted.values())
            each = f"{len(wanted)} of {counted(len(self._expanded.cells), 'cell')}"
            again = f"{cases} of {counted(len(self._cells), 'case')} measured again, in {each}"
            left = f"at most {counted(launches, 'launch', 'launches')}{self._time_left(wanted, more)}"
            self._say(f"{decided}; {again}; {left}" if wanted else f"{decided}. Nothing is left to decide", launches)
        return wanted

    def _standing(self, block: int, most: int) -> list[PairStatus]:
        before = (record for record in self._records if record.launch < block)
        cells = cells_of(before, self._manifest, self._cells)
        return self._standing_of(list(cells.values()), block, most)

    def _wanted(self, pairs: Sequence[PairStatus], block: int) -> dict[LaunchCell, LaunchPart]:
        sides = {case: (cell, _subject(case)) for case, cell in self._cells.items()}
        compared = [(sides[status.pair.base.case], sides[status.pair.other.case]) for status in pairs]
        wanted = {sides[cell.case] for cell in still_open(pairs)}
        if block < FEWEST:  # what is compared with nothing gets as many launches as an interval needs
            wanted |= set(sides.values()).difference(*compared)
        return {cell: _part(self._expanded, cell, open_) for cell, open_ in next_block(compared, wanted).items()}

    def finish(self) -> int | None:
        """Say how it ended, unless that was said before, and what was measured of all that could be.

        Returns the number of launches with which it can be resumed, and would start some; None: there is none.
        """
        most = self._most
        if not (pairs := self._standing(most, most)):
            return None
        if not self._over:
            self._say(f"in the end: {_said(pairs, most, ended=True)}", 0)
        launches = {(record.case.where, record.launch) for record in self._records}
        measured = {(record.case, record.launch) for record in self._records}
        of_launches, of_cases = len(self._expanded.order), most * len(self._cells)
        self._say(f"{len(launches)} of {of_launches} launches, {len(measured)} of {of_cases} measurements", 0)
        more, block = min(2 * most, MOST_LAUNCHES), 1 + max(record.launch for record in self._records)
        return more if more > most and any(still_open(self._standing(block, more))) else None

    def _time_left(self, wanted: Mapping[LaunchCell, LaunchPart], more: int) -> str:
        """`, 3 min`: as it took so far, by what the launches measured; empty where none was performed."""

        def seconds(cell: LaunchCell, part: LaunchPart) -> float:
            return seconds_of_launch(self._expanded, cell, part, isinstance(self._at_once[cell], int))

        new = ((record.case, record.launch) for record in self._records[self._before :])
        performed = grouped(((self._cells[case], launch), self._as_asked[case]) for case, launch in new)
        estimated = sum(seconds(cell, LaunchPart(frozenset(cases))) for (cell, _), cases in performed.items())
        if not estimated:
            return ""
        later = more * sum(seconds(cell, part) for cell, part in wanted.items())
        return f", {format_long((time.monotonic() - self._started) / estimated * later)}"


def _subject(case: Case) -> Case:
    """What is measured, and how, wherever."""
    return Case(workload=case.workload, what=case.what, how=case.how)


def _part(expanded: ExpandedPlan, cell: LaunchCell, open_: OpenAtPlace[Case]) -> LaunchPart:
    """What a launch of a cell executes. A brief execution of a program would take as long, so it is measured then."""
    measured, brief = set[Case](), set[Case]()
    for case in expanded.cases[cell]:
        subjects = {_subject(identity) for identity in case.identities}
        if subjects & open_.here or (isinstance(case, ProgramCase) and subjects & open_.elsewhere):
            measured.update(case.identities)
        elif subjects & open_.elsewhere:
            brief.update(case.identities)
    return LaunchPart(frozenset(measured), frozenset(brief))


def _said(pairs: Sequence[PairStatus], most: int, ended: bool = False) -> str:
    """`9 of 14 comparisons decided (5 same, 4 slower), 2 given up as too noisy for 20 launches, 3 open (...)`."""
    states = Counter(status.state for status in pairs)
    refused = ""  # ` (bcast 64K, single strict vs host: align barrier against roundtime; and 2 more)`
    if impossible := [status for status in pairs if status.state == "impossible"]:
        status = min(
            impossible, key=lambda status: (status.pair.base.case.workload, status.pair.base.case["size"] or 0)
        )
        case = status.pair.base.case
        size = f" {format_size(case['size'])}" if "size" in case.what else ""
        others = f"; and {len(impossible) - 1} more" if len(impossible) > 1 else ""
        refused = f" ({case.workload}{size}, {versus(status.pair)}: {whole_reason(status.comparison)}{others})"
    verdicts = Counter(status.comparison.verdict for status in pairs if status.state == "decided").most_common()
    listed = f" ({', '.join(f'{number} {verdict}' for verdict, number in verdicts)})" if verdicts else ""
    names = list(dict.fromkeys(versus(status.pair) for status in pairs if status.state == "open"))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    parts = {
        f"given up as too noisy for {counted(most, 'launch', 'launches')}": 0 if ended else states["hopeless"],
        f"not comparable{refused}": states["impossible"],
        f"open ({', '.join(names[:_NAMED])}{more})": 0 if ended else states["open"],
        "not decided": states["open"] + states["hopeless"] if ended else 0,
    }
    decided = f"{states['decided']} of {counted(len(pairs), 'comparison')} decided{listed}"
    return ", ".join((decided, *(f"{number} {text}" for text, number in parts.items() if number)))


# Runs that are continued ---------------------------------------------------------------------------------------------


def resumed_run(plan: Plan, where: Path) -> RunWriter:
    """The run in a folder, opened to be gone on with; RequestError of one made with another plan or command."""
    manifest = read_manifest(where)
    if manifest.experiment is None:
        raise RequestError(f"--resume {where}: was not written by collbench launch.")
    before = plan_in(manifest)
    if before is None:
        raise RequestError(f"--resume {where}: was made with another plan, which this collbench cannot read. "
                           "Begin a run with --out.")  # fmt: skip
    if changed := changed_keys(before, _plain(plan)):
        changes = [f"{key}: {_as_json(old)} then, {_as_json(new)} now" for key, (old, new) in changed.items()][:_TOLD]
        more = f"; and {len(changed) - _TOLD} more keys" if len(changed) > _TOLD else ""
        raise RequestError(f"--resume {where}: was made with another plan ({'; '.join(changes)}{more}). Use that plan, "
                           "or begin a run with --out.")  # fmt: skip
    return RunWriter.resume(where)


def _as_json(value: object) -> str:
    return "absent" if value is None else msgspec.json.encode(value).decode("utf-8")


def refuse_other_software(before: Manifest, now: Manifest, where: Path) -> None:
    """RequestError unless images and environments are the same: a run is one experiment."""
    for kind in ("images", "environments"):
        new = {(image.side, image.name): image for image in getattr(now.experiment, kind)}
        for was in getattr(before.experiment, kind):
            has = new.get((was.side, was.name))  # None: it is there no more
            if parts := [part for part in _SOFTWARE if getattr(was, part) != getattr(has, part, None)]:
                image = f"{kind.removesuffix('s')} {was.name}{f' of side {was.side}' if was.side else ''}"
                raise RequestError(f"--resume {where}: {image} has changed since the run began ({', '.join(parts)}). "
                                   "Two builds in one run would be compared as one; begin a run with "
                                   "--out.")  # fmt: skip


def plan_in(manifest: Manifest) -> Plan | None:
    """The plan that a run has now, with the end that it was last given; None: this version cannot read it."""
    try:
        plan = _plain(manifest.plan)
    except msgspec.ValidationError:
        return None
    end = manifest.experiment
    return plan if end is None else msgspec.structs.replace(plan, launches=end.launches, until=end.until)


def _plain(plan: Plan | dict[str, Any] | None) -> Plan:
    """A plan as it comes back from a manifest, wherever it runs."""
    document = plan.document if isinstance(plan, Plan) else plan
    read = msgspec.convert(msgspec.json.decode(msgspec.json.encode(document)), Plan)
    return msgspec.structs.replace(read, **_ADDRESSES)


def changed_keys(before: Plan, now: Plan) -> dict[str, tuple[object, object]]:
    """Both values of each key that differs, by its dotted name such as `sides.other.variables.A`; None: no such key.

    `sides` are the names of the sides; where these differ, what the sides hold is left out.
    """
    old, new = ({**dict(_leaves(plan.document)), "sides": sorted(plan.sides)} for plan in (before, now))
    keys = {key: (old.get(key), new.get(key)) for key in (*old, *new) if old.get(key) != new.get(key)}
    return {key: values for key, values in keys.items() if "sides" not in keys or not key.startswith("sides.")}


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, object]]:
    """What is in tables within tables, or in lists of tables, by dotted name."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list | tuple) and any(isinstance(item, dict) for item in value):
        for number, item in enumerate(value, 1):
            yield from _leaves(item, f"{key}[{number}]")
    else:
        yield key, value


def continued(plan: Plan, where: Path, until: Until | None, launches: int | None) -> tuple[Plan, Plan]:
    """The plan with the end of the run in a folder, where flags do not ask for another (None: no such flag).

    And the plan that the run has so far: another one only where the run gets more launches now. RequestError where it
    cannot be continued to that end; where other keys differ, `resumed_run` refuses it.
    """
    run = plan_in(read_manifest(where))
    if run is None:
        return plan, plan
    if run.until == "decided":
        if launches is not None and launches < run.launches and until != "launches":
            raise RequestError(f"--resume {where} --launches {launches}: the run has at most {run.launches} launches "
                               f"of each cell. Ask for {run.launches} or more, or leave out --launches.")  # fmt: skip
        most = plan.launches if launches is not None else max(plan.launches, run.launches)
        plan = msgspec.structs.replace(plan, until=until or run.until, launches=most)
    if plan.until == "launches" and run.until == "launches" and plan.launches > run.launches:
        raise RequestError(f"--resume {where}: has {run.launches} launches of each cell, and {plan.launches} are asked "
                           "for. Looking at a run and then measuring more makes false alarms, unless its verdicts "
                           "allow for it: add --until decided. Or begin a run with --out.")  # fmt: skip
    if plan.until == "decided" and plan.launches > run.launches:
        return check_launch_plan(plan), msgspec.structs.replace(plan, until=run.until, launches=run.launches)
    if plan.until == "decided" and run.until == "launches":
        raise RequestError(_no_more(where, run, plan.launches, until))
    return plan, plan


def _no_more(where: Path, run: Plan, most: int, until: Until | None) -> str:
    """Why a run with a fixed number of launches cannot be continued until decided with at most so many."""
    request, more = f"--resume {where} --until decided", f"--launches {2 * run.launches}."
    manifest, cells = read_manifest(where), cells_of(RecordStream(where))
    if manifest.experiment is None or (cells and not shortage(where, manifest, cells.values()).cells):
        return (f"{request}: has {run.launches} launches of each cell, and at most {most} are asked for. "
                f"Ask for more: {more}")  # fmt: skip
    same = f"--resume {shlex.quote(str(where))}"
    finish = f"{same} alone (without --until)" if until else f"{same} --until launches"  # else the plan says decided
    return (f"{request}: {run.launches} launches of each cell are planned, and not all measured: finish it first with "
            f"{finish}, or ask for more: {more}")  # fmt: skip


def closed(
    expanded: ExpandedPlan, manifest: Manifest, records: tuple[Record, ...], extends: bool
) -> frozenset[tuple[LaunchCell, int]]:
    """Launches of blocks that are over: what was left out of them before is not measured long after the rest.

    Of a run that was given more launches all before the last block with records, and this one too if it `extends` now.
    """
    planned = (manifest.plan or {}).get("launches")
    if manifest.experiment is None or not records or expanded.plan.launches == planned:
        return frozenset()
    first, last = some_from(manifest) or 0, max(record.launch for record in records)
    over = range(first, last + 1 if extends else last)
    return frozenset((launch.cell, launch.number) for launch in expanded.order if launch.number in over)


def nothing_to_decide(expanded: ExpandedPlan, resumed: RunWriter, standing: StandingOf) -> str:
    """Why more launches than the run has would decide nothing, so that it stays as it is; empty where they may."""
    manifest, most, records = read_manifest(resumed.directory), expanded.plan.launches, resumed.before
    end = manifest.experiment
    if end is not None:
        end = msgspec.structs.replace(end, launches=most, until=expanded.plan.until)
    now = msgspec.structs.replace(manifest, experiment=end)
    measured, lines = max((record.launch for record in records), default=-1) + 1, list[str]()
    if measured < (some_from(now) or 0):
        return ""
    wanted = Decider(expanded, now, records, lambda line, left: lines.append(line), standing)(measured)
    if wanted is None or wanted:
        return ""
    return f"{'; '.join(lines)} with at most {most} launches, so nothing is started, and the run stays as it was"


def resuming(folder: Path, **changed: Any) -> str:
    """`collbench launch 'my plan.toml' --resume 'k 9' --site n.toml`; options that are `changed` have these values."""
    context = click.get_current_context()
    plan = changed.get("plan", context.params["plan"])
    words = [str(context.command.name), *([] if plan is None else [str(plan)]), "--resume", str(folder)]
    for option in context.command.params:
        name = option.name or ""
        typed = name in changed or context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not isinstance(option, click.Option) or name in ("out", "resume", *OF_COMMAND) or not typed:
            continue
        value = changed.get(name, context.params[name])
        for item in value if option.multiple else (value,):
            words.append(next(form for form in option.opts if form.startswith("--")))
            if isinstance(item, tuple):
                words.append(typed_margins(item))
            elif not option.is_flag:
                words.append(typed_share(item) if isinstance(item, float) else str(item))
    return shlex.join(["collbench", *words])
