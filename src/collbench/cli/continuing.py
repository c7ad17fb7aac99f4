"""`launch --resume`: how a run that is there may be continued, and to which end.

A run until decided may be given more launches at any time, whatever was seen of it: its verdicts are bets, which hold
after any number of blocks. So may a run with a fixed number of launches, if it is judged by bets from then on.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import msgspec

from collbench.analysis.observations import Cell, collect, some_from
from collbench.analysis.unfinished import few_launches
from collbench.cli.begun import plan_in
from collbench.cli.deciding import Decider, StandingOf
from collbench.errors import RequestError
from collbench.launch.cells import LaunchCell
from collbench.launch.expansion import ExpandedPlan
from collbench.schema.case import Case
from collbench.schema.launch_plan import LaunchPlan, check_launch_plan
from collbench.schema.manifest import Manifest, Until
from collbench.schema.record import Record
from collbench.schema.store import RecordStream, read_manifest


@dataclass(frozen=True)
class Continued:
    """What is asked of a run that is resumed: its `plan` from now on, and the plan that it has so far."""

    plan: LaunchPlan
    before: LaunchPlan

    @property
    def extends(self) -> bool:
        return self.plan is not self.before


def continued(plan: LaunchPlan, where: Path, until: Until | None, launches: int | None) -> Continued:
    """The plan with the end of the run in a folder, where flags do not ask for another (None: no such flag).

    Raises:
        RequestError: this run cannot be continued to that end; where other keys differ, `begun_run` refuses it.
        RunReadError: there is no run.
    """
    run = plan_in(read_manifest(where))
    if run is None:
        return Continued(plan, plan)
    if run.until == "decided":
        _refuse_fewer(where, run, until, launches)
        most = plan.launches if launches is not None else max(plan.launches, run.launches)
        plan = msgspec.structs.replace(plan, until=until or run.until, launches=most)
    if plan.until == "launches" and run.until == "launches" and plan.launches > run.launches:
        raise RequestError(
            f"--resume {where}: has {run.launches} launches of each cell, and {plan.launches} are asked for. Looking "
            "at a run and then measuring more makes false alarms, unless its verdicts allow for it: add --until "
            "decided. Or begin a run with --out."
        )
    if plan.until == "decided" and run.until == "launches" and plan.launches <= run.launches:
        raise RequestError(_no_more(where, run, plan.launches, until))
    if plan.until == "decided" and plan.launches > run.launches:
        begun = msgspec.structs.replace(plan, until=run.until, launches=run.launches)
        return Continued(check_launch_plan(plan), begun)
    return Continued(plan, plan)


def _refuse_fewer(where: Path, run: LaunchPlan, until: Until | None, launches: int | None) -> None:
    """Of a run until decided, a lower end than it has."""
    if launches is not None and launches < run.launches and until != "launches":
        raise RequestError(
            f"--resume {where} --launches {launches}: the run has at most {run.launches} launches of each cell. Ask "
            f"for {run.launches} or more, or leave out --launches."
        )


def _no_more(where: Path, run: LaunchPlan, most: int, until: Until | None) -> str:
    """Why a run with a fixed number of launches cannot be continued until decided with at most so many."""
    asked, more = f"--resume {where} --until decided", f"--launches {2 * run.launches}."
    if not _is_short(where):
        return (f"{asked}: has {run.launches} launches of each cell, and at most {most} are asked for. "
                f"Ask for more: {more}")  # fmt: skip
    same = f"--resume {shlex.quote(str(where))}"
    finish = f"{same} alone (without --until)" if until else f"{same} --until launches"  # else the plan says decided
    return (f"{asked}: {run.launches} launches of each cell are planned, and not all measured: finish it first with "
            f"{finish}, or ask for more: {more}")  # fmt: skip


def _is_short(where: Path) -> bool:
    """Whether launches of a run with a fixed number are missing."""
    experiment = read_manifest(where).experiment
    cells: dict[Case, Cell] = {}
    collect(RecordStream(where), cells)
    return experiment is not None and bool(few_launches(cells.values(), experiment) or not cells)


def extended(manifest: Manifest, plan: LaunchPlan) -> Manifest:
    """As the manifest of a run is when the run ends as the plan does."""
    if manifest.experiment is None:
        return manifest
    end = msgspec.structs.replace(manifest.experiment, launches=plan.launches, until=plan.until)
    return msgspec.structs.replace(manifest, experiment=end)


def closed(
    expanded: ExpandedPlan, manifest: Manifest, records: tuple[Record, ...], extends: bool
) -> frozenset[tuple[LaunchCell, int]]:
    """Launches of blocks that are over: what was left out of them before is not measured long after the rest.

    Of a run that was given more launches: all before the last block with records, and this one too if the run `extends`
    now. Blocks that were to be measured whole are completed.
    """
    planned = (manifest.plan or {}).get("launches")
    if manifest.experiment is None or not records or expanded.plan.launches == planned:
        return frozenset()
    first, last = some_from(manifest) or 0, max(record.launch for record in records)
    over = range(first, last + 1 if extends else last)
    return frozenset((launch.cell, launch.number) for launch in expanded.order if launch.number in over)


def nothing_to_decide(
    expanded: ExpandedPlan, manifest: Manifest, records: tuple[Record, ...], standing: StandingOf
) -> str:  # fmt: skip
    """Why more launches than the run has would decide nothing, so that it stays as it is; empty where they may."""
    now, most = extended(manifest, expanded.plan), expanded.plan.launches
    fixed, measured = some_from(now) or 0, max((record.launch for record in records), default=-1) + 1
    if measured < fixed:
        return ""
    said: list[str] = []
    wanted = Decider(expanded, now, records, lambda line, left: said.append(line), standing=standing)(measured)
    if wanted is None or wanted:
        return ""
    return f"{'; '.join(said)} with at most {most} launches, so nothing is started, and the run stays as it was"
