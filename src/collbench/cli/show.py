"""`collbench show DIR`: a run from disk, in any style. Needs no MPI, no torch, no GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from collbench.report import STYLES, new_style
from collbench.schema.store import read_run


@click.command(name="show")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--style", type=click.Choice(list(STYLES)), default="table", show_default=True, help="How to print it.")
def command(directory: Path, style: str) -> None:
    """Print the run in DIRECTORY."""
    run = read_run(directory)
    printer = new_style(style)
    sys.stdout.write(printer.begin(run.manifest))
    for record in run.records:
        sys.stdout.write(printer.add(record))
    sys.stdout.write(printer.end())
    if run.truncated:
        click.echo(f"collbench: {directory}: the last record was cut off and is left out.", err=True)
