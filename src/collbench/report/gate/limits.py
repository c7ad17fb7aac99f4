"""What limits the meaning of cells that pass: results that nobody checked, samples that were late, a busy machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from collbench.analysis.gate.answers import Answer
from collbench.analysis.observations import Cell
from collbench.report.cells import LATE

#: By what it is called, whether it holds for a side of a cell. A tenth of samples, or of launches, is worth a word.
_LIMITS: dict[str, Callable[[Cell], bool]] = {
    "results not checked": lambda cell: cell.unchecked > 0,
    "late samples": lambda cell: cell.late > LATE * cell.samples,
    "tasks waited for a CPU": lambda cell: len(cell.contended) > LATE * len(cell.medians),
    "more ranks than cores": lambda cell: cell.oversubscribed > 0,
    "a shared GPU": lambda cell: cell.shared_gpu > 0,
    "a throttled GPU": lambda cell: bool(cell.slowed),
}


def limits(answers: Sequence[Answer]) -> list[str]:
    """`results not checked`, `late samples in 3 of them`: each that holds for a side of any of these cells."""
    pairs = [one.comparison.pair for one in answers if one.comparison is not None]
    numbers = {name: sum(holds(pair.base) or holds(pair.other) for pair in pairs) for name, holds in _LIMITS.items()}
    return [
        name if number == len(answers) else f"{name} in {number} of them" for name, number in numbers.items() if number
    ]
