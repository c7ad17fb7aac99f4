"""Engine `slurm`: worlds over the nodes of a cluster, started by srun, bare or in containers of its runtime.

One job holds the nodes for all launches of an experiment, which are its steps. The first steps ask what the nodes are,
and what images and environments hold on each of them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import msgspec

from collbench.errors import EngineError, Interrupted, LaunchFailed, LaunchLost
from collbench.launch.cells import Launch, LaunchCell
from collbench.launch.engines.slurm import job as jobs
from collbench.launch.engines.slurm import script
from collbench.launch.engines.slurm.job import SlurmJob, SlurmStep
from collbench.launch.engines.slurm.script import ABANDONED, ANSWERED, NodeOutput, SlurmSite, StepOf, read, refuse
from collbench.launch.engines.spec import Engine, LadderStep, Look, Looks, Sharing, Site, Stack, WorldSpec, ladder_of
from collbench.launch.expansion import launcher_of
from collbench.launch.folders import folders_in, remove_folder
from collbench.launch.launchers import PROCESS, Argv
from collbench.launch.placement import Box, Placement
from collbench.launch.probe import Contents
from collbench.launch.stacks import contents_on, nodes_of, probe_of
from collbench.launch.waiting import LONGEST_ANSWER, Log, StopCheck
from collbench.machine.cgroup import text_of
from collbench.schema.manifest import Allocation, Host
from collbench.schema.plan import Plan

#: Names of jobs and of their folders.
PREFIX = "collbench-"


def nodes(plan: Plan) -> Site:
    """The nodes of a site. Other jobs, this user's too, may be given the nodes or cores that ranks share with them."""
    site, cautions = read(plan.site), list[str]()
    if not any(option.split("=")[0] == "--exclusive" for option in site.options):
        cautions.append(f"site {plan.site}: no --exclusive among options: unless the partition gives whole nodes "
                        "(OverSubscribe=EXCLUSIVE), other jobs may run beside the ranks")  # fmt: skip
    return Site(site.node, script.seconds_of(site.time), tuple(cautions))


def all_launches(plan: Plan, order: Sequence[Launch], placements: Mapping[LaunchCell, Placement]) -> str:
    """The job, and every step that it is given, in their order."""
    site, run = read(plan.site), "collbench-RUN"
    refuse(plan, placements, site)
    folder, needs = Path(site.folder) / run, script.resources_of(placements.items())
    texts = [script.job_script(run, folder, site, needs)]
    for launch in order:
        cell, number = launch.cell, launch.sequence
        stack, at = Stack(launcher_of(cell.image, site.libraries, plan), ""), folders_in(folder / str(number))
        world = WorldSpec(run, f"{run}-{number}", "", cell, placements[cell], stack, at, (0, 0))
        program = script.program_of(world, site)
        step = script.launch_script(world, site, program, {}, with_servers=needs.servers is not None)
        texts += [f"\n# step {number}: {cell.title}\n", step]
    return "".join(texts)


#: Longest wait for an answer (s): a runtime may unpack an image first.
ANSWER = 600.0

#: What a node prints that does not see the folder of the job, and a command for `sh -c FOLDER ...` that looks.
_BLIND = "collbench sees no folder on"
_SEES = f'test -d "$0" || {{ echo "{_BLIND} $(uname -n)"; exit 0; }}; exec "$@"'


def look_at(
    job: SlurmJob, site: SlurmSite, plan: Plan, placements: Mapping[LaunchCell, Placement], check: StopCheck
) -> Looks:
    """What every image holds, and for policy host every environment, alike on all nodes that start it; nodes, job."""
    inside: dict[str, Look] = {}
    bare: dict[str, Look] = {}
    groups: dict[tuple[str, bool], dict[LaunchCell, Placement]] = {}
    for cell, placement in placements.items():
        groups.setdefault((cell.image, cell.isolation is not None), {})[cell] = placement
    for (name, contained), cells in groups.items():
        cell, placement = one_on_each(cells)
        reference = site.images.get(name, "") if contained else script.python_of(cell, site)
        held = contents_of(job, site, plan, cell, placement, check)
        (inside if contained else bare)[name] = Look(held, reference, title_of(cell, site))
    hosts = hosts_of(job, site, *one_on_each(placements), check)
    state, options = job.look(at_once=True), () if job.process else site.measured
    allocation = Allocation(job=job.number, partition=state.partition, nodes=state.nodes, options=options)
    return Looks(inside, hosts=hosts, environments=bare, variables=site.variables, allocation=allocation)


def one_on_each(cells: Mapping[LaunchCell, Placement], nodes: int = 0) -> tuple[LaunchCell, Placement]:
    """A world with one rank on every node that any of these cells uses; or on so many `nodes`."""
    needs, (cell, placement) = script.resources_of(cells.items()), next(iter(cells.items()))
    servers = int(needs.servers is not None)
    number = nodes or needs.nodes + servers
    boxes = tuple(Box(f"h{host}", (host,), placement.boxes[0].slots[:1], host) for host in range(number))
    return replace(cell, ranks=number, hosts=number, servers=servers), replace(placement, boxes=boxes)


def title_of(cell: LaunchCell, site: SlurmSite) -> str:
    if cell.isolation is not None:
        return f"image {cell.image} ({site.images.get(cell.image)})"
    return f"environment {site.environments.get(cell.image) or 'on PATH'} for {cell.image}"


def contents_of(
    job: SlurmJob, site: SlurmSite, plan: Plan, cell: LaunchCell, placement: Placement, check: StopCheck,
    limit: float = ANSWER,
) -> Contents:  # fmt: skip
    """What an image or an environment holds on every node of a world that has one rank on each."""
    argv, title = probe_of(script.python_of(cell, site), cell.image, site.libraries, plan), title_of(cell, site)
    step = StepOf(f"look-{cell.image}-{job.steps}", cell, placement, PROCESS, dict(site.variables), job.with_servers,
                  ANSWERED)  # fmt: skip
    answers = answers_of(job, step, site, argv, check, title, limit)
    workers_first = (*answers[cell.servers :], *answers[: cell.servers])
    by_node = {answer.node: answer.summary for answer in workers_first}
    return contents_on(by_node, title, cell.image, site.libraries, plan)


def hosts_of(
    job: SlurmJob, site: SlurmSite, cell: LaunchCell, placement: Placement, check: StopCheck
) -> tuple[Host, ...]:
    """The nodes of such a world, each as it describes itself; EngineError: one does not see the folder of the job."""
    argv = ("sh", "-c", _SEES, str(job.folder), script.python_of(cell, site), "-m", "collbench.machine.facts")
    step = StepOf(f"nodes-{job.steps}", cell, placement, PROCESS, {}, job.with_servers, ANSWERED)
    answers = answers_of(job, step, site, argv, check, "the nodes", ANSWER)
    if blind := [answer.node for answer in answers if any(line.startswith(_BLIND) for line in answer.lines)]:
        where = f"{nodes_of(blind, len(answers))} {'do' if len(blind) > 1 else 'does'}"
        raise EngineError(f"engine slurm: {where} not see {job.folder}. {jobs.SHARED}")
    hosts = []
    for line in (line for answer in answers for line in answer.lines):
        with contextlib.suppress(msgspec.DecodeError):
            hosts.append(msgspec.json.decode(line, type=Host))
    return tuple(hosts)


def answers_of(
    job: SlurmJob, step: StepOf, site: SlurmSite, argv: Argv, check: StopCheck, title: str, limit: float
) -> tuple[NodeOutput, ...]:
    """What a step prints on each of its nodes, in the order of the job's; EngineError: a node does not answer."""
    code, log = run_step(job, script.step_script(step, site, argv), step.name, check, title, limit)
    answers, rest = script.answers_in(log.lines)
    nodes = nodes_in(job.folder)
    if len(answers) < step.cell.hosts:
        state = job.look(at_once=True)
        late = f"no answer within {limit:g} s" if code is None else "nothing was printed"
        cause = state.text if not state.alive else script.first_cause("\n".join(rest)) or late
        silent = sorted(set(nodes) - {answer.node for answer in answers})
        raise EngineError(f"engine slurm: {title}: {len(answers)} of {step.cell.hosts} nodes answer, without "
                          f"{nodes_of(silent, 0) if silent else 'one'}: {cause}.")  # fmt: skip
    order = {node: number for number, node in enumerate(nodes)}
    return tuple(sorted(answers, key=lambda answer: (order.get(answer.node, -1), answer.node)))


def nodes_in(folder: Path) -> tuple[str, ...]:
    """The nodes of the job in this folder, as it has written them down."""
    return tuple((text_of(folder / "nodes") or "").split())


def run_step(
    job: SlurmJob, text: str, name: str, check: StopCheck, title: str, limit: float = ANSWER
) -> tuple[int | None, Log]:
    """The exit code of a step and what it printed; without a code it did not end within its limit, and was ended."""
    step, deadline = job.start(text, name, Log(LONGEST_ANSWER)), time.monotonic() + limit
    try:
        while (code := step.code) is None and time.monotonic() < deadline:
            check()
            state = job.look()
            if not state.alive:
                raise EngineError(f"engine slurm: job {job.number} ended while {title} was asked: {state.text}.")
            time.sleep(0.05)
    finally:
        step.end()
    return code, step.log


#: What srun says where its job is at its end, though Slurm may call it RUNNING for half a minute more.
_JOB_ENDS = ("already completing or completed", "DUE TO TIME LIMIT", "DUE TO NODE FAILURE", "DUE TO PREEMPTION")

#: What a library, srun or collbench prints where ranks and srun have different types of PMI, and what helps.
_UNKNOWN_PMI = "Invalid MPI type"
_WRONG_PMI = ("unsupported PMI version", "No PMIx server was reachable", _UNKNOWN_PMI,
              "processes, but MPI_COMM_WORLD of")  # fmt: skip
_ADVICE = 'set mpi in the site file: mpich = "pmi2", openmpi = "pmix" (srun --mpi=list names what there is)'


@dataclass(frozen=True)
class SlurmWorld:
    """All ranks of a launch, started by one srun."""

    world: WorldSpec
    job: SlurmJob
    site: SlurmSite
    started: list[SlurmStep] = field(default_factory=list)

    @property
    def hosts(self) -> tuple[tuple[str, int], ...]:
        return (("the job", self.world.cell.ranks),)

    @property
    def program(self) -> Argv:
        return script.program_of(self.world, self.site)

    def execute(self, host: str, argv: Argv, environment: dict[str, str], log: Log) -> SlurmStep:
        text = script.launch_script(self.world, self.site, argv, environment, self.job.with_servers)
        self.started.append(self.job.start(text, self.world.name, log))
        return self.started[-1]

    def died(self) -> str | None:
        state = self.job.look(at_once=any(step.ended for step in self.started))
        return None if state.alive else f"Slurm job {self.job.number} ended: {state.text}"


@dataclass
class SlurmSession:
    """A cluster, as its site file describes it. `check` raises when we are to stop.

    `refused`: why no launch can succeed, once one has shown it.
    """

    site: SlurmSite
    check: StopCheck
    run: str = field(default_factory=lambda: f"{PREFIX}{secrets.token_hex(4)}")
    job: SlurmJob | None = None
    refused: str = ""

    @cached_property
    def title(self) -> str:
        """`slurm 22.05.8, charliecloud`."""
        runtime = "" if self.site.runtime == "none" else f", {self.site.runtime}"
        return f"{jobs.version()}{runtime}"

    @property
    def folder(self) -> Path:
        """Where folders of launches are made: every node sees it."""
        return Path(self.site.folder) / self.run

    def close(self, at_once: bool) -> None:
        """The job is cancelled, once: a second attempt would not know more."""
        job, self.job = self.job, None
        if job is not None:
            job.end()

    def look(self, plan: Plan, placements: Mapping[LaunchCell, Placement], vendors: Mapping[str, str]) -> Looks:
        """Submit the job where there is no allocation, wait for its nodes, and ask there what images hold."""
        refuse(plan, placements, self.site)
        needs = script.resources_of(placements.items())
        text = script.job_script(self.run, self.folder, self.site, needs)
        if (allocation := jobs.allocated()) is None:
            self.job = jobs.submitted(text, self.folder, with_servers=needs.servers is not None)
        else:
            jobs.refuse_small(needs, allocation)
            self.job = jobs.in_allocation(text, self.folder, allocation.job)
        jobs.wait_for_nodes(self.job, self.check)
        return look_at(self.job, self.site, plan, placements, self.check)

    def ready(self) -> None:
        """EngineError: Slurm has ended the job, or the site file names a PMI that is not the library's."""
        if self.job is None:
            raise EngineError("engine slurm: there is no job.")
        if self.refused:
            raise EngineError(f"engine slurm: no launch can succeed: {self.refused}.")
        state = self.job.look(at_once=True)
        if not state.alive:
            state = self.job.outcome(self.check)
            late = state.state == "TIMEOUT" and self.job.process is None
            hint = f" Raise time in the site file ({self.site.time})." if late else ""
            raise EngineError(f"engine slurm: job {self.job.number} has ended: {state.text}.{hint}")

    @contextlib.contextmanager
    def open(self, world: WorldSpec) -> Iterator[SlurmWorld]:
        """A step of the job; it is cancelled at the end, if it still runs."""
        if self.job is None:
            raise EngineError("engine slurm: there is no job.")
        opened = SlurmWorld(world, self.job, self.site)
        try:
            yield opened
        except LaunchFailed as error:
            raise self._explained(error, opened) from error
        except EngineError as error:  # Slurm is away, or the folder: nothing that this launch could do about
            raise LaunchLost(str(error)) from error
        finally:
            try:
                for step in opened.started:
                    step.end()
            except EngineError as error:
                raise LaunchLost(str(error)) from error

    def _explained(self, error: LaunchFailed, opened: SlurmWorld) -> LaunchFailed:
        """Why a launch failed, with what would help. One that ended with its job is lost.

        So is one whose ranks cannot meet because of the site file, or because a node does not have their program: no
        other launch of this job would do better.
        """
        job, lines = opened.job, tuple(line for step in opened.started for line in step.log.lines)
        if not job.state.alive or any(sign in line for line in lines for sign in _JOB_ENDS):
            try:
                state = job.outcome(self.check)
            except Interrupted:  # it is heard again
                return LaunchLost(f"Slurm job {job.number} was ending: {job.state.text}", error.log)
            if not state.alive:
                return LaunchLost(f"Slurm job {job.number} ended: {state.text}", error.log)
        wrong_pmi = next((line for line in lines if any(sign in line for sign in _WRONG_PMI)), "")
        met = (opened.world.folders.out / "manifest.json").exists()  # ranks that have met write what they are
        if met or not (wrong_pmi or script.not_started(lines)):
            return error
        message = "".join(step.log.message for step in opened.started).rstrip(".")
        quoted = "" if wrong_pmi.removeprefix("srun: ") in f"{error}{message}" else f": {wrong_pmi}"
        launcher = opened.world.stack.launcher
        kind = self.site.mpi.get(launcher.vendor, launcher.pmi)
        may_be_another = not kind.startswith(launcher.pmi) or _UNKNOWN_PMI in wrong_pmi  # than the site file names
        advice = f"; {_ADVICE}" if wrong_pmi and may_be_another else ""
        self.refused = f"{error}{message}{quoted}{advice}"
        return LaunchLost(f"{error}{quoted}{advice}", error.log)

    def sweep(self) -> tuple[list[str], list[str]]:
        """Jobs and folders whose driver has not shown itself for minutes."""
        removed, kept = list[str](), list[str]()
        for folder in sorted(Path(self.site.folder).glob(f"{PREFIX}*")):
            with contextlib.suppress(OSError):
                if folder.stat().st_uid != os.getuid():
                    continue
                abandoned = time.time() - (folder / "driver").stat().st_mtime > ABANDONED
                if abandoned and (folder / "number").exists():
                    jobs.cancel((folder / "number").read_text(encoding="ascii"))
                (removed if abandoned and remove_folder(folder) else kept).append(str(folder))
        return removed, kept


_LADDER = ladder_of(LadderStep("files", "files and user IDs of their own; everything else is the node's", Sharing()))

#: `start_seconds` were seen in a cluster of containers on two cores.
ENGINE = Engine("slurm", lambda plan, check: SlurmSession(read(plan.site), check), (2.0, 0.1), _LADDER,
                starts_ranks=True, bare=True, overlaps=True, site=nodes, script=all_launches)  # fmt: skip
