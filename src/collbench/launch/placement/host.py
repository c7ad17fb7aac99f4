"""Policy `host`: no container: the ranks run on the host."""

from __future__ import annotations

from collbench.launch.placement.policy import Policy

POLICY = Policy(
    "host",
    "no container: the ranks run on the host",
    lambda ranks, k, topology: (tuple(range(len(ranks))),),
    in_containers=False,
)
