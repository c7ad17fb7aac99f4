"""Verdicts on the conclusions of a paper, from the cells of runs; and which of them a plan can decide.

A conclusion consists of parts, a part of the paper's cells, a cell of what was measured of it. At each level the same
rule decides: of `total`, `needed` must hold, and it does not hold as soon as too few are left for that. The cells of
one operation or program that a conclusion needs are one question: their intervals hold at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Literal, get_args

from collbench.analysis.bounds import ALPHA, Launches, in_order, intervals_of_sides, ratio_at_any_time
from collbench.analysis.compare import MARGIN, Comparison, Reason, compare, not_comparable
from collbench.analysis.estimate import FEWEST, Estimate, in_logarithms
from collbench.analysis.launches import together
from collbench.analysis.pairs import Pair, alike
from collbench.analysis.papers import (
    ClaimPart,
    Conclusion,
    ContainerKind,
    Item,
    Needs,
    Opposed,
    Paper,
    Scalar,
    Selector,
    two_devices,
)  # fmt: skip
from collbench.analysis.results import Cell, grouped

ConclusionVerdict = Literal["holds here", "does not hold here", "unclear", "not measured"]
VERDICTS: tuple[ConclusionVerdict, ...] = get_args(ConclusionVerdict)

#: Why a cell has no other verdict, apart from its interval; `Evidence.detail` is said there.
EvidenceGap = Literal["", "references", "crowded", "devices", "not alternated", "not comparable", "launches"]

#: Axes in which two ways to place ranks, and two libraries, may differ, unless a part says that they are equal.
_FREE = ("policy", "affinity", "ranks", "servers", "shard", "image", "backend", "driver", "staging", "align", "cadence")


@dataclass(frozen=True)
class Evidence:
    """What one run measured of a cell of the paper, and the verdict of its interval; of others' references it is None.

    `sides` are base and other; of a growth then both with few workers. `ratio` is the time of the other over that of
    the base: the container over the host, or what is called faster over what it is compared with; of a growth it is the
    ratio of both growths. `beyond` is how far (logarithm) the ratio lies beyond what the conclusion says, below 0 where
    it agrees. `detail` are the two devices of `devices`, `why` is that of `not comparable` and `launches`. `figures`
    are those of the check.
    """

    sides: tuple[Item, ...]
    verdict: ConclusionVerdict | None
    ratio: Estimate | None = None
    beyond: float = 0.0
    reason: EvidenceGap = ""
    detail: tuple[str, ...] = ()
    why: Reason | None = None
    comparison: Comparison | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class PartVerdict:
    """A part: how many of the paper's `total` cells support it, contradict it, and are open.

    `missing` values of the grid and `absent` selectors have no cell; `refused`: by run and workload why they have none.
    """

    part: ClaimPart
    verdict: ConclusionVerdict
    total: int
    support: int
    against: int
    open: int
    evidence: tuple[Evidence, ...] = ()
    missing: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)
    absent: tuple[Selector, ...] = ()
    refused: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def measured(self) -> int:
        return self.support + self.against + self.open

    @property
    def needed(self) -> int:
        return needed_of(self.total, self.part.needs)

    @property
    def can_confirm(self) -> bool:
        """Whether enough cells are left to confirm the part."""
        return not self.absent and self.support + self.open >= self.needed

    @property
    def can_refute(self) -> bool:
        return self.against + self.open > self.total - self.needed


@dataclass(frozen=True)
class JudgedConclusion:
    """The verdict on a conclusion, and its parts; `beside` is only shown."""

    conclusion: Conclusion
    verdict: ConclusionVerdict
    parts: tuple[PartVerdict, ...] = ()
    beside: tuple[Evidence, ...] = ()

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return (*(evidence for part in self.parts for evidence in part.evidence), *self.beside)

    @property
    def deciding(self) -> Evidence | None:
        """Of the cells with the conclusion's verdict the one that agrees least; of supporting ones if too few do."""
        for verdict in (self.verdict, "holds here") if self.verdict != "not measured" else ():
            cells = [cell for cell in self.evidence if cell.verdict == verdict and cell.ratio is not None]
            if cells:
                return max(cells, key=lambda cell: cell.beyond)
        return None

    @property
    def cells(self) -> tuple[int, int]:
        """How many of the paper's were measured, of how many."""
        return sum(part.measured for part in self.parts), sum(part.total for part in self.parts)

    @property
    def can_confirm(self) -> bool:
        return bool(self.parts) and all(part.can_confirm for part in self.parts)

    @property
    def can_refute(self) -> bool:
        return any(part.can_refute for part in self.parts)


def decide(support: int, against: int, total: int, needs: Needs) -> ConclusionVerdict:
    """Holds by as many of `total` as are needed, does not hold where too few are left, else unclear."""
    needed = needed_of(total, needs)
    if against > total - needed:
        return "does not hold here"
    return "holds here" if support >= needed else "unclear"


def needed_of(total: int, needs: Needs) -> int:
    return {"all": total, "most": total // 2 + 1, "some": 1}[needs]


def judge(paper: Paper, kind: ContainerKind, margin: float = MARGIN) -> list[JudgedConclusion]:
    """Every conclusion of the paper, in its order, by one kind of container; the margin is that of claims alone."""
    return [_judged(conclusion, kind, margin) for conclusion in paper.conclusions]


def planned_conclusions(paper: Paper, items: Sequence[Item]) -> list[JudgedConclusion]:
    """The conclusions as they stand before anything is measured: each cell that `items` will have is open."""
    near = ("policy", "engine", "isolation", "seccomp", "affinity")
    measured = grouped((item.case.without(near), (item.case.where.on_host, item["affinity"])) for item in items)

    def planned(part: ClaimPart) -> PartVerdict:
        sides = [(opposition.base, opposition.other) for opposition in opposed(items, part)
                 if not part.growth or _fewer(items, part, opposition)]  # fmt: skip
        if part.than is None:  # on the host, or far from its memory in a container
            other = {"policy": (True, "near"), "affinity": (False, "far")}[part.by]
            sides = [(item, item) for item in items if part.of.takes(item) and not item.case.where.on_host
                     and item["affinity"] == "near" and other in measured[item.case.without(near)]]  # fmt: skip
        usable = [Evidence(pair, "unclear") for pair in sides if part.crowded or not any(item.crowded for item in pair)]
        absent = tuple(selector for selector in part.selectors if not any(map(selector.takes, items)))
        return _counted(part, usable, absent)

    return [JudgedConclusion(conclusion, "unclear", tuple(map(planned, conclusion.parts)))
            for conclusion in paper.conclusions]  # fmt: skip


def _judged(conclusion: Conclusion, kind: ContainerKind, margin: float) -> JudgedConclusion:
    needed = [(part, *_needed(part, kind)) for part in conclusion.parts]
    every = (cell for part, claims, others in needed if not part.growth for cell in chain(claims, *others))
    at_once = _compared(every, margin, lambda pair: pair.base.case.workload)
    parts = tuple(_of_part(part, kind, claims, others, at_once) for part, claims, others in needed)
    shown = [
        (selector, cell) for selector in conclusion.beside for cell in kind.beside_host if selector.takes(cell.base)
    ]
    alone = _compared([cell for _, cell in shown], margin, id)
    beside = tuple(replace(_read(cell, alone[id(cell)], selector), verdict=None) for selector, cell in shown)
    return JudgedConclusion(conclusion, _of_conclusion(conclusion, parts), parts, beside)


def _of_conclusion(conclusion: Conclusion, parts: Sequence[PartVerdict]) -> ConclusionVerdict:
    verdicts = [part.verdict for part in parts]
    unmeasured = verdicts.count("not measured")
    if "does not hold here" in verdicts:
        return "does not hold here"
    if unmeasured == len(parts) or (conclusion.chain and unmeasured):
        return "not measured"
    return "holds here" if set(verdicts) == {"holds here"} else "unclear"


def _needed(part: ClaimPart, kind: ContainerKind) -> tuple[list[Opposed], list[list[Opposed]]]:
    """The cells of runs that a part needs: its own, and those that it compares them with."""
    beside = kind.far if part.by == "affinity" else kind.beside_host
    claimed = opposed(kind.items, part) if part.than else (cell for cell in beside if part.of.takes(cell.base))
    claims = [cell for cell in claimed if part.coordinates(cell.other, cell.base) is not None]
    return claims, [[cell for cell in kind.beside_host if selector.takes(cell.base)] for selector in part.more_than]


def _compared(
    cells: Iterable[Opposed], margin: float, question: Callable[[Pair], Hashable]
) -> dict[int, Comparison]:  # fmt: skip
    """By the ids of `cells`, those of each run together; intervals of a question hold at once."""
    once = {id(cell): cell for cell in cells}
    comparison_of: dict[int, Comparison] = {}
    for of_run in grouped((cell.base.run, cell) for cell in once.values()).values():
        pairs = [cell.pair for cell in of_run if cell.pair is not None]
        compared = compare(pairs, margin, of_run[0].base.in_blocks, question)
        comparison_of |= dict(zip(map(id, of_run), compared, strict=True))
    return comparison_of


def _of_part(
    part: ClaimPart, kind: ContainerKind, claims: list[Opposed], others: list[list[Opposed]],
    compared: Mapping[int, Comparison],
) -> PartVerdict:  # fmt: skip
    groups = [[_read(cell, compared[id(cell)], selector) for cell in group]
              for selector, group in zip(part.more_than, others, strict=True)]  # fmt: skip
    if part.growth:
        evidence = _growths(part, kind.items, claims)
    elif part.than:
        evidence = [_of_claim(part, cell, compared[id(cell)]) for cell in claims]
    else:
        evidence = [_tested(_read(cell, compared[id(cell)], part.of), part, groups) for cell in claims]
    there = [any(map(selector.takes, kind.items)) for selector in part.selectors] if part.than else [claims, *others]
    absent = tuple(selector for selector, known in zip(part.selectors, there, strict=True) if not known)
    held = [replace(item, verdict=None) for item in chain.from_iterable(groups)]
    refused = {key: why for key, why in kind.refused.items() if any(key[1] == selector.workload for selector in absent)}
    return replace(_counted(part, evidence, absent, held), refused=refused)


def _counted(
    part: ClaimPart, evidence: Iterable[Evidence], absent: tuple[Selector, ...], held: Sequence[Evidence] = ()
) -> PartVerdict:  # fmt: skip
    """Several measurements of one cell of the paper count once."""
    placed = ((part.coordinates(item.sides[1], item.sides[0]), item) for item in evidence)
    cells = grouped((cell, item) for cell, item in placed if cell is not None)
    known = ([item.verdict for item in group if item.verdict != "not measured"] for group in cells.values())
    usable = [decide(verdicts.count("holds here"), verdicts.count("does not hold here"), len(verdicts), part.needs)
              for verdicts in known if verdicts]  # fmt: skip
    total = max(part.total, len(usable))
    support, against = usable.count("holds here"), usable.count("does not hold here")
    verdict = decide(support, against, total, part.needs) if usable else "not measured"
    missing = {
        name: lacking for number, (name, values) in enumerate(part.grid.items()) if not isinstance(values, int)
        and cells and (lacking := tuple(value for value in values if value not in {cell[number] for cell in cells}))
    }  # fmt: skip
    kept = (*chain.from_iterable(cells.values()), *held)
    return PartVerdict(part, verdict, total, support, against, len(usable) - support - against, kept, missing, absent)


def diff_percent(ratio: float, shown: Literal["time", "rate"]) -> float:
    """Diff% of the quantity that the paper shows, (host - container) / host x 100, from a ratio of times."""
    return (1 - (1 / ratio if shown == "rate" else ratio)) * 100


def _read(cell: Opposed, comparison: Comparison, selector: Selector, part: ClaimPart | None = None) -> Evidence:
    """A cell whose verdict is open, or that is no evidence; of a claim with its `part`."""
    base, why = comparison.pair.base, comparison.why
    figures = {name: base.figures[name] for name in selector.figures if name in base.figures}
    evidence = Evidence((cell.base, cell.other), "unclear", comparison.ratio, comparison=comparison, figures=figures)
    if comparison.ratio is None:
        return replace(evidence, verdict="not measured", reason="not comparable", why=why)
    if devices := two_devices(comparison.pair):
        return replace(evidence, verdict="not measured", reason="devices", detail=devices)
    if part is not None and not part.crowded and (cell.base.crowded or cell.other.crowded):
        return replace(evidence, verdict="not measured", reason="crowded")
    if part is None and not comparison.blocks:
        return replace(evidence, reason="not alternated")
    doubted = comparison.ratio.interval is None or why.kind == "dependent"
    return replace(evidence, reason="launches", why=why) if doubted else evidence


def _tested(evidence: Evidence, part: ClaimPart, references: Sequence[Sequence[Evidence]]) -> Evidence:
    """Whether Diff% lies within bounds; or further from 0 than those of all references, which must be known."""
    sizes = _sizes(evidence, part.of)
    if evidence.ratio is None or evidence.ratio.interval is None or sizes is None:
        return evidence
    verdict: ConclusionVerdict = "unclear"
    if part.diff_percent is not None:
        (low, high), value, ends = _limits(part), evidence.ratio.value, evidence.ratio.interval
        if ends[1] < low or high < ends[0]:
            verdict = "does not hold here"
        elif evidence.ratio.within(low, high):
            verdict = "holds here"
        beyond = max(math.log(low / value) if low else -math.inf, -math.log(high / value))
        return replace(evidence, verdict=verdict, beyond=beyond)
    nearest, middle, furthest = sizes
    groups = zip(part.more_than, references, strict=True)
    others = [_sizes(item, selector) for selector, group in groups for item in group]
    known = [size for size in others if size is not None]
    beyond = max((size[1] for size in known), default=0.0) - middle
    if any(furthest < low for low, *_ in known):
        verdict = "does not hold here"
    elif None in others or not all(references):
        return replace(evidence, reason="references")
    elif all(nearest > high for *_, high in known):
        verdict = "holds here"
    return replace(evidence, verdict=verdict, beyond=beyond)


def _limits(part: ClaimPart) -> tuple[float, float]:
    """Those of the ratio of times that belong to the bounds of Diff%."""
    low, high = part.diff_percent or (None, None)
    if part.of.shown == "rate":  # grows with the ratio
        return 0.0 if low is None else 1 / (1 - low / 100), math.inf if high is None else 1 / (1 - high / 100)
    return 0.0 if high is None else 1 - high / 100, math.inf if low is None else 1 - low / 100


def _sizes(evidence: Evidence, selector: Selector) -> tuple[float, float, float] | None:
    """|Diff%|: the least, that of the ratio, and the largest of an interval; None where it cannot be relied on."""
    if evidence.ratio is None or evidence.ratio.interval is None or evidence.reason:
        return None
    ratios = (evidence.ratio.value, *evidence.ratio.interval)
    value, low, high = (diff_percent(ratio, selector.shown) for ratio in ratios)
    distances = sorted((abs(low), abs(high)))
    return 0.0 if low * high <= 0 else distances[0], abs(value), distances[1]


def opposed(items: Sequence[Item], part: ClaimPart) -> Iterator[Opposed]:
    """Items of `part.than` and of `part.of` that are alike but for `_FREE` axes, of one run.

    One rank in one container is the same under every policy, and no evidence on placement.
    """

    def key(item: Item) -> object:
        return item.run, item.case.without(_FREE), tuple(item[name] for name in part.at)

    bases = grouped((key(item), item) for item in items if part.than is not None and part.than.takes(item))
    for other in items:
        for base in bases.get(key(other), ()) if part.of.takes(other) else ():
            alone = other["ranks"] == 1 and base.case.without(("policy",)) == other.case.without(("policy",))
            if base is not other and not alone:
                pair = Pair(base.cell, other.cell, base.name, other.name) if base.cell and other.cell else None
                yield Opposed(base, other, pair)


def _of_claim(part: ClaimPart, cell: Opposed, comparison: Comparison) -> Evidence:
    evidence = _read(cell, comparison, part.of, part)
    if evidence.ratio is None or evidence.verdict == "not measured":
        return evidence
    beyond = math.log(evidence.ratio.value) * (1 if part.faster else -1)
    verdict: ConclusionVerdict = "unclear"
    if comparison.verdict != "unclear":
        verdict = "holds here" if (comparison.verdict == "faster") == part.faster else "does not hold here"
    return replace(evidence, verdict=verdict, beyond=beyond)


def _growths(part: ClaimPart, items: Sequence[Item], cells: Iterable[Opposed]) -> list[Evidence]:
    """Growth from few to many workers: that of the side that is said to grow less, over that of the other."""
    questions: dict[object, list[tuple[tuple[Item, ...], Launches]]] = {}
    for cell in cells:
        sides = (cell.base, cell.other, *_fewer(items, part, cell))
        measured, in_blocks = [item.cell for item in sides if item.cell is not None], cell.base.in_blocks
        medians = together(measured, in_blocks)
        whole = len(sides) == 4 and len(medians) >= FEWEST
        if whole and not any(_is_refused(two, in_blocks) for two in (measured[:2], measured[2:])):
            of, over = medians[:, 1] * medians[:, 2], medians[:, 0] * medians[:, 3]
            launches = in_order(over.tolist(), of.tolist())
            questions.setdefault((cell.base.run, cell.base.case.workload), []).append((sides, launches))
    evidence = []
    for members in questions.values():
        first, each = members[0][0][0], [launches for _, launches in members]
        if first.in_blocks and first.cell is not None and first.cell.until_decided:
            ratios = [ratio_at_any_time(one.other, one.base, 1 - ALPHA / len(each)) for one in each]
        else:
            ratios = [in_logarithms(Estimate(value, (low, high), len(one.base)), 0.0) for one, (value, low, high)
                      in zip(each, intervals_of_sides(each, first.in_blocks), strict=True)]  # fmt: skip
        for (sides, _), ratio in zip(members, ratios, strict=True):
            verdict: ConclusionVerdict = "unclear"
            if ratio.excludes(1.0):
                verdict = "holds here" if ratio.value < 1 else "does not hold here"
            evidence.append(Evidence(sides, verdict, ratio, math.log(ratio.value)))
    return evidence


def _is_refused(sides: Sequence[Cell], in_blocks: bool) -> bool:
    """Whether these two have no verdict, such as after wrong results."""
    pair = Pair(sides[0], sides[1], "", "")
    return not_comparable(pair, alike(pair, in_blocks), in_blocks) is not None


def _fewer(items: Sequence[Item], part: ClaimPart, cell: Opposed) -> tuple[Item, ...]:
    """Both sides with the fewest workers of a growth; none where these are not the ones with the most, or lack it."""
    few, many = part.growth or (0, 0)

    def of_any_size(item: Item) -> object:
        return item.run, item.library, item.case.without(("ranks",))

    smaller: list[Item] = []
    for side in (cell.base, cell.other) if cell.other["workers"] == many else ():
        alike = (item for item in items if item["workers"] == few and of_any_size(item) == of_any_size(side))
        smaller += islice(alike, 1)
    return tuple(smaller) if len(smaller) == 2 else ()
