"""Runs beside a paper: a sentence, a grid of its conclusions, and behind it their cells and the paper's figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from textwrap import shorten
from typing import Any

from msgspec import to_builtins

from collbench.analysis.compare import MARGIN
from collbench.analysis.conclusions import VERDICTS, Evidence, JudgedConclusion, PartVerdict, judge
from collbench.analysis.estimate import Estimate
from collbench.analysis.papers import ContainerKind, Paper, Selector, decode, kinds_of, refuse_other_machines
from collbench.analysis.results import Cell, grouped
from collbench.analysis.runs import Observed
from collbench.errors import RequestError, nearest_and_all
from collbench.report.caveats import cautions, disturbances, of_launches, waited
from collbench.report.headings import case_words, cells_of_pairs
from collbench.report.numbers import change, difference_text
from collbench.report.paper_tables import tables_beside
from collbench.report.tables import Table, more, without_empty
from collbench.report.verdict import reason, slow_text
from collbench.schema.case import Case
from collbench.units import counted, format_spans

_FOLDER = files("collbench.report") / "reference"

#: Caveats on the first screen, and characters of each.
_MOST_CAVEATS, _CAVEAT = 3, 190

_DECIDED = "least favourable: the cell that agrees least, +: slower; intervals: 95 %, all cells of a program at once"
_TIMES = "differences are of time, positive: the container is slower; those of the paper follow from its results"


def papers() -> list[str]:
    """The references of the papers whose figures come with the program."""
    return sorted(entry.name.removesuffix(".json") for entry in _FOLDER.iterdir() if entry.name.endswith(".json"))


def paper(reference: str) -> Paper:
    """What a paper published.

    Raises:
        RequestError: no such paper.
    """
    known = papers()
    if reference not in known:
        raise RequestError(f"paper {reference}: no such paper. {nearest_and_all(reference, known)}")
    return decode((_FOLDER / f"{reference}.json").read_bytes())


@dataclass(frozen=True)
class Beside:
    """Runs beside a paper: a sentence over a grid, what could mislead, what is behind `--all`, and all as data."""

    runs: tuple[str, ...]
    grid: Table
    caveats: tuple[str, ...]
    next_step: tuple[str, ...]
    more: tuple[Table, ...]
    document: dict[str, Any]

    @property
    def screen(self) -> Table:
        """The grid with the first caveats, the others counted, and the next step."""
        caveats = (shorten(line, _CAVEAT, placeholder=" ...") for line in self.caveats[:_MOST_CAVEATS])
        left = more(len(self.caveats) - _MOST_CAVEATS, "more, and every cell with its interval: --all")
        return replace(self.grid, notes=(*self.grid.notes, *caveats, *left, *self.next_step))


#: A kind of container, and the verdicts on all conclusions by it.
_Judged = tuple[ContainerKind, Sequence[JudgedConclusion]]


def beside(runs: Sequence[Observed], published: Paper, margin: float = MARGIN) -> Beside:
    """Runs beside a paper, judged together.

    The margin is for claims that one side is faster; conclusions on host and container have bounds of their own.

    Raises:
        RequestError: nothing of the paper's experiment is in the runs, or one cell is of two machines.
    """
    refuse_other_machines(runs, published)
    judged = [(kind, judge(published, kind, margin)) for kind in kinds_of(runs, published)]
    names = tuple(run.name for run in runs)
    if not any(kind.beside_host or kind.items or kind.refused for kind, _ in judged):
        needs = ", ".join(dict.fromkeys(selector.workload for part in published.parts for selector in part.selectors))
        places = "on the host and in a container" if published.programs else "under the policies single and multi"
        raise RequestError(
            f"{', '.join(names)}: nothing to compare with {published.reference}, which needs one of {needs} {places}."
        )
    grid, caveats, steps = _grid(published, *judged[0]), tuple(_caveats(judged)), _next(published, judged[0][1])
    tables = [table for judgement in judged for table in _evidence(published, *judgement, judgement is judged[0])]
    tables += tables_beside(published, [kind for kind, _ in judged])
    tables += [Table(f"assumptions about {published.reference}", (), (), published.reading)]
    document = _document(published, judged) | {
        "runs": names, "answer": grid.title, "notes": grid.notes, "caveats": caveats, "next": steps
    }  # fmt: skip
    return Beside(names, grid, caveats, steps, tuple(table for table in tables if table.rows or table.notes), document)


# The first screen.


def _grid(published: Paper, kind: ContainerKind, verdicts: Sequence[JudgedConclusion]) -> Table:
    rows = tuple(
        (str(judgement.conclusion.number), judgement.conclusion.text, judgement.verdict,
         "-" if judgement.deciding is None else _difference(judgement.deciding.ratio),
         "{} of {}".format(*judgement.cells))
        for judgement in verdicts
    )  # fmt: skip
    notes = ("; ".join(filter(None, (title_of(kind), _DECIDED))),)
    counts = Counter(judgement.verdict for judgement in verdicts)
    holds, fails, unclear, unmeasured = (counts[verdict] for verdict in VERDICTS)
    sentence = (f"{published.reference}: of {len(verdicts)} conclusions {holds} hold{'s' * (holds == 1)} here, "
                f"{fails} do{'es' * (fails == 1)} not, {unclear} unclear, {unmeasured} not measured")  # fmt: skip
    return Table(sentence, ("no.", "conclusion", "verdict", "least favourable", "cells"), rows, notes)


def title_of(kind: ContainerKind) -> str:
    """`multi strict, files on overlay`; `step strict` of collectives and trainings alone."""
    files = "" if kind.storage is None else f"files on {kind.storage}"
    step = f"step {kind.step}" if kind.step and not kind.place else ""
    return ", ".join(word for word in (kind.place, step, files) if word)


def _difference(ratio: Estimate | None) -> str:
    return difference_text(ratio) + " (too few launches)" * (ratio.interval is None) if ratio else ""


def _caveats(judged: Sequence[_Judged]) -> Iterator[str]:
    """What could mislead, the gravest first: other verdicts elsewhere, why cells are no evidence, what disturbed."""
    (_, first), *others = judged
    for kind, verdicts in others:
        differing = [f"{other.conclusion.number} {other.verdict}"
                     for judgement, other in zip(first, verdicts, strict=True)
                     if other.evidence and judgement.verdict != other.verdict]  # fmt: skip
        if differing:
            yield f"at {title_of(kind)}: {', '.join(differing)}"
    reasons: dict[str, list[str]] = {}
    for judgement in first:
        whys = [_reason(evidence) for evidence in judgement.evidence if evidence.verdict in ("unclear", "not measured")]
        whys += [line for part in judgement.parts for line in _refused(part).values()]
        for why in dict.fromkeys(filter(None, whys)):
            reasons.setdefault(why, []).append(str(judgement.conclusion.number))
    yield from (f"{', '.join(numbers)}: {why}" for why, numbers in reasons.items())
    cells, lines = _cells(first)
    yield from (*lines, *disturbances(cells), *waited(cells))


def _refused(part: PartVerdict) -> dict[str, str]:
    """By workload why its sides were not compared."""
    return {workload: f"{workload}: the sides differ in {why}" for (_, workload), why in part.refused.items()}


def _cells(judged: Iterable[JudgedConclusion]) -> tuple[list[Cell], list[str]]:
    """Those of programs, and what limits the comparisons of them."""
    compared = {id(evidence.comparison): evidence.comparison for judgement in judged for evidence in judgement.evidence
                if evidence.comparison is not None and not evidence.comparison.pair.base.case["backend"]}  # fmt: skip
    rows = list(compared.values())
    return cells_of_pairs(row.pair for row in rows), of_launches(rows, planned=False) if rows else []


def _next(published: Paper, judged: Sequence[JudgedConclusion]) -> tuple[str, ...]:
    """Which plans measure the rest, on the machine that is asked; else more launches, where intervals are too wide."""
    undecided = [judgement for judgement in judged if judgement.verdict in ("unclear", "not measured")]
    rest = [str(one.conclusion.number) for one in undecided if one.cells[0] < one.cells[1]]
    if rest:
        return (f"next: collbench plan {published.reference} says which plans measure the rest of {', '.join(rest)}",)
    wide = [str(one.conclusion.number) for one in undecided if one.verdict == "unclear"]
    return (f"next: more launches of the same plan narrow the intervals of {', '.join(wide)}",) if wide else ()


# Behind it.


def _evidence(
    published: Paper, kind: ContainerKind, judged: Sequence[JudgedConclusion], whole: bool
) -> Iterator[Table]:
    """The parts of all conclusions, without `whole` of those that were measured; and every cell that bears on one."""
    at = f": {title_of(kind)}" if title_of(kind) else ""
    parts = tuple(
        (str(judgement.conclusion.number), _name(part), part.verdict, str(part.support),
         str(part.against), str(part.open), str(part.total), str(part.needed), _lacks(part))
        for judgement in judged for part in judgement.parts if part.evidence or whole
    )  # fmt: skip
    columns = ("no.", "part", "verdict", "hold", "do not", "unclear", "of", "needed", "not measured")
    yield without_empty(Table(f"parts of the conclusions of {published.reference}{at}", columns, parts))
    numbered = [(str(judgement.conclusion.number), cell) for judgement in judged for cell in judgement.evidence]
    cases = grouped((evidence.sides[0].case.workload, evidence.sides[0].case) for _, evidence in numbered)
    runs = {evidence.sides[0].run for _, evidence in numbered}
    rows = dict.fromkeys(
        (number, _cell(evidence, cases[evidence.sides[0].case.workload]),
         Path(evidence.sides[0].run).name if len(runs) > 1 else "",
         evidence.verdict or "compared with", _difference(evidence.ratio), _in_paper(published, evidence),
         shorten(_reason(evidence), 40, placeholder=" ..."))
        for number, evidence in numbered
    )  # fmt: skip
    heads = ("no.", "cell", "run", "verdict", "difference", "in the paper", "why")
    cells, lines = _cells(judged)
    table = without_empty(Table(f"cells of {published.reference}{at}", heads, tuple(rows)))
    yield replace(table, notes=(_TIMES, *lines, *cautions(cells)) if rows else ())


def _in_paper(published: Paper, evidence: Evidence) -> str:
    """`pc -4 %, server -4 %`: differences of time that follow from published Diff%, or their bounds."""
    lines = []
    for figure in published.experiments:
        if figure.cell is None or not figure.cell.takes(evidence.sides[0].case):
            continue
        if figure.diff is not None:
            share = 1 - figure.diff / 100
            lines.append(f"{figure.machine} {change(share if figure.cell.shown == 'time' else 1 / share)}")
        elif figure.bound_percent is not None:
            lines.append(f"{figure.machine} within {figure.bound_percent:g} %")
    return ", ".join(lines)


def _cell(evidence: Evidence, among: Sequence[Case]) -> str:
    """`dd (count 16)`, by what tells it from those `among` it; `ps_bcast, 4 workers: multi MPICH over single MPICH`."""
    base, other, *few = evidence.sides
    workers = counted(base["workers"], "worker" if base.case["backend"] == "mpi" else "GPU")
    if few:
        return (f"{base.case.workload}, {base.case.where.policy}, {few[0]['workers']} to {workers}: growth of "
                f"{other.library} over that of {base.library}")  # fmt: skip
    if base.case["backend"]:
        return f"{base.case.workload}, {workers}: {other.name} over {base.name}"
    if base.case.workload == "parameter_server":
        return f"{other.name} over {base.name}"
    figures = ", ".join(f"{value:,.10g} {name}" for name, value in evidence.figures.items())
    far = "far over near" if other.case["affinity"] != base.case["affinity"] else ""
    return ", ".join(word for word in (case_words(base.case, among), figures, far) if word)


def _reason(evidence: Evidence) -> str:
    """Why a cell is no evidence, or not enough; or what its median hides."""
    if evidence.why is not None and evidence.comparison is not None:
        return reason(evidence.why, evidence.comparison.blocks)
    if evidence.reason == "devices":
        return f"not known to be one device: {evidence.detail[0]} on the host, {evidence.detail[1]} in containers"
    slow = evidence.comparison.slow if evidence.comparison else None
    words = {"references": "not all that it is compared with is known", "crowded": "more ranks than cores",
             "not alternated": "host and container were not measured alternately",
             "": slow_text(slow) if slow else ""}  # fmt: skip
    return words[evidence.reason]


def _selected(selector: Selector) -> str:
    """`parameter_server (policy single, affinity unpinned)`: the cells that are meant."""
    values = ", ".join(f"{name} {' or '.join(map(str, value)) if isinstance(value, tuple) else value}"
                       for name, value in selector.values.items())  # fmt: skip
    return f"{selector.workload} ({values})" if values else selector.workload


def _lacks(part: PartVerdict) -> str:
    """What was not measured of a part, or why: `hpcg`, `ps_* (policy multi)`, `n 15000, 18000, 20000, ...`."""
    refused = _refused(part)
    absent = dict.fromkeys(_selected(selector) for selector in part.absent if selector.workload not in refused)
    words = [*refused.values(), *absent]
    words += [shorten(f"{name.removeprefix('than.')} {_listed(values)}", 40, placeholder=" ...")
              for name, values in part.missing.items()]  # fmt: skip
    if not words and part.measured < part.total:
        words = [f"{part.total - part.measured} of {counted(part.total, 'cell')}"]
    return "; ".join(words)


def _listed(values: Sequence[object]) -> str:
    """`3-24`, `single, multi`."""
    numbers = [value for value in values if isinstance(value, int)]
    return format_spans(numbers).replace(",", ", ") if len(numbers) == len(values) else ", ".join(map(str, values))


# For programs, and for plans.


def _document(published: Paper, judged: Sequence[_Judged]) -> dict[str, Any]:
    """Ratios of times with their intervals; verdicts and reasons are those of `judge`."""

    def cell(evidence: Evidence) -> dict[str, Any]:
        cases = [to_builtins(side.case) for side in evidence.sides]
        ratio = None if evidence.ratio is None else {"value": evidence.ratio.value, "interval": evidence.ratio.interval}
        return {"run": evidence.sides[0].run, "base": cases[0], "other": cases[1], "verdict": evidence.verdict,
                "ratio": ratio, "reason": evidence.reason or None,
                "detail": evidence.detail or [_reason(evidence)] * bool(evidence.why)}  # fmt: skip

    def part(judged_part: PartVerdict) -> dict[str, Any]:
        return {"part": _name(judged_part), "verdict": judged_part.verdict, "cells": judged_part.total,
                "needed": judged_part.needed, "hold": judged_part.support, "do_not_hold": judged_part.against,
                "unclear": judged_part.open, "evidence": list(map(cell, judged_part.evidence))}  # fmt: skip

    def conclusion(judgement: JudgedConclusion) -> dict[str, Any]:
        return {"number": judgement.conclusion.number, "text": judgement.conclusion.text, "verdict": judgement.verdict,
                "measured": judgement.cells[0], "cells": judgement.cells[1],
                "decided_by": None if judgement.deciding is None else cell(judgement.deciding),
                "parts": list(map(part, judgement.parts))}  # fmt: skip

    places = [{"place": kind.place or None, "storage": kind.storage, "isolation": kind.step,
               "verdicts": dict(Counter(judgement.verdict for judgement in verdicts)),
               "conclusions": list(map(conclusion, verdicts))} for kind, verdicts in judged]  # fmt: skip
    return {"paper": published.reference, "places": places}


def decidable(published: Paper, judged: Sequence[JudgedConclusion]) -> str:
    """What a plan can decide of a paper: `judged` are the planned conclusions."""
    ordered = sorted(judged, key=lambda judgement: list(_ABLE).index(_able(judgement)))
    able = grouped((_ABLE[_able(judgement)], str(judgement.conclusion.number)) for judgement in ordered)
    texts = "; ".join(f"{word} {', '.join(numbers)}" for word, numbers in able.items())
    return f"of the conclusions of {published.reference} this plan {texts} (collbench plan {published.reference})"


def decidable_by(published: Paper, judged: Sequence[JudgedConclusion], missing: Collection[str]) -> Table:
    """The same of several plans, with what is lacking; `missing` are workloads whose programs are not there."""
    rows = [(str(judgement.conclusion.number), judgement.conclusion.text, _ABLE[_able(judgement)],
             "; ".join(dict.fromkeys(_why_open(judgement, missing)))) for judgement in judged]  # fmt: skip
    return without_empty(Table(f"conclusions of {published.reference}", ("no.", "conclusion", "these plans", "lacking"),
                               tuple(rows)))  # fmt: skip


#: By whether a plan can confirm, and can contradict, a conclusion.
_ABLE = {(True, True): "can decide", (True, False): "can only confirm",
         (False, True): "can only contradict", (False, False): "cannot decide"}  # fmt: skip


def _able(judgement: JudgedConclusion) -> tuple[bool, bool]:
    return judgement.can_confirm, judgement.can_refute


def _why_open(judgement: JudgedConclusion, missing: Collection[str]) -> Iterable[str]:
    for part in judgement.parts:
        if not (part.can_confirm and part.can_refute):
            gone = dict.fromkeys(selector.workload for selector in part.part.selectors if selector.workload in missing)
            why = f"not installed: {', '.join(gone)}" if gone else _lacks(part)
            enough = f"{part.open} of {counted(part.total, 'cell')}, {part.needed} needed" if part.open else ""
            words = [enough, why] if gone or part.absent or part.missing else [enough]
            name = _name(part) if len(judgement.parts) > 1 and _name(part) != why else ""
            yield ": ".join(filter(None, (name, "; ".join(filter(None, words)))))


def _name(part: PartVerdict) -> str:
    return part.part.text or part.part.of.workload
