"""`collbench gate PLAN --base A --other B`: whether a change loses performance, for those who decide on it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click

from collbench.analysis.gate.answers import Judgement, judge
from collbench.analysis.gate.doubts import ACCEPTABLE
from collbench.analysis.observations import observe
from collbench.analysis.optional import stats
from collbench.cli import plan_argument
from collbench.cli.analysing import COMPLETE, margin, say, style
from collbench.cli.engine_option import docker_host, engine
from collbench.cli.gating.asked import KINDS, side_of
from collbench.cli.gating.crowded import REASON, caution
from collbench.cli.gating.plans import plan_for_gate, plan_of_side, watched_of
from collbench.cli.gating.sides import Planned, cells_of, expanded_sides, named_side, perform_gate
from collbench.cli.gating.utf8 import refuse_other_bytes
from collbench.cli.gating.writing import write_answer
from collbench.cli.path_argument import PATH
from collbench.cli.terminal import harmless
from collbench.errors import CollbenchError, Interrupted, NoAnswer, RequestError
from collbench.launch.stopping import Stopping
from collbench.report.gate.document import document
from collbench.report.gate.names import names_of
from collbench.report.gate.tables import tables
from collbench.schema.gate_plan import FILE, SIDES, GatePlan, Side, is_unfinished, read_gate_plan
from collbench.schema.launch_plan import LaunchPlan
from collbench.schema.manifest import Until
from collbench.schema.plan import named_in_errors

#: By how `--accept` spells them, names of reasons.
_ACCEPTED = {name.replace(" ", "-").lower(): name for name in ACCEPTABLE}

_WRITTEN = ", ".join(KINDS.values())


base_side = click.option(
    "--base", multiple=True, default=None, metavar="SIDE",
    help=f"The side before the change: {_WRITTEN}. Can be repeated.  [default: the plan as it stands]",
)  # fmt: skip

other_side = click.option(
    "--other", multiple=True, default=None, metavar="SIDE",
    help="The side with the change, likewise. Can be repeated.  [default: the plan as it stands]",
)  # fmt: skip


@click.command(
    name="gate",
    epilog="Exit codes: 0 no loss, and every cell was answered; 1 a loss; 2 the request was wrong; 4 no answer, or "
    "interrupted.",
)
@plan_argument.plan
@base_side
@other_side
@margin
@click.option("--launches", type=click.IntRange(1, 1000), default=None, help="Launches a side.  [default: the plan's]")
@click.option(
    "--until",
    type=click.Choice(get_args(Until)),
    default=None,
    help="End after all launches, or when every cell is decided.  [default: the plan's]",
)
@click.option("--seed", type=int, default=None, help="Of the order within blocks.  [default: the plan's]")
@click.option(
    "-n", "--ranks", type=click.IntRange(1, 256), default=None,
    help="Ranks of a plan for one world.  [default: 2 to 4, as there are cores]",
)  # fmt: skip
@click.option(
    "--accept",
    "accepted",
    type=click.Choice(list(_ACCEPTED)),
    multiple=True,
    default=None,
    help="A cell has an answer in spite of this. Can be repeated.",
)
@click.option("--out", type=PATH, default=None, metavar="DIR",
              help="Folder of both runs and of the answer.  [default: results/PLAN-gate]")  # fmt: skip
@click.option("--resume", type=PATH, default=None, metavar="DIR",
              help="Resume the gate in DIR: what is recorded is not repeated.")  # fmt: skip
@click.option("--all", "every", is_flag=True, default=False, help="Every cell in the table.")
@style
@engine
@docker_host
def command(plan: str, margin: float, accepted: tuple[str, ...], every: bool, style: str, **asked: Any) -> None:
    """Measure both sides of PLAN in turns, and say whether the other one loses time beyond the margin.

    PLAN is a TOML file, the name of a plan that comes with collbench, or the folder of an earlier gate, which is then
    judged again. The answer is in DIR as gate.md, gate.xml (JUnit) and gate.json, too.
    """
    stats()
    with _no_false_loss():
        taken = tuple(_ACCEPTED[name] for name in accepted)
        folder = _earlier(Path(plan), asked) if Path(plan).is_dir() else _measured(plan, margin, taken, **asked)
        judgement = _judged(folder, margin, taken)
        names = names_of(judgement.answers)
        write_answer(folder, judgement, names)
        say(tables(judgement, names, every or style in COMPLETE, style in COMPLETE), document(judgement, names), style)
        sys.stdout.flush()  # an answer that nobody can read is none
    raise click.exceptions.Exit(judgement.code)


@contextlib.contextmanager
def _no_false_loss() -> Iterator[None]:
    """Whatever goes wrong is no answer: an exit code of 1 means a loss, and nothing else.

    Raises:
        NoAnswer: instead of other errors but wrong requests and interruptions.
    """
    try:
        yield
    except (RequestError, Interrupted):
        raise
    except CollbenchError as error:
        if error.exit_code in (2, NoAnswer.exit_code):
            raise
        raise NoAnswer(f"gate: no answer: {error}{''.join(getattr(error, '__notes__', ()))}") from error
    except (click.ClickException, click.exceptions.Exit, BrokenPipeError):
        raise
    except Exception as error:
        if os.environ.get("COLLBENCH_TRACEBACK"):
            raise
        raise NoAnswer(f"gate: no answer: {type(error).__name__}: {error}") from error


def _earlier(folder: Path, asked: dict[str, Any]) -> Path:
    if given := [name for name, value in asked.items() if value not in (None, ())]:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise RequestError(
            f"{folder}: is measured already, and only judged again: leave out {flags}. ({FILE} is in it.)"
        )
    return folder


def _measured(
    text: str, margin: float, accepted: tuple[str, ...], base: tuple[str, ...], other: tuple[str, ...],
    launches: int | None, until: Until | None, seed: int | None, ranks: int | None, out: Path | None,
    resume: Path | None, engine: str | None, docker_host: str | None,
) -> Path:  # fmt: skip
    if resume is not None and out is not None:
        raise RequestError("gate: --resume writes to the folder of its gate; remove --out.")
    for words in (f"gate {text}", f"--docker-host {docker_host}"):
        refuse_other_bytes(words)
    keys = {"launches": launches, "until": until, "seed": seed, "engine": engine, "docker_host": docker_host}
    changes = {name: value for name, value in keys.items() if value is not None}
    path, plan = plan_for_gate(text, ranks, changes, REASON in accepted)
    folder = resume or out or Path("results") / f"{path.stem}-gate"
    stopping = Stopping()
    with _judged_nevertheless(folder), stopping.listening(), named_in_errors(path):
        planned = _planned(text, plan, (side_of("--base", base, plan), side_of("--other", other, plan)))
        if crowded := caution(planned.expanded[0], accepted):
            click.echo(harmless(f"# {crowded}"), err=True)
        perform_gate(planned, folder, resume is not None, margin, stopping.check)
    return folder


def _planned(text: str, plan: LaunchPlan, sides: tuple[Side, Side]) -> Planned:
    watched = watched_of(*sides)
    plans = []
    for name, side in zip(SIDES, sides, strict=True):
        with named_side(name):
            plans.append(plan_of_side(plan, side, watched))
    expanded = expanded_sides((plans[0], plans[1]))
    cells, launched_in = cells_of(expanded)
    return Planned(GatePlan(plan=text, base=sides[0], other=sides[1], cells=cells, watched=watched), expanded,
                   launched_in)  # fmt: skip


@contextlib.contextmanager
def _judged_nevertheless(folder: Path) -> Iterator[None]:
    """After an interruption the command goes on with what was measured, once both runs have begun.

    Raises:
        Interrupted: they had not.
    """
    try:
        yield
    except Interrupted as error:
        if not is_unfinished(folder) or not all((folder / name / "manifest.json").exists() for name in SIDES):
            raise
        click.echo(harmless(f"collbench: {error}{''.join(getattr(error, '__notes__', ()))}"), err=True)


def _judged(folder: Path, margin: float, accepted: tuple[str, ...]) -> Judgement:
    plan = read_gate_plan(folder)
    base, other = (observe(folder / name) for name in SIDES)
    return judge(plan, base, other, margin, accepted, is_unfinished(folder))
