"""How NCCL is told that several ranks share a GPU on purpose."""

from __future__ import annotations

#: From this version on, several ranks may share a GPU when told so; before, they must seem to be on different hosts,
#: and go through the network.
_SHARES = (2, 30, 0)


def share_variables(version: tuple[int, ...], rank: int) -> dict[str, str]:
    """Environment variables for a rank, before its first communicator."""
    if version >= _SHARES:
        return {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    return {"NCCL_HOSTID": f"collbench-{rank}"}
