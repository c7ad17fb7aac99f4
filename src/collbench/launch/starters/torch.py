"""torch.distributed: torchrun where all ranks are in one place; across containers each rank is started directly.

It needs no launcher: rank, size and one address, in the variables that torchrun sets.
"""

from __future__ import annotations

from collections.abc import Iterable

from collbench.launch.starters.starter import Argv, Starter

#: Where rank 0 listens; every launch has a network of its own, so it is free.
PORT = "29400"


def local(ranks: int, crowded: bool, program: Argv) -> Argv:
    """torchrun, on an address that it finds itself."""
    return ("torchrun", "--standalone", "--nproc-per-node", str(ranks), "--no-python", *program)


def across(hosts: tuple[tuple[str, int], ...], program: Argv) -> Argv:
    """The program itself; `direct` says with which variables, and where."""
    return program


def direct(hosts: tuple[tuple[str, int], ...]) -> tuple[tuple[str, dict[str, str]], ...]:
    """For each rank its container and its variables."""
    size = sum(ranks for _, ranks in hosts)
    found: list[tuple[str, dict[str, str]]] = []
    for name, ranks in hosts:
        for local_rank in range(ranks):
            place = {"RANK": str(len(found)), "LOCAL_RANK": str(local_rank), "WORLD_SIZE": str(size)}
            found.append((name, place | {"MASTER_ADDR": hosts[0][0], "MASTER_PORT": PORT}))
    return tuple(found)


def transport(log: Iterable[str], boxes: tuple[int, ...]) -> str | None:
    """The session tells: gloo talks TCP."""
    return None


STARTER = Starter(
    vendor="torch",
    local=local,
    across=across,
    transport=transport,
    quiet=lambda line: "OMP_NUM_THREADS" in line or not line.strip("* "),
    direct=direct,
)
