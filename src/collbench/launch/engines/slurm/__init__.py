"""Engine `slurm`: worlds over the nodes of a cluster, started by srun, bare or in containers of its runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from collbench.launch.cells import Launch, LaunchCell
from collbench.launch.engines.ladder import Sharing, Step, ladder_of
from collbench.launch.engines.slurm.client import refuse
from collbench.launch.engines.slurm.script import (
    StepOf,
    job_script,
    program_of,
    resources_of,
    step_script,
    variables_of,
)
from collbench.launch.engines.slurm.session import SlurmSession
from collbench.launch.engines.slurm.site import SlurmSite, read
from collbench.launch.engines.spec import Engine, Site, Stack, WorldSpec
from collbench.launch.expansion import launcher_of
from collbench.launch.folders import folders_in
from collbench.launch.placement import Placement
from collbench.launch.site import node_of
from collbench.schema.plan import LaunchPlan


def nodes(plan: LaunchPlan) -> Site:
    """The nodes of a site. Other jobs, this user's too, may be given the nodes or cores that ranks share with them."""
    site, cautions = read(plan.site), list[str]()
    if not any(option.split("=")[0] == "--exclusive" for option in site.options):
        cautions.append(f"site {plan.site}: no --exclusive among options: unless the partition gives whole nodes "
                        "(OverSubscribe=EXCLUSIVE), other jobs may run beside the ranks")  # fmt: skip
    return Site(node_of(site.cores, site.gpus), site.seconds, tuple(cautions))


def all_launches(plan: LaunchPlan, order: Sequence[Launch], placements: Mapping[LaunchCell, Placement]) -> str:
    """The job, and every step that it is given, in their order."""
    site = read(plan.site)
    refuse(plan, placements, site)
    folder = Path(site.folder) / "collbench-RUN"
    needs = resources_of(placements.items())
    job = job_script("collbench-RUN", folder, site, needs)
    with_servers = needs.servers is not None
    steps = [f"\n# step {launch.sequence}: {launch.cell.title}\n"
             + _step(plan, launch, placements[launch.cell], site, folder, with_servers)
             for launch in order]  # fmt: skip
    return job + "".join(steps)


def _step(
    plan: LaunchPlan, launch: Launch, placement: Placement, site: SlurmSite, folder: Path, with_servers: bool
) -> str:
    cell = launch.cell
    name, launcher = f"collbench-RUN-{launch.sequence}", launcher_of(cell.image, site.libraries, plan)
    at = folders_in(folder / str(launch.sequence))
    world = WorldSpec("collbench-RUN", name, "", cell, placement, Stack(launcher, ""), at, (0, 0))
    variables = variables_of(cell, placement, launcher, site)
    return step_script(StepOf(name, cell, placement, launcher, variables, with_servers), site, program_of(world, site))


_LADDER = ladder_of(Step("files", "files and user IDs of their own; everything else is the node's", Sharing()))

#: `start_seconds` were seen in a cluster of containers on two cores.
ENGINE = Engine("slurm", lambda plan, check: SlurmSession(read(plan.site), check), (2.0, 0.1), _LADDER,
                starts_ranks=True, bare=True, overlaps=True, site=nodes, script=all_launches)  # fmt: skip
