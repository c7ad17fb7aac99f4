"""An experiment, from a launch plan to its run: begun or resumed, launched until it ends, with its progress.

`launch`, `gate` and `selftest` are experiments. They differ in the plan, and in what decides them.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec
from numpy.typing import NDArray

from collbench.analysis.deciding import standing
from collbench.analysis.results import some_from
from collbench.cli import continuing
from collbench.cli.continuing import BegunRun, Continued, begun_run, refuse_other_software, resuming
from collbench.cli.deciding import Decider, StandingOf
from collbench.cli.launching import looking, show_cells
from collbench.cli.terminal import harmless
from collbench.errors import CollbenchError, RunWriteError
from collbench.launch.campaign import (
    PreparedCampaign,
    campaign_manifest,
    expand_and_check,
    finished,
    prepare,
    run_campaign,
)
from collbench.launch.cells import Launch, LaunchCell, Part
from collbench.launch.expansion import ExpandedPlan
from collbench.launch.folders import disturbances
from collbench.launch.waiting import StopCheck
from collbench.schema.manifest import Manifest
from collbench.schema.record import Record
from collbench.schema.store import RunWriter, YardstickReading, add_hosts, append_reading, extend, refuse_unusable
from collbench.units import counted


def _nothing(*_: object) -> str:
    return ""


@dataclass(frozen=True)
class Purpose:
    """What an experiment is for.

    `standing` are the comparisons that decide it, of its cells after so many blocks of at most so many. `in_vain` says,
    of the records of a block, why no other one is launched; empty: one is. `began` is called with the expanded plan
    and the folder of the run before its first launch. `resumable`: the command can resume its run.
    """

    standing: StandingOf = standing
    in_vain: Callable[[Sequence[Record]], str] = _nothing
    began: Callable[[ExpandedPlan, Path], object] = _nothing
    resumable: bool = True


@dataclass(frozen=True)
class Performed:
    """A run as it stands when its experiment has ended."""

    records: list[Record]
    manifest: Manifest
    writer: RunWriter


class RunSink:
    """Writes records, and shows the progress of the experiment on a terminal."""

    def __init__(self, writer: RunWriter, launches: int, done: int, records: list[Record]) -> None:
        from tqdm import tqdm

        self.writer, self.records = writer, records
        self._first_with: dict[str, str] = {}  # by what was said of a launch
        self._bar: Any = tqdm(total=launches, initial=done, unit="launch", file=sys.stderr, leave=False,
                              dynamic_ncols=True, disable=not sys.stderr.isatty())  # fmt: skip

    def add(self, record: Record, samples: NDArray[Any] | None) -> None:
        self.records.append(self.writer.append(record, samples))
        self._bar.set_postfix_str(f"{record.case.workload} measured")

    def launched(self, launch: Launch, problem: str | None) -> None:
        """Advance the bar; a problem is printed now, once, and the experiment continues."""
        self._bar.set_description(launch.cell.title, refresh=False)
        self._bar.update()
        if problem is not None:
            self._bar.clear()
            title = f"launch {launch.number} ({launch.cell.title})"
            first = self._first_with.setdefault(problem, title)
            text = problem if first == title else f"ended as {first} did"
            click.echo(harmless(f"collbench: {title} {text}"), err=True)

    def add_reading(self, reading: YardstickReading) -> None:
        self.writer.verify()
        append_reading(self.writer.directory, reading)

    def say(self, line: str, left: int) -> None:
        """A line on what is decided; so many launches may still come."""
        self._bar.total = self._bar.n + left
        self._bar.clear()
        click.echo(harmless(f"# {line}"), err=True)

    def close(self) -> None:
        self._bar.close()
        self.writer.close()


def perform(
    asked: Continued, out: Path, resume: Path | None, check: StopCheck, purpose: Purpose | None = None
) -> Performed:  # fmt: skip
    """Perform every launch of a plan that is not recorded, into the folder `out`, or that of the run to `resume`.

    Raises:
        CollbenchError: the plan, the machine or the folder is of no use; or what ends a campaign (`run_campaign`).
    """
    expanded, begun, purpose = expand_and_check(asked.plan), None, purpose or Purpose()
    if resume is None:
        _refuse_unusable(out)
    else:
        begun = begun_run(asked.before, resume)
    if begun is not None and (why := _nothing_left(expanded, begun, asked.extends, purpose)):
        click.echo(harmless(f"# {resume}: {why}"), err=True)
        begun.writer.close()
        performed = Performed(list(begun.writer.before), begun.manifest, begun.writer)
    else:
        with contextlib.ExitStack() as held:
            if begun is not None:
                held.callback(begun.writer.close)
            with looking(asked.plan):
                prepared = prepare(expanded, check, held=held)
            performed = _performed(prepared, out, begun, asked.extends, check, purpose)
    performed.writer.verify()
    return performed


def _refuse_unusable(out: Path) -> None:
    try:
        refuse_unusable(out)
    except RunWriteError as error:
        error.add_note(" Name another folder: --out DIR.")
        raise


def _nothing_left(expanded: ExpandedPlan, begun: BegunRun, extends: bool, purpose: Purpose) -> str:
    """Why no launch would be started; empty where one may be."""
    before = begun.writer.before
    if len(finished(expanded, before)) == len(expanded.order):
        return "every launch of this plan is recorded, so nothing is started"
    if extends:
        return continuing.nothing_to_decide(expanded, begun.manifest, before, purpose.standing)
    return ""


def _performed(
    prepared: PreparedCampaign, out: Path, begun: BegunRun | None, extends: bool, check: StopCheck, purpose: Purpose
) -> Performed:  # fmt: skip
    expanded = prepared.expanded
    manifest = campaign_manifest(prepared, tuple(sys.argv))
    if begun is None:
        writer = RunWriter(out, manifest)
    else:
        writer = begun.writer
        refuse_other_software(begun.manifest, manifest, writer.directory)
        if others := add_hosts(writer.directory, manifest.hosts):
            names = ", ".join(host.name for host in others)
            click.echo(harmless(f"# hosts that had no part in the run before: {names}"), err=True)
        manifest = msgspec.structs.replace(manifest, plan=begun.manifest.plan)
    records = list(writer.before)
    done = finished(expanded, writer.before, some_from(manifest) or 0)
    done |= continuing.closed(expanded, manifest, writer.before, extends)
    known = {(record.case, record.launch): record.duet.seconds if record.duet else None
             for record in writer.before if not record.lost}  # fmt: skip
    said = (*prepared.stacks.differences, *disturbances(expanded.placements.values()))
    show_cells(expanded, said, prepared.stacks.missing)
    sink = RunSink(writer, len(expanded.order), len(done), records)
    decider = None
    if expanded.plan.until == "decided":
        decider = Decider(expanded, manifest, records, sink.say, standing=purpose.standing)
    if extends:
        sink.say("judged by bets from now on: what a fixed number of launches just decided may be open again", 0)
        extend(writer.directory, expanded.plan.launches)
    purpose.began(expanded, writer.directory)
    try:
        run_campaign(prepared, sink, done, known, check, _Wanted(purpose, decider, sink))
        if decider and (more := decider.finish()):
            sink.say(f"more launches: {resuming(writer.directory, until='decided', launches=more)}", 0)
    except (CollbenchError, KeyboardInterrupt) as error:
        sink.close()
        if purpose.resumable:
            error.add_note(_left(writer, error))
        raise
    sink.close()
    return Performed(records, manifest, writer)


class _Wanted:
    """Asked before each block which cells are launched in it: none where more blocks would be in vain."""

    def __init__(self, purpose: Purpose, decider: Decider | None, sink: RunSink) -> None:
        self._purpose, self._decider, self._sink, self._seen = purpose, decider, sink, 0

    def __call__(self, block: int) -> Mapping[LaunchCell, Part] | None:
        new, self._seen = self._sink.records[self._seen :], len(self._sink.records)
        if why := self._purpose.in_vain(new):
            self._sink.say(f"stopped: {why}", 0)
            return {}
        return self._decider(block) if self._decider else None


def _left(writer: RunWriter, error: BaseException) -> str:
    """What there is of a run that ended with an error, and how to continue it; without what the error says itself."""
    said = isinstance(error, RunWriteError)
    if writer.lost() is not None:
        return "" if said else f" {writer.standing()}"
    if said:
        return f" To continue: {resuming(writer.directory)}"
    there = f"{counted(writer.count, 'record is', 'records are')} in {writer.directory}"
    return f" {there if writer.count else 'Nothing was recorded yet'}; continue: {resuming(writer.directory)}"
