"""From a plan to an exit code: what `run`, `demo` and the collectives have in common."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from collbench.bindings.spec import Options
from collbench.cli.sink import TerminalSink
from collbench.errors import RequestError, RunWriteError
from collbench.machine import launcher
from collbench.run.experiment import perform, plan_experiment
from collbench.schema.place import Place
from collbench.schema.plan import Plan, check_plan, named_in_errors


def carry_out(
    plan: Plan,
    style: str,
    out: Path | None = None,
    output_file: Path | None = None,
    ranks: int | None = None,
    fault: str | None = None,
    notices: Iterable[str] = (),
    plan_file: Path | None = None,
    places: tuple[Place, ...] | None = None,
    turns: Path | None = None,
) -> None:
    """Measure a plan, print and keep its records, end with the exit code of what was found.

    `notices` are printed first, unless the plan is refused. Errors name the `plan_file`. `places` are those planned for
    the ranks, `turns` is the folder of pipes by which they take turns with other worlds.

    Raises:
        CollbenchError: see `collbench.run.experiment`; what was measured before is printed and kept.
    """
    check_plan(plan)
    if out is not None and output_file is not None and output_file.resolve().is_relative_to(out.resolve()):
        raise RequestError(f"-J {output_file}: is inside --out {out}. Name a file elsewhere.")
    options = Options(plan["thread_level"], plan.timeout_seconds, ranks, fault, places=places, turns=turns)
    with named_in_errors(plan_file):
        experiment = plan_experiment(plan, options, tuple(sys.argv))
    speaks = launcher.detect().rank == 0
    for notice in notices if speaks else ():
        click.echo(f"collbench: {notice}", err=True)
    sink = TerminalSink(style, out, output_file, speaks=speaks)
    try:
        perform(experiment, sink)
    except BaseException as error:
        where = sink.rescue()
        if where and not isinstance(error, RunWriteError):  # which says itself what is on disk
            error.add_note(where)
        raise
    sink.finish()
    raise click.exceptions.Exit(sink.verdict())
