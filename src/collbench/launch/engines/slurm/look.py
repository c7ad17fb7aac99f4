"""What the nodes of a job are, and what images and environments hold on each of them: asked in its first steps."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from collbench.errors import EngineError
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.slurm.client import first_cause, telling
from collbench.launch.engines.slurm.job import SHARED, SlurmJob
from collbench.launch.engines.slurm.script import StepOf, python_of, resources_of, step_script
from collbench.launch.engines.slurm.site import SlurmSite
from collbench.launch.engines.spec import Look, Looks
from collbench.launch.launchers import PROCESS, Argv
from collbench.launch.placement import Box, Placement
from collbench.launch.probe import Contents
from collbench.launch.stacks import contents_on, nodes_of, probe_of
from collbench.launch.waiting import LONGEST_ANSWER, Log, StopCheck
from collbench.schema.manifest import Allocation, Host
from collbench.schema.plan import LaunchPlan

#: Longest wait for an answer (s): a runtime may unpack an image first.
ANSWER = 600.0

#: What a node prints that does not see the folder of the job, and a command for `sh -c FOLDER ...` that looks.
_BLIND = "collbench sees no folder on"
_SEES = f'test -d "$0" || {{ echo "{_BLIND} $(uname -n)"; exit 0; }}; exec "$@"'

#: Prints its input with the name of a node before each line. Longer lines are cut (`+`: the next one goes on), because
#: srun forwards at most 1024 bytes at once, so that those of several nodes would mix.
LABEL = """awk -v node="{node}" '{{ while (length($0) > 700) {{ print "@" node "+" substr($0, 1, 700)
  $0 = substr($0, 701) }} print "@" node "=" $0 }}'"""

#: What the shell of a task does where every node is to answer: one that fails does not end the others.
ANSWERED = '{ "$@" 2>&1; printf "\nexit %d\n" $?; } | ' + LABEL.format(node="$SLURMD_NODENAME")
_PROCESS = re.compile(r"(?<=[\w-])\[\d+\](?=: )")
_PART = re.compile(r"@(?P<node>[^\s+=]+)(?P<end>[+=])(?P<text>.*)")


@dataclass(frozen=True)
class Answer:
    """What a command printed on a node, without what only follows from its end, and its exit code; None: not ended."""

    node: str
    lines: tuple[str, ...]
    code: int | None = None

    @property
    def told(self) -> tuple[str, ...]:
        """The lines; of a command that failed the last one with its exit code, and without numbers of processes."""
        if not self.code:
            return self.lines
        last = _PROCESS.sub("", self.lines[-1]) if self.lines else "nothing was printed"
        return (*self.lines[:-1], f"exit code {self.code}: {last}")


def look_at(
    job: SlurmJob, site: SlurmSite, plan: LaunchPlan, placements: Mapping[LaunchCell, Placement], check: StopCheck
) -> Looks:
    """What every image holds, and for policy host every environment, on all nodes that start it; the nodes; the job.

    Raises:
        EngineError: the job ended, or a node does not see its folder.
        ImageMissing: on a node there is none, or it does not hold this collbench, another library than its name says,
            or something else than on the other nodes.
    """
    inside: dict[str, Look] = {}
    bare: dict[str, Look] = {}
    groups: dict[tuple[str, bool], dict[LaunchCell, Placement]] = {}
    for cell, placement in placements.items():
        groups.setdefault((cell.image, cell.isolation is not None), {})[cell] = placement
    for (name, contained), cells in groups.items():
        cell, placement = one_on_each(cells)
        reference = site.images.get(name, "") if contained else python_of(cell, site)
        held = contents_of(job, site, plan, cell, placement, check)
        (inside if contained else bare)[name] = Look(held, reference, title_of(cell, site))
    hosts = hosts_of(job, site, *one_on_each(placements), check)
    return Looks(inside, hosts=hosts, environments=bare, variables=site.variables, allocation=_allocation(job, site))


def _allocation(job: SlurmJob, site: SlurmSite) -> Allocation:
    state = job.look(at_once=True)
    options = () if job.process else site.measured
    return Allocation(job=job.number, partition=state.partition, nodes=state.nodes, options=options)


def one_on_each(cells: Mapping[LaunchCell, Placement], nodes: int = 0) -> tuple[LaunchCell, Placement]:
    """A world with one rank on every node that any of these cells uses; or on so many `nodes`."""
    needs, (some, placement) = resources_of(cells.items()), next(iter(cells.items()))
    servers = int(needs.servers is not None)
    number = nodes or needs.nodes + servers
    slots = placement.boxes[0].slots[:1]
    boxes = tuple(Box(f"h{host}", (host,), slots, host) for host in range(number))
    return replace(some, ranks=number, hosts=number, servers=servers), replace(placement, boxes=boxes)


def title_of(cell: LaunchCell, site: SlurmSite) -> str:
    if cell.isolation is not None:
        return f"image {cell.image} ({site.images.get(cell.image)})"
    return f"environment {site.environments.get(cell.image) or 'on PATH'} for {cell.image}"


def contents_of(
    job: SlurmJob, site: SlurmSite, plan: LaunchPlan, cell: LaunchCell, placement: Placement, check: StopCheck,
    limit: float = ANSWER,
) -> Contents:  # fmt: skip
    """What an image or an environment holds on every node of a world that has one rank on each.

    Raises:
        EngineError: the job ended, or not every node answers.
        ImageMissing: on a node there is none, or another one.
    """
    argv, title = probe_of(python_of(cell, site), cell.image, site.libraries, plan), title_of(cell, site)
    asked = StepOf(f"look-{cell.image}-{job.steps}", cell, placement, PROCESS, {}, job.with_servers, ANSWERED)
    answers = answers_of(job, asked, site, argv, check, title, limit)
    workers_first = (*answers[cell.servers :], *answers[: cell.servers])
    return contents_on({one.node: one.told for one in workers_first}, title, cell.image, site.libraries, plan)


def hosts_of(
    job: SlurmJob, site: SlurmSite, cell: LaunchCell, placement: Placement, check: StopCheck, limit: float = ANSWER
) -> tuple[Host, ...]:
    """The nodes of such a world, each as it describes itself.

    Raises:
        EngineError: the job ended, not every node answers, or one does not see the folder of the job.
    """
    argv = ("sh", "-c", _SEES, str(job.folder), python_of(cell, site), "-m", "collbench.launch.node")
    asked = StepOf(f"nodes-{job.steps}", cell, placement, PROCESS, {}, job.with_servers, ANSWERED)
    answers = answers_of(job, asked, site, argv, check, "the nodes", limit)
    blind = [one.node for one in answers if any(line.startswith(_BLIND) for line in one.lines)]
    if blind:
        where = nodes_of(blind, len(answers))
        raise EngineError(f"engine slurm: {where} {'do' if len(blind) > 1 else 'does'} not see {job.folder}. {SHARED}")
    found = []
    for line in (line for one in answers for line in one.lines):
        with contextlib.suppress(msgspec.DecodeError):
            found.append(msgspec.json.decode(line, type=Host))
    return tuple(found)


def answers_of(
    job: SlurmJob, asked: StepOf, site: SlurmSite, argv: Argv, check: StopCheck, title: str, limit: float
) -> tuple[Answer, ...]:
    """What a step prints on each of its nodes, in the order of the job's.

    Raises:
        EngineError: the job ended, or a node does not answer.
    """
    code, log = run_step(job, step_script(asked, site, argv), asked.name, check, title, limit)
    answers, rest = answers_in(log.lines)
    nodes = nodes_in(job.folder)
    if len(answers) < asked.cell.hosts:
        state = job.look(at_once=True)
        late = f"no answer within {limit:g} s" if code is None else "nothing was printed"
        said = state.text if not state.alive else first_cause("\n".join(rest)) or late
        silent = sorted(set(nodes) - {one.node for one in answers})
        raise EngineError(f"engine slurm: {title}: {len(answers)} of {asked.cell.hosts} nodes answer, without "
                          f"{nodes_of(silent, 0) if silent else 'one'}: {said}.")  # fmt: skip
    return tuple(sorted(answers, key=lambda one: (nodes.index(one.node) if one.node in nodes else -1, one.node)))


def nodes_in(folder: Path) -> tuple[str, ...]:
    """The nodes of the job in this folder, as it has written them down."""
    with contextlib.suppress(OSError):
        return tuple((folder / "nodes").read_text(encoding="utf-8", errors="replace").split())
    return ()


def answers_in(lines: Iterable[str]) -> tuple[tuple[Answer, ...], tuple[str, ...]]:
    """What each node printed, of lines as `LABEL` makes them; and all other lines."""
    printed: dict[str, list[str]] = {}
    unfinished: dict[str, str] = {}
    rest: list[str] = []
    for line in lines:
        if (part := _PART.fullmatch(line)) is None:
            rest.append(line)
            continue
        node, text = part["node"], unfinished.pop(part["node"], "") + part["text"]
        if part["end"] == "+":
            unfinished[node] = text
        else:
            printed.setdefault(node, []).append(text)
    return tuple(_answer(node, printed[node]) for node in printed), tuple(rest)


def _answer(node: str, lines: list[str]) -> Answer:
    ended = re.fullmatch(r"exit (\d+)", lines[-1])
    left = lines[:-1] if ended else lines
    return Answer(node, telling(left), int(ended[1]) if ended else None)


def run_step(
    job: SlurmJob, script: str, name: str, check: StopCheck, title: str, limit: float = ANSWER
) -> tuple[int | None, Log]:
    """The exit code of a step and what it printed; without a code it did not end within its limit, and was ended.

    Raises:
        EngineError: the job ended.
    """
    log = Log(LONGEST_ANSWER)
    step = job.start(script, name, log)
    deadline = time.monotonic() + limit
    try:
        while (code := step.code) is None and time.monotonic() < deadline:
            check()
            state = job.look()
            if not state.alive:
                raise EngineError(f"engine slurm: job {job.number} ended while {title} was asked: {state.text}.")
            time.sleep(0.05)
    finally:
        step.end()
    return code, log
