"""The texts that Slurm is given: a job that performs steps as they come, and the step of a launch. Pure.

One job holds the nodes for all launches, so that every cell meets the same ones. It performs the files `step-N` of its
folder in order: output goes to `log-N`, and `code-N`, which appears last and whole, holds the exit code. The file `end`
ends it, and so does a driver that has not written to `driver` for some minutes.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from collbench.errors import PlanError
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.slurm.runtimes import RUNTIMES, WITHOUT_PROC_LINKS
from collbench.launch.engines.slurm.site import SlurmSite
from collbench.launch.engines.spec import WorldSpec
from collbench.launch.placing import Placement
from collbench.launch.shapes import cores_of, each_of, shape_of
from collbench.launch.starters.starter import Argv, Starter
from collbench.schema.launch_plan import LaunchPlan
from collbench.schema.place import SHAPE

#: A job without a sign of its driver ends after so long (s): folders over a network show changes late.
ABANDONED = 300

#: Interval (s) at which a waiting job looks for its next step.
LOOK = 0.1

_JOB = """\
cd {folder} || exit 72
{setup}scontrol show hostnames "$SLURM_JOB_NODELIST" > nodes.part && mv nodes.part nodes
export FIRST_NODE=$(head -n 1 nodes)
exec {{never}}<> <(:)  # a pipe in which nothing comes: a pause without a process
n=0
while [ ! -e end ]; do
  if [ -e step-$n ]; then
    bash step-$n > log-$n 2>&1
    echo $? > code-$n.part; mv code-$n.part code-$n
    n=$((n + 1)); alive=$SECONDS
  else
    read -r sign < driver
    [ "$sign" = "$last" ] || {{ last=$sign; alive=$SECONDS; }}
    [ $((SECONDS - alive)) -lt {abandoned} ] || exit 75
    read -r -t {look} -u $never
  fi
done
"""


@dataclass(frozen=True)
class Resources:
    """What the job asks for: the most that any launch needs. `cores` and `gpus` are of a task, and of a node."""

    nodes: int
    tasks: int
    cores: int
    gpus: int


def resources_of(placements: Iterable[tuple[LaunchCell, Placement]]) -> Resources:
    """The most of everything."""
    worlds = [
        (cell.hosts, each_of(cell), cores_of(placement), len(placement.gpus) // cell.hosts)
        for cell, placement in placements
    ]
    return Resources(*(max(numbers) for numbers in zip(*worlds, strict=True)))


def job_script(name: str, folder: Path, site: SlurmSite, needs: Resources) -> str:
    """The script for sbatch."""
    asked = [
        f"--job-name={name}", f"--nodes={needs.nodes}", f"--ntasks-per-node={needs.tasks}",
        f"--cpus-per-task={needs.cores}", f"--time={site.time}", "--no-requeue", f"--output={folder}/job.log",
        *([f"--gpus-per-node={needs.gpus}"] if needs.gpus else []), *site.options,
    ]  # fmt: skip
    head = "".join(f"#SBATCH {option}\n" for option in asked)
    setup = "".join(f"{line}\n" for line in site.setup)
    body = _JOB.format(folder=shlex.quote(str(folder)), setup=setup, abandoned=ABANDONED, look=LOOK)
    return f"#!/bin/bash\n{head}{body}"


@dataclass(frozen=True)
class StepOf:
    """A launch (or a look at an image) as Slurm is to start it. `name` is the step's, `variables` are set before it."""

    name: str
    cell: LaunchCell
    placement: Placement
    starter: Starter
    variables: dict[str, str]


def step_script(step: StepOf, site: SlurmSite, program: Argv) -> str:
    """A file `step-N`: the command that starts all ranks of a world."""
    cell, starter = step.cell, step.starter
    runtime, image = RUNTIMES[site.runtime], site.images.get(cell.image, "")
    contained = cell.isolation is not None
    sharing = each_of(cell) if cell.policy == "multi" else 1
    srun = [
        "srun", f"--job-name={step.name}", "--kill-on-bad-exit=1", f"--nodes={cell.hosts}", f"--ntasks={cell.ranks}",
        f"--ntasks-per-node={each_of(cell)}", f"--cpus-per-task={cores_of(step.placement)}",
        f"--mpi={site.mpi.get(starter.vendor, starter.pmi)}", *(["--overcommit"] if step.placement.crowded else []),
        *(["--gpu-bind=none"] if step.placement.gpus else []),
        *(runtime.flags(image, site.folder, f"collbench-{cell.image}") if contained else ()),
    ]  # fmt: skip
    inside = runtime.prefix(image, site.folder, sharing) if contained else ()
    of_task = "; ".join((*_of_task(step, site), 'exec "$@"'))
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in step.variables.items())
    task = ("sh", "-c", of_task, "task", *inside, *program)
    return f"{exports}exec {shlex.join(srun)} \\\n  {shlex.join(task)}\n"


def _of_task(step: StepOf, site: SlurmSite) -> list[str]:
    """What a task's shell sets, because it differs from rank to rank."""
    lines = [f"export {name}={value}" for name, value in step.starter.task.items()]
    if step.cell.isolation is not None:
        number = "$SLURM_NODEID" if step.cell.policy == "multi" else "$SLURM_PROCID"
        lines.append(f"export COLLBENCH_CONTAINER=c{number}")
    if site.runtime == "pyxis" and step.starter.pmi == "pmi2":
        lines.append("export PMI_RANK=$SLURM_PROCID")  # its hook gives all tasks of a node that of the first
    return lines


def variables_of(cell: LaunchCell, placement: Placement, starter: Starter, site: SlurmSite) -> dict[str, str]:
    """What every rank shares."""
    shape = msgspec.json.encode(shape_of(cell, placement)).decode()
    apart = cell.policy == "single" and each_of(cell) > 1
    return {SHAPE: shape, "OMP_NUM_THREADS": "1", **starter.environment, **(WITHOUT_PROC_LINKS if apart else {}),
            **site.variables}  # fmt: skip


def python_of(cell: LaunchCell, site: SlurmSite) -> str:
    """The interpreter of a rank."""
    environment = site.environments.get(cell.image)
    return "python" if cell.isolation is not None or environment is None else f"{environment}/bin/python"


def program_of(world: WorldSpec, site: SlurmSite) -> Argv:
    """The command of a rank."""
    folders = world.folders
    return (python_of(world.cell, site), "-m", "collbench", "run", str(folders.plan), "--out", str(folders.out),
            "--style", "csv")  # fmt: skip


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
        if cell.storage is not None or cell.servers or plan.spare != "idle":
            raise PlanError(f"{cell.title}: benchmarks of storage and parameter servers are for one machine; "
                            "leave them out of a plan for Slurm.")  # fmt: skip
        if plan.device == "gpu" and not site.gpus:
            raise PlanError('device "gpu": the nodes of the site have none. Say how many in the site file: gpus = 4.')
