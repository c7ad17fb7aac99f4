"""Which launches of programs are left out of a comparison: those during which others used their cores.

Contention is not symmetrical: the weight of its control group decides how much each side is delayed by a busy core.
So measuring in turns does not cancel it, and a block of launches that was contended on one side is left out on both.
"""

from __future__ import annotations

from dataclasses import replace

from collbench.analysis.pair import Pair


def undisturbed(pair: Pair, in_blocks: bool) -> tuple[Pair, int]:
    """The pair without contended launches, and how many these are: in blocks, of those that both sides have."""
    base, other = pair.base, pair.other
    if not base.disturbed and not other.disturbed:
        return pair, 0
    if not in_blocks:
        number = len(base.disturbed) + len(other.disturbed)
        return replace(pair, base=base.without(base.disturbed), other=other.without(other.disturbed)), number
    blocks = base.disturbed | other.disturbed
    number = len(blocks & {*base.launches} & {*other.launches})
    return replace(pair, base=base.without(blocks), other=other.without(blocks)), number
