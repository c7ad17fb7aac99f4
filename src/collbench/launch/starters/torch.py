"""torch.distributed: torchrun where all ranks are in one place; across containers each rank is started directly.

It needs no launcher: rank, size and one address, in the variables that torchrun sets.
"""

from __future__ import annotations

import zlib

from collbench.launch.starters.starter import Argv, Starter

#: Where rank 0 listens: the first of `PORTS`, all below those that systems give to whoever asks for any (32768 on). A
#: launch in the host's network has no ports of its own: it takes one by the names of its containers, or by its number
#: among the steps of a Slurm job, two of which can run on one node.
PORT, PORTS = "29400", 3000


def local(ranks: int, crowded: bool, program: Argv) -> Argv:
    return ("torchrun", "--standalone", "--nproc-per-node", str(ranks), "--no-python", *program)


def direct(hosts: tuple[tuple[str, int], ...]) -> tuple[tuple[str, dict[str, str]], ...]:
    """For each rank its container and its variables."""
    port = int(PORT) + zlib.crc32(" ".join(name for name, _ in hosts).encode()) % PORTS
    size = sum(ranks for _, ranks in hosts)
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": hosts[0][0], "MASTER_PORT": str(port)}
    places = [(name, local_rank) for name, ranks in hosts for local_rank in range(ranks)]
    return tuple(
        (name, {"RANK": str(rank), "LOCAL_RANK": str(local_rank), **shared})
        for rank, (name, local_rank) in enumerate(places)
    )


STARTER = Starter(
    vendor="torch",
    local=local,
    quiet=lambda line: "OMP_NUM_THREADS" in line or not line.strip("* "),
    direct=direct,
    task={
        "RANK": "$SLURM_PROCID",
        "LOCAL_RANK": "$SLURM_LOCALID",
        "WORLD_SIZE": "$SLURM_STEP_NUM_TASKS",
        "MASTER_ADDR": "$FIRST_NODE",
        "MASTER_PORT": f"$(({PORT} + SLURM_STEP_ID % {PORTS}))",
    },
)
