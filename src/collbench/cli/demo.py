"""`collbench demo`: a first table."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

import click
import msgspec

from collbench.cli.options import OUTPUT, flags
from collbench.cli.sink import carry_out
from collbench.machine import launcher
from collbench.schema.plan import load_plan


@click.command(name="demo")
@flags(OUTPUT)
def command(style: str, out: Path | None, output_file: Path | None) -> None:
    """Measure the demo plan: under mpirun or torchrun on this machine, else with simulated ranks and times."""
    with as_file(files("collbench.cli") / "demo.toml") as path:
        plan = load_plan(path)
    if launcher.detect().kind == "none":
        click.echo("collbench: no mpirun started this, so ranks and times are simulated. "
                   "For real ones: mpirun -n 2 collbench demo", err=True)  # fmt: skip
        plan = msgspec.structs.replace(plan, backends=("fake",), drivers=("python",))
    carry_out(plan, style, out, output_file)
