"""`collbench launch PLAN.toml`: start ranks on the host and in containers, and write one run."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import click
import msgspec
from numpy.typing import NDArray

from collbench.analysis.observations import Cell, apply_manifests, collect, some_from
from collbench.analysis.optional import stats
from collbench.cli import continuing, plan_argument, until_option
from collbench.cli.begun import BegunRun, begun_run, refuse_other_software
from collbench.cli.continuing import Continued, continued
from collbench.cli.deciding import Decider
from collbench.cli.dry_run import show_commands
from collbench.cli.engine_option import docker_host, engine, placed_on, site
from collbench.cli.launching import looking, show_cells
from collbench.cli.path_argument import PATH
from collbench.cli.terminal import harmless
from collbench.cli.typed import resuming
from collbench.errors import CollbenchError, RequestError, RunWriteError
from collbench.launch import engines
from collbench.launch.campaign import (
    PreparedCampaign,
    campaign_manifest,
    expand_and_check,
    finished,
    prepare_expanded,
    run_campaign,
)
from collbench.launch.cells import Launch
from collbench.launch.expansion import ExpandedPlan
from collbench.launch.folders.neighbours import disturbances
from collbench.launch.shipped import find_plan
from collbench.launch.stopping import StopCheck, Stopping
from collbench.report.launches import summary
from collbench.schema.case import Case
from collbench.schema.launch_plan import LaunchPlan, load_launch_plan
from collbench.schema.manifest import Manifest, Until
from collbench.schema.new_folder import refuse_unusable
from collbench.schema.plan import named_in_errors
from collbench.schema.record import Record
from collbench.schema.resumed import add_hosts, extend
from collbench.schema.store import RunWriter
from collbench.units import counted


class RunSink:
    """Writes records, and shows the progress of the experiment on a terminal."""

    def __init__(self, writer: RunWriter, launches: int, done: int, records: list[Record]) -> None:
        from tqdm import tqdm

        self.writer, self.records = writer, records
        self._bar: Any = tqdm(total=launches, initial=done, unit="launch", file=sys.stderr, leave=False,
                              dynamic_ncols=True, disable=not sys.stderr.isatty())  # fmt: skip

    def add(self, record: Record, samples: NDArray[Any] | None) -> None:
        self.records.append(self.writer.append(record, samples))
        self._bar.set_postfix_str(f"{record.case.workload} measured")

    def launched(self, launch: Launch, problem: str | None) -> None:
        """Advance the bar; a problem is printed now, and the experiment continues."""
        self._bar.set_description(launch.cell.title, refresh=False)
        self._bar.update()
        if problem is not None:
            self._bar.clear()
            click.echo(harmless(f"collbench: launch {launch.sequence} ({launch.cell.title}) {problem}"), err=True)

    def say(self, line: str, left: int) -> None:
        """A line on what is decided; so many launches may still come."""
        self._bar.total = self._bar.n + left
        self._bar.clear()
        click.echo(harmless(f"# {line}"), err=True)

    def close(self) -> None:
        self._bar.close()
        self.writer.close()


@click.command(name="launch")
@plan_argument.optional_plan
@click.option(
    "--out",
    type=PATH,
    default=None,
    metavar="DIR",
    help="Folder of the run.  [default: results/PLAN]",
)
@click.option(
    "--resume",
    type=PATH,
    default=None,
    metavar="DIR",
    help="Resume the run in DIR: what is recorded is not repeated. With more --launches, only until decided.",
)
@until_option.until
@until_option.launches
@click.option("--dry-run", is_flag=True, help="Print every container as a command of its engine; start no rank.")
@click.option("--sweep", "sweeping", is_flag=True, help="Remove what killed launches left.")
@engine
@site
@docker_host
def command(
    plan: str | None, out: Path | None, resume: Path | None, until: Until | None, launches: int | None, dry_run: bool,
    sweeping: bool, engine: str | None, site: str | None, docker_host: str | None,
) -> None:  # fmt: skip
    """Start the ranks of PLAN on the host and in containers, and write one run.

    PLAN is a TOML file, or the name of a plan that comes with collbench (collbench plan lists them).
    """
    if sweeping:
        if plan is not None or out is not None or resume is not None or dry_run:
            raise RequestError("launch --sweep: takes no plan, and no flags but --on, --site and --docker-host.")
        _sweep(placed_on(LaunchPlan(images=()), engine, site, docker_host))
        return
    if resume is not None and out is not None:
        raise RequestError("launch: --resume writes to the folder of its run; remove --out.")
    if plan is None:
        raise RequestError("launch: name a plan: a file, or one that collbench plan lists, such as quick (or --sweep).")
    path = find_plan(plan)
    loaded = until_option.ending(placed_on(load_launch_plan(path, plan), engine, site, docker_host), until, launches)
    asked = Continued(loaded, loaded) if resume is None else continued(loaded, resume, until, launches)
    if asked.plan.until == "decided":  # it is needed after some blocks, and refused before the first
        stats()
    stopping = Stopping()
    with stopping.listening(), named_in_errors(path):
        if dry_run:
            show_commands(asked.plan, stopping.check)
            return
        code = _launch(asked, out or Path("results") / path.stem, resume, stopping.check)
    raise click.exceptions.Exit(code)


def _launch(asked: Continued, out: Path, resume: Path | None, check: StopCheck) -> int:
    expanded, begun = expand_and_check(asked.plan), None
    if resume is None:
        _refuse_unusable(out)
    else:
        begun = begun_run(asked.before, resume)
    if begun is not None and (why := _nothing_left(expanded, begun, asked.extends)):
        click.echo(harmless(f"# {resume}: {why}"), err=True)
        records, manifest, writer = list(begun.writer.before), begun.manifest, begun.writer
        writer.close()
    else:
        with contextlib.ExitStack() as held:
            if begun is not None:
                held.callback(begun.writer.close)
            with looking(asked.plan):
                prepared = prepare_expanded(expanded, check, held=held)
            records, manifest, writer = _performed(prepared, out, begun, asked.extends, check)
    writer.verify()
    cells: dict[Case, Cell] = {}
    collect(records, cells, some=some_from(manifest))
    apply_manifests(cells.values(), [manifest])
    click.echo(harmless(summary(cells)), nl=False)
    if records and all(record.status == "skipped" for record in records):
        reasons = dict.fromkeys(record.reason for record in records if record.reason)
        raise RequestError(f"nothing was measured: {'; '.join(reasons)}.")
    return 1 if any(cell.failed for cell in cells.values()) else 0


def _refuse_unusable(out: Path) -> None:
    try:
        refuse_unusable(out)
    except RunWriteError as error:
        error.add_note(" Name another folder: --out DIR.")
        raise


def _nothing_left(expanded: ExpandedPlan, begun: BegunRun, extends: bool) -> str:
    """Why no launch would be started; empty where one may be."""
    before = begun.writer.before
    if len(finished(expanded, before)) == len(expanded.order):
        return "every launch of this plan is recorded, so nothing is started"
    if extends:
        return continuing.nothing_to_decide(expanded, begun.manifest, before)
    return ""


def _performed(
    prepared: PreparedCampaign, out: Path, begun: BegunRun | None, extends: bool, check: StopCheck
) -> tuple[list[Record], Manifest, RunWriter]:
    """All launches; their records, the manifest, and the run."""
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
    known = frozenset((record.case, record.launch) for record in writer.before if not record.lost)
    show_cells(expanded, (*prepared.stacks.differences, *disturbances(expanded.placements.values())))
    sink = RunSink(writer, len(expanded.order), len(done), records)
    decider = Decider(expanded, manifest, records, sink.say) if expanded.plan.until == "decided" else None
    if extends:
        sink.say("judged by bets from now on: what a fixed number of launches just decided may be open again", 0)
        extend(writer.directory, expanded.plan.launches)
    try:
        run_campaign(prepared, sink, done, known, check, *([decider] if decider else []))
        if decider and decider.finish():
            more = resuming(writer.directory, until="decided", launches=2 * expanded.plan.launches)
            sink.say(f"more launches: {more}", 0)
    except (CollbenchError, KeyboardInterrupt) as error:
        sink.close()
        error.add_note(_left(writer, error))
        raise
    sink.close()
    return records, manifest, writer


def _left(writer: RunWriter, error: BaseException) -> str:
    """What there is of a run that ended with an error, and how to continue it; without what the error says itself."""
    said = isinstance(error, RunWriteError)
    if writer.lost() is not None:
        return "" if said else f" {writer.standing()}"
    if said:
        return f" To continue: {resuming(writer.directory)}"
    there = f"{counted(writer.count, 'record is', 'records are')} in {writer.directory}"
    return f" {there if writer.count else 'Nothing was recorded yet'}; continue: {resuming(writer.directory)}"


def _sweep(plan: LaunchPlan) -> None:
    engine = engines.get(plan.engine)
    removed, kept = engine.connect(engine.address(plan), lambda: None).sweep()
    click.echo(f"removed {len(removed)}: {', '.join(removed)}" if removed else "nothing to remove")
    if kept:
        click.echo(f"kept {len(kept)}, whose launch may still run, or that cannot be removed: {', '.join(kept)}")
