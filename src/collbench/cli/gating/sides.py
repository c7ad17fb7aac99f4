"""Both sides of a gate, from their plans to their runs: prepared, opened, measured."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from collbench.cli.begun import BegunRun, refuse_other_software
from collbench.cli.duration import seconds_of
from collbench.cli.gating.deciding import GateDecider
from collbench.cli.gating.measuring import MeasuredSide, Progress, measure
from collbench.cli.gating.resuming import begun_sides, refuse_unfree
from collbench.cli.gating.writing import remove_answer
from collbench.cli.launching import before_measuring, looking
from collbench.cli.terminal import harmless
from collbench.cli.typed import resuming
from collbench.errors import CollbenchError, Interrupted, RequestError, RunWriteError
from collbench.launch import engines
from collbench.launch.campaign import PreparedCampaign, campaign_manifest, expand_and_check, prepare_expanded
from collbench.launch.expansion import ExpandedPlan
from collbench.launch.keeping import placed
from collbench.launch.stopping import StopCheck
from collbench.schema.case import Case
from collbench.schema.gate_plan import (
    SIDES,
    GatePlan,
    Side,
    mark_finished,
    mark_unfinished,
    write_gate_plan,
)
from collbench.schema.launch_plan import LaunchPlan
from collbench.schema.loaded import read
from collbench.schema.manifest import Manifest
from collbench.schema.record import Record
from collbench.schema.store import RunWriter
from collbench.units import counted, format_long

Plans = tuple[LaunchPlan, LaunchPlan]
Prepared = tuple[PreparedCampaign, PreparedCampaign]
Begun = tuple[BegunRun, BegunRun] | tuple[None, None]


@dataclass(frozen=True)
class Planned:
    """A gate before its first launch. `launched_in`: of each planned cell, the number of the launch cell."""

    plan: GatePlan
    expanded: tuple[ExpandedPlan, ExpandedPlan]
    launched_in: tuple[int, ...]


@contextlib.contextmanager
def named_side(name: str, check: StopCheck = lambda: None) -> Iterator[None]:
    """Errors name the side. After Ctrl-C, what it ended is no error of the side."""
    try:
        yield
    except Interrupted:
        raise
    except CollbenchError as error:
        check()
        raise type(error)(f"{name}: {error}") from error


def expanded_sides(plans: Plans) -> tuple[ExpandedPlan, ExpandedPlan]:
    """Both plans, expanded and checked.

    Raises:
        CollbenchError: one needs something that does not exist here.
    """
    _refuse_cluster(plans[0])
    found = []
    for name, plan in zip(SIDES, plans, strict=True):
        with named_side(name):
            found.append(expand_and_check(plan))
    return found[0], found[1]


def _refuse_cluster(plan: LaunchPlan) -> None:
    if engines.get(plan.engine).starts_ranks:
        raise RequestError(
            f"gate: engine {plan.engine} would give each side machines of its own, which is no comparison in turns. "
            "Measure on docker, podman or the host; or both sides as two images of one plan: collbench launch, then "
            "collbench compare RUN --by image."
        )


def cells_of(expanded: tuple[ExpandedPlan, ExpandedPlan]) -> tuple[tuple[tuple[Case, Case], ...], tuple[int, ...]]:
    """Every planned cell as both sides record it, and the number of its launch cell."""
    cells, numbers = [], []
    for number, (base, other) in enumerate(zip(expanded[0].cells, expanded[1].cells, strict=True)):
        for case in dict.fromkeys(one for several in expanded[0].cases[base] for one in several.identities):
            cells.append((placed(case, base), placed(case, other)))
            numbers.append(number)
    return tuple(cells), tuple(numbers)


def perform_gate(planned: Planned, folder: Path, resumed: bool, margin: float, check: StopCheck) -> None:
    """Measure both sides into the runs `base` and `other` of the folder.

    Raises:
        CollbenchError: something does not exist, cannot be written, or a signal told to stop.
    """
    plans = [one.plan for one in planned.expanded]
    begun: Begun = begun_sides(planned.plan, plans, folder) if resumed else (None, None)
    if not resumed:
        with _nothing_measured():
            refuse_unfree(folder)
    with contextlib.ExitStack() as held:
        for run in begun:
            if run is not None:
                held.callback(run.writer.close)
        prepared = []
        for name, expanded in zip(SIDES, planned.expanded, strict=True):
            with named_side(name, check), looking(expanded.plan):
                prepared.append(prepare_expanded(expanded, check, held=held))
        for line in (
            _size(planned),
            *dict.fromkeys(line for one in planned.expanded for line in before_measuring(one)),
        ):
            click.echo(harmless(f"# {line}"), err=True)
        if not resumed:
            with _nothing_measured():
                write_gate_plan(folder, planned.plan)
        mark_unfinished(folder)
        remove_answer(folder)
        _measured(planned, (prepared[0], prepared[1]), begun, folder, margin, check, held)
        mark_finished(folder)


@contextlib.contextmanager
def _nothing_measured() -> Iterator[None]:
    """A folder that cannot be written is a wrong request, as long as nothing is lost by it."""
    try:
        yield
    except RunWriteError as error:
        raise RequestError(f"{error} Name another folder: --out DIR.") from error


def _size(planned: Planned) -> str:
    """`gate: 28 cells, both sides launched 8 times = 32 starts, about 2 min`."""
    base = planned.expanded[0]
    starts, seconds = sum(len(one.order) for one in planned.expanded), sum(map(seconds_of, planned.expanded))
    most, needed = ("at most ", ", if all are needed") if base.plan.until == "decided" else ("", "")
    return (f"gate: {counted(len(planned.plan.cells), 'cell')}, both sides launched {most}{base.plan.launches} times = "
            f"{starts} starts, about {format_long(seconds)}{needed}")  # fmt: skip


def _measured(
    planned: Planned, prepared: Prepared, begun: Begun, folder: Path, margin: float, check: StopCheck,
    held: contextlib.ExitStack,
) -> None:  # fmt: skip
    base = planned.expanded[0]
    progress = Progress(2 * len(base.order))
    manifests, sides = [], []
    for name, campaign, run in zip(SIDES, prepared, begun, strict=True):
        manifest = campaign_manifest(campaign, tuple(sys.argv))
        writer = _writer(folder / name, manifest, run)
        held.callback(writer.close)
        manifests.append(manifest)
        sides.append(MeasuredSide(name, campaign, writer, progress))
    both = sides[0], sides[1]
    progress.bar.update(sum(len(side.done) for side in both))
    watch = _Watch(planned.plan, both, progress)
    until = base.plan.until == "decided"
    decider = GateDecider(planned.plan, planned.launched_in, (both[0].records, both[1].records), manifests, margin,
                          base.plan.launches, progress.say) if until else None  # fmt: skip
    try:
        measure(both, base.plan.seed, check, decider or (lambda block: None), watch)
        for side in both:
            side.writer.verify()
    except (CollbenchError, KeyboardInterrupt) as error:
        count = counted(sum(side.writer.count for side in both), "record is", "records are")
        error.add_note(f" {count} in {folder}; continue: {resuming(folder)}")
        raise
    finally:
        progress.bar.close()


def _writer(folder: Path, manifest: Manifest, run: BegunRun | None) -> RunWriter:
    if run is None:
        return RunWriter(folder, manifest)
    refuse_other_software(run.manifest, manifest, folder)
    return run.writer


class _Watch:
    """Whether another block makes sense: not where a cell cannot be answered, whatever is measured after the first."""

    def __init__(self, plan: GatePlan, sides: tuple[MeasuredSide, MeasuredSide], progress: Progress) -> None:
        self._sides, self._progress = list(zip(sides, plan.sides, strict=True)), progress
        self._seen = {side.name: 0 for side in sides}

    def __call__(self) -> bool:
        """Asked after each block, of the records since the block before."""
        for side, asked in self._sides:
            new = side.records[self._seen[side.name] :]
            self._seen[side.name] = len(side.records)
            why = next(filter(None, (_in_vain(record, asked) for record in new)), "")
            if not why and new and all(record.status == "failed" for record in new):
                why = "everything failed"
            if why:
                self._progress.say(f"# stopped: {side.name}: {why}")
                return False
        return True


def _in_vain(record: Record, asked: Side) -> str:
    if record.status == "skipped":
        return f"{record.case.workload} is skipped ({record.reason}), so not every cell can be answered"
    if record.status == "ok" and asked.files:
        loaded = {found.sha256 for note in record.notes if (found := read(note))}
        if not loaded & set(asked.files.values()):
            return "its ranks did not load what was put in front of them"
    return ""
