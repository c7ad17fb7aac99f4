"""Policy `packed:K`: K ranks in each container; the last may hold fewer."""

from __future__ import annotations

from collbench.launch.placement.policy import Policy


def groups(ranks: int, k: int) -> tuple[tuple[int, ...], ...]:
    """Neighbours by rank share a container."""
    return tuple(tuple(range(first, min(first + k, ranks))) for first in range(0, ranks, k))


POLICY = Policy("packed", "K ranks in each container (packed:K)", groups, server_apart=True)
