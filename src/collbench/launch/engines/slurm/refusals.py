"""What Slurm, or a site, cannot do of a plan."""

from __future__ import annotations

from collections.abc import Iterable

from collbench.errors import PlanError
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.slurm.runtimes import RUNTIMES
from collbench.launch.engines.slurm.site import SlurmSite
from collbench.schema.launch_plan import LaunchPlan


def refuse(plan: LaunchPlan, cells: Iterable[LaunchCell], site: SlurmSite) -> None:
    """What a site cannot do of a plan.

    Raises:
        PlanError: the first, with what would.
    """
    runtime = RUNTIMES[site.runtime]
    for cell in cells:
        contained = cell.isolation is not None
        if contained and cell.policy not in runtime.policies:
            able = f"with runtime {runtime.name} there is {', '.join(runtime.policies) or 'none'}"
            raise PlanError(f"policy {cell.policy}: {able}; {runtime.instead}.")
        if contained and cell.image not in site.images:
            raise PlanError(f"image {cell.image}: the site file does not say where it is. Add it to [slurm.images].")
        if cell.storage is not None:
            raise PlanError(f"{cell.title}: benchmarks of storage are for one machine; leave them out of a plan for "
                            "Slurm.")  # fmt: skip
        if plan.spare != "idle":
            raise PlanError(f'spare "{plan.spare}": all ranks of a node get as many cores from Slurm. Leave it out.')
        if plan.device == "gpu" and not site.gpus:
            raise PlanError('device "gpu": the nodes of the site have none. Say how many in the site file: gpus = 4.')
