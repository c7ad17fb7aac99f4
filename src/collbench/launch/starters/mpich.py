"""MPICH: hydra's manual launcher prints a line for each proxy that is to be started, and waits for them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from collbench.launch.starters.starter import Argv, Request, Starter
from collbench.machine.launcher import PMI

_LAUNCH = re.compile(r"HYDRA_LAUNCH: (?P<shell>.*--proxy-id (?P<number>\d+).*)")
_CONFIGURATION = re.compile(r"UCX +INFO .*(?P<where>self|intra-node|inter-node) cfg#\d+ tag\((?P<lanes>[^)]*)\)")
#: Lines that the variables below make MPICH and UCX print.
_OWN = re.compile(r"UCX +INFO|^HYDRA_LAUNCH")


def local(ranks: int, crowded: bool, program: Argv) -> Argv:
    return ("mpiexec", "-launcher", "fork", "-bind-to", "none", "-n", str(ranks), *program)


def across(hosts: tuple[tuple[str, int], ...], program: Argv) -> Argv:
    """Some ranks on each host, in order; each rank has the environment of its container, not of the first one."""
    listed = ",".join(f"{name}:{ranks}" for name, ranks in hosts)
    total = str(sum(ranks for _, ranks in hosts))
    return ("mpiexec", "-launcher", "manual", "-genvnone", "-bind-to", "none", "-hosts", listed, "-n", total, *program)


def over_ssh(hostfile: str, ranks: int, program: Argv) -> Argv:
    """Proxies call the launcher back by its address, which Kubernetes puts here: its name may not be known yet."""
    return ("mpiexec", "-launcher", "ssh", "-hostfile", hostfile, "-localhost", "$(POD_IP)", "-bind-to", "none",
            "-n", str(ranks), *program)  # fmt: skip


def asks(line: str, hosts: tuple[str, ...]) -> Request | None:
    """The proxy with number N belongs on the N-th host."""
    match = _LAUNCH.match(line)
    if match is None or int(match["number"]) >= len(hosts):
        return None
    return Request(hosts[int(match["number"])], match["shell"])


def transport(log: Iterable[str], boxes: tuple[int, ...]) -> str | None:
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


STARTER = Starter(
    vendor="mpich",
    pmi=PMI["mpich"],
    local=local,
    across=across,
    asks=asks,
    over_ssh=over_ssh,
    operator="MPICH",
    environment={"UCX_LOG_LEVEL": "info"},
    verbose=("UCX_LOG_LEVEL",),
    shm_per_rank=int(5.2 * 2**20),  # 10 MiB for 2 ranks to 82 MiB for 16 (5.0.2)
    attach=frozenset({"process_vm_readv"}),
    without_cma={"MPIR_CVAR_CH4_CMA_ENABLE": "0"},  # else it aborts from 64 KiB on
    transport=transport,
    quiet=lambda line: _OWN.search(line) is not None,
)
