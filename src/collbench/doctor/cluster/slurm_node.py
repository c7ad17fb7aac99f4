"""What the nodes of a cluster see, in a job as a launch submits it: the folder, images, environments, and their MPI."""

from __future__ import annotations

import contextlib
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from collbench.doctor.cluster import said
from collbench.doctor.parts.finding import Finding, Problem
from collbench.errors import CollbenchError, EngineError
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.slurm import (
    ANSWERED,
    LABEL,
    answers_in,
    answers_of,
    contents_of,
    nodes_in,
    one_on_each,
    run_step,
    title_of,
)
from collbench.launch.engines.slurm import job as jobs
from collbench.launch.engines.slurm.job import SlurmJob, of_srun, submitted, wait_for_nodes
from collbench.launch.engines.slurm.script import Resources, StepOf, job_script, python_of, step_script, variables_of
from collbench.launch.engines.slurm.site import RUNTIMES, SlurmSite, seconds_of
from collbench.launch.expansion import expand, launcher_of
from collbench.launch.launchers import PROCESS, RankLauncher
from collbench.launch.placement import Placement
from collbench.launch.stacks import nodes_of
from collbench.launch.waiting import Log
from collbench.schema.plan import LaunchPlan
from collbench.units import counted

#: Longest waits (s): for nodes, because a queue may be full, and then nothing is known; for what a node says of itself
#: and of an image, which may be unpacked first; and for the ranks of an MPI to meet.
QUEUE, LOOK, HELLO = 60.0, 120.0, 60.0

#: Longest time of the job, as Slurm spells it.
TIME = "10"

#: What a node prints in a task: what becomes of files in the folder `$0`, and how many cores the task may use.
_TASK = """\
if ! test -d "$0"; then seen=unshared
elif touch "$0/$(uname -n)" 2>/dev/null; then seen=writable
else seen=missing; fi
echo $seen $(nproc)"""


@contextlib.contextmanager
def folder_in(site: SlurmSite) -> Iterator[tuple[Path | None, Finding]]:
    """A folder in that of the site for as long as this lasts; None where none can be made."""
    parent = Path(site.folder)
    try:
        parent = next(folder for folder in (parent, *parent.parents) if folder.is_dir())
        made = Path(tempfile.mkdtemp(prefix="collbench-doctor-", dir=parent))
    except OSError as error:
        problem = Problem("fail", f"{parent} cannot be written to: {error.strerror}", "no launch can leave its records",
                          "folder in the site file: one that you can write to")  # fmt: skip
        yield None, Finding(site.folder, (problem,))
        return
    try:
        yield made, Finding(f"{site.folder} can be written to here")
    finally:
        shutil.rmtree(made, ignore_errors=True)


@dataclass(frozen=True)
class Software:
    """An image or an environment as a launch would start it: a plan with one world over all nodes of the job."""

    plan: LaunchPlan
    cell: LaunchCell
    placement: Placement
    launcher: RankLauncher


class _Busy(EngineError):
    """The queue is full: nothing is known of the nodes."""


def examine(site: SlurmSite, address: str, folder: Path) -> Iterator[tuple[str, Finding]]:
    """What as many nodes see as are idle, in one job: themselves, what they hold, and whether their ranks meet."""
    job: SlurmJob | None = None
    end = time.monotonic() + QUEUE

    def check() -> None:
        if job is not None and time.monotonic() > end and not nodes_in(job.folder):
            raise _Busy(f"no node within {QUEUE:g} s: job {job.number}: {job.state.text}")

    try:
        job = _submitted(site, folder / "job")
        wait_for_nodes(job, check)
        nodes = nodes_in(job.folder)
        yield "node", _seen(site, address, job, len(nodes), check)
        software, sound = _looked_at(site, address, job, len(nodes), check)
        yield "software", software
        if sound:
            yield "ranks", _met(site, job, nodes, sound, check)
    except EngineError as error:
        busy = isinstance(error, _Busy)
        problem = Problem("unknown" if busy else "fail", said(error), "a launch may wait as long" if busy else
                          "a launch fails in the same way", "ask again, or ask who runs the site")  # fmt: skip
        yield "node", Finding("not known", (problem,))
    finally:
        if job is not None:
            job.end()


def _submitted(site: SlurmSite, folder: Path) -> SlurmJob:
    """A job for all nodes that are idle now; for fewer where options of the site do not allow so many."""
    time = site.time if (site.seconds or math.inf) < (seconds_of(TIME) or 0) else TIME
    short, number = msgspec.structs.replace(site, time=time), _idle(site)
    while True:
        needs = Resources(number, min(2, site.cores), 1, site.gpus)
        script = job_script("collbench-doctor", folder, short, needs)
        try:
            jobs.ask("sbatch", "--test-only", text=script)
            return submitted(script, folder)
        except EngineError:
            if number == 1:
                raise
            number //= 2


def _idle(site: SlurmSite) -> int:
    """How many nodes of the partition are idle, of those that one job may have; at least 1."""
    rows = [line.split() for line in jobs.ask("sinfo", "--noheader", "--states=idle", *site.partitions,
                                                "--format=%P %D %s").splitlines()]  # fmt: skip
    rows = [words for words in rows if len(words) == 3]
    if not site.partitions:
        rows = [words for words in rows if words[0].endswith("*")] or rows
    sizes = [(int(words[1]), words[2].rpartition("-")[2]) for words in rows]
    return max(1, *(min(idle, int(most)) if most.isdecimal() else idle for idle, most in sizes), 1)


def _planned(site: SlurmSite, address: str, name: str, contained: bool, nodes: int) -> Software:
    """An image or environment in one world with a rank on each node; of one node with two, where it has the cores.

    Raises:
        PlanError: neither its name nor the site says which library it holds.
    """
    ranks = 1 if nodes > 1 else min(2, site.cores)
    policy = RUNTIMES[site.runtime].policies[0] if contained else "host"
    plan = LaunchPlan(images=(name,), policies=(policy,), collectives=("allreduce",), sizes=("8",), ranks=(ranks,),
                      launches=1, engine="slurm", site=address)  # fmt: skip
    launcher = launcher_of(name, site.libraries, plan)
    if launcher.vendor == "torch":
        plan = msgspec.structs.replace(plan, backends=("torch-gloo",))
    ((cell, placement),) = expand(plan).placements.items()
    if nodes > 1:
        cell, placement = one_on_each({cell: placement}, nodes)
    return Software(plan, cell, placement, launcher)


def _seen(site: SlurmSite, address: str, job: SlurmJob, nodes: int, check: Callable[[], None]) -> Finding:
    """The folder and the cores, as a task on each node sees them."""
    any_one = _planned(site, address, "openmpi", False, nodes)
    where = one_on_each({any_one.cell: any_one.placement}, nodes)
    asked = StepOf("nodes", *where, PROCESS, {}, run=ANSWERED)
    answers = answers_of(job, asked, site, ("sh", "-c", _TASK, str(job.folder)), check, "the nodes", LOOK)
    words = {one.node: (*" ".join(one.lines).split(), "", "")[:2] for one in answers}
    cores = sorted({cores for _, cores in words.values()}, key=lambda number: (len(number), number))
    problems = []
    for word, what in (("unshared", "does not see what is written to"), ("missing", "cannot write to")):
        if bad := [node for node, (said, _) in words.items() if said == word]:
            problems.append(
                Problem("fail", f"{nodes_of(bad, nodes)} {what} {site.folder}", "no launch can leave its records",
                        "folder in the site file: one that every node sees under this path")
            )  # fmt: skip
    return Finding(f"{counted(nodes, 'node')}, with {' or '.join(cores)} {'core' if cores == ['1'] else 'cores'} for a "
                   "task", tuple(problems))  # fmt: skip


def _looked_at(
    site: SlurmSite, address: str, job: SlurmJob, nodes: int, check: Callable[[], None]
) -> tuple[Finding, list[Software]]:
    """What images and environments hold on every node; those that are the same on all of them."""
    names = [(name, False) for name in site.environments]
    names += [(name, True) for name in site.images if site.runtime != "none"]
    problems, sound, held = [], [], []
    for name, contained in names:
        try:
            one = _planned(site, address, name, contained, nodes)
            contents = contents_of(job, site, one.plan, *one_on_each({one.cell: one.placement}, nodes), check, LOOK)
        except CollbenchError as error:
            kind = "images" if contained else "environments"
            problems.append(Problem("fail", said(error), f"launches of {name} are refused",
                                    f"{kind} in the site file: where every node has the same"))  # fmt: skip
        else:
            sound.append(one)
            library = next(iter(contents.libraries), None)
            held.append(
                f"{title_of(one.cell, site)}: {f'{library.name} {library.version}' if library else 'no library'}"
            )
    seen = (
        f"{len(sound)} of {len(names)} the same on {nodes_of(nodes_in(job.folder), nodes)}" if names else "none named"
    )
    return Finding("; ".join((seen, *held)), tuple(problems)), sound


def _met(
    site: SlurmSite, job: SlurmJob, nodes: tuple[str, ...], software: list[Software], check: Callable[[], None]
) -> Finding:
    """Whether the ranks of each library meet: one all-reduce over all nodes, and where that fails on each alone."""
    problems = []
    for one in software:
        title = title_of(one.cell, site)
        code, log = run_step(job, _hello(one, site, one.cell, one.placement), _NAME, check, title, HELLO)
        if code != 0:
            cause = _cause(log, one.launcher) or f"exit code {code}"
            if code is None:
                cause = f"the ranks did not meet within {HELLO:g} s"
            where = _alone(one, site, job, nodes, check) if len(nodes) > 1 else ""
            remedy = f"srun --mpi={one.launcher.pmi} there; mpi and setup in the site file"
            problems.append(Problem("fail", f"{title}: {where or cause}", f"launches of {one.cell.image} fail", remedy))
    ranks = counted(software[0].cell.ranks, "rank")
    return Finding(f"{len(software) - len(problems)} of {len(software)} meet: {ranks} on {counted(len(nodes), 'node')}",
                   tuple(problems))  # fmt: skip


#: Of the steps that start an MPI.
_NAME = "collbench-ranks"


def _hello(one: Software, site: SlurmSite, cell: LaunchCell, placement: Placement) -> str:
    """As a launch would start it: one all-reduce of 8 bytes."""
    argv = (python_of(cell, site), "-m", "collbench", "allreduce", "-b", "8", "-e", "8", "-n", "1", "-w", "0",
            *(("--backend", "torch-gloo") if one.launcher.vendor == "torch" else ()))  # fmt: skip
    variables = variables_of(cell, placement, one.launcher, site)
    return step_script(StepOf(_NAME, cell, placement, one.launcher, variables), site, argv)


def _alone(one: Software, site: SlurmSite, job: SlurmJob, nodes: tuple[str, ...], check: Callable[[], None]) -> str:
    """The nodes on which not even one rank starts, with the cause; all at once. Empty: there are none."""
    text = _hello(one, site, *one_on_each({one.cell: one.placement}, 1))
    on_node = {node: text.replace("exec srun ", f"exec srun --nodelist={node} ", 1) for node in nodes}
    steps = [f"{{ (\n{step}) 2>&1; printf '\\nexit %d\\n' $?; }} | {LABEL.format(node=node)} &\n"
             for node, step in on_node.items()]  # fmt: skip
    code, log = run_step(job, f"{''.join(steps)}wait\n", _NAME, check, title_of(one.cell, site), HELLO)
    answers, _ = answers_in(log.lines)
    late = f"no answer within {HELLO:g} s"
    causes: dict[str, tuple[str, ...]] = dict.fromkeys(nodes, (late,))
    for answer in answers:
        if answer.code is not None:
            silent = late if code is None else f"exit code {answer.code}"
            causes[answer.node] = (answer.lines or (silent,)) if answer.code else ()
    groups: dict[str, list[str]] = {}
    for node, lines in causes.items():
        if lines:
            groups.setdefault(_cause(_log_of(lines), one.launcher) or lines[-1], []).append(node)
    if not groups:
        return ""
    return "; ".join(f"{nodes_of(bad, len(nodes))}: {cause}" for cause, bad in list(groups.items())[:3])


def _log_of(lines: Iterable[str]) -> Log:
    log = Log()
    for line in lines:
        log.add(True, line)
    return log


def _cause(log: Log, launcher: RankLauncher) -> str:
    """What collbench says, or srun, or the library."""
    return (log.message.removeprefix(": ") or of_srun(log.lines)
            or log.library_message(launcher.quiet).removeprefix(": "))  # fmt: skip
