"""Which ranks may use the same cores, and how many threads that leaves each."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.machine.facts import RankFacts, format_cores, is_oversubscribed
from collbench.run.shape import shared_core
from collbench.units import counted


def sharing(ranks: Sequence[RankFacts], rank: int) -> tuple[int, ...]:
    """The ranks of its machine that may use a core of this rank, itself among them."""
    own = ranks[rank]
    return tuple(
        number
        for number, other in enumerate(ranks)
        if other.kernel_id == own.kernel_id and other.physical & own.physical
    )


def threads_of(ranks: Sequence[RankFacts], rank: int) -> int:
    """Its part of the cores that it shares, at least 1; all of its cores where a launcher bound it to its own."""
    return max(1, len(ranks[rank].physical) // len(sharing(ranks, rank)))


def siblings(ranks: Sequence[RankFacts]) -> tuple[str, ...]:
    """A note on the first two ranks whose processors differ and are hardware threads of one core."""
    owner: dict[tuple[str, int], int] = {}
    for number, rank in enumerate(ranks):
        for core in sorted(rank.physical):
            other = owner.setdefault((rank.kernel_id, core), number)
            if not rank.cores & ranks[other].cores:
                return (shared_core(other, number, core, rank),)
    return ()


def notes(ranks: Sequence[RankFacts]) -> tuple[str, ...]:
    """Cores that ranks share although there are enough for each: their launcher bound none of them."""
    shared: dict[tuple[int, ...], str] = {}
    if not is_oversubscribed(list(ranks)):
        for number, rank in enumerate(ranks):
            if len(group := sharing(ranks, number)) > 1:
                threads = counted(threads_of(ranks, number), "thread")
                shared.setdefault(group, f"cores {rank.binding}, because their launcher binds none: each has {threads}")
    return tuple(f"ranks {format_cores(group)} share {what} (threads=0)" for group, what in shared.items())
