"""Policy `single`: a container for every rank."""

from __future__ import annotations

from collbench.launch.placement.policy import Policy

POLICY = Policy(
    "single",
    "a container for every rank",
    lambda ranks, k, topology: tuple((rank,) for rank in range(len(ranks))),
    server_apart=True,
)
