"""More ranks than processors: such cells do not pass a gate, so it is said before it measures, unless accepted."""

from __future__ import annotations

from collections.abc import Collection

from collbench.errors import RequestError
from collbench.launch.expansion import ExpandedPlan
from collbench.units import counted

#: The reason for which such cells have no answer, and how it is accepted.
REASON = "oversubscribed"
ACCEPTED = f"--accept {REASON}"


def refuse_crowded(ranks: int, cores: int) -> None:
    """For ranks of a plan for one world, which has no `oversubscribe` that could allow it.

    Raises:
        RequestError: there are more ranks than cores.
    """
    if ranks > cores:
        raise RequestError(
            f"{counted(ranks, 'rank')} with 1 core each need {ranks} cores, and this machine offers {cores}: no cell "
            f"could pass. Lower the ranks (-n), or accept it: {ACCEPTED} (times are then the scheduler's)."
        )


def caution(expanded: ExpandedPlan, accepted: Collection[str]) -> str:
    """What is said before measuring where the plan says `oversubscribe`, and it was not accepted; may be empty."""
    crowded = [cell for cell, placement in expanded.placements.items() if placement.crowded]
    if not crowded or REASON in accepted:
        return ""
    return (f"more ranks than cores ({crowded[0].title}): such cells do not pass without {ACCEPTED} "
            "(times are the scheduler's)")  # fmt: skip
