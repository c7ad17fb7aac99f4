"""`collbench launch PLAN.toml`: start ranks on the host and in containers, and write one run."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

import click

from collbench.analysis.compare import MARGIN, Comparison, compare
from collbench.analysis.estimate import stats
from collbench.analysis.pairs import own_sides
from collbench.analysis.runs import Observed, observe
from collbench.cli import launch_options, plan_argument
from collbench.cli.continuing import Continued, continued, own_plan
from collbench.cli.experiment import perform
from collbench.cli.launch_options import docker_host, engine, placed_on, site
from collbench.cli.launching import show_commands
from collbench.cli.terminal import PATH, harmless
from collbench.errors import PackageMissing, RequestError
from collbench.launch import engines
from collbench.launch.preview import indistinct_sides
from collbench.launch.shipped import find_plan
from collbench.launch.waiting import StopCheck, Stopping
from collbench.report.cells import launch_tables
from collbench.report.tables import terminal
from collbench.report.verdict import tables as verdict_tables
from collbench.schema.manifest import Until
from collbench.schema.plan import LaunchPlan, load_launch_plan, named_in_errors

#: More pairs of cells than these are not compared while somebody waits.
MOST_COMPARED = 2000


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
@launch_options.until
@launch_options.launches
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

    PLAN is a TOML file, or the name of a plan that comes with collbench (collbench plan lists them). With --resume it
    can be left out: the run has its own.
    """
    if sweeping:
        if plan is not None or out is not None or resume is not None or dry_run:
            raise RequestError("launch --sweep: takes no plan, and no flags but --on, --site and --docker-host.")
        _sweep(placed_on(LaunchPlan(images=()), engine, site, docker_host))
        return
    if resume is not None and out is not None:
        raise RequestError("launch: --resume writes to the folder of its run; remove --out.")
    if plan is not None:
        path = find_plan(plan)
        loaded = load_launch_plan(path, plan)
    elif resume is not None:
        path, loaded = resume, own_plan(resume)
    else:
        raise RequestError("launch: name a plan: a file, or one that collbench plan lists, such as quick (or --sweep).")
    loaded = launch_options.ending(placed_on(loaded, engine, site, docker_host), until, launches)
    asked = Continued(loaded, loaded) if resume is None else continued(loaded, resume, until, launches)
    if asked.plan.until == "decided":  # it is needed after some blocks, and refused before the first
        stats()
    stopping = Stopping()
    with stopping.listening(), named_in_errors(path):
        if dry_run:
            show_commands(asked.plan, stopping.check)
            return
        for line in indistinct_sides(asked.plan):
            click.echo(harmless(f"# {line}"), err=True)
        code = _launch(asked, out or Path("results") / path.stem, resume, stopping.check)
    raise click.exceptions.Exit(code)


def _launch(asked: Continued, out: Path, resume: Path | None, check: StopCheck) -> int:
    performed = perform(asked, out, resume, check)
    folder = resume or out
    observed = observe(folder)
    compared = _compared(observed)
    if compared:
        click.echo(harmless(terminal(verdict_tables(compared, MARGIN))), nl=False)
        click.echo(harmless(f"* every cell: collbench show {shlex.quote(str(folder))}"))
    else:
        click.echo(harmless(terminal(launch_tables(observed.cells))), nl=False)
    if performed.records and all(record.status == "skipped" for record in performed.records):
        reasons = dict.fromkeys(record.reason for record in performed.records if record.reason)
        raise RequestError(f"nothing was measured: {'; '.join(reasons)}.")
    return 1 if any(cell.failed for cell in observed.cells.values()) else 0


def _compared(observed: Observed) -> list[Comparison]:
    """The sides of a run; none where they are too many, or where what judges them is not installed, as on nodes."""
    pairs = own_sides(observed)
    if len(pairs) > MOST_COMPARED:
        return []
    with contextlib.suppress(PackageMissing):
        return compare(pairs, MARGIN, observed.interleaved)
    return []


def _sweep(plan: LaunchPlan) -> None:
    engine = engines.get(plan.engine)
    removed, kept = engine.connect(plan, lambda: None).sweep()
    click.echo(f"removed {len(removed)}: {', '.join(removed)}" if removed else "nothing to remove")
    if kept:
        click.echo(f"kept {len(kept)}, whose launch may still run, or that cannot be removed: {', '.join(kept)}")
