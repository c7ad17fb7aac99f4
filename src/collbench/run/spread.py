"""What a record says of its ranks: each of them, or of a large world its machines and the slowest ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collbench.machine.facts import RankFacts, format_cores
from collbench.schema.ranks import MachineRanks, Ranks, SlowRank
from collbench.schema.samples import ALL_RANKS_LIMIT

#: How many of the slowest ranks are named.
SLOWEST = 5


def ranks_of(p50: Sequence[float], facts: Sequence[RankFacts]) -> Ranks:
    """Of ranks with these medians (s) and facts, by rank."""
    if len(p50) > ALL_RANKS_LIMIT:
        return _of_many(p50, facts)
    gpus = tuple(rank.gpu for rank in facts)
    siblings = tuple(format_cores(cpu for threads in rank.siblings for cpu in threads) for rank in facts)
    return Ranks(
        p50=tuple(p50),
        binding=tuple(rank.binding for rank in facts),
        container=tuple(rank.container for rank in facts),
        gpu=gpus if any(gpus) else (),
        host=tuple(rank.host for rank in facts),
        siblings=siblings if any(siblings) else (),
    )


def _of_many(p50: Sequence[float], facts: Sequence[RankFacts]) -> Ranks:
    members: dict[str, list[int]] = {}
    for number, rank in enumerate(facts):
        members.setdefault(rank.kernel_id, []).append(number)
    medians = np.array(p50)
    slowest = np.argsort(-medians, kind="stable")[:SLOWEST].tolist()
    return Ranks(
        p50=(),
        binding=(),
        container=(),
        machines=tuple(
            MachineRanks(
                name=facts[ranks[0]].host,
                ranks=len(ranks),
                p50=_five_numbers(medians[ranks]),
                gpus=len({facts[number].gpu for number in ranks} - {None}),
            )
            for ranks in members.values()
        ),
        slowest=tuple(SlowRank(rank=number, p50=round(p50[number], 10), host=facts[number].host) for number in slowest),
    )


def _five_numbers(medians: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float, float, float, float]:
    """Smallest, lower quartile, median, upper quartile, largest; to a tenth of a nanosecond."""
    low, first, middle, third, high = np.quantile(medians, (0.0, 0.25, 0.5, 0.75, 1.0)).round(10).tolist()
    return low, first, middle, third, high
