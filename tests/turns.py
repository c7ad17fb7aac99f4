"""What slices of a real duet must show on any machine, however it is disturbed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from collbench.schema.record import Duet, Slice
from collbench.schema.world import SliceRule

RULE = SliceRule()


def assert_slept(duets: Sequence[Duet], ranks: int) -> None:
    """Worlds of so many ranks slept beside each other: most sleeps are some, and a round is valid where all are.

    The machine may take a processor away at any time, so no share of valid rounds is asserted.
    """
    (rounds,) = {len(duet.slices) for duet in duets}
    assert RULE.fewest <= rounds <= RULE.rounds
    shares = [[share(duet.slices[n], ranks) for duet in duets] for n in range(rounds)]
    limits = [min(min(of_round) + RULE.asleep, RULE.asleep_most) for of_round in shares]
    assert median(max(of_round) - limit for of_round, limit in zip(shares, limits, strict=True)) <= 0
    slept = [max(of_round) <= limit for of_round, limit in zip(shares, limits, strict=True)]
    valid = [before and after for before, after in zip(slept, (*slept[1:], True), strict=True)]
    assert [[one.valid for one in duet.slices] for duet in duets] == [valid] * len(duets)
    assert any(valid)


def share(one: Slice, ranks: int) -> float:
    """The share of a processor that each of so many ranks used in the sleep before a slice, besides waking up."""
    return max(one.asleep / ranks - RULE.waking, 0.0) / one.slept
