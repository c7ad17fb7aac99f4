"""What Slurm, a site, or the allocation that this process is in cannot do of a plan."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from collbench.errors import EngineError, PlanError
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.slurm import client
from collbench.launch.engines.slurm.runtimes import RUNTIMES
from collbench.launch.engines.slurm.script import Resources
from collbench.launch.engines.slurm.site import SlurmSite
from collbench.schema.launch_plan import LaunchPlan
from collbench.units import counted


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


#: The number of the step in which salloc starts a shell, where the site has it do so (use_interactive_step).
_SHELL = ("4294967290", "interactive")


@dataclass(frozen=True)
class Allocated:
    """An allocation: the processors of each node, and the GPUs of all of them."""

    job: str
    cpus: tuple[int, ...]
    gpus: int


def allocated(environ: Mapping[str, str] = os.environ) -> Allocated | None:
    """The allocation that salloc or sbatch has put this process in; None: it is in none.

    Raises:
        EngineError: this process is a task of a step, or the allocation has ended.
    """
    job = environ.get("SLURM_JOB_ID")
    if not job:
        return None
    if environ.get("SLURM_STEP_ID", _SHELL[0]) not in _SHELL:
        raise EngineError(
            f"engine slurm: this is a task of srun, in job {job}, and its steps would wait for the processors of this "
            "one. Launch from the shell of salloc, from a script of sbatch, or from a login node."
        )
    state = client.state_of(job)
    if not state.alive:
        raise EngineError(f"engine slurm: SLURM_JOB_ID names job {job}, which has ended: {state.text}. Unset it.")
    return Allocated(job, _per_node(environ.get("SLURM_JOB_CPUS_PER_NODE", "")), state.gpus)


def _per_node(text: str) -> tuple[int, ...]:
    """(4, 4, 2) for `4(x2),2`."""
    cpus: list[int] = []
    for part in filter(None, text.split(",")):
        number, _, times = part.rstrip(")").partition("(x")
        cpus += [int(number)] * int(times or 1)
    return tuple(cpus)


def refuse_small(needs: Resources, given: Allocated) -> None:
    """What a plan needs, and an allocation does not have.

    Raises:
        EngineError: the first, with both numbers.
    """
    if needs.servers is not None:
        raise EngineError(
            f"engine slurm: job {given.job} is one allocation, and parameter servers with a node to themselves need a "
            "heterogeneous job. Launch from a login node, or take hosts = [1]."
        )
    cores = needs.tasks * needs.cores
    for what, needed, found in (
        ("node", needs.nodes, len(given.cpus)),
        ("core", cores, sorted(given.cpus, reverse=True)[: needs.nodes][-1] if given.cpus else 0),
        ("GPU", needs.gpus * needs.nodes, given.gpus),
    ):
        if needed > found:
            where = " of each node" if what == "core" else ""
            raise EngineError(
                f"engine slurm: the plan needs {counted(needed, what)}{where}, and the allocation of job {given.job} "
                f"has {found}. Allocate more, or launch from a login node, which submits a job."
            )
