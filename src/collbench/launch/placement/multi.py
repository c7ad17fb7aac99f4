"""Policy `multi`: one container for all ranks."""

from __future__ import annotations

from collbench.launch.placement.policy import Policy

POLICY = Policy("multi", "one container for all ranks", lambda ranks, k, topology: (tuple(range(len(ranks))),))
