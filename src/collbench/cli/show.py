"""`collbench show DIR`: a run from disk, in any style. Needs no MPI, no torch, no GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import click

from collbench.analysis.results import cells_of
from collbench.analysis.runs import shortage
from collbench.cli.terminal import PATH, harmless
from collbench.errors import RequestError
from collbench.report import STYLES, new_style
from collbench.report.caveats import shortage_text, slowest_hosts, slowest_of
from collbench.report.cells import launch_tables
from collbench.report.tables import in_columns, terminal
from collbench.schema.manifest import Manifest, read_manifest
from collbench.schema.record import Record
from collbench.schema.store import RecordStream


@click.command(name="show")
@click.argument("directory", type=PATH)
@click.option("--style", type=click.Choice(list(STYLES)), default="table", show_default=True, help="How to print it.")
def command(directory: Path, style: str) -> None:
    """Print the run in DIRECTORY; of one of several launches what they took, cell by cell."""
    manifest, stream = read_manifest(directory), RecordStream(directory)
    records = iter(stream)
    first = next(records, None)
    if first is not None:
        _print(directory, manifest, chain((first,), records), style)
    if stream.truncated:
        click.echo(harmless(f"collbench: {directory}: the last record was cut off and is left out."), err=True)
    if first is None:
        raise RequestError(f"{directory}: no records in it.")


def _print(directory: Path, manifest: Manifest, records: Iterable[Record], style: str) -> None:
    if manifest.experiment is not None and style == "table":
        slowest: list[tuple[str, float, str]] = []
        cells = cells_of(_seen(records, slowest), manifest)
        said = "".join(in_columns(line, "* ", "  ") + "\n" for line in slowest_hosts(slowest))
        sys.stdout.write(harmless(terminal(launch_tables(cells)) + said))
        lacking = shortage(directory, manifest, cells.values())
        if lacking.cells:
            click.echo(harmless(f"collbench: {shortage_text(lacking)}."), err=True)
        return
    printer = new_style(style)
    sys.stdout.write(harmless(printer.begin(manifest)))
    for record in records:
        sys.stdout.write(harmless(printer.add(record)))
    sys.stdout.write(harmless(printer.end()))


def _seen(records: Iterable[Record], slowest: list[tuple[str, float, str]]) -> Iterator[Record]:
    """The records; what is said of their hosts is added to a list as they pass."""
    for record in records:
        if one := slowest_of(record):
            slowest.append(one)
        yield record
