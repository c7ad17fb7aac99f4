"""`collbench history FOLDER`: what changed over runs in time, when, by how much, and together with what."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from collbench.analysis.history import History, history, since_run
from collbench.cli.analysing import COMPLETE, RUN, margin_option, say, style
from collbench.cli.failing import FAILING_LEVELS, OUTSIDE, history_failures
from collbench.cli.terminal import amount, harmless, refuse_folder, waiting_for, write
from collbench.errors import RequestError, suggestion
from collbench.report.history import SeriesNames, document, page, tables


class Kinds(click.ParamType[tuple[str, ...]]):
    """`slower,outside`: what a check fails on."""

    name = "KIND[,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Each once."""
        kinds = tuple(dict.fromkeys(str(value).split(",")))
        for kind in set(kinds) - {*FAILING_LEVELS, OUTSIDE}:
            self.fail(f"{kind!r} is none of {', '.join(FAILING_LEVELS)}, {OUTSIDE}.", param, ctx)
        return kinds


@click.command(
    name="history", epilog="Exit code 1 where --fail-on found what it looks for, or something was not measured."
)
@click.argument("folder", type=RUN)
@click.option(
    "--given",
    multiple=True,
    default=None,
    metavar="FACTOR=VALUE",
    help="Only cells with this value, such as policy=multi. Can be repeated.",
)
@margin_option("2%", "Smaller changes are not reported.")
@click.option(
    "--since",
    default=None,
    metavar="RUN|DATE",
    help="Only changes that began with this run or later; a date as 2026-11-03.",
)
@click.option(
    "--fail-on",
    type=Kinds(),
    default=None,
    help=f"Exit with 1 when a cell is {', '.join(FAILING_LEVELS)} now than before, or {OUTSIDE} of its level in the "
    "latest run, or was not measured. Several with commas.",
)
@click.option("-o", "--output", type=RUN, default=None, metavar="FILE", help="Write a page with plots: FILE.html.")
@click.option("--all", "every", is_flag=True, default=False, help="Every cell in tables, not only those that changed.")
@style
def command(
    folder: Path,
    given: tuple[str, ...],
    margin: float,
    since: str | None,
    fail_on: tuple[str, ...] | None,
    output: Path | None,
    every: bool,
    style: str,
) -> int:
    """What changed over the runs in FOLDER: one run a night, say, each written by --out or launch.

    Every folder in it is a run, or a folder of runs of which each is one launch of the same. They are taken in the
    order in which they began.
    """
    if output is not None:
        if output.suffix.lower() not in (".html", ".htm"):
            raise RequestError(f"-o {output}: a page of plots; the name must end in .html. For tables: --style.")
        refuse_folder(output)
    with waiting_for(f"reading the runs in {folder}"):
        found = history(folder, given, margin)
    first = 0 if since is None else _number(found, since)
    found = since_run(found, first)
    names = SeriesNames([one.series for one in found.cells])
    shown = tables(found, names, every or style in COMPLETE)
    say(shown[1:] if style in COMPLETE else shown, document(found, names), style)
    if output is not None:
        _page(output, found, names)
    reasons = history_failures(found, fail_on, first) if fail_on else []
    if reasons:
        click.echo(f"collbench: --fail-on {','.join(fail_on or ())}: {', '.join(reasons)}.", err=True)
    return 1 if reasons else 0


def _number(found: History, since: str) -> int:
    """Of the run of that name, or of the first one on that day or later; after the last one where there is none."""
    runs = found.runs
    named = [number for number, run in enumerate(runs) if run.name == since.strip().rstrip("/").rpartition("/")[2]]
    if named:
        return named[0]
    try:
        day = datetime.fromisoformat(since.strip())
    except ValueError as error:
        hint = suggestion(since, [run.name for run in runs])
        raise RequestError(f"--since {since!r}: neither a run nor a date (2026-11-03). {hint}") from error
    start = day if day.tzinfo else day.replace(tzinfo=UTC)
    return next((number for number, run in enumerate(runs) if run.started >= start), len(runs))


def _page(output: Path, found: History, names: SeriesNames) -> None:
    write(output, harmless(page(found, names)))
    click.echo(harmless(f"collbench: {output}: {amount(output.stat().st_size)}"), err=True)
