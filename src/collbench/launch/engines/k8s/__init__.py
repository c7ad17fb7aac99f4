"""Engine `k8s`: worlds in pods of a Kubernetes cluster, as Jobs, and as MPIJobs of the MPI Operator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from collbench.launch.cells import Launch, LaunchCell, inner_plan
from collbench.launch.engines.k8s.ladder import LADDER, refuse
from collbench.launch.engines.k8s.objects import Launchable, Object, manifests
from collbench.launch.engines.k8s.session import PREFIX, K8sSession
from collbench.launch.engines.k8s.site import K8sSite, read
from collbench.launch.engines.spec import Engine, Site, Stack, WorldSpec
from collbench.launch.expansion import launcher_of
from collbench.launch.folders import folders_in
from collbench.launch.placement import Placement
from collbench.launch.site import node_of
from collbench.schema.plan import LaunchPlan


def nodes(plan: LaunchPlan) -> Site:
    """The nodes of a site."""
    site = read(plan.site)
    return Site(node_of(site.cores, site.gpus))


def all_launches(plan: LaunchPlan, order: Sequence[Launch], placements: Mapping[LaunchCell, Placement]) -> str:
    """The objects of every launch, in their order, as kubectl takes them."""
    site = read(plan.site)
    refuse(plan, placements, site)
    lines = []
    for launch in order:
        lines.append(f"# launch {launch.sequence}: {launch.cell.title}\n")
        lines += [f"---\n{json.dumps(one, indent=1)}\n" for one in _objects(plan, launch, placements, site)]
    return "".join(lines)


def _objects(
    plan: LaunchPlan, launch: Launch, placements: Mapping[LaunchCell, Placement], site: K8sSite
) -> tuple[Object, ...]:
    cell = launch.cell
    stack = Stack(launcher_of(cell.image, site.libraries, plan), "")
    name, at = f"{PREFIX}RUN-{launch.sequence}".lower(), folders_in(Path(PREFIX))
    world = WorldSpec(f"{PREFIX}run", name, "driver", cell, placements[cell], stack, at, (0, 0))
    return manifests(Launchable(world, site, msgspec.json.encode(inner_plan(plan, cell)).decode()))


#: `start_seconds` are an estimate: pods took 6 s with their ranks on one node. It is `bare` to refuse worlds without
#: containers in words of its own.
ENGINE = Engine("k8s", lambda plan, check: K8sSession(read(plan.site), check), (10.0, 0.5), LADDER,
                starts_ranks=True, bare=True, site=nodes, script=all_launches)  # fmt: skip
