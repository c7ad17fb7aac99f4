"""`collbench launch`, and what `gate` and `selftest` share with it: an experiment, from a launch plan to its run.

Begun or resumed, launched until it ends, with its progress. Experiments differ in the plan, and in what decides them.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec
from numpy.typing import NDArray

from collbench.analysis.compare import MARGIN, Comparison, compare
from collbench.analysis.estimate import stats
from collbench.analysis.pairs import SidesDiffer, own_sides
from collbench.analysis.planning import standing
from collbench.analysis.results import some_from
from collbench.analysis.runs import observe
from collbench.cli import options as flags
from collbench.cli import until
from collbench.cli.command import COMMAND, OF_LAUNCH, MetricOptions, WithCommand, command_benchmark
from collbench.cli.plan import (
    LAUNCHES,
    UNTIL,
    PaperChoice,
    ending,
    is_paper,
    looking,
    placed_on,
    plans_of,
    plans_table,
    show_cells,
    show_commands,
)  # fmt: skip
from collbench.errors import CollbenchError, PackageMissing, RequestError, RunWriteError
from collbench.launch import campaign, engines
from collbench.launch.campaign import PreparedCampaign, expand_and_check, finished, prepare
from collbench.launch.cells import Launch, LaunchCell, LaunchPart
from collbench.launch.expansion import ExpandedPlan
from collbench.launch.folders import disturbances
from collbench.launch.stacks import indistinct_sides
from collbench.launch.waiting import StopCheck, Stopping
from collbench.registry import find_plan
from collbench.report.cells import launch_tables
from collbench.report.paper import beside, paper, papers
from collbench.report.tables import terminal
from collbench.report.verdict import tables as verdict_tables
from collbench.schema.manifest import Manifest, Until, read_manifest
from collbench.schema.plan import Plan, check_launch_plan, load_launch_plan, named_in_errors
from collbench.schema.record import Record
from collbench.schema.store import (
    RecordStream,
    RunWriter,
    YardstickReading,
    add_hosts,
    append_reading,
    extend,
    refuse_unusable,
)  # fmt: skip
from collbench.units import counted

MOST_COMPARED = 2000  #: More pairs of cells than these are not compared while somebody waits.


class _LaunchOptions(MetricOptions):
    plan: str | None = flags.OPTIONAL_PLAN
    command: str | None = flags.option("--command", "In place of PLAN: a command, as a shell takes it.", "COMMAND", type=flags.text)  # fmt: skip
    policies: str | None = flags.option(
        "--policies", "Where the command runs.  [default: host,multi]", "NAMES", type=flags.text
    )
    images: str | None = flags.option(
        "--images", "Images that the command runs in.  [default: tools]", "NAMES", type=flags.text
    )
    iters: int | None = flags.option("-n --iters", "Of a command: samples in each launch.  [default: 3, or as many as take 2 s]", "N", type=click.IntRange(1))  # fmt: skip
    warmup: int | None = flags.option("-w --warmup_iters", "Of a command: samples that are not counted, before these.  [default: 1]", "N", type=click.IntRange(0))  # fmt: skip
    timeout: str | None = flags.option("-T --timeout", "Of a command: longest time of one execution.  [default: 300s]", "TIME")  # fmt: skip
    out: Path | None = flags.option(
        "--out", "Folder of the run, which must be new or empty.  [default: results/PLAN]", "DIR", type=flags.PATH
    )
    resume: Path | None = flags.option("--resume", "Continue the run in DIR, by its own plan: what is recorded is not repeated. With more --launches, only until decided.", "DIR", type=flags.PATH)  # fmt: skip
    until: Until | None = UNTIL
    launches: int | None = LAUNCHES
    dry_run: bool = flags.switch("--dry-run", "Print every container as a command of its engine, and start no rank.")
    sweep: bool = flags.switch("--sweep", "Remove what killed launches left.")
    engine: str | None = flags.ENGINE
    site: str | None = flags.SITE
    docker_host: str | None = flags.DOCKER_HOST


@flags.command("launch", _LaunchOptions, cls=WithCommand)
def launch_command(options: _LaunchOptions) -> None:
    """Start the ranks of PLAN on the host and in containers, and write one run.

    PLAN is a TOML file, or the name of a plan that comes with collbench (collbench plan lists them). With --resume it
    can be left out: the run has its own. The name of a paper, such as xu2017, stands for all its plans that this
    machine can take: their runs are written to folders in DIR, and judged together.

    Instead of PLAN, give a command: with --command, or after `--`, as in collbench launch -- ./app -n 5.
    """
    resume = options.resume
    if options.sweep:
        if options.plan is not None or options.out is not None or resume is not None or options.dry_run:
            raise RequestError("launch --sweep: takes no plan, and no flags but --on, --site and --docker-host.")
        plan = placed_on(Plan(images=()), options)
        removed, kept = engines.get(plan.engine).connect(plan, lambda: None).sweep()
        click.echo(f"removed {len(removed)}: {', '.join(removed)}" if removed else "nothing to remove")
        if kept:
            click.echo(f"kept {len(kept)}, whose launch may still run, or that cannot be removed: {', '.join(kept)}")
        return
    if resume is not None and options.out is not None:
        raise RequestError("launch: --resume writes to the folder of its run; remove --out.")
    if options.plan is not None and is_paper(options.plan):
        raise click.exceptions.Exit(_launch_paper(options.plan, options))
    path, plan = _plan_of(options, resume)
    plan, before = ending(placed_on(plan, options), options), None
    if resume is not None:
        plan, before = until.continued(plan, resume, options.until, options.launches)
    if plan.until == "decided":  # it is needed after some blocks, and refused before the first
        stats()
    stopping = Stopping()
    with stopping.listening(), named_in_errors(path):
        if options.dry_run:
            show_commands(plan, stopping.check)
            return
        for line in indistinct_sides(plan):
            flags.note(f"# {line}")
        folder = resume or options.out or Path("results") / path.stem
        records = perform(plan, folder, stopping.check, before=before)
        code = _answer(folder, records)
    raise click.exceptions.Exit(code)


def _plan_of(options: _LaunchOptions, resume: Path | None) -> tuple[Path, Plan]:
    """The plan that is named, or that of a command, or of the run; and what errors in it are said of."""
    typed = click.get_current_context().meta.get(COMMAND)
    if typed and options.command:
        raise RequestError("launch: --command and a command after --: leave one of them out.")
    own, text = command_benchmark(typed or options.command, options), options.plan
    if own is not None:
        return Path("command"), _plan_with(own, options)
    if _keys_of_command(options):
        raise RequestError("launch: --policies, --images, -n, -w and -T go with a command; a plan has its own.")
    if text is not None:
        path = find_plan(text, papers())
        return path, load_launch_plan(path, text)
    if resume is None:
        raise RequestError("launch: name a plan: a file, or one that collbench plan lists, such as quick (or --sweep).")
    plan = until.plan_in(read_manifest(resume))
    if plan is None:
        raise RequestError(f"--resume {resume}: this collbench cannot read the plan that the run has. Name its PLAN.")
    return resume, plan


def _launch_paper(reference: str, options: _LaunchOptions) -> int:
    """Perform the plans of a paper in turn, and judge it by their runs; 1 where a cell failed, or a plan was refused."""
    typed = click.get_current_context().meta.get(COMMAND) or options.command
    if command_benchmark(typed, options) is not None or _keys_of_command(options):
        raise RequestError("launch: give either the name of a paper or a command.")
    published = paper(reference)
    folder = options.resume or options.out or Path("results") / reference
    if options.resume is not None and not folder.is_dir():
        raise RequestError(f"--resume {folder}: there is no such folder. Name the one that launch {reference} wrote.")
    if not options.dry_run:
        stats()  # the verdicts need it
    choices = plans_of(published, options)
    for line in terminal([plans_table(published, choices)]).splitlines():
        flags.note(f"# {line}")
    try:
        if options.resume is None and not options.dry_run:
            refuse_unusable(folder)
        runs, code = _perform_all(choices, folder, options)
    except (CollbenchError, KeyboardInterrupt) as error:
        if folder.is_dir():
            error.add_note(f" To continue: {until.resuming(folder)}")
        raise
    if options.dry_run:
        return code
    if not runs:
        raise RequestError(f"launch {reference}: nothing was measured.")
    flags.say(terminal([beside([observe(run) for run in runs], published).screen]), nl=False)
    named = shlex.quote(str(folder))
    flags.say(f"* a page of it: collbench report {named} --against {reference} -o {reference}.html")
    return code


def _perform_all(choices: Sequence[PaperChoice], folder: Path, options: _LaunchOptions) -> tuple[list[Path], int]:
    """The runs that measured something, and 1 where a cell failed, or a plan was refused."""
    stopping, runs, refused, code = Stopping(), list[Path](), dict[str, str](), 0
    with stopping.listening():
        for choice in choices:
            if choice.expanded is None:
                continue
            run = folder / choice.name
            try:
                records: Sequence[Record] = _perform_one(choice, run, options, stopping.check)
            except RequestError as error:
                first = refused.setdefault(str(error), choice.name)
                why, code = str(error) if first == choice.name else f"as {first}", 1
                begun = (run / "manifest.json").exists()
                how = f"to its end: {why} To continue: {until.resuming(folder)}" if begun else why
                flags.note(f"collbench: {choice.name} was not measured{' ' if begun else ': '}{how}")
                records = list(RecordStream(run)) if begun else ()
            runs += [run] if any(record.status == "ok" for record in records) else []
            code = code or int(any(record.status == "failed" for record in records))
    return runs, code


def _perform_one(choice: PaperChoice, folder: Path, options: _LaunchOptions, check: StopCheck) -> list[Record]:
    """Perform a plan of a paper, or what its run lacks."""
    assert choice.expanded is not None
    plan, before = choice.expanded.plan, None
    with named_in_errors(choice.path):
        if options.dry_run:
            show_commands(plan, check)
            return []
        if options.resume is not None and folder.exists():
            plan, before = until.continued(plan, folder, options.until, options.launches)
        return perform(plan, folder, check, Purpose(resumable=False), before)


def _plan_with(benchmark: dict[str, Any], options: _LaunchOptions) -> Plan:
    """A launch plan with a command alone: enough launches for verdicts. RequestError: a plan is named too."""
    if options.plan is not None or options.resume is not None:
        raise RequestError("launch: give either PLAN or a command; a run that is resumed has its plan.")
    keys = {"policies": ("host", "multi"), "images": ("tools",), "warmup": 1, "timeout": "300s"}
    return check_launch_plan(Plan(
        title=str(benchmark["command"]), benchmarks=(benchmark,), ranks=(1,), cores_per_rank="share", launches=10,
        floor=3, budget="2s", **keys | _keys_of_command(options),
    ))  # fmt: skip


def _keys_of_command(options: _LaunchOptions) -> dict[str, Any]:
    """Keys of a plan that flags of a command stand for."""
    typed = {name: getattr(options, name) for name in OF_LAUNCH if getattr(options, name) is not None}
    return {name: tuple(value.split(",")) if name in ("policies", "images") else value for name, value in typed.items()}


def _answer(folder: Path, records: Sequence[Record]) -> int:
    """Print the sides of a run; what its cells took where sides are too many, or no judge is installed, as on nodes."""
    observed, compared, refusal = observe(folder), list[Comparison](), ""
    try:
        pairs = own_sides(observed)
        compared = compare(pairs, MARGIN, observed.interleaved) if len(pairs) <= MOST_COMPARED else []
    except SidesDiffer as error:
        refusal = str(error)
    except PackageMissing:
        pass
    if compared:
        flags.say(terminal(verdict_tables(compared, MARGIN)), nl=False)
        flags.say(f"* every cell: collbench show {shlex.quote(str(folder))}")
    else:
        flags.say(terminal(launch_tables(observed.cells)), nl=False)
        if refusal:
            flags.say(f"* not compared: {refusal}")
    if records and all(record.status == "skipped" for record in records):
        reasons = dict.fromkeys(record.reason for record in records if record.reason)
        raise RequestError(f"nothing was measured: {'; '.join(reasons)}.")
    return 1 if any(cell.failed for cell in observed.cells.values()) else 0


# An experiment --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Purpose:
    """What an experiment is for.

    `standing`: the comparisons that decide it. `in_vain`: why, after the records of a block, no other one is launched;
    empty: one is. `began` is called before the first launch. `resumable`: the command can resume its run.
    """

    standing: until.StandingOf = standing
    in_vain: Callable[[Sequence[Record]], str] = lambda records: ""
    began: Callable[[ExpandedPlan, Path], object] = lambda expanded, folder: None
    resumable: bool = True


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
            flags.note(f"collbench: {title} {text}")

    def add_reading(self, reading: YardstickReading) -> None:
        self.writer.verify()
        append_reading(self.writer.directory, reading)

    def say(self, line: str, left: int) -> None:
        """A line on what is decided; so many launches may still come."""
        self._bar.total = self._bar.n + left
        self._bar.clear()
        flags.note(f"# {line}")

    def close(self) -> None:
        self._bar.close()
        self.writer.close()


def perform(
    plan: Plan, folder: Path, check: StopCheck, purpose: Purpose | None = None, before: Plan | None = None
) -> list[Record]:
    """Perform every launch of a plan that is not recorded, and return the records of the run in the folder.

    `before` is the plan that a run to resume has so far (`until.continued`); None: there is no run.
    """
    expanded, resumed, purpose = expand_and_check(plan), None, purpose or Purpose()
    extends = before is not None and before is not plan
    if before is not None:
        resumed = until.resumed_run(before, folder)
        complete = len(finished(expanded, resumed.before)) == len(expanded.order)
        why = "every launch of this plan is recorded, so nothing is started" if complete else ""
        if extends and not complete:
            why = until.nothing_to_decide(expanded, resumed, purpose.standing)
        if why:
            flags.note(f"# {folder}: {why}")
            resumed.close()
            resumed.verify()
            return list(resumed.before)
    else:
        try:
            refuse_unusable(folder)
        except RunWriteError as error:
            error.add_note(" Name another folder: --out DIR.")
            raise
    with contextlib.ExitStack() as held:
        if resumed is not None:
            held.callback(resumed.close)
        with looking(plan):
            prepared = prepare(expanded, check, held=held)
        writer, manifest = _opened(prepared, folder, resumed)
        records = _launched(prepared, writer, manifest, extends, check, purpose)
    writer.verify()
    return records


def _opened(prepared: PreparedCampaign, folder: Path, resumed: RunWriter | None) -> tuple[RunWriter, Manifest]:
    """The run that is written, new or begun, and what its manifest says from now on."""
    manifest = campaign.campaign_manifest(prepared, tuple(sys.argv))
    if resumed is None:
        return RunWriter(folder, manifest), manifest
    before = read_manifest(folder)
    until.refuse_other_software(before, manifest, folder)
    if others := add_hosts(folder, manifest.hosts):
        flags.note(f"# hosts that had no part in the run before: {', '.join(host.name for host in others)}")
    return resumed, msgspec.structs.replace(manifest, plan=before.plan)


def _launched(
    prepared: PreparedCampaign, writer: RunWriter, manifest: Manifest, extends: bool, check: StopCheck, purpose: Purpose
) -> list[Record]:  # fmt: skip
    expanded, records = prepared.expanded, list(writer.before)
    done = finished(expanded, writer.before, some_from(manifest) or 0)
    done |= until.closed(expanded, manifest, writer.before, extends)
    recorded = {(record.case, record.launch): record.duet.seconds if record.duet else None
                for record in writer.before if not record.lost}  # fmt: skip
    differences = (*prepared.stacks.differences, *disturbances(expanded.placements.values()))
    show_cells(expanded, differences, prepared.stacks.missing)
    sink = RunSink(writer, len(expanded.order), len(done), records)
    decider = None
    if expanded.plan.until == "decided":
        decider = until.Decider(expanded, manifest, records, sink.say, purpose.standing)
    if extends:
        sink.say("judged by bets from now on: what a fixed number of launches just decided may be open again", 0)
        extend(writer.directory, expanded.plan.launches)
    purpose.began(expanded, writer.directory)
    seen = 0

    def wanted(block: int) -> Mapping[LaunchCell, LaunchPart] | None:
        """The cells that are launched in a block: none where more blocks would be in vain."""
        nonlocal seen
        new, seen = records[seen:], len(records)
        if why := purpose.in_vain(new):
            sink.say(f"stopped: {why}", 0)
            return {}
        return decider(block) if decider else None

    try:
        campaign.run_campaign(prepared, sink, done, recorded, check, wanted)
        if decider and (more := decider.finish()):
            of_run = {} if purpose.resumable else {"plan": None}  # a paper was typed: the run has its plan
            sink.say(f"more launches: {until.resuming(writer.directory, until='decided', launches=more, **of_run)}", 0)
    except (CollbenchError, KeyboardInterrupt) as error:
        sink.close()
        if purpose.resumable:
            error.add_note(_left(writer, error))
        raise
    sink.close()
    return records


def _left(writer: RunWriter, error: BaseException) -> str:
    """What there is of a run that ended with an error, and how to continue it; without what the error says itself."""
    tells = isinstance(error, RunWriteError)
    if writer.lost() is not None:
        return "" if tells else f" {writer.standing()}"
    if tells:
        return f" To continue: {until.resuming(writer.directory)}"
    there = f"{counted(writer.count, 'record is', 'records are')} in {writer.directory}"
    return f" {there if writer.count else 'Nothing was recorded yet'}; continue: {until.resuming(writer.directory)}"
