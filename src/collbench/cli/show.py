"""`collbench show DIR`: a run from disk, in any style. Needs no MPI, no torch, no GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from collbench.cli.terminal import harmless
from collbench.report import STYLES, new_style
from collbench.report.launches import summary
from collbench.schema.store import Run, read_run


@click.command(name="show")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--style", type=click.Choice(list(STYLES)), default="table", show_default=True, help="How to print it.")
def command(directory: Path, style: str) -> None:
    """Print the run in DIRECTORY; one of several launches as the table that `launch` ends with."""
    run = read_run(directory)
    if run.manifest.experiment is not None and style == "table":
        sys.stdout.write(harmless(summary(list(run.records))))
    else:
        _print(run, style)
    if not run.records:
        click.echo(f"collbench: {directory}: no records.", err=True)
    if run.truncated:
        click.echo(f"collbench: {directory}: the last record was cut off and is left out.", err=True)


def _print(run: Run, style: str) -> None:
    printer = new_style(style)
    sys.stdout.write(harmless(printer.begin(run.manifest)))
    for record in run.records:
        sys.stdout.write(harmless(printer.add(record)))
    sys.stdout.write(harmless(printer.end()))
