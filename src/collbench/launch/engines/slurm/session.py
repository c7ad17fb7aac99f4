"""A Slurm cluster that answers: one job for an experiment, whose steps are its launches."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from collbench.errors import EngineError, LaunchFailed, LaunchLost
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.slurm import client
from collbench.launch.engines.slurm.client import allocated, not_started, refuse, refuse_small
from collbench.launch.engines.slurm.job import SlurmJob, SlurmStep, in_allocation, submitted, wait_for_nodes
from collbench.launch.engines.slurm.look import look_at
from collbench.launch.engines.slurm.script import (
    ABANDONED,
    StepOf,
    job_script,
    program_of,
    resources_of,
    step_script,
    variables_of,
)
from collbench.launch.engines.slurm.site import SlurmSite
from collbench.launch.engines.spec import Looks, WorldSpec
from collbench.launch.folders import remove_folder
from collbench.launch.launchers import Argv, RankLauncher
from collbench.launch.placement import Placement
from collbench.launch.waiting import Log, StopCheck
from collbench.schema.plan import LaunchPlan

#: Names of jobs and of their folders.
PREFIX = "collbench-"


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
        return f"{client.version()}{runtime}"

    @property
    def folder(self) -> Path:
        """Where folders of launches are made: every node sees it."""
        return Path(self.site.folder) / self.run

    def close(self, at_once: bool) -> None:
        """The job is cancelled, once: a second attempt would not know more."""
        job, self.job = self.job, None
        if job is not None:
            job.end()

    def look(self, plan: LaunchPlan, placements: Mapping[LaunchCell, Placement], vendors: Mapping[str, str]) -> Looks:
        """Submit the job, wait for its nodes, and ask every image and environment there what it holds.

        Within an allocation none is submitted.

        Raises:
            EngineError: Slurm rejects the job, or ends it.
            CollbenchError: an image or an environment is missing, or holds something else.
        """
        refuse(plan, placements, self.site)
        needs = resources_of(placements.items())
        allocation = allocated()
        if allocation is not None:
            refuse_small(needs, allocation)
        script = job_script(self.run, self.folder, self.site, needs)
        if allocation is None:
            self.job = submitted(script, self.folder, with_servers=needs.servers is not None)
        else:
            self.job = in_allocation(script, self.folder, allocation.job)
        wait_for_nodes(self.job, self.check)
        return look_at(self.job, self.site, plan, placements, self.check)

    def ready(self) -> None:
        """Whether the job still has its nodes, and ranks can meet on them.

        Raises:
            EngineError: Slurm has ended it, or the site file names a PMI that is not the library's.
        """
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
            for step in opened.started:
                step.end()

    def _explained(self, error: LaunchFailed, opened: SlurmWorld) -> LaunchFailed:
        """Why a launch failed, with what would help. One that ended with its job is lost.

        So is one whose ranks cannot meet because of the site file, or because a node does not have their program: no
        other launch of this job would do better.
        """
        job = opened.job
        if not job.state.alive or any(step.ends_with_its_job for step in opened.started):
            state = job.outcome(self.check)
            if not state.alive:
                return LaunchLost(f"Slurm job {job.number} ended: {state.text}", error.log)
        lines = tuple(line for step in opened.started for line in step.log.lines)
        wrong_pmi = next((line for line in lines if any(sign in line for sign in _WRONG_PMI)), "")
        if opened.met or not (wrong_pmi or not_started(lines)):
            return error
        said = "".join(step.log.message for step in opened.started).rstrip(".")
        quoted = "" if wrong_pmi.removeprefix("srun: ") in f"{error}{said}" else f": {wrong_pmi}"
        advice = f"; {_ADVICE}" if wrong_pmi and self._may_name_another(opened.world.stack.launcher, wrong_pmi) else ""
        self.refused = f"{error}{said}{quoted}{advice}"
        return LaunchLost(f"{error}{quoted}{advice}", error.log)

    def _may_name_another(self, launcher: RankLauncher, said: str) -> bool:
        """Whether the type of PMI in the site file is not the library's usual one, or none that srun knows."""
        kind = self.site.mpi.get(launcher.vendor, launcher.pmi)
        return not kind.startswith(launcher.pmi) or _UNKNOWN_PMI in said

    def sweep(self) -> tuple[list[str], list[str]]:
        """Jobs and folders whose driver has not shown itself for minutes."""
        removed: list[str] = []
        kept: list[str] = []
        for folder in sorted(Path(self.site.folder).glob(f"{PREFIX}*")):
            with contextlib.suppress(OSError):
                own = folder.stat().st_uid == os.getuid()
                silent = time.time() - (folder / "driver").stat().st_mtime > ABANDONED
                if not own or not silent:
                    kept += [str(folder)] if own else []
                    continue
                if (folder / "number").exists():
                    client.cancel((folder / "number").read_text(encoding="ascii"))
                (removed if remove_folder(folder) else kept).append(str(folder))
        return removed, kept


#: What a library, srun or collbench prints where ranks and srun have different types of PMI, and what helps.
_UNKNOWN_PMI = "Invalid MPI type"
_WRONG_PMI = (
    "unsupported PMI version",
    "No PMIx server was reachable",
    _UNKNOWN_PMI,
    "processes, but MPI_COMM_WORLD of",
)


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
    def met(self) -> bool:
        """Whether its ranks have met: they have written what they are."""
        return (self.world.folders.out / "manifest.json").exists()

    @property
    def program(self) -> Argv:
        return program_of(self.world, self.site)

    def execute(self, host: str, argv: Argv, environment: dict[str, str], log: Log) -> SlurmStep:
        """The step that starts every rank."""
        world = self.world
        launcher, with_servers = world.stack.launcher, self.job.with_servers
        beside = world.folders.turns is not None
        variables = variables_of(world.cell, world.placement, launcher, self.site) | environment
        step = StepOf(world.name, world.cell, world.placement, launcher, variables, with_servers, beside=beside)
        started = self.job.start(step_script(step, self.site, argv), world.name, log)
        self.started.append(started)
        return started

    def died(self) -> str | None:
        """What Slurm says where the job has ended."""
        state = self.job.look(at_once=any(step.ended for step in self.started))
        return None if state.alive else f"Slurm job {self.job.number} ended: {state.text}"
