"""`compare --fail-on`: what a comparison must not find, so that a green check means that everything was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from collbench.analysis.compare import Comparison
from collbench.analysis.estimate import FEWEST
from collbench.analysis.planning import fewest_launches

#: What --fail-on takes, and the verdicts that it fails on.
FAILING = {"slower": ("slower",), "faster": ("faster",), "different": ("slower", "faster"),
           "inconclusive": ("slower", "inconclusive")}  # fmt: skip


def failures(found: Sequence[Comparison], fail_on: str, missing: int, doubts: bool) -> list[str]:
    """Why a check fails, in words; empty where it passes. `missing`: cells of the base that the other side lacks.

    `doubts`: some samples files cannot be read, or say otherwise than their records.
    Besides the verdicts asked for, whatever was not measured fails every check: a cell that is missing, failed, was
    measured in another way, or has launches too few to tell it from the others.
    """
    counted = Counter[str](one.verdict for one in found)
    said = [f"{counted[verdict]} {verdict}" for verdict in FAILING[fail_on] if counted[verdict]]
    failed = sum(bool(one.pair.other.failed) for one in found)
    apart = sum(one.verdict == "not comparable" and not one.pair.other.failed for one in found)
    few = [one for one in found if one.verdict != "not comparable" and min(one.launches) < FEWEST]
    counts = {"failed": failed, "missing": missing, "not comparable": apart}
    said += [f"{number} {what}" for what, number in counts.items() if number]
    if doubts:
        said.append("records that their samples files do not bear out")
    if few:
        said.append(f"{len(few)} with fewer than {FEWEST} launches a side")
    return said + _undecidable([one for one in found if one not in few and one.ratio is not None])


def _undecidable(found: Sequence[Comparison]) -> list[str]:
    """Cells whose launches could not tell them from the others, however large a difference is."""
    short = [one for one in found if fewest_launches(one.cells, one.blocks) > min(one.launches)]
    if not short:
        return []
    needed = max(fewest_launches(one.cells, one.blocks) for one in short)
    fewest = min(min(one.launches) for one in short)
    return [f"{len(short)} with {fewest} launches where one cell of {short[0].cells} takes {needed} to be told"]
