"""Why a planned cell has no answer: each reason has a name, and the gravest is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collbench.analysis.compare import Comparison
from collbench.analysis.estimate import FEWEST
from collbench.analysis.gate.verified import Sides, not_loaded
from collbench.analysis.observations import Cell
from collbench.analysis.repeatable import unequal
from collbench.schema.gate_plan import SIDES
from collbench.units import counted

#: The names of reasons, the gravest first: what fails on the other side alone comes before what fails on both.
NAMES = ("not verified", "broken", "failed", "missing", "skipped", "not comparable", "results differ", "unchecked",
         "incomplete", "too few launches", "undecided", "slow at times", "contended", "oversubscribed", "shared GPU",
         "late", "drift")  # fmt: skip

#: With these a cell has no answer even where its times differ.
_VOID = frozenset(NAMES[:7])

#: What a user may accept beforehand: it makes an answer doubtful, and not wrong.
ACCEPTABLE = ("contended", "drift", "late", "oversubscribed", "shared GPU", "slow at times", "unchecked")

#: The share of launches from which on contention counts, and that of samples that were late.
_OFTEN = 0.5

#: The mean normal score of autocorrelations above which launches are called dependent: 1 % on one side.
_DEPENDENT = 2.326

Cells = tuple[Cell | None, Cell | None]


@dataclass(frozen=True)
class Doubt:
    """A reason: one of `NAMES`, and in words."""

    name: str
    why: str

    @property
    def rank(self) -> int:
        """Its place among the names."""
        return NAMES.index(self.name)

    @property
    def voids(self) -> bool:
        """Whether a difference is no answer either."""
        return self.name in _VOID


def doubt_on(
    sides: Sides, cells: Cells, comparison: Comparison | None, planned: int, drifting: bool
) -> list[Doubt]:  # fmt: skip
    """Every doubt on a cell, the gravest first. `planned` are the launches that a side should have; 0: any number."""
    found = [*_not_measured(cells)]
    if not found:
        found = [*_loaded_otherwise(sides, cells)]
    if comparison is not None and not found:
        found = [*_of_comparison(comparison), *_of_launches(comparison, planned)]
        found += [Doubt("drift", "launches depend on those before them")] if drifting else []
    return sorted(found, key=lambda one: one.rank)


def _not_measured(cells: Cells) -> Iterator[Doubt]:
    failed = [cell is not None and cell.failed > 0 for cell in cells]
    for name, cell, fails in zip(SIDES, cells, failed, strict=True):
        if cell is None:
            yield Doubt("missing", f"{name}: no record of it")
        elif fails:
            alone = name == SIDES[1] and not failed[0] and cells[0] is not None
            launches = len(cell.medians) + cell.failed + cell.skipped
            what = f"failed in {cell.failed} of {counted(launches, 'launch', 'launches')}"
            only = f"{SIDES[1]} alone" if alone else name
            yield Doubt("broken" if alone else "failed", f"{only}: {what}: {_reasons(cell)}")
        elif cell.skipped:
            yield Doubt("skipped", f"{name}: {_reasons(cell)}")


def _reasons(cell: Cell) -> str:
    found = sorted(cell.reasons)
    more = f" (and {len(found) - 1} other reasons)" if len(found) > 1 else ""
    return f"{found[0] if found else 'no reason'}{more}"


def _loaded_otherwise(sides: Sides, cells: Cells) -> Iterator[Doubt]:
    for side, cell in zip(sides, cells, strict=True):
        if cell is not None and (why := not_loaded(sides, side, cell)):
            yield Doubt("not verified", f"{side.name}: {why}")


def _of_comparison(comparison: Comparison) -> Iterator[Doubt]:
    if comparison.verdict == "not comparable":
        yield Doubt("not comparable", comparison.why)
        return
    if different := unequal(comparison.pair):
        yield Doubt("results differ", f"{different[0].name} comes out differently")
    slow = comparison.slow
    if slow is not None and slow.other * slow.launches[0] > slow.base * slow.launches[1]:
        yield Doubt("slow at times", slow.text)
    base, other = comparison.pair.base, comparison.pair.other
    if other.unchecked and not base.unchecked:
        yield Doubt("unchecked", "the results of the other side were not checked")
    for name, cell in zip(SIDES, (base, other), strict=True):
        if cell.shared_gpu:
            yield Doubt("shared GPU", f"{name}: ranks share a GPU")
        if cell.oversubscribed:
            yield Doubt("oversubscribed", f"{name}: more ranks than processors")
        if cell.samples and cell.late >= _OFTEN * cell.samples:
            yield Doubt("late", f"{name}: {cell.late} of {cell.samples} samples were late")


def _of_launches(comparison: Comparison, planned: int) -> Iterator[Doubt]:
    used = min(comparison.launches)
    for name, cell in zip(SIDES, (comparison.pair.base, comparison.pair.other), strict=True):
        if len(cell.medians) < planned:
            yield Doubt("incomplete", f"{name}: {len(cell.medians)} of {planned} launches")
        contended = len(cell.contended & {*cell.launches})
        if contended and contended >= _OFTEN * len(cell.medians):
            launches = counted(len(cell.medians), "launch", "launches")
            yield Doubt("contended", f"{name}: tasks waited for a CPU in {contended} of {launches}")
    if used < FEWEST and comparison.verdict != "not comparable":
        more = counted(FEWEST - used, "more", "more")
        lost = {"contended": comparison.contended, "measured differently from their partners": comparison.left_out}
        why = "".join(f" ({number} {what})" for what, number in lost.items() if number)
        yield Doubt("too few launches", f"{used} blocks have both sides{why}, and {more} are needed")


def depends(comparisons: Sequence[Comparison]) -> bool:
    """Whether launches depend on those before them, by all cells together."""
    scores = [one.serial for one in comparisons if one.serial is not None]
    return bool(scores) and sum(scores) / len(scores) > _DEPENDENT
