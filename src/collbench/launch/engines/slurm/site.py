"""The table [slurm] of a site file."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import msgspec

from collbench.errors import PlanError, suggestion
from collbench.launch.engines.slurm.options import RUNTIMES, measured_options, own_options, seconds_of
from collbench.launch.site import read_site, refuse_libraries, refuse_sizes, refuse_variables

#: `--partition=gpu`, `-pgpu`, or without the name, which is the next word.
_PARTITION = re.compile(r"(?:--partition(?:=|$)|-p)(?P<name>.*)")


class ServerNodes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nodes that parameter servers have to themselves. `options` are given to sbatch for them; None: as for all."""

    options: tuple[str, ...] | None = None


class SlurmSite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What Slurm needs to know of a cluster.

    `folder` is one that every node and the driver see under one path. `cores` and `gpus` are those of a node. `runtime`
    starts containers, of `images` by the names in plans: files or references, as the runtime spells them.
    `environments` are Python environments by the same names, for policy `host`. `mpi` is the type of PMI by library,
    `libraries` the library by image where its name does not say it. `options` are given to sbatch, `setup` are lines of
    shell before everything else, `variables` are set for every rank. `time` limits the job (as Slurm spells it).
    `servers` are the nodes of parameter servers, where these have a host to themselves.
    """

    folder: str
    cores: int
    gpus: int = 0
    runtime: str = "none"
    images: dict[str, str] = {}
    environments: dict[str, str] = {}
    libraries: dict[str, str] = {}
    mpi: dict[str, str] = {}
    options: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    variables: dict[str, str] = {}
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
    refuse_sizes(f"site {path}", site.cores, site.gpus)
    for name, environment in site.environments.items():
        if not Path(environment).is_absolute():
            raise PlanError(f"site {path}: environments: {name} {environment!r}: must be an absolute path.")
    refuse_libraries(f"site {path}: mpi", site.mpi)
    refuse_libraries(f"site {path}: libraries", site.libraries.values())
    refuse_variables(f"site {path}", site.variables)
    options = (*site.options, *site.of_servers)
    for option in options:
        if not option.startswith("-") or "\n" in option:
            raise PlanError(f"site {path}: option {option!r}: is no flag of sbatch. Write --partition=gpu, say.")
    for option, instead in own_options(options):
        raise PlanError(f"site {path}: option {option!r}: collbench sets it itself. Use {instead}.")
    try:
        seconds_of(site.time)
    except ValueError as error:
        raise PlanError(
            f"site {path}: time {site.time!r}: is none that Slurm reads. Write minutes, minutes:seconds, "
            "hours:minutes:seconds, days-hours or days-hours:minutes:seconds, such as 2:00:00."
        ) from error
    return site
