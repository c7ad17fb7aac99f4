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
    slices = [one for duet in duets for one in duet.slices]
    assert median(one.asleep / allowed(one, ranks) for one in slices) <= 1
    slept = [all(duet.slices[n].asleep <= allowed(duet.slices[n], ranks) for duet in duets) for n in range(rounds)]
    valid = [before and after for before, after in zip(slept, (*slept[1:], True), strict=True)]
    assert [[one.valid for one in duet.slices] for duet in duets] == [valid] * len(duets)
    assert any(valid)


def allowed(one: Slice, ranks: int) -> float:
    """Processor seconds that so many ranks may use in the sleep before a slice."""
    return ranks * (RULE.asleep * one.slept + RULE.waking)
