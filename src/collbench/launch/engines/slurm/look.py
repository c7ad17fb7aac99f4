"""What images and environments hold on the nodes of a job: asked in its first steps."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from collbench.errors import EngineError, ImageMissing
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.slurm.job import SlurmJob
from collbench.launch.engines.slurm.messages import telling
from collbench.launch.engines.slurm.script import StepOf, python_of, resources_of, step_script
from collbench.launch.engines.slurm.site import SlurmSite
from collbench.launch.engines.slurm.waiting import SHARED
from collbench.launch.engines.spec import Look, Looks
from collbench.launch.log import LONGEST_ANSWER, Log
from collbench.launch.placing import Box, Placement
from collbench.launch.probed import contents_in, probe_of
from collbench.launch.starters.starter import PROCESS, Argv
from collbench.launch.stopping import StopCheck
from collbench.schema.launch_plan import LaunchPlan
from collbench.schema.manifest import Allocation, Host

#: Longest wait for an answer (s): a runtime may unpack an image first.
ANSWER = 600.0

#: What a node prints that does not see the folder of the job, and a command for `sh -c FOLDER ...` that looks.
_BLIND = "collbench sees no folder on"
_SEES = f'test -d "$0" || {{ echo "{_BLIND} $(uname -n)"; exit 0; }}; exec "$@"'


def look_at(
    job: SlurmJob, site: SlurmSite, plan: LaunchPlan, placements: Mapping[LaunchCell, Placement], check: StopCheck
) -> Looks:
    """What every image holds, and for policy host every environment; the nodes of the job, and the job itself.

    Raises:
        ImageMissing: it does not hold this collbench, or another library than its name says.
    """
    inside: dict[str, Look] = {}
    bare: dict[str, Look] = {}
    for (name, contained), cell in {(cell.image, cell.isolation is not None): cell for cell in placements}.items():
        title = _title(cell, site)
        lines = _printed(job, site, plan, cell, placements[cell], check)
        reference = site.images.get(name, "") if contained else python_of(cell, site)
        look = Look(contents_in(lines, title, name, site.libraries, plan), reference, title)
        (inside if contained else bare)[name] = look
    hosts = _hosts(job, site, placements, check)
    return Looks(inside, hosts=hosts, environments=bare, variables=site.variables, allocation=_allocation(job, site))


def _allocation(job: SlurmJob, site: SlurmSite) -> Allocation:
    state = job.look(at_once=True)
    options = () if job.process else site.measured
    return Allocation(job=job.number, partition=state.partition, nodes=state.nodes, options=options)


def _hosts(
    job: SlurmJob, site: SlurmSite, placements: Mapping[LaunchCell, Placement], check: StopCheck
) -> tuple[Host, ...]:
    """The nodes of the job, each as it describes itself."""
    needs, (some, placement) = resources_of(placements.items()), next(iter(placements.items()))
    servers = int(job.with_servers)
    cell = replace(some, ranks=needs.nodes + servers, hosts=needs.nodes + servers, servers=servers)
    slots = placement.boxes[0].slots[:1]
    boxes = tuple(Box(f"h{host}", (host,), slots, host) for host in range(cell.hosts))
    argv = ("sh", "-c", _SEES, str(job.folder), python_of(cell, site), "-m", "collbench.launch.node")
    asked = StepOf(f"nodes-{job.steps}", cell, replace(placement, boxes=boxes), PROCESS, {}, job.with_servers)
    lines = _answer(job, asked, site, argv, check)
    found = []
    for line in lines:
        if line.startswith(_BLIND):
            raise EngineError(f"engine slurm: node{line.removeprefix(_BLIND)} does not see {job.folder}. {SHARED}")
        with contextlib.suppress(msgspec.DecodeError):
            found.append(msgspec.json.decode(line, type=Host))
    return tuple(sorted(found, key=lambda host: host.name))


def _title(cell: LaunchCell, site: SlurmSite) -> str:
    if cell.isolation is not None:
        return f"image {cell.image} ({site.images.get(cell.image)})"
    return f"environment {site.environments.get(cell.image) or 'on PATH'} for {cell.image}"


def _printed(
    job: SlurmJob, site: SlurmSite, plan: LaunchPlan, cell: LaunchCell, placement: Placement, check: StopCheck
) -> tuple[str, ...]:
    """What one task on one node prints of itself."""
    one = replace(cell, ranks=1, hosts=1, servers=0)
    alone = replace(placement, boxes=(replace(placement.boxes[0], ranks=(0,), slots=placement.boxes[0].slots[:1]),))
    step = StepOf(f"look-{cell.image}-{job.steps}", one, alone, PROCESS, {}, job.with_servers)
    return _answer(job, step, site, probe_of(python_of(cell, site), cell.image, site.libraries, plan), check)


def _answer(job: SlurmJob, asked: StepOf, site: SlurmSite, argv: Argv, check: StopCheck) -> tuple[str, ...]:
    """What a step prints, to its end.

    Raises:
        ImageMissing: nothing comes.
    """
    log = Log(LONGEST_ANSWER)
    step = job.start(step_script(asked, site, argv), asked.name, log)
    deadline = time.monotonic() + ANSWER
    try:
        while step.code is None:
            check()
            state = job.look()
            if not state.alive or time.monotonic() > deadline:
                raise ImageMissing(
                    f"image {asked.cell.image}: nothing comes from the node (job {job.number}: {state.text})."
                )
            time.sleep(0.05)
    finally:
        step.end()
    return telling(log.lines)
