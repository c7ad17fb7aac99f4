"""`collbench pack RUN...`: the samples files of a run in one archive, which is read as they were."""

from __future__ import annotations

from pathlib import Path

import click

from collbench.cli.terminal import PATH, harmless
from collbench.schema.samples import ARCHIVE, Packed, pack
from collbench.units import counted


@click.command(name="pack")
@click.argument("runs", nargs=-1, type=PATH, required=True)
def command(runs: tuple[Path, ...]) -> None:
    """Pack the samples files of each of RUNS into its samples.zip. Every command reads the run as before."""
    for run in runs:
        click.echo(harmless(f"{run}: {_summary(run, pack(run))}"))


def _summary(run: Path, packed: Packed | None) -> str:
    if packed is None:
        return "is packed already" if (run / ARCHIVE).exists() else "has no samples files"
    disk = f"{packed.before / 1e6:.2f} MB on disk before, {packed.after / 1e6:.2f} MB now"
    return f"{counted(packed.files, 'samples file')} packed into samples.zip: {disk}"
