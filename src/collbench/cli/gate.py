"""`collbench gate PLAN --base A --other B`: whether a change loses performance, for those who decide on it."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from collbench.analysis.deciding import standing_of_sides
from collbench.analysis.estimate import FEWEST, stats
from collbench.analysis.gate import ACCEPTABLE, Judgement, judge
from collbench.analysis.runs import observe
from collbench.cli import launch_options, plan_argument
from collbench.cli.analysing import COMPLETE, MarginsType, say, style
from collbench.cli.continuing import Continued, continued, plan_in
from collbench.cli.experiment import Purpose, perform
from collbench.cli.launch_options import docker_host, engine, placed_on, site
from collbench.cli.sides import ACCEPTED, KINDS, OVERSUBSCRIBED, host_plan, refuse_other_bytes, side_of
from collbench.cli.terminal import PATH, harmless
from collbench.errors import CollbenchError, Interrupted, NoAnswer, RequestError, RunWriteError, in_one_line
from collbench.launch.collect import placed_case
from collbench.launch.expansion import ExpandedPlan
from collbench.launch.shipped import find_plan
from collbench.launch.stacks import sha256_of_given
from collbench.launch.waiting import Stopping
from collbench.report.gate import AnswerNames, document, junit, markdown, names_of, tables
from collbench.schema.manifest import Until, read_manifest
from collbench.schema.plan import (
    LaunchPlan,
    check_launch_plan,
    load_launch_plan,
    load_plan,
    named_in_errors,
    read_document,
)
from collbench.schema.record import Record, read
from collbench.schema.store import (
    GATE_PLAN,
    SIDES,
    GatePlan,
    Margins,
    is_gate,
    is_unfinished,
    mark_finished,
    read_gate_plan,
    write_gate_plan,
)

#: The answer as files in the folder, for a comment, for a report of tests and for programs.
FILES = ("gate.md", "gate.xml", "gate.json")

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
    epilog="Exit codes: 0 no loss, and every cell was answered; 1 a loss, or the other side alone failed; 2 the "
    "request was wrong; 4 no answer, or interrupted.",
)
@plan_argument.plan
@base_side
@other_side
@click.option(
    "--margin",
    "margins",
    type=MarginsType(),
    default="5%",
    show_default=True,
    metavar="PERCENT[:SIZE,...]",
    help="What a change may cost; by size as in 20%:1M,10%:64M,5%: up to 1M, up to 64M, above.",
)
@launch_options.launches
@launch_options.until
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
              help="Folder of the run and of the answer.  [default: results/PLAN-gate]")  # fmt: skip
@click.option("--resume", type=PATH, default=None, metavar="DIR",
              help="Resume the gate in DIR: what is recorded is not repeated.")  # fmt: skip
@click.option("--all", "every", is_flag=True, default=False, help="Every cell in the table.")
@style
@engine
@site
@docker_host
def command(plan: str, margins: Margins, accepted: tuple[str, ...], every: bool, style: str, **asked: Any) -> None:
    """Measure both sides of PLAN alternately, and say whether the other one loses time beyond the margin.

    PLAN is a TOML file, the name of a plan that comes with collbench, or the folder of an earlier gate, which is then
    judged again. The answer is in DIR as gate.md, gate.xml (JUnit) and gate.json, too.
    """
    stats()
    with _no_false_loss():
        taken = tuple(_ACCEPTED[name] for name in accepted)
        measured = _earlier(Path(plan), asked) if Path(plan).is_dir() else None
        begun = measured or asked["resume"]
        if begun is not None:  # decided and judged as it was begun, where nothing else is asked for
            gate = read_gate_plan(begun)
            typed = click.get_current_context().get_parameter_source("margins") is ParameterSource.COMMANDLINE
            margins, taken = margins if typed else gate.margins, taken or gate.accepted
        folder = measured or _measured(plan, margins, taken, **asked)
        judgement = judge(read_gate_plan(folder), observe(folder), margins, taken, is_unfinished(folder))
        names = names_of(judgement.answers)
        _write_answer(folder, judgement, names)
        say(tables(judgement, names, every or style in COMPLETE, style in COMPLETE), document(judgement, names), style)
        sys.stdout.flush()  # an answer that nobody can read is none
    raise click.exceptions.Exit(judgement.code)


@contextlib.contextmanager
def _no_false_loss() -> Iterator[None]:
    """Whatever goes wrong is no answer: an exit code of 1 means a loss or a side that failed, and nothing else.

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
            f"{folder}: is measured already, and only judged again: leave out {flags}. ({GATE_PLAN} is in it.)"
        )
    return folder


def _measured(
    text: str, margins: Margins, accepted: tuple[str, ...], base: tuple[str, ...], other: tuple[str, ...],
    launches: int | None, until: Until | None, seed: int | None, ranks: int | None, out: Path | None,
    resume: Path | None, engine: str | None, site: str | None, docker_host: str | None,
) -> Path:  # fmt: skip
    if resume is not None and out is not None:
        raise RequestError("gate: --resume writes to the folder of its gate; remove --out.")
    for words in (f"gate {text}", f"--docker-host {docker_host}"):
        refuse_other_bytes(words)
    begun = None if resume is None else plan_in(read_manifest(resume))
    path, plan = plan_for_gate(text, ranks, OVERSUBSCRIBED in accepted, begun)
    plan = launch_options.ending(placed_on(plan, engine, site, docker_host), until, launches)
    plan = plan if seed is None else msgspec.structs.replace(plan, seed=seed)
    if begun is not None and not base and not other:
        sides = begun.sides
    else:
        sides = {"base": side_of("--base", base, plan), "other": side_of("--other", other, plan)}
    folder = resume or out or Path("results") / f"{path.stem}-gate"
    if resume is None:
        _refuse_earlier(folder)
    stopping = Stopping()
    with _judged_nevertheless(folder), stopping.listening(), named_in_errors(path):
        plan = check_launch_plan(msgspec.structs.replace(plan, sides=sides))
        if plan.launches < FEWEST:
            raise RequestError(
                f"launches {plan.launches}: with fewer than {FEWEST} launches a side no cell has an answer. Ask for "
                f"more: --launches {FEWEST + 2}, or --until decided with as many as there is time for."
            )
        asked = Continued(plan, plan) if resume is None else continued(plan, folder, until, launches)
        files = {
            name: {sha256_of_given(path) for path in (*side.libraries, *side.preload)} for name, side in sides.items()
        }
        purpose = Purpose(
            standing=lambda cells, blocks, most: standing_of_sides(cells, blocks, most, margins),
            in_vain=lambda records: _in_vain(records, files),
            began=lambda expanded, where: _begin(expanded, where, text, margins, accepted, resume is not None),
        )
        try:
            perform(asked, folder, resume, stopping.check, purpose)
        except RunWriteError as error:
            if (folder / "manifest.json").exists():
                raise
            raise RequestError(f"{error}{''.join(getattr(error, '__notes__', ()))}") from error
        mark_finished(folder)
    return folder


def plan_for_gate(
    text: str, ranks: int | None, crowded: bool, begun: LaunchPlan | None = None
) -> tuple[Path, LaunchPlan]:  # fmt: skip
    """The launch plan that PLAN names; one for a single world becomes one of ranks on the host.

    Where its timing gate is `auto`, it becomes `barrier`: launches that fall back to it, and others that do not,
    could not be compared. `crowded`: there may be more ranks than cores in a single world. What no plan says but flags
    is as in the gate that was `begun`.

    Raises:
        PlanError, RequestError: it cannot be read, has sides of its own, or there are more ranks than cores.
    """
    path = find_plan(text)
    if "images" in read_document(path):
        if ranks is not None:
            raise RequestError(f"-n {ranks}: a launch plan says itself how many ranks there are: ranks = [{ranks}].")
        plan = load_launch_plan(path, text)
    else:
        known = begun.ranks[0] if begun is not None and len(begun.ranks) == 1 else None
        plan = host_plan(load_plan(path, text), ranks or known, crowded)
    if plan.sides:
        raise RequestError(f"gate: {text} has sides of its own: {', '.join(plan.sides)}. Measure them by collbench "
                           "launch, and compare them by collbench compare RUN --by side.")  # fmt: skip
    if begun is not None:
        plan = msgspec.structs.replace(plan, launches=begun.launches, until=begun.until, seed=begun.seed)
    return path, msgspec.structs.replace(plan, gate="barrier") if plan.gate == "auto" else plan


def _begin(
    expanded: ExpandedPlan, folder: Path, text: str, margins: Margins, accepted: tuple[str, ...], resumed: bool
) -> None:  # fmt: skip
    """Say what a crowded cell is worth, and write down what is to be answered; answers of before are removed."""
    crowded = [cell for cell, placement in expanded.placements.items() if placement.crowded]
    if crowded and OVERSUBSCRIBED not in accepted:
        click.echo(harmless(f"# more ranks than cores ({crowded[0].title}): such cells do not pass without {ACCEPTED} "
                            "(times are the scheduler's)"), err=True)  # fmt: skip
    cells = dict.fromkeys(
        placed_case(case, cell).having(side=None)
        for cell in expanded.cells if cell.side == SIDES[0]
        for of_cell in expanded.cases[cell] for case in of_cell.identities
    )  # fmt: skip
    plan = GatePlan(plan=text, cells=tuple(cells), margins=margins, accepted=accepted)
    if resumed and read_gate_plan(folder).cells != plan.cells:
        raise RequestError(f"--resume {folder}: the plan had other cells when it was begun. Begin a gate with --out.")
    write_gate_plan(folder, plan)
    for name in FILES:
        (folder / name).unlink(missing_ok=True)


def _in_vain(records: Sequence[Record], files: Mapping[str, Set[str]]) -> str:
    """Why, after these records, not every cell of the gate can be answered; empty where each can.

    `files` are by side the SHA-256 of the library files that its ranks are to load.
    """
    for name, hashes in files.items():
        new = [record for record in records if record.case.where.side == name]
        why = next(filter(None, (_unanswerable(record, hashes) for record in new)), "")
        if not why and new and all(record.status == "failed" for record in new):
            why = "everything failed"
        if why:
            return f"{name}: {why}"
    return ""


def _unanswerable(record: Record, hashes: Set[str]) -> str:
    if record.status == "skipped":
        return f"{record.case.workload} is skipped ({record.reason}), so not every cell can be answered"
    if record.status == "ok" and hashes:
        loaded = {found.sha256 for note in record.notes if (found := read(note))}
        if not loaded & hashes:
            return "its ranks did not load what was put in front of them"
    return ""


def _refuse_earlier(folder: Path) -> None:
    """Whether a folder holds a gate already; what can be done with it is said.

    Raises:
        RequestError: it does.
    """
    if is_gate(folder):
        named = shlex.quote(in_one_line(str(folder)))
        can = f"resume it: --resume {named}" if is_unfinished(folder) else f"judge it again: collbench gate {named}"
        raise RequestError(f"--out {folder}: holds a gate already. Name a directory that does not exist yet, or {can}.")


@contextlib.contextmanager
def _judged_nevertheless(folder: Path) -> Iterator[None]:
    """After an interruption the command goes on with what was measured, once the run has begun.

    Raises:
        Interrupted: it had not.
    """
    try:
        yield
    except Interrupted as error:
        if not is_unfinished(folder):
            raise
        click.echo(harmless(f"collbench: {error}{''.join(getattr(error, '__notes__', ()))}"), err=True)


def _write_answer(folder: Path, judgement: Judgement, names: AnswerNames) -> None:
    """Write all of `FILES`; what an earlier judgement wrote is replaced.

    Raises:
        RunWriteError: one cannot be written.
    """
    content = {
        FILES[0]: markdown(judgement, names).encode("utf-8", "backslashreplace"),
        FILES[1]: junit(judgement, names),
        FILES[2]: msgspec.json.format(msgspec.json.encode(document(judgement, names)), indent=1) + b"\n",
    }
    try:
        for name, text in content.items():
            (folder / name).write_bytes(text)
    except OSError as error:
        raise RunWriteError(f"{folder}: {error.strerror or error}.") from error
