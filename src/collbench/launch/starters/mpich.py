"""MPICH: hydra's manual launcher prints a line for each proxy that is to be started, and waits for them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from collbench.launch.starters.starter import Argv, Request, Starter

_LAUNCH = re.compile(r"HYDRA_LAUNCH: (?P<shell>.*--proxy-id (?P<number>\d+).*)")
_CONFIGURATION = re.compile(r"UCX +INFO .*(?P<where>self|intra-node|inter-node) cfg#\d+ tag\((?P<lanes>[^)]*)\)")
#: What the variables below make MPICH and UCX print.
_OWN = re.compile(r"UCX +INFO|^HYDRA_LAUNCH")


def local(ranks: int, crowded: bool, program: Argv) -> Argv:
    """All ranks here; they bind themselves."""
    return ("mpiexec", "-launcher", "fork", "-bind-to", "none", "-n", str(ranks), *program)


def across(hosts: tuple[tuple[str, int], ...], program: Argv) -> Argv:
    """Some ranks on each host, in order; each rank has the environment of its container, not of the first one."""
    listed = ",".join(f"{name}:{ranks}" for name, ranks in hosts)
    total = str(sum(ranks for _, ranks in hosts))
    return ("mpiexec", "-launcher", "manual", "-genvnone", "-bind-to", "none", "-hosts", listed, "-n", total, *program)


def asks(line: str, hosts: tuple[str, ...]) -> Request | None:
    """The proxy with number N belongs on the N-th host."""
    match = _LAUNCH.match(line)
    if match is None or int(match["number"]) >= len(hosts):
        return None
    return Request(hosts[int(match["number"])], match["shell"])


def transport(log: Iterable[str]) -> str | None:
    """UCX's lanes to other ranks: `tag(sysv/memory cma/memory)`; MPICH's own shared memory needs no UCX."""
    found = [match for line in log if (match := _CONFIGURATION.search(line))]
    lanes = dict.fromkeys(f"ucx {match['where']} {match['lanes']}" for match in found if match["where"] != "self")
    if lanes:
        return "; ".join(lanes)
    return "ch4:shm (posix, cma)" if found else None


STARTER = Starter(
    vendor="mpich",
    local=local,
    across=across,
    asks=asks,
    relays=False,
    environment={"UCX_LOG_LEVEL": "info"},
    one_hostname={},
    without_cma={"MPIR_CVAR_CH4_CMA_ENABLE": "0"},  # else it aborts from 64 KiB on
    transport=transport,
    quiet=lambda line: _OWN.search(line) is not None,
)
