"""A cluster as the table [slurm] of a site file describes it, its options of sbatch, and its runtimes of containers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from collbench.errors import PlanError, suggestion
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.spec import Cluster, read_site, refuse_libraries
from collbench.launch.launchers import Argv
from collbench.schema.plan import Plan

_PLAN, _SITE = "in the plan", "in the site file"

#: What collbench asks for itself, by the beginning of the option, and what says it.
_OWN = {
    ("--array", "-a"): f"launches {_PLAN}",
    ("--nodes", "-N"): f"hosts {_PLAN}",
    ("--ntasks", "-n"): f"ranks {_PLAN}",
    ("--cpus-per-task", "-c"): f"cores_per_rank {_PLAN}, and cores {_SITE}",
    ("--gpus", "-G"): f"gpus {_SITE}",
    ("--time", "-t"): f"time {_SITE}",
    ("--output", "-o"): f"folder {_SITE}: the output of the job is read there",
    ("--error", "-e"): f"folder {_SITE}: the output of the job is read there",
    ("--job-name", "-J"): f"title {_PLAN}; the job's name says which run it is",
    ("--requeue",): "collbench launch --resume",
    ("--no-requeue",): "nothing: it is asked for",
    ("--wait", "-W"): "nothing: the job is watched",
    ("--wrap",): f"setup {_SITE}",
    ("--test-only",): "collbench doctor --on slurm",
    ("--parsable",): "nothing: it is asked for",
}

#: Options that begin like one of them, and are others.
_OTHERS = ("--time-min", "--wait-all-nodes")


def _instead_of(option: str) -> str:
    """What says an option that collbench sets itself; empty: it does not.

    `--ntasks` is that of `--ntasks-per-node` too, and `-N` that of `-N2`.
    """
    if option.startswith(_OTHERS):
        return ""
    for beginnings, instead in _OWN.items():
        for beginning in beginnings:
            rest = option.removeprefix(beginning)
            if rest != option and (not beginning.startswith("--") or rest[:1] in ("", "=", " ", "-")):
                return instead
    return ""


#: Where ranks are placed, unless the site says it: one hardware thread of each core; the ranks of a node in order.
_PLACING = {
    "--hint=nomultithread": ("--hint", "--threads-per-core", "--extra-node-info", "-B"),
    "--distribution=block": ("--distribution", "-m"),
}

#: Options that decide who asks, when, and for which nodes, but not what ranks of these nodes find.
_NOT_MEASURED = (
    "--account", "-A", "--qos", "-q", "--partition", "-p", "--reservation", "--comment", "--mail-type", "--mail-user",
    "--wckey", "--begin", "-b", "--deadline", "--dependency", "-d", "--priority", "--nice", "--signal", "--nodelist",
    "-w", "--exclude", "-x", "--export", "--chdir", "-D", "--licenses", "-L", "--clusters", "-M", "--verbose", "-v",
    "--quiet", "-Q", "--get-user-env", "--kill-on-invalid-dep", "--time-min",
)  # fmt: skip

_THREADS = re.compile(r"--hint[= ]multithread|--threads-per-core[= ]([2-9]|\d\d)")


def placing_options(options: Iterable[str]) -> list[str]:
    """What the job and every step are given beside the options of a site."""
    of_site = tuple(options)
    return [option for option, same in _PLACING.items() if not any(_begins(name, same) for name in of_site)]


def uses_threads(options: Iterable[str]) -> bool:
    """Whether a site asks for several hardware threads of a core."""
    return any(_THREADS.match(option) for option in options)


def measured_options(options: Iterable[str]) -> tuple[str, ...]:
    """Those that may change what is measured."""
    return tuple(option for option in options if not _begins(option, _NOT_MEASURED))


def _begins(option: str, names: Iterable[str]) -> bool:
    """Whether an option is one of these: `--hint=x`, `--hint x`, `-Bx`."""
    word = re.split("[= ]", option, maxsplit=1)[0]
    return any(word == name or (not name.startswith("--") and word[:2] == name) for name in names)


#: Minutes; minutes:seconds; hours:minutes:seconds; days-hours; days-hours:minutes; days-hours:minutes:seconds.
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<numbers>\d+(?::\d+){0,2})")


def seconds_of(time: str) -> float | None:
    """A time limit as Slurm reads it (s); None: no limit.

    Raises:
        ValueError: it is none.
    """
    if time.upper() in ("UNLIMITED", "INFINITE"):
        return None
    match = _TIME.fullmatch(time)
    if match is None:
        raise ValueError(time)
    numbers = [int(number) for number in match["numbers"].split(":")]
    if match["days"] is not None:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        hours += 24 * int(match["days"])
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, (minutes, seconds) = 0, (*numbers, 0)[:2]
    return float(3600 * hours + 60 * minutes + seconds) or None


@dataclass(frozen=True)
class Runtime:
    """How a runtime starts a task in a container.

    `flags(image, folder, name)` are given to srun, `prefix(image, folder, ranks)` stands before the command of every
    task; `ranks` are those of a node that share the container, 1: none do. `policies` are those that it can do, and
    `instead` says what can do the others.
    """

    name: str
    policies: tuple[str, ...]
    instead: str
    flags: Callable[[str, str, str], Argv] = lambda image, folder, name: ()
    prefix: Callable[[str, str, int], Argv] = lambda image, folder, ranks: ()


RUNTIMES = {
    runtime.name: runtime
    for runtime in (
        Runtime("none", (), "set runtime in the site file: pyxis, charliecloud or apptainer"),
        Runtime(  # one container for each node and step; its name keeps the unpacked image for other steps of the job
            "pyxis", ("multi",),
            "pyxis gives all tasks of a node one container; charliecloud and apptainer give each its own",
            flags=lambda image, folder, name: (
                f"--container-image={image}", f"--container-mounts={folder}:{folder}", f"--container-name={name}",
                "--no-container-mount-home",
            ),
        ),
        Runtime(
            "charliecloud", ("multi", "single"),
            "it makes one container for each rank, or one for all of a node",
            prefix=lambda image, folder, ranks: (
                "ch-run", *(() if ranks == 1 else ("--join", f"--join-ct={ranks}")), f"--bind={folder}", "--set-env",
                image, "--",
            ),
        ),
        Runtime(
            "apptainer", ("single",),
            "apptainer exec makes a container for each rank; pyxis and charliecloud share one on a node",
            prefix=lambda image, folder, ranks: ("apptainer", "exec", "--bind", folder, image),
        ),
    )
}  # fmt: skip

#: Without it UCX opens the shared memory of another rank through /proc, which containers with user namespaces of their
#: own refuse: MPICH 5.0.2 prints errors, and aborts with two ranks on each of two nodes.
WITHOUT_PROC_LINKS = {"UCX_POSIX_USE_PROC_LINK": "n"}

#: `--partition=gpu`, `-pgpu`, or without the name, which is the next word.
_PARTITION = re.compile(r"(?:--partition(?:=|$)|-p)(?P<name>.*)")


class ServerNodes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nodes that parameter servers have to themselves. `options` are given to sbatch for them; None: as for all."""

    options: tuple[str, ...] | None = None


class SlurmSite(Cluster, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What Slurm needs to know of a cluster.

    `folder` is one that every node and the driver see under one path. `runtime` starts containers, of `images` as the
    runtime spells them: files or references. `environments` are Python environments by the same names, for policy
    `host`. `mpi` is the type of PMI by library. `options` are given to sbatch, `setup` are lines of shell before
    everything else. `time` limits the job (as Slurm spells it). `servers` are the nodes of parameter servers, where
    these have a host to themselves.
    """

    folder: str
    runtime: str = "none"
    environments: dict[str, str] = msgspec.field(default_factory=dict)
    mpi: dict[str, str] = msgspec.field(default_factory=dict)
    options: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    time: str = "2:00:00"
    servers: ServerNodes = ServerNodes()

    @property
    def of_servers(self) -> tuple[str, ...]:
        """What sbatch is given for the nodes of parameter servers."""
        return self.options if self.servers.options is None else self.servers.options

    @property
    def measured(self) -> tuple[str, ...]:
        """The options that may change what is measured; those of servers after their name."""
        of_servers = () if self.servers.options is None else measured_options(self.servers.options)
        return (*measured_options(self.options), *(f"servers {option}" for option in of_servers))

    @property
    def words(self) -> tuple[str, ...]:
        """The options as srun takes them, as words."""
        return tuple(word for option in self.options for word in shlex.split(option))

    @property
    def partitions(self) -> tuple[str, ...]:
        """Those that the options name, as sinfo takes them: `--partition=a,b`; empty: the cluster's usual one."""
        named = ""
        for word, following in zip(self.words, [*self.words[1:], ""], strict=False):
            if match := _PARTITION.fullmatch(word):
                named = match["name"] or following
        return (f"--partition={named}",) if named else ()

    @property
    def seconds(self) -> float | None:
        """Longest time of the job (s); None: without a limit."""
        return seconds_of(self.time)


def read(path: str) -> SlurmSite:
    """The site in a file, checked as far as that takes no cluster.

    Raises:
        PlanError: it cannot be read, or a value makes no sense.
    """
    site = read_site(path, "slurm", SlurmSite)
    if site.runtime not in RUNTIMES:
        raise PlanError(f"site {path}: runtime {site.runtime!r}: unknown. {suggestion(site.runtime, tuple(RUNTIMES))}")
    if not Path(site.folder).is_absolute():
        raise PlanError(f"site {path}: folder {site.folder!r}: must be an absolute path that every node sees.")
    if not site.folder.isprintable():
        raise PlanError(f"site {path}: folder {site.folder!r}: must be one line without control characters.")
    for name, environment in site.environments.items():
        if not Path(environment).is_absolute():
            raise PlanError(f"site {path}: environments: {name} {environment!r}: must be an absolute path.")
    refuse_libraries(f"site {path}: mpi", site.mpi)
    options = (*site.options, *site.of_servers)
    for option in options:
        if not option.startswith("-") or "\n" in option:
            raise PlanError(f"site {path}: option {option!r}: is no flag of sbatch. Write --partition=gpu, say.")
        if instead := _instead_of(option):
            raise PlanError(f"site {path}: option {option!r}: collbench sets it itself. Use {instead}.")
    try:
        seconds_of(site.time)
    except ValueError as error:
        raise PlanError(
            f"site {path}: time {site.time!r}: is none that Slurm reads. Write minutes, minutes:seconds, "
            "hours:minutes:seconds, days-hours or days-hours:minutes:seconds, such as 2:00:00."
        ) from error
    return site


def refuse(plan: Plan, cells: Iterable[LaunchCell], site: SlurmSite) -> None:
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
