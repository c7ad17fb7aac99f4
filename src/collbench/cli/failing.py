"""`compare --fail-on`: what a comparison must not find, so that a green check means that everything was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from collbench.analysis.compare import Comparison
from collbench.analysis.estimate import FEWEST
from collbench.analysis.observations import Cell
from collbench.analysis.planning import fewest_launches

#: What --fail-on takes, and the verdicts that it fails on.
FAILING = {"slower": ("slower",), "faster": ("faster",), "different": ("slower", "faster"),
           "inconclusive": ("slower", "inconclusive")}  # fmt: skip


def failures(found: Sequence[Comparison], fail_on: str, missing: int, doubts: Sequence[str]) -> list[str]:
    """Why a check fails, in words; empty where it passes. `missing`: cells of the base that the other side lacks.

    Besides the verdicts asked for, whatever was not measured fails every check: a cell that is missing, failed, was
    skipped, measured in another way or unchecked, has launches that the other side lacks, or too few to tell it from
    the others; and `doubts`, such as samples files that say otherwise than their records. What both sides skipped fails
    none: it is not there to be measured.
    """
    found = [one for one in found if not all(map(_skipped, _sides(one)))]
    counted = Counter[str](one.verdict for one in found)
    said = [f"{counted[verdict]} {verdict}" for verdict in FAILING[fail_on] if counted[verdict]]
    counts = {what: sum(map(holds, found)) for what, holds in _UNMEASURED.items()}
    counts = {"failed": counts.pop("failed"), "missing": missing, **counts}
    said += [f"{number} {what}" for what, number in counts.items() if number]
    few = [one for one in found if one.verdict != "not comparable" and min(one.launches) < FEWEST]
    if few:
        said.append(f"{len(few)} with fewer than {FEWEST} launches a side")
    said += _undecidable([one for one in found if one not in few and one.ratio is not None])
    return said + ([f"what was read is in doubt ({doubts[0]})"] if doubts else [])


def _sides(one: Comparison) -> tuple[Cell, Cell]:
    return one.pair.base, one.pair.other


def _skipped(cell: Cell) -> bool:
    return cell.skipped > 0 and not cell.medians and not cell.failed


def _failed(one: Comparison) -> bool:
    return any(cell.failed for cell in _sides(one))


#: What makes a cell one that was not measured, or not as the other side was.
_UNMEASURED: dict[str, Callable[[Comparison], bool]] = {
    "failed": _failed,
    "skipped": lambda one: any(cell.skipped for cell in _sides(one)),
    "not comparable": lambda one: one.verdict == "not comparable" and not _failed(one),
    "with launches measured in another way": lambda one: bool(one.left_out),
    "with launches that one side lacks": lambda one: one.blocks and one.verdict != "not comparable"
    and max(len(cell.medians) for cell in _sides(one)) > min(one.launches) + one.left_out,
    "with unchecked results": lambda one: bool(one.pair.other.unchecked) and not one.pair.base.unchecked,
    "on a shared GPU": lambda one: any(cell.shared_gpu for cell in _sides(one)),
    "of which most samples were late": lambda one: any(2 * cell.late > cell.samples for cell in _sides(one)),
}  # fmt: skip


def _undecidable(found: Sequence[Comparison]) -> list[str]:
    """Cells whose launches could not tell them from the others, however large a difference is."""
    short = [one for one in found if fewest_launches(one.cells, one.blocks) > min(one.launches)]
    if not short:
        return []
    needed = max(fewest_launches(one.cells, one.blocks) for one in short)
    fewest = min(min(one.launches) for one in short)
    return [f"{len(short)} with {fewest} launches where one cell of {short[0].cells} takes {needed} to be told"]
