"""Which ranks may use the same cores, and how many threads that leaves each."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.machine.facts import RankFacts, format_cores, is_oversubscribed
from collbench.units import counted


def sharing(ranks: Sequence[RankFacts], rank: int) -> tuple[int, ...]:
    """The ranks of its machine that may use a core of this rank, itself among them."""
    own = ranks[rank]
    return tuple(
        number for number, other in enumerate(ranks) if other.kernel_id == own.kernel_id and other.cores & own.cores
    )


def threads_of(ranks: Sequence[RankFacts], rank: int) -> int:
    """Its part of the cores that it shares, at least 1; all of its cores where a launcher bound it to its own."""
    return max(1, len(ranks[rank].cores) // len(sharing(ranks, rank)))


def notes(ranks: Sequence[RankFacts]) -> tuple[str, ...]:
    """Cores that ranks share although there are enough for each: their launcher bound none of them."""
    shared: dict[tuple[int, ...], str] = {}
    if not is_oversubscribed(list(ranks)):
        for number, rank in enumerate(ranks):
            if len(group := sharing(ranks, number)) > 1:
                threads = counted(threads_of(ranks, number), "thread")
                shared.setdefault(group, f"cores {rank.binding}, because their launcher binds none: each has {threads}")
    return tuple(f"ranks {format_cores(group)} share {what} (threads=0)" for group, what in shared.items())
