"""The wait for the nodes of a job: what Slurm says meanwhile is printed, and what will not change by itself ends it."""

from __future__ import annotations

import os
import re
import sys
import time

from collbench.errors import EngineError
from collbench.launch.engines.slurm.client import JobState
from collbench.launch.engines.slurm.job import GONE, SlurmJob
from collbench.launch.engines.slurm.messages import last_lines
from collbench.launch.stopping import StopCheck

#: Interval (s) at which a wait is shown although nothing has changed.
REMIND = 300.0

#: Ends every message on a folder that is not the same everywhere.
SHARED = "Is folder in the site file one that every node sees under this path?"

#: Reasons for which a job waits until somebody changes it, or the cluster, and what would help (names: squeue(1)).
_NEVER = {
    r"PartitionNodeLimit|PartitionConfig": "the partition does not have so many nodes for a job: see sinfo",
    r"PartitionTimeLimit": "time in the site file is more than the partition allows: see sinfo --format='%P %l'",
    r"JobHeld(User|Admin)": "the job is held: options in the site file, or who runs the site, can say why",
    r"BadConstraints": "no nodes have what options in the site file ask for",
    r"DependencyNeverSatisfied": "what it depends on has failed: see options in the site file",
    r"(Account|QOS)NotAllowed|InvalidAccount|InvalidQOS": "see --account and --qos in options of the site file",
    r"(Assoc|QOS)\w*PerJob\w*|QOSTimeLimit": "a job of this account may not have so much: see sacctmgr show assoc, qos",
}


def wait_for_nodes(job: SlurmJob, check: StopCheck) -> None:
    """Until the job runs and has seen its folder; what Slurm says meanwhile is printed.

    A reason for which it would wait for ever is one that Slurm gives twice: the first is often a provisional one.

    Raises:
        EngineError: it ended before, cannot begin, or does not see the folder.
    """
    said, began, shown, running, first = "", time.monotonic(), time.monotonic(), 0.0, 0
    while not (job.folder / "nodes").exists():
        check()
        os.listdir(job.folder)  # noqa: PTH208 - a folder over a network then shows what is new
        state, now = job.look(), time.monotonic()
        if state.text != said or now - shown > REMIND:
            waited = f", after {(now - began) / 60:.0f} min" if state.text == said else ""
            sys.stderr.write(f"# Slurm job {job.number}: {state.text}{waited}\n")
            first = first if state.text == said else job.answers
            said, shown = state.text, now
        _refuse_what_ended(job, state)
        if job.answers > first:
            _refuse_what_will_not_begin(job, state)
        running = running or (now if state.state == "RUNNING" else 0.0)
        if running and now - running > GONE:
            raise EngineError(
                f"engine slurm: job {job.number} runs, and nothing comes from it in {job.folder}. {SHARED}"
            )
        time.sleep(0.1)


def _refuse_what_ended(job: SlurmJob, state: JobState) -> None:
    if not state.alive:
        raise EngineError(
            f"engine slurm: job {job.number} ended before it began: {state.text}{_end_of_log(job, state)}"
        )


def _refuse_what_will_not_begin(job: SlurmJob, state: JobState) -> None:
    if state.state == "PENDING":
        for reason, help_ in _NEVER.items():
            if re.fullmatch(reason, state.reason):
                raise EngineError(f"engine slurm: job {job.number} will not begin: {state.text}: {help_}.")


def _end_of_log(job: SlurmJob, state: JobState) -> str:
    """What the job printed; one that failed and has no log did not find its folder."""
    try:
        said = last_lines((job.folder / "job.log").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return f" in {job.folder}. {SHARED}" if state.state == "FAILED" else ""
    return f": {said}" if said else ""
