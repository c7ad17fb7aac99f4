"""Conclusions on training with parameter servers: which of two ways to place it is faster, judged by a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from collbench.analysis.compare import Comparison, compare
from collbench.analysis.observations import Cell, Observed
from collbench.analysis.pair import Pair
from collbench.analysis.paper.judgement import Finding, Judgement
from collbench.analysis.paper.reference import Claim, ProgramConclusion, ProgramsPaper, Selector
from collbench.schema.case import Case
from collbench.units import counted

#: What the two ways may differ in, unless a claim says that it is equal.
WAYS = ("policy", "ranks", "servers", "shard")

#: Verdicts that settle that a way is not faster.
_NOT_FASTER = ("same", "negligible", "slower")


def judge(published: ProgramsPaper, observed: Observed) -> list[Judgement[Comparison]]:
    """The conclusions that consist of claims, in the order of the paper; p is adjusted over all their cells.

    Raises:
        RequestError: SciPy is not installed.
    """
    asked = [(one, [_pairs(claim, observed) for claim in one.claims]) for one in published.conclusions if one.claims]
    every = [pair for _, by_claim in asked for pairs in by_claim for pair in pairs]
    compared = iter(compare(every, in_blocks=observed.interleaved) if every else ())
    return [
        _judged(one, [list(islice(compared, len(pairs))) for pairs in by_claim], observed) for one, by_claim in asked
    ]


def trained(observed: Observed, published: ProgramsPaper) -> bool:
    """Whether the run has a training of which a claim of the paper speaks."""
    programs = {side.workload for one in published.conclusions for claim in one.claims for side in _sides(claim)}
    return any(cell.case.workload in programs for cell in observed.cells.values())


def _sides(claim: Claim) -> tuple[Selector, Selector]:
    return claim.faster, claim.than


def workers(case: Case) -> int:
    """One process alone is its own worker."""
    return max(1, int(case["ranks"]) - int(case["servers"] or 0))


def opposed(observed: Observed, faster: Selector, than: Selector, at: Iterable[str] = ()) -> list[Pair]:
    """Cells of the first kind, each over every one of the second that differs from it in `WAYS` but for `at` alone."""
    bases: dict[object, list[Cell]] = {}
    for cell in observed.cells.values():
        if than.takes(cell.case):
            bases.setdefault(_key(cell.case, at), []).append(cell)
    return [
        Pair(base, cell, way(base.case), way(cell.case))
        for cell in observed.cells.values() if faster.takes(cell.case)
        for base in bases.get(_key(cell.case, at), ()) if base is not cell
    ]  # fmt: skip


def way(case: Case) -> str:
    """`single strict, 2 servers (even), 4 workers`; `multi strict, one process`."""
    servers = case["servers"]
    shard = f" ({case['shard']})" if case["shard"] != "variable" else ""
    world = f"{counted(servers, 'server')}{shard}, {counted(workers(case), 'worker')}" if servers else "one process"
    return f"{case.where.text}, {world}"


def _pairs(claim: Claim, observed: Observed) -> list[Pair]:
    return opposed(observed, claim.faster, claim.than, claim.at)


def _key(case: Case, at: Iterable[str]) -> object:
    return case.without(WAYS), tuple(workers(case) if name == "workers" else case[name] for name in at)


def _judged(
    conclusion: ProgramConclusion, by_claim: Sequence[list[Comparison]], observed: Observed
) -> Judgement[Comparison]:
    """Confirmed by all of its claims, refuted by one."""
    found = list(zip(conclusion.claims, by_claim, strict=True))
    findings = {_finding(claim, compared) for claim, compared in found}
    finding: Finding = "undecided"
    if "refuted" in findings:
        finding = "refuted"
    elif len(findings) == 1:
        finding = findings.pop()
    why = "; ".join(f"{claim.text}: {_why(compared) or _lacking(claim, observed)}" for claim, compared in found)
    return Judgement(conclusion.number, finding, why, tuple(one for compared in by_claim for one in compared))


def _finding(claim: Claim, compared: Sequence[Comparison]) -> Finding:
    verdicts = [one.verdict for one in compared]
    if all(verdict == "not comparable" for verdict in verdicts):
        return "not measurable here"
    faster = [verdict == "faster" for verdict in verdicts]
    not_faster = [verdict in _NOT_FASTER for verdict in verdicts]
    confirmed, refuted = {
        "some": (any(faster), all(not_faster)),
        "all": (all(faster), any(not_faster)),
        "none": (all(not_faster), any(faster)),
    }[claim.cells]
    return "confirmed" if confirmed else "refuted" if refuted else "undecided"


def _why(compared: Sequence[Comparison]) -> str:
    """`2 of 6 cells are faster, 3 are not`: the rest is undecided. Empty without cells."""
    if not compared:
        return ""
    verdicts = [one.verdict for one in compared]
    faster = verdicts.count("faster")
    settled = sum(verdict in _NOT_FASTER for verdict in verdicts)
    words = [f"{faster} of {counted(len(verdicts), 'cell')} {'is' if faster == 1 else 'are'} faster"]
    words += [f"{settled} {'is' if settled == 1 else 'are'} not"] if settled else []
    rest = len(verdicts) - faster - settled
    return ", ".join([*words, *([f"{rest} undecided"] if rest else [])])


def _lacking(claim: Claim, observed: Observed) -> str:
    """`not measured: parameter_server with policy multi, servers 0`: of which side of a claim the run has nothing."""
    cases = [cell.case for cell in observed.cells.values()]
    absent = [_described(side) for side in _sides(claim) if not any(map(side.takes, cases))]
    if absent:
        return f"not measured: {'; '.join(absent)}"
    return f"not measured: both sides with the same {' and '.join(claim.at)}"


def _described(side: Selector) -> str:
    """`parameter_server with policy single, servers 1, 2 or 3, shard variable`."""
    return f"{side.workload} with {', '.join(f'{name} {_any_of(value)}' for name, value in side.values.items())}"


def _any_of(value: int | str | tuple[int | str, ...]) -> str:
    *more, last = map(str, value if isinstance(value, tuple) else (value,))
    return f"{', '.join(more)} or {last}" if more else last
