"""Verdicts on the conclusions of a paper, from the cells of runs; and which of them a plan can decide.

A conclusion consists of parts, a part of the paper's cells, a cell of what was measured of it. At each level the same
rule decides: of `total`, `needed` must be confirmed, and it is refuted as soon as too few are left for that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from collbench.analysis.compare import MARGIN, Comparison, compare
from collbench.analysis.estimate import Estimate, ratio_in_blocks, ratio_of_sides
from collbench.analysis.launches import together
from collbench.analysis.observations import Pair
from collbench.analysis.paper.cells import Compared, Item, Kind, other_device
from collbench.analysis.paper.reference import Bounds, Conclusion, Needs, Paper, Part, Scalar, Selector
from collbench.schema.case import Case

Finding = Literal["confirmed", "refuted", "undecided", "not measurable here"]
FINDINGS: tuple[Finding, ...] = get_args(Finding)

#: Why a cell has its finding: what `Evidence.detail` holds is said there.
Reason = Literal[
    "interval", "references", "unknown references", "verdict", "growth", "crowded", "devices", "not in turns",
    "not comparable", "few launches", "shown",
]  # fmt: skip

#: Axes in which two ways to place ranks, and two libraries, may differ, unless a part says that they are equal.
_FREE = ("policy", "ranks", "servers", "shard", "image", "backend", "driver", "staging", "gate", "cadence")

#: Verdicts that settle that a side is not faster.
_NOT_FASTER = ("same", "slower")


@dataclass(frozen=True)
class Evidence:
    """What one run measured of a cell: an estimate, and what it finds.

    `estimate` is the Diff% of host and container, of claims the ratio of times, of a growth the ratio of both growths:
    the side that is called faster over the other. `finding` is None for what others are compared with, and what is
    only shown. `detail` are the two devices of `devices`, and the reason of `not comparable` and `few launches`.
    `sides` are base and other; of a growth then both with few workers. `figures` are those of the check.
    """

    run: str
    sides: tuple[Item, ...]
    estimate: Estimate | None
    finding: Finding | None
    reason: Reason
    detail: tuple[str, ...] = ()
    bounds: Bounds | None = None
    comparison: Comparison | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class PartVerdict:
    """A part: how many of the paper's `total` cells support it, contradict it, and are open.

    `missing` are values on axes of the grid that have no cell at all. `absent` are selectors of which there is nothing.
    `refused` says by run and workload why sides were not compared.
    """

    part: Part
    finding: Finding
    total: int
    needed: int
    support: int
    against: int
    open: int
    evidence: tuple[Evidence, ...] = ()
    missing: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)
    absent: tuple[Selector, ...] = ()
    refused: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def can_confirm(self) -> bool:
        """Whether enough cells are left to confirm the part."""
        return not self.part.lacking and not self.absent and self.support + self.open >= self.needed

    @property
    def can_refute(self) -> bool:
        return not self.part.lacking and self.against + self.open > self.total - self.needed


@dataclass(frozen=True)
class Judgement:
    """The verdict on a conclusion, and its parts; `beside` is only shown."""

    conclusion: Conclusion
    finding: Finding
    parts: tuple[PartVerdict, ...] = ()
    beside: tuple[Evidence, ...] = ()

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return (*(one for part in self.parts for one in part.evidence), *self.beside)

    @property
    def can_confirm(self) -> bool:
        return bool(self.parts) and all(part.can_confirm for part in self.parts)

    @property
    def can_refute(self) -> bool:
        return any(part.can_refute for part in self.parts) and not any(part.part.lacking for part in self.parts)


def decide(support: int, against: int, total: int, needs: Needs) -> Finding:
    """Confirmed by as many of `total` as are needed, refuted where too few are left, else undecided."""
    needed = needed_of(total, needs)
    if against > total - needed:
        return "refuted"
    return "confirmed" if support >= needed else "undecided"


def needed_of(total: int, needs: Needs) -> int:
    return {"all": total, "most": total // 2 + 1, "some": 1}[needs]


def judge(paper: Paper, kind: Kind, margin: float = MARGIN) -> list[Judgement]:
    """Every conclusion of the paper, in its order, by one kind of container. The margin is that of claims alone.

    Raises:
        RequestError: SciPy is not installed.
    """
    compared = _claims(paper, kind, margin)
    return [_concluded(one, [_part(part, kind, compared) for part in one.parts], kind) for one in paper.conclusions]


def foreseen(paper: Paper, items: Sequence[Item]) -> list[Judgement]:
    """The conclusions as they stand before anything is measured: each cell that `items` will have is open."""
    near = ("policy", "engine", "isolation", "seccomp", "affinity")
    measured: dict[Case, set[tuple[bool, str]]] = {}
    for item in items:
        measured.setdefault(item.case.without(near), set()).add((item.case.where.on_host, item["affinity"]))

    def planned(part: Part) -> PartVerdict:
        sides = list(opposed(items, part))
        if part.growth is not None:
            sides = [(base, other) for base, other in sides if _fewer(items, part, base, other)]
        if part.than is None:  # on the host, or far from its memory in a container
            inside = [item for item in items if part.of.takes(item) and not item.case.where.on_host]
            other = {"policy": (True, "near"), "affinity": (False, "far")}[part.by]
            sides = [
                (item, item)
                for item in inside
                if item["affinity"] == "near" and other in measured[item.case.without(near)]
            ]
        usable = [pair for pair in sides if part.crowded or not _crowded(pair)]
        open_ = [Evidence("", pair, None, "undecided", "shown") for pair in usable]
        return _counted(part, open_, {}, _absent(part, items))

    return [Judgement(one, "undecided", tuple(map(planned, one.parts))) for one in paper.conclusions]


def _absent(part: Part, items: Sequence[Item]) -> tuple[Selector, ...]:
    return tuple(one for one in part.selectors if not any(map(one.takes, items)))


def _concluded(conclusion: Conclusion, parts: Sequence[PartVerdict], kind: Kind) -> Judgement:
    beside = [
        replace(one, finding=None) for selector in conclusion.beside for one in _readings(selector, kind.beside_host)
    ]
    findings = [part.finding for part in parts]
    finding: Finding = "undecided"
    unmeasured = findings.count("not measurable here")
    if unmeasured == len(parts) or any(part.part.lacking for part in parts):
        finding = "not measurable here"
    elif "refuted" in findings:
        finding = "refuted"
    elif conclusion.chain and unmeasured:
        finding = "not measurable here"
    elif findings.count("confirmed") == len(parts):
        finding = "confirmed"
    return Judgement(conclusion, finding, tuple(parts), tuple(beside))


def _part(part: Part, kind: Kind, compared: Mapping[tuple[int, int], Comparison]) -> PartVerdict:
    if part.than is not None:
        evidence = list(_growths(part, kind.items) if part.growth else _of_claims(part, kind.items, compared))
        absent = _absent(part, kind.items)
        held: list[Evidence] = []
    else:
        readings = _readings(part.of, kind.far if part.by == "affinity" else kind.beside_host)
        references = [_readings(one, kind.beside_host) for one in part.more_than]
        evidence = [_tested(one, part, references) for one in readings]
        absent = tuple(one for one, group in zip(part.selectors, (readings, *references), strict=True) if not group)
        held = [replace(one, finding=None) for group in references for one in group]
    if part.lacking:
        evidence = [replace(one, finding="not measurable here") for one in evidence]
    refused = {key: why for key, why in kind.refused.items() if any(key[1] == one.workload for one in absent)}
    return _counted(part, evidence, refused, absent, held)


def _counted(
    part: Part, evidence: Iterable[Evidence], refused: Mapping[tuple[str, str], str], absent: tuple[Selector, ...],
    held: Sequence[Evidence] = (),
) -> PartVerdict:  # fmt: skip
    cells: dict[tuple[Scalar, ...], list[Evidence]] = {}
    for one in evidence:
        if (cell := part.cell(one.sides[1], one.sides[0])) is not None:
            cells.setdefault(cell, []).append(one)
    by_cell = [_of_cell(part, group) for group in cells.values()]
    usable = [one for one in by_cell if one != "not measurable here"]
    total = max(part.total, len(usable))
    support, against = usable.count("confirmed"), usable.count("refuted")
    finding = decide(support, against, total, part.needs) if usable and not part.lacking else "not measurable here"
    missing = {
        name: lacking
        for number, (name, values) in enumerate(part.grid.items())
        if not isinstance(values, int) and cells
        and (lacking := tuple(one for one in values if one not in {cell[number] for cell in cells}))
    }  # fmt: skip
    kept = (*(one for group in cells.values() for one in group), *held)
    return PartVerdict(part, finding, total, needed_of(total, part.needs), support, against,
                       len(usable) - support - against, kept, missing, absent, refused)  # fmt: skip


def _of_cell(part: Part, group: Sequence[Evidence]) -> Finding:
    """What several measurements of one cell of the paper find together."""
    usable = [one.finding for one in group if one.finding != "not measurable here"]
    if not usable:
        return "not measurable here"
    return decide(usable.count("confirmed"), usable.count("refuted"), len(usable), part.needs)


# Host and container, or near and far: Diff% within bounds, or further from 0 than others.


def diff_percent(ratio: Estimate, shown: Literal["time", "rate"]) -> Estimate:
    """Diff% of a quantity, from the ratio of times container over host; with its interval, in per cent."""

    def percent(value: float) -> float:
        return (1 - (1 / value if shown == "rate" else value)) * 100

    ends = None if ratio.interval is None else sorted(map(percent, ratio.interval))
    return Estimate(percent(ratio.value), None if ends is None else (ends[0], ends[1]), ratio.n)


def _readings(selector: Selector, compared: Iterable[Compared]) -> list[Evidence]:
    """Its cells, each undecided, or with the reason for which nothing can be found."""
    return [_reading(one, selector) for one in compared if selector.takes(Item(one.comparison.pair.base.case))]


def _reading(compared: Compared, selector: Selector) -> Evidence:
    comparison = compared.comparison
    pair = comparison.pair
    sides = tuple(Item(cell.case, cell=cell, run=compared.run) for cell in (pair.base, pair.other))
    figures = {name: pair.base.figures[name] for name in selector.figures if name in pair.base.figures}
    found = Evidence(compared.run, sides, None, "undecided", "interval", comparison=comparison, figures=figures)
    if comparison.ratio is None:
        return replace(found, finding="not measurable here", reason="not comparable", detail=(comparison.why,))
    found = replace(found, estimate=diff_percent(comparison.ratio, selector.shown))
    if devices := other_device(pair):
        return replace(found, finding="not measurable here", reason="devices", detail=devices)
    if not comparison.blocks:
        return replace(found, reason="not in turns")
    if comparison.ratio.interval is None:
        return replace(found, reason="few launches", detail=(comparison.why,))
    return found


def _tested(found: Evidence, part: Part, references: Sequence[Sequence[Evidence]]) -> Evidence:
    """Whether the interval lies within bounds; or further from 0 than those of all references, which must be known."""
    interval = _known(found)
    if interval is None:
        return found
    finding: Finding = "undecided"
    if part.diff_percent is not None:
        low, high = part.diff_percent
        least, most = -math.inf if low is None else low, math.inf if high is None else high
        if interval[1] < least or most < interval[0]:
            finding = "refuted"
        elif least <= interval[0] and interval[1] <= most:
            finding = "confirmed"
        return replace(found, finding=finding, bounds=part.diff_percent)
    known = [_known(one) for group in references for one in group]
    sizes = [_size(one) for one in known if one is not None]
    nearest, furthest = _size(interval)
    if any(furthest < low for low, _ in sizes):
        finding = "refuted"
    elif None in known or not all(references):
        return replace(found, reason="unknown references")
    elif all(nearest > high for _, high in sizes):
        finding = "confirmed"
    return replace(found, finding=finding, reason="references")


def _known(found: Evidence) -> tuple[float, float] | None:
    """The interval of what can be relied on."""
    return found.estimate.interval if found.estimate is not None and found.reason == "interval" else None


def _size(interval: tuple[float, float]) -> tuple[float, float]:
    """The least and the largest distance from 0 within an interval."""
    low, high = interval
    distances = (abs(low), abs(high))
    return (0.0 if low <= 0 <= high else min(distances), max(distances))


# Claims: one way to place ranks, or one library, is faster than another.


def opposed(items: Sequence[Item], part: Part) -> Iterator[tuple[Item, Item]]:
    """Items of `part.than` and of `part.of` that are alike but for `_FREE` axes, of one run.

    One rank in one container is the same under every policy, and no evidence on placement.
    """
    than = part.than
    bases: dict[object, list[Item]] = {}
    for item in items:
        if than is not None and than.takes(item):
            bases.setdefault(_key(item, part), []).append(item)
    for other in items:
        for base in bases.get(_key(other, part), ()) if part.of.takes(other) else ():
            alone = other["ranks"] == 1 and base.case.without(("policy",)) == other.case.without(("policy",))
            if base is not other and not alone:
                yield base, other


def _key(item: Item, part: Part) -> object:
    return item.run, item.case.without(_FREE), tuple(item[name] for name in part.at)


def _crowded(sides: Iterable[Item]) -> bool:
    return any(item.crowded for item in sides)


def _claims(paper: Paper, kind: Kind, margin: float) -> dict[tuple[int, int], Comparison]:
    """The comparisons of all claims, by the ids of their items."""
    found: dict[tuple[int, int], Comparison] = {}
    by_run: dict[str, dict[tuple[int, int], tuple[Item, Item]]] = {}
    for part in paper.parts:
        for base, other in opposed(kind.items, part) if part.growth is None else ():
            by_run.setdefault(base.run, {})[id(base), id(other)] = (base, other)
    for sides in by_run.values():
        pairs = [Pair(base.cell, other.cell, base.name, other.name)
                 for base, other in sides.values() if base.cell and other.cell]  # fmt: skip
        in_blocks = next(iter(sides.values()))[0].in_blocks
        found |= dict(zip(sides, compare(pairs, margin, in_blocks), strict=True))
    return found


def _of_claims(part: Part, items: Sequence[Item], compared: Mapping[tuple[int, int], Comparison]) -> Iterator[Evidence]:
    for base, other in opposed(items, part):
        one = compared[id(base), id(other)]
        finding: Finding = "undecided"
        reason: Reason = "verdict"
        if one.verdict == "not comparable":
            finding, reason = "not measurable here", "not comparable"
        elif not part.crowded and _crowded((base, other)):
            finding, reason = "not measurable here", "crowded"
        elif one.verdict == "faster":
            finding = "confirmed" if part.faster else "refuted"
        elif one.verdict in _NOT_FASTER:
            finding = "refuted" if part.faster else "confirmed"
        yield Evidence(base.run, (base, other), one.ratio, finding, reason, (one.why,), comparison=one)


def _growths(part: Part, items: Sequence[Item]) -> Iterator[Evidence]:
    """Growth from few to many workers: that of the side that is said to grow less, over that of the other."""
    for base, other in opposed(items, part):
        few = _fewer(items, part, base, other)
        ratio = few and _growth((base, other, *few))
        if few and ratio:
            finding: Finding = "undecided"
            if ratio.excludes(1.0):
                finding = "confirmed" if ratio.value < 1 else "refuted"
            yield Evidence(base.run, (base, other, *few), ratio, finding, "growth")


def _fewer(items: Sequence[Item], part: Part, base: Item, other: Item) -> tuple[Item, Item] | None:
    """Both sides with the fewest workers of a growth; None where these are not the ones with the most, or lack it."""
    few, many = part.growth or (0, 0)
    if other["workers"] != many:
        return None

    def like(item: Item) -> Item | None:
        fitting = (one for one in items if one["workers"] == few and _of_any_size(one) == _of_any_size(item))
        return next(fitting, None)

    found = like(base), like(other)
    return None if found[0] is None or found[1] is None else (found[0], found[1])


def _of_any_size(item: Item) -> object:
    return item.run, item.library, item.case.without(("ranks",))


def _growth(sides: tuple[Item, ...]) -> Estimate | None:
    """(other many x base few) over (base many x other few); None where no block has all four."""
    medians = together([item.cell for item in sides if item.cell is not None], sides[0].in_blocks)
    of, over = medians[:, 1] * medians[:, 2], medians[:, 0] * medians[:, 3]
    return (ratio_in_blocks if sides[0].in_blocks else ratio_of_sides)(of, over) if len(medians) else None
