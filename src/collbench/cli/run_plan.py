"""`collbench run PLAN.toml`: many cases in one world."""

from __future__ import annotations

from pathlib import Path

import click

from collbench.cli.measuring import carry_out
from collbench.cli.options import OUTPUT, WORLD, flags
from collbench.errors import RequestError
from collbench.schema.plan import load_plan


@click.command(name="run")
@click.argument("plan", type=click.Path(path_type=Path))
@flags(OUTPUT, WORLD)
def command(
    plan: Path,
    style: str,
    out: Path | None,
    output_file: Path | None,
    timeout: str,
    ranks: int | None,
    fault: str | None,
) -> None:
    """Measure every case of PLAN (TOML) in the world that mpirun or torchrun started.

    The time-out is the plan's own unless -T is given.
    """
    import msgspec

    loaded = load_plan(plan)
    if output_file is not None and output_file.resolve() == plan.resolve():
        raise RequestError(f"-J {output_file}: is the plan itself. Name another file.")
    source = click.get_current_context().get_parameter_source("timeout")
    if source is not None and source.name != "DEFAULT":
        loaded = msgspec.structs.replace(loaded, timeout=timeout)
    carry_out(loaded, style, out, output_file, ranks, fault)
