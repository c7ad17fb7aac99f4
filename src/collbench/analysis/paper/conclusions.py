"""The conclusions of Choi et al. 2021, each with a verdict from a run and the cells that decide it.

A conclusion that speaks of every library is refuted by one cell, and confirmed only where all of them were measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from collbench.analysis.compare import MARGIN, Comparison, compare
from collbench.analysis.estimate import Estimate, ratio_in_blocks, ratio_of_sides
from collbench.analysis.observations import Cell
from collbench.analysis.pairs import Pair
from collbench.analysis.paper.cells import LIBRARIES, PARAMETER_SERVER, At, PaperCells

Finding = Literal["confirmed", "refuted", "undecided", "not measurable here"]

#: Verdicts that say the other side does not take longer.
_NOT_SLOWER = ("same", "negligible", "faster")


@dataclass(frozen=True)
class Evidence:
    """One cell that speaks to a conclusion: what the claim asks to be slower, over what it calls the better."""

    text: str
    ratio: Estimate | None
    verdict: str


@dataclass(frozen=True)
class Judgement:
    """A conclusion's verdict, why, and the cells that decide it."""

    number: int
    finding: Finding
    why: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class Claim:
    """`worse` takes longer than `better`, as a conclusion has it."""

    better: At
    worse: At

    @property
    def text(self) -> str:
        """`ps_bcast, 1 GPU: single MPICH over multi MPICH`."""
        gpus = f"{self.better.gpus} GPU{'s' if self.better.gpus > 1 else ''}"
        return f"{self.better.operation}, {gpus}: {self.worse.name} over {self.better.name}"


def judge(cells: PaperCells, margin: float = MARGIN) -> list[Judgement]:
    """All five; p is adjusted over all cells that they ask for.

    Raises:
        RequestError: SciPy is not installed.
    """
    claims = {
        1: list(_multi_beats_single(cells)),
        2: list(_best(cells, PARAMETER_SERVER, "multi", "CUDA-aware Open MPI")),
        3: list(_best(cells, PARAMETER_SERVER, "single", "Open MPI")),
        4: [claim for policy in ("multi", "single") for claim in _best(cells, ("allreduce",), policy, "NCCL")],
    }
    asked = list(dict.fromkeys(claim for found in claims.values() for claim in found))
    compared = dict(zip(asked, compare([_pair(cells, claim) for claim in asked], margin, cells.in_blocks), strict=True))
    judged = [
        _judged(number, [(claim, compared[claim]) for claim in found], _missing(cells, number))
        for number, found in claims.items()
    ]
    return [*judged, _scaling(cells)]


def _multi_beats_single(cells: PaperCells) -> Iterable[Claim]:
    legs = {at.library for at in cells.places if at.library.startswith("NCCL (")}
    for at in cells.places:
        other = at.moved("single")
        again = at.library == "NCCL" and legs  # under the name of its legs it is there already
        if at.policy == "multi" and other in cells.places and not again:
            yield Claim(at, other)


def _best(cells: PaperCells, operations: Sequence[str], policy: str, library: str) -> Iterable[Claim]:
    """The library against every other one, at the largest number of GPUs that both were measured with."""
    for operation in operations:
        for other in LIBRARIES:
            common = cells.gpus(operation, policy, library) & cells.gpus(operation, policy, other)
            if other != library and common:
                gpus = max(common)
                yield Claim(At(operation, policy, library, gpus), At(operation, policy, other, gpus))


def _missing(cells: PaperCells, number: int) -> list[str]:
    """What the conclusion speaks of and this run has not measured."""
    operations = {1: (*PARAMETER_SERVER, "allreduce"), 2: PARAMETER_SERVER, 3: PARAMETER_SERVER, 4: ("allreduce",)}[
        number
    ]
    policies = {1: ("multi", "single"), 2: ("multi",), 3: ("single",), 4: ("multi", "single")}[number]
    return [
        library for library in LIBRARIES
        if not all(cells.gpus(operation, policy, library) for operation in operations for policy in policies)
    ]  # fmt: skip


def _pair(cells: PaperCells, claim: Claim) -> Pair:
    return Pair(cells.places[claim.better], cells.places[claim.worse], claim.better.name, claim.worse.name)


def _judged(number: int, found: list[tuple[Claim, Comparison]], missing: list[str]) -> Judgement:
    evidence = tuple(Evidence(claim.text, one.ratio, one.verdict) for claim, one in found)
    if not found:
        return Judgement(number, "not measurable here", f"not measured: {', '.join(missing) or 'both sides'}", ())
    against = [one for one in evidence if one.verdict in _NOT_SLOWER]
    for_it = [one for one in evidence if one.verdict == "slower"]
    if against:
        return Judgement(number, "refuted", f"{len(against)} of {len(evidence)} cells say otherwise", evidence)
    if len(for_it) == len(evidence) and not missing:
        return Judgement(number, "confirmed", f"all {len(evidence)} cells say so", evidence)
    open_ = f"{len(evidence) - len(for_it)} cells do not decide" if len(for_it) < len(evidence) else ""
    absent = f"not measured: {', '.join(missing)}" if missing else ""
    said = f"{len(for_it)} of {len(evidence)} cells say so"
    return Judgement(number, "undecided", "; ".join(word for word in (said, open_, absent) if word), evidence)


def _scaling(cells: PaperCells) -> Judgement:
    """Growth from the fewest to the most GPUs: that of the library named, over that of every other."""
    evidence = []
    for operations, library in ((PARAMETER_SERVER, "CUDA-aware Open MPI"), (("allreduce",), "NCCL")):
        for operation in operations:
            for policy in ("multi", "single"):
                evidence += list(_growths(cells, operation, policy, library))
    if not evidence:
        why = "needs CUDA-aware Open MPI and NCCL on two numbers of GPUs or more"
        return Judgement(5, "not measurable here", why, ())
    states = {one.verdict for one in evidence}
    missing = _missing(cells, 1)
    if "grows less" in states:
        return Judgement(5, "refuted", "another library grows less", tuple(evidence))
    if states == {"grows more"} and not missing:
        return Judgement(5, "confirmed", f"all {len(evidence)} cells say so", tuple(evidence))
    return Judgement(
        5, "undecided", f"not measured: {', '.join(missing)}" if missing else "intervals overlap", tuple(evidence)
    )


def _growths(cells: PaperCells, operation: str, policy: str, library: str) -> Iterable[Evidence]:
    for other in LIBRARIES:
        common = cells.gpus(operation, policy, library) & cells.gpus(operation, policy, other)
        if other == library or len(common) < 2:
            continue
        few, many = min(common), max(common)
        four = [cells.places[At(operation, policy, who, gpus)] for who, gpus in
                ((other, many), (library, few), (other, few), (library, many))]  # fmt: skip
        found = _growth(four, cells.in_blocks)
        state = "undecided" if not found.excludes(1.0) else "grows more" if found.value > 1 else "grows less"
        yield Evidence(
            f"{operation}, {policy}, {few} to {many} GPUs: growth of {other} over that of {library}", found, state
        )


def _growth(four: list[Cell], in_blocks: bool) -> Estimate:
    """(other many x own few) over (other few x own many): how many times as much the other one grows."""
    found = [cell.by_launch for cell in four]
    common = sorted(set.intersection(*(set(one) for one in found))) if in_blocks else []
    if common:
        of = [found[0][launch] * found[1][launch] for launch in common]
        over = [found[2][launch] * found[3][launch] for launch in common]
        return ratio_in_blocks(of, over)
    shortest = min(len(cell.medians) for cell in four)
    many, own_few, few, own_many = (list(cell.medians)[:shortest] for cell in four)
    of = [a * b for a, b in zip(many, own_few, strict=True)]
    over = [a * b for a, b in zip(few, own_many, strict=True)]
    return ratio_of_sides(of, over)
