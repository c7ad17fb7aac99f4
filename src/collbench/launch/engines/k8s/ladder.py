"""The ladder as far as pods express it, and what is refused with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from collbench.errors import PlanError
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.k8s.site import K8sSite
from collbench.launch.engines.ladder import SHARING, Step, ladder_of
from collbench.launch.expansion import launcher_of
from collbench.launch.launchers import RankLauncher
from collbench.launch.placement import Placement
from collbench.schema.axes import name_and_number
from collbench.schema.plan import LaunchPlan

LADDER = ladder_of(
    Step("strict", "a pod for each container; only what it asks for; all capabilities dropped", SHARING["strict"]),
    Step("limits", "1 GiB of /dev/shm; locked memory is the node's to limit", SHARING["limits"]),
    Step("ipc", "not in Kubernetes", SHARING["ipc"], between=True),
    Step("net", "one pod on each host: one ipc, pid and network namespace for its containers", SHARING["net"],
         between=True),
    Step("visible", "not in Kubernetes without claims to devices", SHARING["visible"], between=True),
    Step("files", "hostNetwork, hostIPC and hostPID: files and user of their own, everything else the node's",
         replace(SHARING["files"], all_gpus=False)),
)  # fmt: skip

#: Policies that pods can do.
POLICIES = ("multi", "single", "packed")

#: Steps that pods cannot do, why, and what would do.
_NO_STEP = {
    "ipc": 'Kubernetes shares ipc within a pod, which shares the network too (step "net", for torch), or with the node '
           '(step "files")',
    "visible": "nvidia.com/gpu gives a GPU to one container; without claims to devices (DRA) none is seen by several. "
               'Use the step "net" or "files"',
}  # fmt: skip


def refuse(plan: LaunchPlan, placements: Mapping[LaunchCell, Placement], site: K8sSite) -> None:
    """What pods cannot do of a plan.

    Raises:
        PlanError: the first, with what would.
    """
    if plan.device == "gpu" and not site.gpus:
        raise PlanError('device "gpu": the nodes of the site have none. Say how many in the site file: gpus = 4.')
    for cell, placement in placements.items():
        launcher = launcher_of(cell.image, site.libraries, plan)
        for why in _reasons(plan, cell, placement, site, launcher):
            raise PlanError(why if why.startswith(("policy", "image")) else f"{cell.title}: {why}")


def _reasons(
    plan: LaunchPlan, cell: LaunchCell, placement: Placement, site: K8sSite, launcher: RankLauncher
) -> Iterable[str]:
    policy, boxes = name_and_number(cell.policy)[0], len(placement.boxes) // cell.hosts
    if cell.isolation is None:
        yield ("policy host: pods are containers. Leave it out, or compare with the nodes themselves: --on slurm, or a "
               "plan of its own on a node")  # fmt: skip
    if policy not in POLICIES:
        yield f"policy {cell.policy}: where memory nodes are, only a node knows. Use {', '.join(POLICIES)}:2"
    if cell.image not in site.images:
        yield f"image {cell.image}: the site file does not say where it is. Add it to [k8s.images]."
    if cell.isolation in _NO_STEP:
        yield _NO_STEP[cell.isolation]
    if cell.affinity == "far":
        yield "affinity far: the node chooses memory (topologyManagerPolicy), and cannot be asked for far memory"
    if placement.crowded:
        yield "oversubscribe: pods have cores of their own. Lower ranks or cores_per_rank"
    if cell.storage is not None or cell.servers or plan.spare != "idle":
        yield "benchmarks of storage and parameter servers are for one machine; leave them out of a plan for Kubernetes"
    yield from _of_objects(cell, placement, site, launcher, boxes)


def _of_objects(
    cell: LaunchCell, placement: Placement, site: K8sSite, launcher: RankLauncher, boxes: int
) -> Iterable[str]:
    """What Jobs and MPIJobs cannot do; `boxes` are containers on each host."""
    by_ssh = bool(launcher.operator) and len(placement.boxes) > 1
    if by_ssh and site.objects != "mpijob":
        yield (f"{launcher.vendor} reaches several pods by ssh, which the MPI Operator prepares. Where there is one, "
               'set objects = "mpijob" in the site file; or use policy multi on one host, or torch')  # fmt: skip
    if by_ssh and cell.isolation == "net":
        yield 'the MPI Operator starts one container of a pod. Use torch, or the step "limits" or "files"'
    if boxes > 1 and cell.hosts > 1 and cell.isolation != "net":
        yield (f"Kubernetes cannot be asked for {boxes} pods on each of {cell.hosts} hosts. Use policy multi, as many "
               'hosts as pods, or for torch the step "net"')  # fmt: skip
    if by_ssh and boxes > 1 and (cell.isolation == "files" or site.host_network):
        yield "several pods of a node share its network, and so one port for sshd. Use policy multi, or the step limits"
