"""Policy `single`: a container for every rank."""

from __future__ import annotations

from collbench.launch.placement.policy import Policy

POLICY = Policy(
    "single",
    "a container for every rank",
    lambda ranks, k: tuple((rank,) for rank in range(ranks)),
    server_apart=True,
)
