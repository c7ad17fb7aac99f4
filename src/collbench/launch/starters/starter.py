"""A starter: how a library starts its ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

Argv = tuple[str, ...]


@dataclass(frozen=True)
class Request:
    """A daemon that the launcher inside asks us to start on a host: `shell` text, as ssh would be given it."""

    host: str
    shell: str


@dataclass(frozen=True)
class Starter:
    """A library's commands. The defaults are those of a program that needs no launcher and says nothing of itself.

    `local(ranks, crowded, program)` starts all ranks where it runs. `across(hosts, program)` runs in the first box and
    asks for daemons in the others: by lines that `asks` recognises (it gets the line and the hosts), or through the
    relay folder (`relays`). `environment` makes the library say how it moves bytes; `transport` reads that (it gets the
    log and the numbers of ranks in each box), and `quiet` recognises such lines. `verbose` names those of its variables
    that one rank of each host needs: the output of all would grow with the world. `attach` names the calls by which it
    reads another rank's memory; where one is refused `without_cma` is set, and where containers share a hostname
    `one_hostname`, and where they have the host's network also `host_network`: without them the library aborts, or
    hangs. `shm_folder` is the variable that names the folder of its shared memory, where it names the files in it by
    the hostname: containers that share hostname and /dev/shm each get a folder of their own. `shm_per_rank`: bytes of
    /dev/shm that it takes for each rank of a box. Where a library needs no launcher, `direct` gives each rank's
    container and variables, and `across` is what each of them runs. `pmi` is the type that srun is asked for, and
    `task` what each of its tasks sets for its rank, as a shell expands it. `over_ssh(hostfile, ranks, program)` starts
    ranks on the hosts of a file, by ssh alone, and `operator` is the library's name to Kubernetes' MPI Operator; empty:
    it needs none.
    """

    vendor: str
    local: Callable[[int, bool, Argv], Argv] = lambda ranks, crowded, program: program
    across: Callable[[tuple[tuple[str, int], ...], Argv], Argv] = lambda hosts, program: program
    transport: Callable[[Iterable[str], tuple[int, ...]], str | None] = lambda log, boxes: None
    quiet: Callable[[str], bool] = lambda line: False
    asks: Callable[[str, tuple[str, ...]], Request | None] = lambda line, hosts: None
    relays: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    verbose: tuple[str, ...] = ()
    attach: frozenset[str] = frozenset()
    without_cma: Mapping[str, str] = field(default_factory=dict)
    one_hostname: Mapping[str, str] = field(default_factory=dict)
    host_network: Mapping[str, str] = field(default_factory=dict)
    shm_folder: str = ""
    shm_per_rank: int = 0
    direct: Callable[[tuple[tuple[str, int], ...]], tuple[tuple[str, dict[str, str]], ...]] | None = None
    pmi: str = "none"
    task: Mapping[str, str] = field(default_factory=dict)
    over_ssh: Callable[[str, int, Argv], Argv] = lambda hostfile, ranks, program: program
    operator: str = ""


#: One process, without a launcher or a library: what programs that are measured on one rank need.
PROCESS = Starter(vendor="process")


def started_by_engine(starter: Starter) -> Starter:
    """The same library where the engine starts every rank: the program is the command, and no daemon is asked for."""
    return replace(
        starter, local=PROCESS.local, across=PROCESS.across, relays=False, asks=PROCESS.asks,
        direct=lambda hosts: ((hosts[0][0], {}),),
    )  # fmt: skip
