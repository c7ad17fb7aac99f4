"""Options that were not compared at a size: why, and what the nearest sizes say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collbench.analysis.compare import Comparison
from collbench.analysis.observations import Cell
from collbench.analysis.options import Option, Question


@dataclass(frozen=True)
class Gap:
    """Why an option was not compared with the best of a size, and what is known of it nevertheless.

    `worse`: whether it is worse at the nearest smaller size and at the nearest larger size at which it was compared;
    one value at an end of the sizes, none where it was compared nowhere. `possible` is False where it failed, had wrong
    results or was skipped, so that it cannot be taken.
    """

    why: str
    possible: bool
    worse: tuple[bool, ...] = ()

    @property
    def between(self) -> bool:
        """Whether it was compared at a smaller and at a larger size, so that only measurements are missing."""
        return self.possible and len(self.worse) == 2

    @property
    def as_good(self) -> bool:
        """Whether it is no worse at both sizes around: the gap says nothing against it."""
        return self.between and not any(self.worse)

    @property
    def open(self) -> bool:
        """Whether it might be the best one here: nothing says that it is worse."""
        return self.possible and not (self.worse and all(self.worse))


def gaps(question: Question, size: int, best: Option, others: Mapping[Option, Comparison]) -> dict[Option, Gap]:
    """Options of the question that were not compared with the best of a size, and why."""
    apart = {
        option: Gap(comparison.why, _possible(question.cells[size][option]))
        for option, comparison in others.items()
        if comparison.ratio is None
    }
    absent = (option for option in question.options if option != best and option not in others)
    return apart | dict.fromkeys(absent, Gap("not measured", True))


def around(option: Option, worse: Sequence[Mapping[Option, bool]], index: int) -> tuple[bool, ...]:
    """Of `worse`, by size whether each option that was compared is worse, the entries nearest to `index`."""
    before = [of_size[option] for of_size in worse[:index] if option in of_size][-1:]
    after = [of_size[option] for of_size in worse[index + 1 :] if option in of_size][:1]
    return (*before, *after)


def _possible(cell: Cell) -> bool:
    return not cell.failed and not (cell.skipped and not cell.medians)
