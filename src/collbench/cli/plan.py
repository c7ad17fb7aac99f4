"""`collbench plan`, and what is said of a launch plan before anything starts: cells, places, order, duration.

For a launch the images are asked what they hold, and the engine what it can give; so they are for `--dry-run`, so that
its commands have the same flags.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple, get_args

import click
import msgspec

from collbench import backends, workloads
from collbench.analysis.compare import compare
from collbench.analysis.conclusions import JudgedConclusion, planned_conclusions
from collbench.analysis.estimate import FEWEST
from collbench.analysis.pairs import own_sides
from collbench.analysis.papers import Item, Paper, library_name, representatives
from collbench.analysis.planning import power, questions
from collbench.analysis.results import cells_of, grouped
from collbench.cli import options as flags
from collbench.cli.analyse import read
from collbench.cli.options import Options, note, option, say, waiting_for
from collbench.collectives.row import CollectiveCase
from collbench.errors import BackendUnavailable, PlanError, RequestError, in_one_line
from collbench.launch import engines
from collbench.launch.campaign import PreparedCampaign, prepare
from collbench.launch.cells import Launch, LaunchCell, LaunchPart, inner_plan
from collbench.launch.collect import placed_case
from collbench.launch.expansion import MOST_WORLDS, ExpandedPlan, at_once, expand, groups_of, places, world_of
from collbench.launch.folders import described, folders_in, place_of
from collbench.launch.placement import Placement
from collbench.launch.stacks import Missing, ignored_keys, indistinct_sides, preview_of
from collbench.launch.waiting import StopCheck
from collbench.machine.facts import Topology
from collbench.registry import find_plan, plans, source_tree
from collbench.report.caveats import ALONE
from collbench.report.cells import power_table
from collbench.report.paper import decidable, decidable_by, paper, papers
from collbench.report.tables import Table, terminal, without_empty
from collbench.schema.case import Case
from collbench.schema.manifest import Until
from collbench.schema.plan import MOST_LAUNCHES, Plan, check_launch_plan, load_launch_plan, named_in_errors
from collbench.units import counted, format_long, format_spans
from collbench.workloads import use_of
from collbench.workloads.program import ProgramCase

CASE, EXECUTION = 0.05, 0.5  #: Checks and warm-up of a collective; the start of a program with its steps beside it (s).
MEETING = 2.6  #: In which a process imports torch to start ranks by it, and a rank to meet the others (core seconds).
BYTES_PER_SECOND = 1e9  #: What an operation is taken to move in a second, to tell how long a slice lasts.
_LOADS = 3  #: So many loads of oversubscribed cores are named.
_NUMBERS = (7, 15, 25, 50, 100)  #: Numbers of launches in the table beside that of the plan.
NOTHING_MISSING: Missing = {}  #: Every benchmark is there, as far as anybody looked.
_LIBRARIES = {"mpich": "MPICH", "openmpi": "Open MPI", "intelmpi": "Intel MPI"}  #: By a part of the image's name.
_DETAIL = re.compile(r"^[^(]*: | \(.*")  #: Of an error: the cell before it, and the reason behind it.
_ROOT = Path("/tmp/collbench-by-hand")  # noqa: S108 - printed, not used

#: Flags of every command that launches.
UNTIL = option("--until", "End after all launches of the plan, or when its comparisons are decided.  [default: the plan's]", type=click.Choice(get_args(Until)))  # fmt: skip
LAUNCHES = option("--launches", "Launches of each cell; until decided the most.  [default: the plan's]", type=click.IntRange(1, MOST_LAUNCHES))  # fmt: skip


class _PlanOptions(Options):
    plan: str | None = flags.OPTIONAL_PLAN
    engine: str | None = flags.ENGINE
    site: str | None = flags.SITE
    until: Until | None = UNTIL
    launches: int | None = LAUNCHES
    like: Path | None = option(
        "--like", "Say which differences launches would show if they spread as in RUN.", "RUN", type=flags.PATH
    )
    margin: float = flags.MARGIN
    order: bool = flags.switch("--order", "Print the order of launches.")
    schema: bool = flags.switch("--schema", "Print the JSON Schema of plans, by which editors complete them.")


def _at_most(plan: Plan) -> str:
    return "at most " if plan.until == "decided" else ""


@flags.command("plan", _PlanOptions)
def plan_command(options: _PlanOptions) -> None:
    """Print the cells of PLAN, where their ranks are placed here, how long it takes, and what it can decide.

    PLAN may be the name of a paper, such as xu2017: then its plans, and what of its tables and figures they measure
    here. Without PLAN, list the plans that come with collbench.
    """
    if options.schema:
        click.echo((files("collbench.schema") / "json" / "plan.schema.json").read_text(encoding="utf-8"), nl=False)
        return
    if options.plan is None:
        _list_plans()
        return
    if is_paper(options.plan):
        _show_paper(paper(options.plan), options)
        return
    path = find_plan(options.plan, papers())
    plan = ending(placed_on(load_launch_plan(path, options.plan), options), options)
    with named_in_errors(path):
        expanded = expand(plan)
        if script := engines.get(plan.engine).script:  # it says what it cannot do
            script(plan, expanded.order, expanded.placements)
    title = in_one_line(plan.title or path.stem)
    each = f"{_at_most(plan)}{counted(plan.launches, 'launch', 'launches')} each"
    click.echo(f"{title}: {counted(len(expanded.cells), 'cell')}, {each}, seed {plan.seed}")
    _list_cells(expanded, options.order)
    click.echo(f"{about(expanded)} (estimated for an idle machine)")
    for sentence in (too_long(expanded), undecidable(expanded)):
        if sentence is not None:
            click.echo(sentence)
    if options.like is not None:
        say(terminal([_power(expanded, options.like, options.margin)]), nl=False)
    elif comparisons(expanded):
        click.echo("what so many launches decide: --like RUN, an earlier run of this machine")
    lines, missing = preview_of(expanded)
    for line in (*indistinct_sides(plan), *before_measuring(expanded, missing), *lines):
        say(line)


def _list_plans() -> None:
    """The command that takes each plan, and its title; one without images is for a world that mpirun starts."""
    shipped = plans()
    if not shipped:
        click.echo("This collbench was installed without plans, as in an image.")
        return
    width = len("collbench launch ") + max(map(len, shipped))
    for name, path in shipped.items():
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        command = f"collbench {'launch' if 'images' in document else 'run'} {name}"
        click.echo(f"{command:<{width}} {document.get('title', '').removeprefix(f'{name}: ')}".rstrip())
    click.echo(f"Papers, each by all its plans: {', '.join(papers())} (collbench launch PAPER).")
    click.echo(f"To change one, copy it from {source_tree() / 'launch'}.")


def _list_cells(expanded: ExpandedPlan, order: bool) -> None:
    numbers = {cell: number for number, cell in enumerate(expanded.cells)}
    for cell, number in numbers.items():
        placement = expanded.placements[cell]
        where = _where(placement, cell.engine if cell.isolation is None else None)
        click.echo(f"  {number:3d}  {cell.title}: {counted(len(expanded.expected[cell]), 'case')}; {where}")
        if placement.note:
            say(f"       note: {placement.note}")
    if order and len(numbers) > 1:
        click.echo("order of launches, block by block:")
        for block in range(expanded.plan.launches):
            listed = " ".join(str(numbers[launch.cell]) for launch in expanded.order if launch.number == block)
            click.echo(f"  {block:3d}  {listed}")


def _where(placement: Placement, name: str | None) -> str:
    """`c0: ranks 0-1 on cores 0-1; ...`, shared and idle cores. `name` is that of an engine without containers."""
    several_hosts, boxes = len({box.host for box in placement.boxes}) > 1, []
    for box in placement.boxes:
        title = box.name if name is None else f"{name}, host {box.host}" if several_hosts else name
        ranks = f"rank {box.ranks[0]}" if len(box.ranks) == 1 else f"ranks {box.ranks[0]}-{box.ranks[-1]}"
        gpus = f", {'GPUs' if len(box.gpus) > 1 else 'GPU'} {' '.join(box.gpus)}" if box.gpus else ""
        boxes.append(f"{title}: {ranks} on cores {box.cores}{gpus}")
    crowded = f", {_oversubscribed(placement)}" if placement.crowded else ""
    idle = f"; idle: cores {format_spans(placement.idle)}" if placement.idle else ""
    return f"{'; '.join(boxes)}{crowded}{idle}"


def _power(expanded: ExpandedPlan, run: Path, margin: float) -> Table:
    """What numbers of launches decide, each with its duration, if launches spread as in a run with intervals."""
    observed = read(run)
    compared = compare(own_sides(observed), margin, observed.interleaved)
    known = (comparison.ratio for comparison in compared if comparison.ratio is not None)
    ratios = [ratio for ratio in known if ratio.interval is not None]
    if not ratios:
        raise RequestError(f"plan --like {run}: it compares nothing with {FEWEST} launches or more. Name another run.")
    each = seconds_of(expanded) / expanded.plan.launches
    numbers = sorted({*_NUMBERS, max(expanded.plan.launches, FEWEST)})
    powers = [(power(ratios, number, margin), number * each) for number in numbers]
    return power_table(powers, observed.name, margin, any(cell.turns for cell in observed.cells.values()))


# What flags say in place of a plan's keys -----------------------------------------------------------------------------


def ending(plan: Plan, options: Options) -> Plan:
    """The plan with what the flags say of its launches in place of its own keys; PlanError as of a plan."""
    keys = {name: value for name in ("until", "launches") if (value := getattr(options, name)) is not None}
    return check_launch_plan(msgspec.structs.replace(plan, **keys)) if keys else plan


def placed_on(plan: Plan, options: Options) -> Plan:
    """The plan with what the flags say of its engine in place of its own keys; RequestError of a useless site."""
    keys = {
        name: text for name in ("engine", "site", "docker_host") if (text := getattr(options, name, None)) is not None
    }
    if "engine" in keys:
        engines.get(keys["engine"])
    placed = msgspec.structs.replace(plan, **keys)
    if "site" in keys and not engines.get(placed.engine).starts_ranks:
        raise RequestError(f"--site is for slurm and k8s; the engine is {placed.engine}.")
    return placed


# How long it takes ---------------------------------------------------------------------------------------------------


def about(expanded: ExpandedPlan) -> str:
    """The estimated duration, for an idle machine; with a fixed number of samples, without those that tell no time."""
    plan = expanded.plan
    needed = ", if all launches are needed" if plan.until == "decided" else ""
    text = f"about {format_long(seconds_of(expanded))}"
    cases = [case for cases in expanded.cases.values() for case in cases]
    untold = dict.fromkeys(_name(case) for case in cases if not _tells(case, plan))
    samples = f"{counted(plan.iters or plan.floor, 'sample')} of each measurement"
    if len(untold) == len({_name(case) for case in cases}):
        text += f" to start worlds, and {samples}" if untold else ""
    elif untold:
        text += f", and {samples} of {', '.join(untold)}"
    return text + needed


def too_long(expanded: ExpandedPlan) -> str | None:
    """A sentence where the job of a cluster is estimated to end before its last launch; None where it is not."""
    seconds = seconds_of(expanded)
    limit = min((site.seconds for site in expanded.sites if site.seconds is not None), default=None)
    if limit is None or seconds <= limit:
        return None
    return (f"time {format_long(limit)} in the site file: all launches take about {format_long(seconds)}. Raise it, or "
            "go on in another job with launch --resume")  # fmt: skip


def seconds_of(expanded: ExpandedPlan) -> float:
    """The estimated duration of an experiment (s); samples that tell no time take none."""
    first = [launch for launch in expanded.order if launch.number == 0]
    block = sum(seconds_of_launch(expanded, launch.cell, launch.only, group.alone is None)
                for group in groups_of(expanded, first, {}) for launch in group.launches)  # fmt: skip
    return expanded.plan.launches * block


def seconds_of_launch(expanded: ExpandedPlan, cell: LaunchCell, part: LaunchPart | None, in_turns: bool) -> float:
    """What a launch, or a `part` of it, adds to an experiment (s). `in_turns`: other worlds live beside it."""
    placement = expanded.placements[cell]
    first, more = engines.get(cell.engine).start_seconds
    start = first + more * (len(placement.boxes) - 1)
    cases = expanded.cases[cell]
    if part is not None:
        cases = tuple(case for case in cases if any(identity in part.measured for identity in case.identities))
        start += CASE * len(part.brief)
    cores = len(placement.cores)
    by_torch = any(workloads.get(case.case.workload).distributed if isinstance(case, ProgramCase)
                   else "torch" in backends.get(case.backend).packages for case in cases)  # fmt: skip
    if cell.ranks > 1 and by_torch:  # its ranks, and what starts them, import torch
        start += MEETING * (1 + cell.ranks / cores)
    return start + sum(_seconds(case, expanded.plan, cores, in_turns) for case in cases)


def _name(case: CollectiveCase | ProgramCase) -> str:
    return case.case.workload if isinstance(case, ProgramCase) else case.collective


def _tells(case: CollectiveCase | ProgramCase, plan: Plan) -> bool:
    """Whether the parameters of a case, or the plan's budget, say how long its samples take."""
    if plan.iters is None or not isinstance(case, ProgramCase):
        return plan.iters is None
    program = workloads.get(case.case.workload)
    return program.seconds(case.case) + program.computes(case.case, 1) > 0.0


def _seconds(case: CollectiveCase | ProgramCase, plan: Plan, cores: int, in_turns: bool) -> float:
    budget = plan.budget_seconds if plan.iters is None else 0.0
    if not isinstance(case, ProgramCase):
        in_slices = in_turns and plan.iters is None
        return CASE + (plan.slices.lasts(case.size / BYTES_PER_SECOND) if in_slices else budget)
    program = workloads.get(case.case.workload)
    wanted = plan.iters or plan.floor
    slices = plan.slices.rounds_of(wanted) if in_turns and program.takes_turns(case.case) else 0
    samples = 1 if program.once else plan.warmup + wanted + slices  # each discards one
    executions, times = (samples, 1) if program.repeated else (1, samples)
    each = program.seconds(case.case) + program.computes(case.case, times) / cores + EXECUTION
    return max(executions * each, budget)


# What it can show, and what its readers must know --------------------------------------------------------------------


def launch_cells(expanded: ExpandedPlan) -> dict[Case, LaunchCell]:
    """The launch cell that measures each case, by the case as it is recorded."""
    return {placed_case(case, cell): cell for cell, cases in expanded.expected.items() for case in cases}


def undecidable(expanded: ExpandedPlan) -> str | None:
    """A sentence on what so few launches cannot show of the plan's cells, or on what they are to decide."""
    plan, compared = expanded.plan, comparisons(expanded)
    if plan.until == "decided":
        pairs = questions([*cells_of((), cases=launch_cells(expanded)).values()])
        number = sum(map(len, pairs.values()))
        if not number:
            return "decides nothing: no two of its cells are compared, so every cell has all its launches"
        listed = ", ".join(f"{len(each)} by {name}" for name, each in pairs.items())
        return (f"decides {counted(number, 'comparison')} ({listed}), each side with the first one that it is compared "
                "with")  # fmt: skip
    if not compared or plan.launches >= FEWEST:
        return None
    if plan.launches == 1:
        take = counted(compared, "comparison takes", "comparisons take")
        return f"one launch gives no verdicts: {take} launches = {FEWEST}"
    return f"{plan.launches} launches give no verdicts: launches = {FEWEST} can"


def _oversubscribed(placement: Placement) -> str:
    """`3 ranks on 2 cores`: of the host where most ranks share one."""
    ranks, cores = placement.load
    return f"{counted(ranks, 'rank')} on {counted(cores, 'core')}"


def comparisons(expanded: ExpandedPlan) -> int:
    """How many cells `compare --by policy` compares with another, or --by image or --by side where that is more."""
    keys: tuple[Callable[[LaunchCell], object], ...] = (
        lambda cell: (cell.side, cell.image, cell.ranks, cell.servers, cell.storage),
        lambda cell: replace(cell, image="", replaces="", seccomp="", engine="", hosts=1),
        lambda cell: replace(cell, gpus="", cores=""),
        lambda cell: replace(cell, side=None, image=cell.plan_image, replaces=""),
    )
    ways = (grouped((key(cell), cell) for cell in expanded.cells) for key in keys)
    return max(sum(len(expanded.expected[cell]) for cells in way.values() for cell in cells[1:]) for way in ways)


def of_paper(expanded: ExpandedPlan, missing: Missing = NOTHING_MISSING) -> tuple[Paper, list[JudgedConclusion]] | None:
    """The plan's paper, and its conclusions as the plan can decide them where benchmarks are `missing`.

    None: it belongs to no paper. An image is taken to hold the MPI that is in its name.
    """
    if not expanded.plan.paper:
        return None
    published = paper(expanded.plan.paper)
    return published, planned_conclusions(published, representatives(_items(expanded, missing)[0]))


def _items(expanded: ExpandedPlan, missing: Missing = NOTHING_MISSING, name: str = "") -> tuple[list[Item], set[str]]:
    """The cells of a plan of that name as papers have them, and the workloads that are `missing`."""
    items, lacking = [], set[str]()
    for case, cell in launch_cells(expanded).items():
        if not case["backend"] and use_of(case) in missing.get((cell.engine, cell.image, cell.side), ()):
            lacking.add(case.workload)
            continue
        names = next((title for part, title in _LIBRARIES.items() if part in cell.image), "")
        library = library_name(case["backend"], names) if case["backend"] else None
        items.append(Item(case, library, expanded.placements[cell].crowded, run=name))
    return items, lacking


# A paper's plans -----------------------------------------------------------------------------------------------------


class PaperChoice(NamedTuple):
    """The plan that a machine takes of a paper's entry, or none (`expanded`). `unfit`: the first one and why not it.

    `items` are its cells as papers have them, without those of workloads that are `missing`. `preview`: lines on what
    would be refused or skipped here.
    """

    name: str
    path: Path
    expanded: ExpandedPlan | None = None
    unfit: tuple[str, str] | None = None
    items: Sequence[Item] = ()
    missing: Collection[str] = ()
    preview: Sequence[str] = ()


def is_paper(text: str) -> bool:
    """Whether it names a paper; a file of this name is a plan."""
    return text in papers() and not Path(text).is_file()


def plans_of(published: Paper, options: Options, machine: Callable[[str], Topology] | None = None) -> list[PaperChoice]:
    """Each plan of a paper, or the one in its place where a machine, or this one, has too few cores or GPUs for it."""
    return [_choice_of(entry.names, options, machine) for entry in published.plans]


def _choice_of(names: Sequence[str], options: Options, machine: Callable[[str], Topology] | None) -> PaperChoice:
    unfit = None
    for name in names:
        path = find_plan(name)
        with named_in_errors(path):
            plan = ending(placed_on(load_launch_plan(path, name), options), options)
        try:
            expanded = expand(plan, machine)
        except (PlanError, BackendUnavailable) as error:
            unfit = unfit or (name, _DETAIL.sub("", str(error).partition(". ")[0]))
            continue
        lines, missing = ((), NOTHING_MISSING) if machine else preview_of(expanded)
        return PaperChoice(name, path, expanded, unfit, *_items(expanded, missing, name), lines)
    return PaperChoice(names[0], find_plan(names[0]), unfit=unfit)


def plans_table(published: Paper, choices: Sequence[PaperChoice]) -> Table:
    """The plans with their duration; what is not measured here, or another plan in its place, and why."""
    seconds = [seconds_of(choice.expanded) for choice in choices if choice.expanded is not None]
    title = (f"{published.reference}: {len(seconds)} of {counted(len(choices), 'plan')} can run here, in "
             f"{format_long(sum(seconds))} or more on an idle machine")  # fmt: skip
    rows = []
    for choice in choices:
        name, why = choice.unfit or ("", "")
        instead = f"in place of {name}: " if choice.expanded is not None and why else ""
        rows.append((choice.name, about(choice.expanded) if choice.expanded is not None else "not here", instead + why))
    few = (undecidable(choice.expanded) for choice in choices if choice.expanded is not None)
    notes = dict.fromkeys((*filter(None, few), *(line for choice in choices for line in choice.preview)))
    return without_empty(Table(title, ("plan", "time", "why"), tuple(rows), tuple(notes)))


def decided_by(published: Paper, choices: Sequence[PaperChoice]) -> Table:
    """Each conclusion of a paper: what the plans together can decide of it, and what they lack."""
    items = [item for choice in choices for item in representatives(choice.items)]
    missing = {workload for choice in choices for workload in choice.missing}
    return decidable_by(published, planned_conclusions(published, items), missing)


def exhibits(published: Paper, choices: Sequence[PaperChoice]) -> Table:
    """Every table and figure of a paper: how many of its cells a plan measures in containers."""
    rows = []
    items = {choice.name: [item for item in choice.items if item.case.workload not in choice.missing]
             for choice in choices}  # fmt: skip
    for exhibit in published.exhibits:
        measured = {name: cells for name, of in items.items() if (cells := len({*map(exhibit.cell, of)} - {None}))}
        number = f"{max(measured.values(), default=0)} of {exhibit.total}"
        rows.append((exhibit.name, exhibit.about, ", ".join(measured) or "-", number))
    columns = ("in the paper", "shows", "plan", "cells here")
    return Table(f"tables and figures of {published.reference}", columns, tuple(rows))


def _show_paper(published: Paper, options: _PlanOptions) -> None:
    if options.like is not None or options.order:
        raise RequestError(f"plan {published.reference}: is a paper. --like and --order are for one of its plans.")
    choices = plans_of(published, options)
    tables = (plans_table(published, choices), decided_by(published, choices), exhibits(published, choices))
    say(terminal(tables), nl=False)


def before_measuring(expanded: ExpandedPlan, missing: Missing = NOTHING_MISSING) -> tuple[str, ...]:
    """A line for each: the conclusions of a paper, keys without an effect, how ranks line up, and cautions of the engine."""
    papers = (decidable(*judged),) if (judged := of_paper(expanded, missing)) else ()
    cautions = (caution for site in expanded.sites for caution in site.cautions)
    # on several hosts how ranks line up depends on how well their clocks are known
    unlike = expanded.plan.align == "auto" and len({cell.hosts > 1 for cell in expanded.cells}) > 1
    alignment = ('align: "auto" may line ranks up differently on one host than on several, and compare refuses such '
                 'sides: align = "barrier" is the same for all',) * bool(unlike and expanded.plan.collectives)  # fmt: skip
    return (*papers, *_turns(expanded), *ignored_keys(expanded), *alignment, *cautions)


def _turns(expanded: ExpandedPlan) -> Iterator[str]:
    groups = list(at_once(expanded).values())
    if number := sum(isinstance(group, int) for group in groups):
        limit = f" in groups of at most {MOST_WORLDS}" if number > MOST_WORLDS else ""
        yield f"duets: {number} of {counted(len(groups), 'cell')} live at once{limit}, and measure in turns"
    reasons = {**ALONE, "single": "no other cell has their image, ranks and cores"}
    for reason, text in reasons.items() if len(groups) > 1 else ():
        if number := sum(group == reason for group in groups):
            yield f"{counted(number, 'cell')} in blocks, not as duets: {text}"


def show_cells(expanded: ExpandedPlan, differences: tuple[str, ...] = (), missing: Missing = NOTHING_MISSING) -> None:
    """A line of numbers, and how host and image differ apart from the container."""
    plan, cells, launches = expanded.plan, len(expanded.cells), len(expanded.order)
    cases = sum(len(cases) for cases in expanded.expected.values()) * plan.launches
    title = in_one_line(plan.title or "launch")
    product = f"{counted(cells, 'cell')} x {counted(plan.launches, 'launch', 'launches')}"
    starts = f"{_at_most(plan)}{counted(launches, 'start')}"
    click.echo(f"# {title}: {product} = {starts}, {counted(cases, 'measurement')}, {about(expanded)}", err=True)
    crowded = None
    if loads := list(
        dict.fromkeys(_oversubscribed(placement) for placement in expanded.placements.values() if placement.crowded)
    ):
        more = f" and {counted(len(loads) - _LOADS, 'other number')}" if len(loads) > _LOADS else ""
        crowded = f"oversubscribed: {', '.join(loads[:_LOADS])}{more}: their times are the scheduler's"
    of_placements = (placement.note for placement in expanded.placements.values())
    notes = dict.fromkeys((undecidable(expanded), too_long(expanded), crowded, *of_placements))
    for line in (*notes, *before_measuring(expanded, missing), *differences):
        if line:
            note(f"# {line}")


# The commands of a launch by hand ------------------------------------------------------------------------------------


def looking(plan: Plan) -> contextlib.AbstractContextManager[None]:
    """A line on the terminal while an engine examines what a plan needs; engines of clusters write their own."""
    if engines.get(plan.engine).starts_ranks:
        return contextlib.nullcontext()
    return waiting_for(f"examining images and environments: {', '.join(plan.images)}")


def show_commands(plan: Plan, check: StopCheck) -> None:
    """For every cell: its folders, the containers, the first command, and what removes everything."""
    engine = engines.get(plan.engine)
    if engine.script:
        expanded = expand(plan)
        for line in expanded.left_out:
            click.echo(f"# {line}", err=True)
        click.echo(engine.script(plan, expanded.order, expanded.placements), nl=False)
        return
    with looking(plan):
        prepared = prepare(plan, check)
    click.echo("# By hand, one cell at a time. Every container has collbench's labels: --sweep removes it too.")
    for number, cell in enumerate(prepared.expanded.cells):
        for line in commands_of(prepared, Launch(cell, 0, number)):
            click.echo(line)


def commands_of(prepared: PreparedCampaign, launch: Launch) -> list[str]:
    """The commands of one launch: its folders, and then what its engine would do."""
    expanded, cell, root = prepared.expanded, launch.cell, _ROOT / str(launch.sequence)
    at, run = folders_in(root), prepared.sessions[cell.engine].run
    parent = place_of(cell, expanded.plan.storage_folder)
    files = None if parent is None else Path(parent) / f"{_ROOT.name}-{launch.sequence}"
    storage = described(cell, files)
    world = world_of(launch, prepared.stacks.of(cell), expanded.placements[cell], run, at, storage)
    plan = inner_plan(expanded.plan, cell, storage.folder if storage else "")
    # A plan's title may hold control characters; in JSON's ASCII they are escaped.
    inner = json.dumps(msgspec.json.decode(msgspec.json.encode(plan.document)))
    planned = msgspec.json.encode(places(cell, world.placement)).decode()
    owner, group = world.user
    commands = engines.get(cell.engine).commands
    folders = " ".join(str(folder) for folder in (at.out, at.relay, files) if folder)
    return [
        f"\n# {cell.title}",
        f"install -d {root} && install -d -m 700 -o {owner} -g {group} {folders}",
        f"printf %s {shlex.quote(inner)} > {at.plan}",
        f"printf %s {shlex.quote(planned)} > {at.placement}",
        *(commands(world) if commands else ()),
    ]
