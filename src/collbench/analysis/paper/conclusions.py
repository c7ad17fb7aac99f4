"""The conclusions of Choi et al. 2021, each with a verdict from a run and the cells that decide it.

A conclusion about every library is refuted by one cell, and confirmed only where all of them were measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from collbench.analysis.blocks import together
from collbench.analysis.compare import MARGIN, Comparison, compare
from collbench.analysis.estimate import Estimate, ratio_in_blocks, ratio_of_sides
from collbench.analysis.observations import Cell
from collbench.analysis.pair import Pair
from collbench.analysis.paper.cells import LIBRARIES, OPERATIONS, PARAMETER_SERVER, At, PaperCells
from collbench.analysis.paper.judgement import Judgement
from collbench.units import counted

#: Verdicts that say the other side does not take longer.
_NOT_SLOWER = ("same", "negligible", "faster")


@dataclass(frozen=True)
class Evidence:
    """One cell that bears on a conclusion: the side that it calls slower, over the one that it calls better."""

    text: str
    ratio: Estimate | None
    verdict: str


@dataclass(frozen=True)
class Claim:
    """`worse` takes longer than `better`, according to a conclusion."""

    better: At
    worse: At

    def text(self, each: str) -> str:
        """`ps_bcast, 1 GPU: single MPICH over multi MPICH`."""
        gpus = counted(self.better.gpus, each)
        return f"{self.better.operation}, {gpus}: {self.worse.name} over {self.better.name}"


def judge(cells: PaperCells, margin: float = MARGIN) -> list[Judgement[Evidence]]:
    """All five conclusions; p is adjusted over all cells that bear on them.

    Raises:
        RequestError: SciPy is not installed.
    """
    claims = {
        1: list(_multi_beats_single(cells)),
        2: list(_best(cells, PARAMETER_SERVER, "multi", "CUDA-aware Open MPI")),
        3: list(_best(cells, PARAMETER_SERVER, "single", "Open MPI")),
        4: [claim for policy in ("multi", "single") for claim in _best(cells, ("allreduce",), policy, "NCCL")],
    }
    distinct = list(dict.fromkeys(claim for of_one in claims.values() for claim in of_one))
    pairs = [_pair(cells, claim) for claim in distinct]
    compared = dict(zip(distinct, compare(pairs, margin, cells.in_blocks), strict=True))
    judged = [
        _judged(number, [(claim.text(cells.each), compared[claim]) for claim in of_one], _missing(cells, number))
        for number, of_one in claims.items()
    ]
    return [*judged, _scaling(cells)]


def _multi_beats_single(cells: PaperCells) -> Iterable[Claim]:
    legs = {at.library for at in cells.places if at.library.startswith("NCCL (")}
    for at in cells.places:
        other = at.moved("single")
        again = at.library == "NCCL" and legs  # it is also listed under the name of its legs
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
    """Libraries that the conclusion is about and this run has not measured."""
    operations, policies = _ABOUT[number]
    return [
        library for library in LIBRARIES
        if not all(cells.gpus(operation, policy, library) for operation in operations for policy in policies)
    ]  # fmt: skip


#: Operations and policies that a conclusion is about, by its number.
_ABOUT: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {
    1: (OPERATIONS, ("multi", "single")),
    2: (PARAMETER_SERVER, ("multi",)),
    3: (PARAMETER_SERVER, ("single",)),
    4: (("allreduce",), ("multi", "single")),
}


def _pair(cells: PaperCells, claim: Claim) -> Pair:
    return Pair(cells.places[claim.better], cells.places[claim.worse], claim.better.name, claim.worse.name)


def _judged(number: int, claims: list[tuple[str, Comparison]], missing: list[str]) -> Judgement[Evidence]:
    evidence = tuple(Evidence(text, comparison.ratio, comparison.verdict) for text, comparison in claims)
    absent = f"not measured: {', '.join(missing)}" if missing else ""
    if not evidence:
        return Judgement(number, "not measurable here", absent or "not measured: both sides", ())
    total = len(evidence)
    against = sum(cell.verdict in _NOT_SLOWER for cell in evidence)
    support = sum(cell.verdict == "slower" for cell in evidence)
    if against:
        return Judgement(number, "refuted", f"{against} of {total} cells contradict it", evidence)
    if support == total and not missing:
        return Judgement(number, "confirmed", f"all {total} cells support it", evidence)
    open_ = f"{total - support} undecided" if support < total else ""
    words = (f"{support} of {total} cells support it", open_, absent)
    return Judgement(number, "undecided", "; ".join(word for word in words if word), evidence)


def _scaling(cells: PaperCells) -> Judgement[Evidence]:
    """Growth of the time from the fewest to the most GPUs: every other library's, over that of the one named."""
    evidence = []
    for operations, library in ((PARAMETER_SERVER, "CUDA-aware Open MPI"), (("allreduce",), "NCCL")):
        for operation in operations:
            for policy in ("multi", "single"):
                evidence += list(_growths(cells, operation, policy, library))
    if not evidence:
        why = "needs CUDA-aware Open MPI and NCCL on two numbers of GPUs or more"
        return Judgement(5, "not measurable here", why, ())
    states = {growth.verdict for growth in evidence}
    missing = _missing(cells, 1)
    if "grows less" in states:
        return Judgement(5, "refuted", "another library grows less", tuple(evidence))
    if states == {"grows more"} and not missing:
        return Judgement(5, "confirmed", f"all {len(evidence)} cells support it", tuple(evidence))
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
        ratio = _growth(four, cells.in_blocks)
        state = "undecided"
        if ratio.excludes(1.0):
            state = "grows more" if ratio.value > 1 else "grows less"
        yield Evidence(
            f"{operation}, {policy}, {few} to {many} {cells.each}s: growth of {other} over that of {library}",
            ratio,
            state,
        )


def _growth(four: list[Cell], in_blocks: bool) -> Estimate:
    """(other many x own few) over (other few x own many): how many times as much the other one grows."""
    if in_blocks:
        medians = together(four, in_blocks=True)
        if len(medians):
            return ratio_in_blocks(medians[:, 0] * medians[:, 1], medians[:, 2] * medians[:, 3])
    medians = together(four, in_blocks=False)
    return ratio_of_sides(medians[:, 0] * medians[:, 1], medians[:, 2] * medians[:, 3])
