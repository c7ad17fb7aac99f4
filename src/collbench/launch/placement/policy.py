"""What a policy is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """`groups(ranks, k)` are the ranks of each container, in order; `k` is the number in `packed:K`, else 0.

    `in_containers` is False for the host. `server_apart`: a parameter server has a container of its own.
    """

    name: str
    summary: str
    groups: Callable[[int, int], tuple[tuple[int, ...], ...]]
    in_containers: bool = True
    server_apart: bool = False
