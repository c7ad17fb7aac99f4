"""Two sides of one plan: `collbench gate`, whether a change loses performance, and `selftest`, equal sides.

Both are experiments as `launch` performs them; they differ in what is asked of the records.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from importlib.resources import as_file, files
from pathlib import Path

import click
import msgspec
from click.core import ParameterSource

from collbench.analysis.bounds import Launches, in_order
from collbench.analysis.compare import Comparison, compare, question_of
from collbench.analysis.deciding import standing_of_sides
from collbench.analysis.estimate import FEWEST, stats
from collbench.analysis.factors import FACTORS
from collbench.analysis.gate import ACCEPTABLE, Judgement, judge
from collbench.analysis.launches import together
from collbench.analysis.pairs import within
from collbench.analysis.planning import cost, false_positives, movements, smallest
from collbench.analysis.runs import observe
from collbench.cli import options as flags
from collbench.cli.analyse import COMPLETE, STYLE, print_tables
from collbench.cli.launch import Purpose, perform
from collbench.cli.plan import LAUNCHES, UNTIL, Launching, ending, placed_on
from collbench.cli.sides import ACCEPTED, KINDS, OVERSUBSCRIBED, host_plan, refuse_other_bytes, side_of
from collbench.cli.terminal import note
from collbench.cli.until import continued, plan_in
from collbench.errors import (
    CollbenchError,
    Interrupted,
    LaunchFailed,
    NoAnswer,
    RequestError,
    RunWriteError,
    in_one_line,
)
from collbench.launch.collect import placed_case
from collbench.launch.expansion import ExpandedPlan
from collbench.launch.folders import signed_folder
from collbench.launch.stacks import sha256_of_given
from collbench.launch.waiting import Stopping
from collbench.machine import launcher
from collbench.registry import find_plan
from collbench.report import sensitivity
from collbench.report.gate import AnswerNames, document, junit, markdown, names_of, tables
from collbench.report.verdict import whole_reason
from collbench.schema.manifest import Until, read_manifest
from collbench.schema.plan import (
    Plan,
    Side,
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
    read_readings,
    write_gate_plan,
)

#: The answer as files in the folder, for a comment, for a report of tests and for programs.
FILES = ("gate.md", "gate.xml", "gate.json")

#: By how `--accept` spells them, names of reasons.
_ACCEPTED = {name.replace(" ", "-").lower(): name for name in ACCEPTABLE}

_RANKS, _OF_A_SIDE = click.IntRange(1, 256), "Can be repeated.  [default: the plan as it stands]"


class _GateOptions(Launching):
    # fmt: off
    plan: str = flags.PLAN
    base: tuple[str, ...] = flags.option("--base", f"The side before the change: {', '.join(KINDS.values())}. {_OF_A_SIDE}", "SIDE", multiple=True)
    other: tuple[str, ...] = flags.option("--other", f"The side with the change, likewise. {_OF_A_SIDE}", "SIDE", multiple=True)
    margins: Margins = flags.option("--margin", "What a change may cost; by size as in 20%:1M,10%:64M,5%: up to 1M, up to 64M, above.", "PERCENT[:SIZE,...]", type=flags.MarginsType(), default="5%")
    launches: int | None = LAUNCHES
    until: Until | None = UNTIL
    seed: int | None = flags.option("--seed", "Of the order within blocks.  [default: the plan's]", type=int)
    ranks: int | None = flags.option("-n --ranks", "Ranks of a plan for one world.  [default: 2 to 4, as there are cores]", type=_RANKS)
    accepted: tuple[str, ...] = flags.several("--accept", "A cell has an answer in spite of this.", type=click.Choice(list(_ACCEPTED)))
    out: Path | None = flags.option("--out", "Folder of the run and of the answer.  [default: results/PLAN-gate]", "DIR", type=flags.PATH)
    resume: Path | None = flags.option("--resume", "Resume the gate in DIR: what is recorded is not repeated.", "DIR", type=flags.PATH)
    every: bool = flags.switch("--all", "Every cell in the table.")
    style: str = STYLE
    engine: str | None = flags.ENGINE
    site: str | None = flags.SITE
    docker_host: str | None = flags.DOCKER_HOST
    # fmt: on


#: Flags that do not say how a gate is measured, but how it is judged and shown.
_JUDGING = ("plan", "margins", "accepted", "every", "style")


@flags.command(
    "gate",
    _GateOptions,
    epilog="Exit codes: 0 no loss, and every cell was answered; 1 a loss, or the other side alone failed; 2 the "
    "request was wrong; 4 no answer, or interrupted.",
)
def gate_command(options: _GateOptions) -> None:
    """Measure both sides of PLAN alternately, and say whether the other one loses time beyond the margin.

    PLAN is a TOML file, the name of a plan that comes with collbench, or the folder of an earlier gate, which is then
    judged again. The answer is in DIR as gate.md, gate.xml (JUnit) and gate.json, too.
    """
    stats()
    with _no_false_loss():
        margins, accepted = options.margins, tuple(_ACCEPTED[name] for name in options.accepted)
        earlier = Path(options.plan) if Path(options.plan).is_dir() else None
        measuring = {name: value for name, value in vars(options).items() if name not in _JUDGING}
        if earlier and (typed := [name for name, value in measuring.items() if value not in (None, ())]):
            listed = ", ".join(f"--{name.replace('_', '-')}" for name in typed)
            raise RequestError(
                f"{earlier}: is measured already, and only judged again: leave out {listed}. ({GATE_PLAN} is in it.)"
            )
        continuing = earlier or options.resume
        if continuing is not None:  # decided and judged as it was begun, where nothing else is asked for
            gate = read_gate_plan(continuing)
            typed_margins = click.get_current_context().get_parameter_source("margins") is ParameterSource.COMMANDLINE
            margins, accepted = margins if typed_margins else gate.margins, accepted or gate.accepted
        folder = earlier or _measured(options, margins, accepted)
        judgement = judge(read_gate_plan(folder), observe(folder), margins, accepted, is_unfinished(folder))
        names = names_of(judgement.answers)
        _write_answer(folder, judgement, names)
        whole = options.style in COMPLETE
        shown = tables(judgement, names, options.every or whole, whole)
        print_tables(shown, document(judgement, names), options.style)
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


def _measured(options: _GateOptions, margins: Margins, accepted: tuple[str, ...]) -> Path:
    """The folder of the gate, new or resumed, when all its launches are over."""
    text, resume = options.plan, options.resume
    if resume is not None and options.out is not None:
        raise RequestError("gate: --resume writes to the folder of its gate; remove --out.")
    for words in (f"gate {text}", f"--docker-host {options.docker_host}"):
        refuse_other_bytes(words)
    begun_plan = None if resume is None else plan_in(read_manifest(resume))
    path, plan = plan_for_gate(text, options.ranks, OVERSUBSCRIBED in accepted, begun_plan)
    plan = ending(placed_on(plan, options), options)
    plan = plan if options.seed is None else msgspec.structs.replace(plan, seed=options.seed)
    if begun_plan is not None and not options.base and not options.other:
        sides = begun_plan.sides
    else:
        sides = {"base": side_of("--base", options.base, plan), "other": side_of("--other", options.other, plan)}
    folder = resume or options.out or Path("results") / f"{path.stem}-gate"
    if resume is None and is_gate(folder):
        named = shlex.quote(in_one_line(str(folder)))
        can = f"resume it: --resume {named}" if is_unfinished(folder) else f"judge it again: collbench gate {named}"
        raise RequestError(f"--out {folder}: holds a gate already. Name a directory that does not exist yet, or {can}.")
    stopping = Stopping()
    with _judged_nevertheless(folder), stopping.listening(), named_in_errors(path):
        plan, before = check_launch_plan(msgspec.structs.replace(plan, sides=sides)), None
        if plan.launches < FEWEST:
            raise RequestError(
                f"launches {plan.launches}: with fewer than {FEWEST} launches a side no cell has an answer. Ask for "
                f"more: --launches {FEWEST + 2}, or --until decided with as many as there is time for."
            )
        if resume is not None:
            plan, before = continued(plan, folder, options.until, options.launches)
        loads = {
            name: {sha256_of_given(path) for path in (*side.libraries, *side.preload)} for name, side in sides.items()
        }
        purpose = Purpose(
            standing=lambda cells, blocks, most: standing_of_sides(cells, blocks, most, margins),
            in_vain=lambda records: _in_vain(records, loads),
            began=lambda expanded, where: _begin(expanded, where, text, margins, accepted, resume is not None),
        )
        try:
            perform(plan, folder, stopping.check, purpose, before)
        except RunWriteError as error:
            if (folder / "manifest.json").exists():
                raise
            raise RequestError(f"{error}{''.join(getattr(error, '__notes__', ()))}") from error
        mark_finished(folder)
    return folder


def plan_for_gate(
    text: str, ranks: int | None, crowded: bool, begun_plan: Plan | None = None
) -> tuple[Path, Plan]:  # fmt: skip
    """The launch plan that PLAN names; one for a single world becomes one of ranks on the host.

    Where its timing gate is `auto`, it becomes `barrier`: launches that fall back to it, and others that do not,
    could not be compared. `crowded`: there may be more ranks than cores in a single world. What only flags say is taken
    from `begun_plan`, that of the gate which goes on.

    Raises:
        PlanError, RequestError: it cannot be read, has sides of its own, or there are more ranks than cores.
    """
    path = find_plan(text)
    if "images" in read_document(path):
        if ranks is not None:
            raise RequestError(f"-n {ranks}: a launch plan says itself how many ranks there are: ranks = [{ranks}].")
        plan = load_launch_plan(path, text)
    else:
        known = begun_plan.ranks[0] if begun_plan is not None and len(begun_plan.ranks) == 1 else None
        plan = host_plan(load_plan(path, text), ranks or known, crowded)
    if plan.sides:
        raise RequestError(f"gate: {text} has sides of its own: {', '.join(plan.sides)}. Measure them by collbench "
                           "launch, and compare them by collbench compare RUN --by side.")  # fmt: skip
    if begun_plan is not None:
        plan = msgspec.structs.replace(plan, launches=begun_plan.launches, until=begun_plan.until, seed=begun_plan.seed)
    return path, msgspec.structs.replace(plan, gate="barrier") if plan.gate == "auto" else plan


def _begin(
    expanded: ExpandedPlan, folder: Path, text: str, margins: Margins, accepted: tuple[str, ...], resumed: bool
) -> None:  # fmt: skip
    """Say what a crowded cell is worth, and write down what is to be answered; answers of before are removed."""
    crowded = [cell for cell, placement in expanded.placements.items() if placement.crowded]
    if crowded and OVERSUBSCRIBED not in accepted:
        note(f"# more ranks than cores ({crowded[0].title}): such cells do not pass without {ACCEPTED} "
             "(times are the scheduler's)")  # fmt: skip
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
        for record in new:
            if record.status == "skipped":
                return f"{name}: {record.case.workload} is skipped ({record.reason}), so not every cell can be answered"
            if record.status == "ok" and hashes:
                loaded = {library.sha256 for text in record.notes if (library := read(text))}
                if not loaded & hashes:
                    return f"{name}: its ranks did not load what was put in front of them"
        if new and all(record.status == "failed" for record in new):
            return f"{name}: everything failed"
    return ""


@contextlib.contextmanager
def _judged_nevertheless(folder: Path) -> Iterator[None]:
    """After an interruption the command goes on with what was measured, once the run has begun; before, it ends."""
    try:
        yield
    except Interrupted as error:
        if not is_unfinished(folder):
            raise
        note(f"collbench: {error}{''.join(getattr(error, '__notes__', ()))}")


def _write_answer(folder: Path, judgement: Judgement, names: AnswerNames) -> None:
    """Write all of `FILES`, in place of what an earlier judgement wrote; RunWriteError where one cannot be written."""
    comment = markdown(judgement, names).encode("utf-8", "backslashreplace")
    everything = msgspec.json.format(msgspec.json.encode(document(judgement, names)), indent=1) + b"\n"
    try:
        for name, text in zip(FILES, (comment, junit(judgement, names), everything), strict=True):
            (folder / name).write_bytes(text)
    except OSError as error:
        raise RunWriteError(f"{folder}: {error.strerror or error}.") from error


# The same under two names --------------------------------------------------------------------------------------------


class _SelftestOptions(flags.Options):
    # fmt: off
    ranks: int | None = flags.option("-n --ranks", "Ranks of each launch.  [default: 2 to 4, as there are cores]", type=_RANKS)
    launches: int = flags.option("--launches", "Launches a side.", type=click.IntRange(6, 1000), default=7)
    plan: Path | None = flags.option("--plan", "Measure this plan.  [default: all-reduce and broadcast of 8 B, 64 KiB and 1 MiB]", "FILE", type=flags.PATH)
    seed: int = flags.option("--seed", "Of the order within blocks.", type=int, default=1)
    margin: float = flags.MARGIN
    out: Path | None = flags.option("--out", "Keep the run there.", "DIR", type=flags.PATH)
    timeout: float = flags.option("--timeout", "Seconds without progress after which a launch is ended.", type=click.FloatRange(1, 86400), default=300.0)
    style: str = STYLE
    # fmt: on


@flags.command("selftest", _SelftestOptions)
def selftest_command(options: _SelftestOptions) -> None:
    """Compare the host with itself: the false-positive rate on this machine, and the smallest difference detected.

    Starts mpirun itself, twice in each block and in random order, as launch does for every comparison.
    """
    if launcher.detect().kind != "none":
        raise RequestError("selftest starts mpirun itself. Run it without mpirun: collbench selftest")
    stopping, margin = Stopping(), options.margin
    with contextlib.ExitStack() as stack:
        stack.enter_context(stopping.listening())
        path = options.plan or stack.enter_context(as_file(files("collbench.cli") / "selftest.toml"))
        folder = options.out or stack.enter_context(signed_folder(None, "selftest-")) / "run"
        twice = msgspec.structs.replace(
            host_plan(load_plan(path), options.ranks, crowded=True), sides={name: Side() for name in SIDES},
            launches=options.launches, seed=options.seed, timeout=f"{options.timeout:g}s",
        )  # fmt: skip
        perform(check_launch_plan(twice), folder, stopping.check, Purpose(in_vain=_failed, resumable=False))
        observed = observe(folder)
        comparisons = compare(within(observed, FACTORS["side"], frozenset()), margin)
        moved = movements(reading.values for reading in read_readings(folder))
        stopping.check()
    questions: dict[Hashable, list[Launches]] = {}
    for comparison in comparisons:
        questions.setdefault(question_of(comparison.pair), []).append(_paired(comparison))
    order = list(questions)
    rate = max(map(false_positives, questions.values()))
    least = tuple(one for cells in questions.values() for one in smallest(cells, margin))
    price = cost([cell for cells in questions.values() for cell in cells], margin)
    comparisons.sort(key=lambda one: order.index(question_of(one.pair)))
    result = sensitivity.SelfTest(tuple(comparisons), rate, least, options.launches, moved, price)
    print_tables(sensitivity.tables(result), sensitivity.document(result), options.style)


def _failed(records: Sequence[Record]) -> str:
    """Why nothing more is measured: the reason of the first launch that failed; empty where none did."""
    if records and all(record.status == "skipped" for record in records):
        return records[0].reason or "every case is skipped"
    return next((record.reason or "a launch failed" for record in records if record.status == "failed"), "")


def _paired(comparison: Comparison) -> Launches:
    cells = [comparison.pair.base, comparison.pair.other]
    medians = together(cells, in_blocks=True)
    if cells[0].skipped and not cells[0].failed:
        raise RequestError(f"selftest: {cells[0].case.workload} is skipped: {sorted(cells[0].reasons)[0]}.")
    if cells[0].reasons:
        raise LaunchFailed(f"selftest: {cells[0].case.workload} was not measured: {sorted(cells[0].reasons)[0]}.")
    if not len(medians) or any(min(cell.medians) <= 0 for cell in cells):
        raise LaunchFailed(f"selftest: {cells[0].case.workload} was not measured: {whole_reason(comparison)}.")
    base, other = medians.T.tolist()
    return in_order(base, other)
