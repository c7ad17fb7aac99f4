"""`collbench doctor --on slurm`: what would spoil a launch on a cluster, before a job waits in its queue."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from collbench.doctor.parts.finding import Finding, Problem
from collbench.errors import EngineError
from collbench.launch.engines.slurm import client
from collbench.launch.engines.slurm.runtimes import RUNTIMES
from collbench.launch.engines.slurm.site import SlurmSite, read
from collbench.machine.launcher import PMI
from collbench.units import counted

#: Longest wait for a node (s): a queue may be full, and then nothing is known.
NODE = 60

_PROGRAMS = ("sbatch", "srun", "scontrol", "squeue", "scancel")

#: What two tasks of a node print, each on one line: rank by PMI and by Slurm, whether the folder can be written to, how
#: many cores they may use, and whether the runtime's program is there.
_TASK = ('echo "task ${PMI_RANK:-none} $SLURM_PROCID $(test -w %s && echo writable || echo missing) $(nproc) '
         '$(command -v %s >/dev/null && echo there || echo absent)"')  # fmt: skip

_LINE = re.compile(r"task (?P<pmi>\S+) (?P<slurm>\d+) (?P<folder>\w+) (?P<cores>\d+) (?P<runtime>\w+)")


def examine(address: str) -> Iterator[tuple[str, Finding]]:
    """Every check by its name, one after the other; the last one needs a node.

    Raises:
        PlanError: the site file cannot be read.
    """
    site = read(address)
    yield "clients", _clients()
    yield "mpi", _examined(lambda: _mpi(site))
    yield "nodes", _examined(lambda: _nodes(site))
    yield "folder", _folder(site)
    yield "node", _examined(lambda: _node(site))


def _examined(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except EngineError as error:
        said = str(error).removeprefix("engine slurm: ")
        return Finding(
            "not known", (Problem("unknown", said, "a launch may fail", "ask again, or ask who runs the site"),)
        )


def _clients() -> Finding:
    try:
        version = client.version()
        for program in _PROGRAMS:
            client.ask(program, "--version")
    except EngineError as error:
        problem = Problem("fail", str(error), "nothing can be submitted from here", "run this on a login node")
        return Finding("none here", (problem,))
    return Finding(version)


def _mpi(site: SlurmSite) -> Finding:
    listed = client.ask("srun", "--mpi=list").split()
    wanted = {library: site.mpi.get(library, kind) for library, kind in PMI.items()}
    lacking = {library: kind for library, kind in wanted.items() if kind not in listed}
    if not lacking:
        return Finding(", ".join(f"{library} by {kind}" for library, kind in wanted.items()))
    problems = tuple(
        Problem("warn", f"srun --mpi=list does not name {kind}", f"ranks of {library} become worlds of one rank",
                f"mpi = {{ {library} = ... }} in the site file, or ask for Slurm's plug-in {kind}")
        for library, kind in lacking.items()
    )  # fmt: skip
    return Finding(f"no {', '.join(lacking.values())}", problems)


def _nodes(site: SlurmSite) -> Finding:
    found = client.ask("sinfo", "--noheader", "--format=%D %c %t").split("\n")
    sizes = {int(words[1].rstrip("+")) for line in found if len(words := line.split()) == 3}
    number = sum(int(line.split()[0]) for line in found if line.strip())
    seen = f"{counted(number, 'node')} of {', '.join(map(str, sorted(sizes)))} cores"
    if not sizes or max(sizes) >= site.cores:
        return Finding(seen)
    problem = Problem("fail", f"the site file says cores = {site.cores}, and the largest node has {max(sizes)}",
                      "the job is rejected", f"cores = {max(sizes)}")  # fmt: skip
    return Finding(seen, (problem,))


def _existing(site: SlurmSite) -> Path:
    """The folder of the site, or the first above it that is there."""
    return next(folder for folder in (Path(site.folder), *Path(site.folder).parents) if folder.is_dir())


def _folder(site: SlurmSite) -> Finding:
    parent = _existing(site)
    if os.access(parent, os.W_OK):
        return Finding(f"{site.folder} can be written to here")
    problem = Problem(
        "fail", f"{parent} cannot be written to", "no launch can leave its records", "folder in the site file"
    )
    return Finding(site.folder, (problem,))


def _node(site: SlurmSite) -> Finding:
    """Two tasks on one node, as a launch would start them with MPICH's PMI."""
    parent = _existing(site)
    program = {"charliecloud": "ch-run", "apptainer": "apptainer"}.get(site.runtime, "sh")
    pmi = site.mpi.get("mpich", PMI["mpich"])
    options = [option for option in site.options if not option.startswith(("--output", "--error"))]
    tasks = min(2, site.cores)
    said = client.ask(
        "srun", f"--immediate={NODE}", "--nodes=1", f"--ntasks={tasks}", "--time=2", f"--mpi={pmi}",
        *options, "sh", "-c", _TASK % (parent, program), limit=NODE + client.ANSWER,
    )  # fmt: skip
    lines = [match.groupdict() for match in map(_LINE.match, said.splitlines()) if match]
    if len(lines) != tasks:
        raise EngineError(f"{counted(len(lines), 'task')} of {tasks} answered")
    problems = tuple(_problems(site, parent, program, lines))
    cores = ", ".join(line["cores"] for line in lines)
    return Finding(f"{counted(tasks, 'task')} on a node, on {cores} cores", problems)


def _problems(site: SlurmSite, parent: Path, program: str, lines: list[dict[str, str]]) -> Iterator[Problem]:
    for line in lines:
        if line["pmi"] not in ("none", line["slurm"]):
            yield Problem("fail", f"PMI_RANK is {line['pmi']} and SLURM_PROCID is {line['slurm']}",
                          "MPICH hangs in MPI_Init", "export PMI_RANK=$SLURM_PROCID in each task")  # fmt: skip
    if any(line["folder"] != "writable" for line in lines):
        yield Problem("fail", f"a node cannot write to {parent}", "no launch can leave its records",
                      "folder in the site file: one that every node sees under the same path")  # fmt: skip
    if any(line["runtime"] != "there" for line in lines):
        effect = f"runtime {RUNTIMES[site.runtime].name} cannot start containers"
        yield Problem("fail", f"a node does not have {program}", effect,
                      f"setup = [\"module load {site.runtime}\"] in the site file, or install it")  # fmt: skip
