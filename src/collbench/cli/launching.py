"""What `launch` and `plan` print of a launch plan before anything starts: its size, and what its readers must know.

The images are asked what they hold and the engine what it can give, as for a launch, so that the flags are the same.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import click
import msgspec

from collbench.analysis.conclusions import JudgedConclusion, foreseen
from collbench.analysis.estimate import FEWEST
from collbench.analysis.papers import Item, Paper, library_name, representatives
from collbench.cli.deciding import decides, launch_cells
from collbench.cli.duration import about, at_most, too_long
from collbench.cli.terminal import harmless, waiting_for
from collbench.errors import in_one_line
from collbench.launch import engines
from collbench.launch.campaign import PreparedCampaign, prepare
from collbench.launch.cells import Launch, LaunchCell, inner_plan
from collbench.launch.expansion import MOST_WORLDS, ExpandedPlan, at_once, expand
from collbench.launch.folders import described, folders_in, place_of
from collbench.launch.live_world import world_of
from collbench.launch.placement import Placement
from collbench.launch.preview import ignored_keys
from collbench.launch.rank_environment import places
from collbench.launch.stacks import Missing
from collbench.launch.waiting import StopCheck
from collbench.report.caveats import ALONE
from collbench.report.paper import decidable, paper
from collbench.schema.plan import LaunchPlan
from collbench.units import counted
from collbench.workloads import use_of

#: So many loads of oversubscribed cores are named.
_LOADS = 3

#: Every benchmark is there, as far as anybody looked.
NOTHING_MISSING: Missing = {}


def looking(plan: LaunchPlan) -> contextlib.AbstractContextManager[None]:
    """A line on the terminal while an engine examines what a plan needs; engines of clusters write their own."""
    if engines.get(plan.engine).starts_ranks:
        return contextlib.nullcontext()
    return waiting_for(f"examining images and environments: {', '.join(plan.images)}")


def undecidable(expanded: ExpandedPlan) -> str | None:
    """A sentence on what so few launches cannot show of the plan's cells, or on what they are to decide."""
    plan, compared = expanded.plan, comparisons(expanded)
    if plan.until == "decided":
        return decides(expanded)
    if not compared or plan.launches >= FEWEST:
        return None
    if plan.launches == 1:
        several = "1 comparison takes" if compared == 1 else f"{compared} comparisons take"
        return f"one launch gives no verdicts: {several} launches = {FEWEST}"
    return f"{plan.launches} launches give no verdicts: launches = {FEWEST} can"


def oversubscribed(placement: Placement) -> str:
    """`3 ranks on 2 cores`: of the host where most ranks share one."""
    ranks, cores = placement.load
    return f"{counted(ranks, 'rank')} on {counted(cores, 'core')}"


def _crowded(expanded: ExpandedPlan) -> str | None:
    """A sentence on how many ranks share how many cores; None where each has its own."""
    loads = list(dict.fromkeys(oversubscribed(one) for one in expanded.placements.values() if one.crowded))
    if not loads:
        return None
    more = f" and {counted(len(loads) - _LOADS, 'other number')}" if len(loads) > _LOADS else ""
    return f"oversubscribed: {', '.join(loads[:_LOADS])}{more}: their times are the scheduler's"


def comparisons(expanded: ExpandedPlan) -> int:
    """How many cells `compare --by policy` compares with another, or --by image or --by side where that is more."""
    keys: tuple[Callable[[LaunchCell], object], ...] = (
        lambda cell: (cell.side, cell.image, cell.ranks, cell.servers, cell.storage),
        lambda cell: (cell.side, cell.policy, cell.isolation, cell.affinity, cell.ranks, cell.servers, cell.storage),
        lambda cell: replace(cell, side=None, image=cell.plan_image, replaces=""),
    )
    most = 0
    for key in keys:
        opposed: dict[object, list[LaunchCell]] = {}
        for cell in expanded.cells:
            opposed.setdefault(key(cell), []).append(cell)
        most = max(most, sum(len(expanded.expected[cell]) for cells in opposed.values() for cell in cells[1:]))
    return most


def of_paper(
    expanded: ExpandedPlan, missing: Missing = NOTHING_MISSING
) -> tuple[Paper, list[JudgedConclusion], frozenset[str]] | None:  # fmt: skip
    """The plan's paper, its conclusions as the plan can decide them, and the workloads of it that are `missing`.

    None: it belongs to no paper. An image is taken to hold the MPI that is in its name.

    Raises:
        RequestError: no such paper.
    """
    if not expanded.plan.paper:
        return None
    items, lacking = [], set[str]()
    for case, cell in launch_cells(expanded).items():
        if not case["backend"] and use_of(case) in missing.get((cell.engine, cell.image, cell.side), ()):
            lacking.add(case.workload)
            continue
        names = "MPICH" if "mpich" in cell.image else "Open MPI" if "openmpi" in cell.image else ""
        library = library_name(case["backend"], names) if case["backend"] else None
        items.append(Item(case, library, expanded.placements[cell].crowded))
    published = paper(expanded.plan.paper)
    return published, foreseen(published, representatives(items)), frozenset(lacking)


def before_measuring(expanded: ExpandedPlan, missing: Missing = NOTHING_MISSING) -> tuple[str, ...]:
    """A line for each: the conclusions of a paper, keys without an effect, gates, and cautions of the engine."""
    papers = decidable(*judged) if (judged := of_paper(expanded, missing)) else ()
    cautions = (caution for site in expanded.sites for caution in site.cautions)
    return (*papers, *_turns(expanded), *ignored_keys(expanded), *_gates(expanded), *cautions)


def _turns(expanded: ExpandedPlan) -> Iterator[str]:
    """How many cells live at once, and why others do not where the plan would have them."""
    found = list(at_once(expanded).values())
    if number := sum(isinstance(one, int) for one in found):
        groups = f" in groups of at most {MOST_WORLDS}" if number > MOST_WORLDS else ""
        yield f"duets: {number} of {counted(len(found), 'cell')} live at once{groups}, and measure in turns"
    reasons = {**ALONE, "single": "no other cell has their image, ranks and cores"}
    for reason, text in reasons.items() if len(found) > 1 else ():
        if number := sum(one == reason for one in found):
            yield f"{counted(number, 'cell')} in blocks, not as duets: {text}"


def _gates(expanded: ExpandedPlan) -> Iterator[str]:
    """On several hosts the gate depends on how well their clocks are known."""
    hosts = {cell.hosts > 1 for cell in expanded.cells}
    if len(hosts) > 1 and expanded.plan.collectives and expanded.plan.gate == "auto":
        yield ('gate: "auto" may be another on one host than on several, and compare refuses to compare two gates: '
               'gate = "barrier" is one for all')  # fmt: skip


def show_cells(
    expanded: ExpandedPlan, differences: tuple[str, ...] = (), missing: Missing = NOTHING_MISSING
) -> None:  # fmt: skip
    """A line of numbers, and how host and image differ apart from the container."""
    plan, cells, launches = expanded.plan, len(expanded.cells), len(expanded.order)
    cases = sum(len(cases) for cases in expanded.expected.values()) * plan.launches
    title = in_one_line(plan.title or "launch")
    product = f"{counted(cells, 'cell')} x {counted(plan.launches, 'launch', 'launches')}"
    results = f"{at_most(plan)}{counted(launches, 'start')}, {counted(cases, 'measurement')}"
    click.echo(f"# {title}: {product} = {results}, {about(expanded)}", err=True)
    notes = dict.fromkeys(
        (
            undecidable(expanded),
            too_long(expanded),
            _crowded(expanded),
            *(placement.note for placement in expanded.placements.values()),
        )
    )
    for line in (*notes, *before_measuring(expanded, missing), *differences):
        if line:
            click.echo(harmless(f"# {line}"), err=True)


_ROOT = Path("/tmp/collbench-by-hand")  # noqa: S108 - printed, not used


def show_commands(plan: LaunchPlan, check: StopCheck) -> None:
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
    parent = place_of(cell, expanded.plan.folder)
    files = None if parent is None else Path(parent) / f"{_ROOT.name}-{launch.sequence}"
    storage = described(cell, files)
    world = world_of(launch, prepared.stacks.of(cell), expanded.placements[cell], run, at, storage)
    plan = inner_plan(expanded.plan, cell, storage.folder if storage else "")
    # A plan's title may hold control characters; in JSON's ASCII they are escaped.
    inner = json.dumps(msgspec.json.decode(msgspec.json.encode(plan)))
    planned = msgspec.json.encode(places(cell, world.placement)).decode()
    owner, group = world.user
    own = " ".join(str(folder) for folder in (at.out, at.relay, files) if folder)
    commands = engines.get(cell.engine).commands
    return [
        f"\n# {cell.title}",
        f"install -d {root} && install -d -m 700 -o {owner} -g {group} {own}",
        f"printf %s {shlex.quote(inner)} > {at.plan}",
        f"printf %s {shlex.quote(planned)} > {at.placement}",
        *(commands(world) if commands else ()),
    ]
