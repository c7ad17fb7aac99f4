"""`collbench doctor --on slurm`: what would spoil a launch on a cluster, before a job waits in its queue."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import msgspec

from collbench.doctor.cluster import examined, said, slurm_node
from collbench.doctor.parts.finding import Finding, Problem, Severity
from collbench.errors import EngineError
from collbench.launch import launchers
from collbench.launch.engines.slurm import job as jobs
from collbench.launch.engines.slurm.script import Resources, job_script
from collbench.launch.engines.slurm.site import SlurmSite, read, seconds_of
from collbench.machine.launcher import PMI
from collbench.units import counted

_FIX = "ask again, or ask who runs the site"

_PROGRAMS = ("sbatch", "srun", "scontrol", "squeue", "scancel", "sinfo")

#: The types of PMI that each library can use, by how their names begin: pmix_v4 is one of pmix.
_FITTING = {"openmpi": ("pmix",), "mpich": ("pmi2", "pmi1", "pmix", "cray")}


def examine(address: str) -> Iterator[tuple[str, Finding]]:
    """Every check by its name, one after the other; the last ones need nodes.

    Without Slurm the others are not made, and without a folder or a job that it takes not those of nodes.

    Raises:
        PlanError: the site file cannot be read.
    """
    site = read(address)
    clients = _clients()
    yield "clients", clients
    if clients.problems:
        return
    yield "mpi", examined(lambda: _mpi(site), _FIX)
    yield "nodes", examined(lambda: _nodes(site), _FIX)
    yield "time", examined(lambda: _time(site), _FIX)
    job = examined(lambda: _job(site), _FIX)
    yield "job", job
    with slurm_node.folder_in(site) as (folder, finding):
        yield "folder", finding
        if folder is not None and not job.problems:
            yield from slurm_node.examine(site, address, folder)


def _clients() -> Finding:
    try:
        version = jobs.version()
        for program in _PROGRAMS:
            jobs.ask(program, "--version")
    except EngineError as error:
        problem = Problem("fail", str(error), "nothing can be submitted from here", "run this on a login node")
        return Finding("none here", (problem,))
    return Finding(version)


def _used(site: SlurmSite) -> set[str]:
    """The libraries that images and environments of the site stand for."""
    known = {image: site.libraries.get(image) or next((name for name in launchers.names() if name in image), "")
             for image in (*site.images, *site.environments)}  # fmt: skip
    return set(known.values()) | set(site.mpi)


def _mpi(site: SlurmSite) -> Finding:
    listed = jobs.ask("srun", "--mpi=list").split()
    if not listed:
        raise EngineError("engine slurm: srun --mpi=list prints nothing")
    used = _used(site)
    wanted = {library: site.mpi.get(library, kind) for library, kind in PMI.items()}
    problems = [problem for library, kind in wanted.items()
                for problem in _of_type(library, kind, listed, "fail" if library in used else "warn")]  # fmt: skip
    return Finding(", ".join(f"{library} by {kind}" for library, kind in wanted.items()), tuple(problems))


def _of_type(library: str, kind: str, listed: list[str], severity: Severity) -> Iterator[Problem]:
    effect = f"ranks of {library} become worlds of one rank, or abort"
    if kind not in listed:
        yield Problem(severity, f"srun --mpi=list does not name {kind}", effect,
                      f"mpi = {{ {library} = ... }} in the site file, or ask for Slurm's plug-in {kind}")  # fmt: skip
    elif not kind.startswith(_FITTING[library]):
        yield Problem(severity, f"{library} does not join a world by {kind}", effect,
                      f'mpi = {{ {library} = "{PMI[library]}" }} in the site file')  # fmt: skip


def _nodes(site: SlurmSite) -> Finding:
    said = jobs.ask("sinfo", "--noheader", "--Node", *site.partitions, "--format=%N %c").splitlines()
    cores = {words[0]: int(words[1]) for line in said if len(words := line.split()) == 2}
    sizes = sorted(set(cores.values()))
    seen = (f"{counted(len(cores), 'node')} with {' or '.join(map(str, sizes)) or 'no'} "
            f"{'core' if sizes == [1] else 'cores'}")  # fmt: skip
    if not sizes or sizes[-1] >= site.cores:
        return Finding(seen)
    problem = Problem("fail", f"the site file says cores = {site.cores}, and the largest node has {sizes[-1]}",
                      "the job is rejected", f"cores = {sizes[-1]}")  # fmt: skip
    return Finding(seen, (problem,))


def _time(site: SlurmSite) -> Finding:
    """Slurm may take a job that is longer than its partition allows, and never begin it."""
    said = [line.split() for line in jobs.ask("sinfo", "--noheader", *site.partitions, "--format=%P %l").splitlines()]
    limits = {words[0]: words[1] for words in said if len(words) == 2}
    if not site.partitions:
        limits = {name: limit for name, limit in limits.items() if name.endswith("*")} or limits
    longest = max(limits.values(), key=_seconds, default="infinite")
    seen = f"time {site.time}, and the partition allows {longest}"
    if _seconds(site.time) <= _seconds(longest):
        return Finding(seen)
    names = ", ".join(name.rstrip("*") for name in limits)
    problem = Problem("fail", f"partition {names} allows {longest}, and the site file says time = {site.time}",
                      "the job never begins", f'time = "{longest}"')  # fmt: skip
    return Finding(seen, (problem,))


def _seconds(time: str) -> float:
    """A limit (s); infinite where there is none, or Slurm does not say it."""
    try:
        return seconds_of(time) or math.inf
    except ValueError:
        return math.inf


def _job(site: SlurmSite) -> Finding:
    """What sbatch would say of jobs that ask for ever more, so that a rejection names what it is about."""
    servers = _of_servers(site)
    asked: tuple[tuple[str, SlurmSite, Resources], ...] = (
        ("options, time", site, Resources(1, 1, 1, 0)),
        *((("servers", servers, Resources(1, 1, 1, 0)),) if servers else ()),
        (f"cores = {site.cores}", site, Resources(1, 1, site.cores, 0)),
        *(((f"gpus = {site.gpus}", site, Resources(1, 1, 1, site.gpus)),) if site.gpus else ()),
    )
    for what, of, needs in asked:
        text = job_script("collbench-doctor", Path(site.folder), of, needs)
        try:
            jobs.ask("sbatch", "--test-only", text=text)
        except EngineError as error:
            problem = Problem("fail", said(error), "the job is rejected", f"{what} in the site file")
            return Finding("sbatch --test-only rejects it", (problem,))
    return Finding("sbatch --test-only takes it")


def _of_servers(site: SlurmSite) -> SlurmSite | None:
    """The site as the nodes of servers have it, where they have options of their own."""
    return None if site.servers.options is None else msgspec.structs.replace(site, options=site.of_servers)
