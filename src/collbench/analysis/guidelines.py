"""Performance guidelines: operations that a library should not be slower than. A violation says something about it.

Träff, Gropp and Thakur, "Self-consistent MPI performance guidelines", IEEE TPDS 21 (2010) 698-709: a collective should
not take longer than others that do the same, and less data not longer than more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from collbench.analysis.compare import MARGIN
from collbench.analysis.estimate import Estimate, ratio_in_blocks
from collbench.analysis.launches import together
from collbench.analysis.results import Cell
from collbench.analysis.runs import Observed
from collbench.schema.case import Case
from collbench.units import format_size


@dataclass(frozen=True)
class Rule:
    """`collective` should take no longer than all of `parts` one after the other, at the same size."""

    collective: str
    parts: tuple[str, ...]

    @property
    def text(self) -> str:
        """`allreduce <= reduce + bcast`."""
        return f"{self.collective} <= {' + '.join(self.parts)}"


#: Sizes mean the same on both sides: the whole buffer, or count times ranks.
RULES = (
    Rule("allreduce", ("reduce", "bcast")),
    Rule("allreduce", ("reduce_scatter", "allgather")),
    Rule("bcast", ("scatter", "allgather")),
    Rule("gather", ("allgather",)),
    Rule("scatter", ("bcast",)),
    Rule("reduce", ("allreduce",)),
    Rule("reduce_scatter", ("reduce", "scatter")),
    Rule("allgather", ("gather", "bcast")),
    Rule("allgather", ("alltoall",)),
)

MONOTONE = "monotone in size"


@dataclass(frozen=True)
class GuidelineResult:
    """A guideline at one place and size. `ratio` is the time of the collective over the time it should not exceed.

    `violated` where the whole interval lies above 1 and the margin, `held` where it lies below.
    """

    rule: str
    case: Case
    against: str
    ratio: Estimate
    state: Literal["violated", "held", "undecided"]


def check(observed: Observed, margin: float = MARGIN) -> list[GuidelineResult]:
    """Every guideline wherever all its parts were measured, in launches that all of them have."""
    candidates = (*_by_rules(observed.cells), *_by_size(observed.cells))
    results = (_judged(*candidate, margin) for candidate in candidates)
    return [result for result in results if result is not None]


Candidate = tuple[str, Case, str, Cell, Sequence[Cell]]


def _by_rules(cells: dict[Case, Cell]) -> Iterator[Candidate]:
    known = {_common(case): cell for case, cell in cells.items() if cell.medians}
    for rule in RULES:
        for case, cell in cells.items():
            if case.workload == rule.collective and cell.medians:
                parts = [known.get(_common(case, part)) for part in rule.parts]
                measured = [part for part in parts if part is not None]
                if len(measured) == len(parts):
                    yield rule.text, case, " + ".join(rule.parts), cell, measured


def _common(case: Case, collective: str | None = None) -> Case:
    """What the parts of a rule have in common: everything but op and root, which only some of them have."""
    return case.without(("op", "root")).having(workload=collective or case.workload)


def _by_size(observed: dict[Case, Cell]) -> Iterator[Candidate]:
    """Each size of a collective against the next larger one."""
    series: dict[Case, list[Cell]] = {}
    for case, cell in observed.items():
        if cell.medians and cell.work.bus_factor is not None:
            series.setdefault(case.without(("size",)), []).append(cell)
    for cells in series.values():
        ordered = sorted(cells, key=lambda cell: cell.case["size"])
        for smaller, larger in pairwise(ordered):
            yield MONOTONE, smaller.case, format_size(larger.case["size"]), smaller, [larger]


def _judged(
    rule: str, case: Case, against: str, cell: Cell, parts: Sequence[Cell], margin: float
) -> GuidelineResult | None:
    """In launches that all of them have: what one world measured one after the other. None without such launches."""
    medians = together([cell, *parts], in_blocks=True)
    if not medians.size or medians.min() <= 0:
        return None
    of, over = medians[:, 0], medians[:, 1:].sum(axis=1)
    ratio = ratio_in_blocks(of, over, half_steps=(cell.half_step, sum(part.half_step for part in parts)))
    low, high = ratio.interval or (0.0, float("inf"))
    if low > 1 + margin:
        return GuidelineResult(rule, case, against, ratio, "violated")
    return GuidelineResult(rule, case, against, ratio, "held" if high < 1 + margin else "undecided")
