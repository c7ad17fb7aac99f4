"""Advice: the options that may be the best, what each may lose; what options trade; and performance guidelines.

One operation and size is a question. In it every option is compared with the best one, whichever that is: each in turn
is the control, and as only one of them is the best, one family of comparisons is all that must hold. An option may be
the best unless some other is faster. What an option loses is at most what it may lose to one of those: these bounds
hold at once with a confidence of 95 %, whichever option is taken (Hsu, Annals of Statistics 9 (1981) 1026-1034).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import fmean, median
from typing import Literal, NamedTuple

import numpy as np

from collbench.analysis.bounds import Launches, location, of_controls, of_controls_at_any_time, ratio_at_any_time
from collbench.analysis.compare import DEPENDENT, MARGIN, Reason, not_comparable
from collbench.analysis.estimate import FEWEST, Estimate, Floats, centre, open_to_clock, ratio_in_blocks
from collbench.analysis.launches import dependent, drift, serial, slow, slow_samples, together
from collbench.analysis.options import FACTORS, Option, Question
from collbench.analysis.pairs import Pair, alike, undisturbed
from collbench.analysis.results import Cell, grouped
from collbench.analysis.runs import Observed
from collbench.schema.axes import STEPS
from collbench.schema.case import Case
from collbench.units import format_size

MOST_LOSS = 1e6  # a bound above this ratio says nothing
NEAR = 1.25  # medians that differ by less are about equal
NOTHING = 0.1  # a share of which the whole interval lies within this, either way, is none
_MOST = 100.0  # shares are cut off here, either way: beyond it there was almost nothing to recover
_ROUNDING = 1e-9  # logarithms of sizes closer than this are those of the same size


class Apart(NamedTuple):
    """Why two options are not compared: `reasons` are what records say of it, `why` what `compare` says."""

    kind: Literal["not measured", "failed", "skipped", "contended", "few launches", "not comparable"]
    reasons: tuple[str, ...] = ()
    why: Reason | None = None


#: Two options, the first in order first, with what both were measured with, or why they are not compared.
Pairs = dict[tuple[Option, Option], "Launches | Apart"]

#: Why an option has no bound: too few launches; times that drift where sides were not measured alternately; launches
#: that depend on those before them.
Unbounded = Literal["few launches", "drift", "dependent"]


@dataclass(frozen=True)
class OptionResult:
    """An option at a size. `ratio`: its time over that of the fastest measured.

    `at_most`: its time over that of the best of these, whichever that is; else why that is not known. `out`: another
    option is faster, and it may lose more than the margin. `slow_at_times`: it has more launches or samples than
    another that are far slower than most.
    """

    ratio: float
    at_most: float | Unbounded
    out: bool
    slow_at_times: bool

    @property
    def bound(self) -> float:
        """`at_most`, infinite where it is not known."""
        return math.inf if isinstance(self.at_most, str) else self.at_most


@dataclass(frozen=True)
class AtSize:
    """What is known at a size asked for (bytes) of each option that was compared, the one to take first.

    It may be the best, and may lose least; without bounds it is the fastest measured, and not `known` to be good.
    """

    size: int
    options: Mapping[Option, OptionResult]
    apart: Mapping[Option, Apart]
    failing: Mapping[Option, tuple[int, int]]

    @property
    def take(self) -> Option:
        return next(iter(self.options))

    @property
    def bound(self) -> float:
        """What the time of the one to take is at most, over that of the best."""
        return self.options[self.take].bound

    @property
    def known(self) -> bool:
        return len(self.options) > 1 and math.isfinite(self.bound)

    @property
    def possible(self) -> list[Option]:
        """Those that may be the best, in the order of what they may lose."""
        return [option for option, result in self.options.items() if not result.out]


@dataclass(frozen=True)
class Range:
    """Neighbouring sizes at each of which one option may be the best."""

    sizes: tuple[AtSize, ...]
    option: Option

    @property
    def bound(self) -> float:
        """What its time is at most over that of the best, at any of these sizes."""
        return max(size.options[self.option].bound for size in self.sizes)

    @property
    def known(self) -> bool:
        return all(size.known for size in self.sizes) and math.isfinite(self.bound)

    @property
    def rivals(self) -> list[Option]:
        """Other options that may be the best at each of these sizes."""
        return sorted(set.intersection(*(set(size.possible) for size in self.sizes)) - {self.option})


@dataclass(frozen=True)
class Advice:
    """What is advised for one operation on so many ranks; no sizes where nothing could be measured."""

    question: Question
    sizes: tuple[AtSize, ...]
    ranges: tuple[Range, ...]


def advise(questions: Sequence[Question], in_blocks: bool, margin: float = MARGIN) -> list[Advice]:
    """Advice for each question. What loses at most the margin may be taken as well as the best."""
    advice = []
    for question in questions:
        each = [_at_size(question, size, in_blocks, margin) for size in question.sizes]
        sizes = [size for size in each if size is not None]
        advice.append(Advice(question, tuple(sizes), tuple(_ranges(sizes))))
    return advice


def _at_size(question: Question, size: int, in_blocks: bool, margin: float) -> AtSize | None:
    cells = question.cells[size]
    pairs: Pairs = {two: _launches(pair_of(question, size, *two), in_blocks) for two in combinations(sorted(cells), 2)}
    ratios: dict[tuple[Option, Option], float] = {}  # by (base, other) the other's time over the base's
    for (base, other), launches in pairs.items():
        if isinstance(launches, Launches):
            log = location(launches, in_blocks)
            ratios |= {(base, other): math.exp(log), (other, base): math.exp(-log)}
    best = _fastest(cells, ratios, in_blocks)
    if best is None:
        return None
    apart = {option: Apart("not measured") for option in question.options if option not in cells}
    beside_best = {option: pairs.get((best, option)) or pairs.get((option, best)) for option in cells}
    apart |= {option: launches for option, launches in beside_best.items() if isinstance(launches, Apart)}
    bounded = _bounds(best, cells, pairs, in_blocks)
    apart |= {option: Apart("few launches") for option in cells if bounded and option not in {*bounded, *apart}}
    unsteady = _slow_at_times(question, size, pairs, in_blocks)
    standings = {}
    for option in cells.keys() - apart.keys():
        at_most, slower = bounded.get(option, ("few launches", False))
        out = slower and (isinstance(at_most, str) or at_most > 1 + margin)
        standings[option] = OptionResult(ratios.get((best, option), 1.0), at_most, out, option in unsteady)
    failing = {option: (cell.failed, cell.failed + len(cell.medians)) for option, cell in cells.items() if cell.failed}

    def order(option: Option) -> tuple[bool, bool, float, float, Option]:
        standing = standings[option]
        return (standing.out, standing.slow_at_times or option in failing, standing.bound, standing.ratio, option)

    return AtSize(size, {option: standings[option] for option in sorted(standings, key=order)}, apart, failing)


def pair_of(question: Question, size: int, base: Option, other: Option) -> Pair:
    """Two options, which may differ in the driver and in the place."""
    cells, names = question.cells[size], (question.name(base), question.name(other))
    return Pair(cells[base], cells[other], *names, frozenset({"driver", "place"}))


def _launches(pair: Pair, in_blocks: bool) -> Launches | Apart:
    used, _ = undisturbed(pair, in_blocks)
    for cell, whole in ((used.base, pair.base), (used.other, pair.other)):
        if not whole.medians:
            return Apart("failed" if whole.failed else "skipped", tuple(sorted(whole.reasons)))
        if not cell.medians:
            return Apart("contended")
    both = alike(used, in_blocks)
    why = not_comparable(pair, both, in_blocks)
    return Apart("not comparable", why=why) if why else Launches(*both[:4])


def _fastest(cells: Mapping[Option, Cell], ratios: Mapping[tuple[Option, Option], float],
             in_blocks: bool) -> Option | None:  # fmt: skip
    """The option over which no other has a ratio below 1, or where they form a cycle, the least ratio is the largest.

    Of equal ones that with the least typical time; None where none was measured with right results.
    """
    typical = _typical(cells, in_blocks)
    ordered = sorted(typical, key=lambda option: (typical[option], option))
    least = {option: min((ratios.get((option, other), 1.0) for other in ordered if other != option), default=1.0)
             for option in ordered}  # fmt: skip
    return max(ordered, key=lambda option: min(least[option], 1.0)) if ordered else None


def _bounds(
    best: Option, cells: Mapping[Option, Cell], pairs: Pairs, in_blocks: bool
) -> dict[Option, tuple[float | Unbounded, bool]]:  # fmt: skip
    """What each option loses at most (a ratio), and whether another is faster; empty where none has launches enough."""
    enough = {key: launches for key, launches in pairs.items()
              if isinstance(launches, Launches) and min(len(launches.base), len(launches.other)) >= FEWEST}  # fmt: skip
    members = {option for key in enough if best in key for option in key}
    used = {key: launches for key, launches in enough.items() if members >= {*key}}
    many = [launches for launches in used.values() if min(len(launches.base), len(launches.other)) >= DEPENDENT]
    if dependent([serial(launches.base, launches.other, in_blocks) for launches in many]):
        return dict.fromkeys(members, ("dependent", False))
    until_decided = in_blocks and any(cell.until_decided for cell in cells.values())
    least = of_controls_at_any_time(used) if until_decided else of_controls(used, in_blocks)
    for (base, other), launches in used.items():
        drifts = not in_blocks and drift(launches.base, launches.other) is not None
        steps = (cells[other].half_step, cells[base].half_step)
        hidden = open_to_clock(launches.other, launches.base, steps)
        for key in ((base, other), (other, base)):
            least[key] = -math.inf if drifts else least[key] - hidden
    out = {option: any(least[other, option] > 0 for other in members if (other, option) in least)
           for option in members}  # fmt: skip
    return {option: (_at_most(option, least, out), out[option]) for option in members}


def _at_most(option: Option, least: Mapping[tuple[Option, Option], float],
             out: Mapping[Option, bool]) -> float | Unbounded:  # fmt: skip
    losses = [-bound for (other, control), bound in least.items() if other == option and not out[control]]
    most = max(losses, default=0.0)
    return math.exp(max(most, 0.0)) if most < math.log(MOST_LOSS) else "drift" if math.isinf(most) else "few launches"


def _slow_at_times(question: Question, size: int, pairs: Pairs, in_blocks: bool) -> set[Option]:
    """Options with more launches or samples that are far slower than most, as against another about as fast."""
    looked_once = in_blocks and not any(cell.until_decided for cell in question.cells[size].values())
    options = set()
    for (base, other), launches in pairs.items():
        if isinstance(launches, Apart):
            continue
        fast, late = sorted((median(launches.base), median(launches.other)))
        if late > NEAR * fast:
            continue
        kinds = slow(launches.base, launches.other)
        if kinds is None and looked_once:
            kinds = slow_samples(pair_of(question, size, base, other), launches.of_base)
        if kinds is not None:
            options.add(other if kinds.on_other else base)
    return options


def _ranges(sizes: Sequence[AtSize]) -> list[Range]:
    """As few ranges as possible: each extends while one option may be the best at all of its sizes."""
    ranges: list[Range] = []
    held: list[AtSize] = []
    common: set[Option] = set()
    for size in sizes:
        candidates = set(size.possible) if size.known else {size.take}
        if held and (size.known != held[-1].known or not common & candidates):
            ranges.append(_range(held, common))
            held = []
        common = common & candidates if held else candidates
        held.append(size)
    return [*ranges, _range(held, common)] if held else ranges


def _range(sizes: Sequence[AtSize], common: set[Option]) -> Range:
    """Of the options that will do at every size the steadiest, and then the one that may lose least."""

    def worst(option: Option) -> tuple[bool, float, Option]:
        results = [size.options[option] for size in sizes]
        unsteady = any(evidence.slow_at_times for evidence in results) or any(option in size.failing for size in sizes)
        return (unsteady, max(evidence.bound for evidence in results), option)

    return Range(tuple(sizes), min(common, key=worst))


def _typical(cells: Mapping[Option, Cell], in_blocks: bool) -> dict[Option, float]:
    """Logarithm of the median of launch medians (in blocks: over the block's mean) of right, quiet options."""
    right = {option: cell.without(cell.disturbed) for option, cell in cells.items()
             if cell.medians and not cell.wrong and not cell.not_loaded}  # fmt: skip
    measured = {option: cell.by_launch for option, cell in right.items() if cell.medians and min(cell.medians) > 0}
    blocks = grouped((launch, math.log(time)) for times in measured.values() for launch, time in times.items())
    middle = {launch: fmean(logs) if in_blocks else 0.0 for launch, logs in blocks.items()}
    return {option: median(math.log(time) - middle[launch] for launch, time in times.items())
            for option, times in measured.items()}  # fmt: skip


class FactorEffect(NamedTuple):
    """The least and the largest ratio of a factor's slowest to fastest value among options that are alike otherwise."""

    least: float
    largest: float
    slowest: str


def factor_effects(question: Question, size: AtSize) -> dict[str, FactorEffect]:
    """By factor that varies how much it matters at a size; the host has no step, so it is in one group with each."""
    effects = {}
    for factor in question.varying:
        groups = [group for group in _groups(question, size, factor) if len(group) > 1]
        ratios = [max(group.values()) / min(group.values()) for group in groups]
        if ratios:
            widest = groups[ratios.index(max(ratios))]
            effects[factor] = FactorEffect(min(ratios), max(ratios), max(widest, key=lambda value: widest[value]))
    return effects


def _groups(question: Question, size: AtSize, factor: str) -> list[dict[str, float]]:
    """Ratios of options by their value, in groups that are alike in all other factors; of equal values the fastest."""
    rest = [name for name in question.varying if name != factor]
    keys = {option: tuple(option[name] for name in rest) for option in size.options}
    steps = dict.fromkeys(key for option, key in keys.items() if option["isolation"] or "isolation" not in rest)
    groups: dict[tuple[str, ...], dict[str, float]] = {key: {} for key in steps}
    for option, result in size.options.items():
        for key, values in groups.items():
            same = all(mine == theirs or (name == "isolation" and not mine)
                       for name, mine, theirs in zip(rest, keys[option], key, strict=True))  # fmt: skip
            if same:
                value = question.value(option, factor)
                values[value] = min(values.get(value, math.inf), result.ratio)
    return [*groups.values()]


@dataclass(frozen=True)
class Crossover:
    """Below `size` (bytes asked for, interpolated) take `below`, above it `above`.

    The interval has measured sizes as its ends, because libraries change their protocol between two; 0 or infinity lie
    beyond those that were measured. None with too few launches.
    """

    below: Option
    above: Option
    size: float
    interval: tuple[float, float] | None


def crossover(question: Question, below: Option, above: Option, in_blocks: bool) -> Crossover | None:
    """The median of the crossings of all blocks; None where most have none at sizes measured with both options."""
    sizes, logs = crossings(question, below, above, in_blocks)
    if not len(logs):
        return None
    axis, middle = _axis(sizes), centre(logs)
    if not axis[0] <= middle.value <= axis[-1]:
        return None
    if middle.interval is None:
        return Crossover(below, above, 2.0**middle.value, None)
    # the last measured size before the interval, and the first that is not before its end
    before, after = np.searchsorted(axis, [end - _ROUNDING for end in middle.interval]).tolist()
    ends = float(sizes[before - 1]) if before else 0.0, float(sizes[after]) if after < len(sizes) else math.inf
    return Crossover(below, above, 2.0**middle.value, ends)


def crossings(question: Question, below: Option, above: Option, in_blocks: bool) -> tuple[list[int], Floats]:
    """Sizes (bytes) measured with both options, and the crossing of each block that has them, as binary logarithm.

    By linear interpolation, both axes logarithmic; none with fewer than two sizes.
    """
    sizes = [size for size in question.sizes if {below, above} <= _measured(question, size).keys()]
    if len(sizes) < 2:
        return sizes, np.empty(0)
    rows = together([question.cells[size][option] for option in (below, above) for size in sizes], in_blocks)
    logs = np.log(rows).reshape(len(rows), 2, len(sizes))
    return sizes, np.array([crossing(_axis(sizes), upper - lower) for lower, upper in logs])


def _axis(sizes: list[int]) -> Floats:
    return np.asarray(np.log2(np.maximum(np.array(sizes, dtype=float), 1.0)))


def crossing(axis: Floats, difference: Floats) -> float:
    """Where `difference` [n] over `axis` [n] last goes from positive to negative: then the upper option stays better.

    One octave before the axis where it is never positive, one after it where it is positive at the end.
    """
    if difference[-1] > 0:
        return float(axis[-1] + 1)
    falls = np.flatnonzero((difference[:-1] > 0) & (difference[1:] <= 0))
    if not len(falls):
        return float(axis[0] - 1)
    i = falls[-1]
    share = difference[i] / (difference[i] - difference[i + 1])
    return float(axis[i] + share * (axis[i + 1] - axis[i]))


@dataclass(frozen=True)
class Recovery:
    """At one size asked for (bytes): `isolated` takes `cost` times as long as `free`; `step` recovers `share` of that.

    Medians over blocks, with intervals where launches are enough. Above a share of 1 the step is faster than `free`.
    """

    size: int
    free: Option
    isolated: Option
    step: Option
    cost: float
    cost_interval: tuple[float, float] | None
    share: float
    share_interval: tuple[float, float] | None

    @property
    def decided(self) -> bool:
        """Whether the interval of the share excludes 0, or lies close around it."""
        if self.share_interval is None:
            return False
        low, high = self.share_interval
        return low > 0 or high < 0 or max(-low, high) <= NOTHING


def recoveries(question: Question, size: int, in_blocks: bool) -> list[Recovery]:
    """For each library and each policy in containers: the most isolated step, and what each other step recovers.

    `free` is the same library on the host, or else in one container for all at its least isolated step. Only steps of a
    policy that costs something are listed.
    """
    measured = _measured(question, size)
    recovered = []
    for isolated in measured:
        steps = [option for option in measured if _same_but(option, isolated, "isolation")]
        free, most = _free(measured, isolated), max(steps, key=lambda option: option.isolation_order)
        if isolated["isolation"] in STEPS and isolated == most and free is not None:
            recovered += [_recovered(size, measured, free, isolated, step, in_blocks)
                          for step in steps if step != isolated]  # fmt: skip
    return [recovery for recovery in recovered if recovery is not None]


def _measured(question: Question, size: int) -> dict[Option, Cell]:
    return {option: cell for option, cell in question.cells[size].items() if cell.medians and min(cell.medians) > 0}


def _same_but(option: Option, other: Option, *factors: str) -> bool:
    return all(option[factor] == other[factor] for factor in FACTORS if factor not in factors)


def _free(measured: dict[Option, Cell], isolated: Option) -> Option | None:
    """The least isolated option that differs in policy and step alone, and whose policy is certainly less isolated."""
    others = [option for option in measured
              if _same_but(option, isolated, "policy", "isolation", "engine")
              and option["engine"] in ("", isolated["engine"])  # the host has none
              and option.isolation_order[0][0] < isolated.isolation_order[0][0]]  # fmt: skip
    return min(others, key=lambda option: option.isolation_order, default=None)


def _recovered(
    size: int, measured: dict[Option, Cell], free: Option, isolated: Option, step: Option, in_blocks: bool
) -> Recovery | None:
    """From blocks that have all three; None where there are none, or where isolation costs nothing in most of them."""
    rows = together([measured[option] for option in (free, isolated, step)], in_blocks)
    if not len(rows):
        return None
    steps = (measured[isolated].half_step, measured[free].half_step)
    of_blocks = ratio_at_any_time if measured[free].until_decided else ratio_in_blocks
    cost = of_blocks(rows[:, 1], rows[:, 0], half_steps=steps)
    share = centre(shares(rows))
    if cost.value <= 1:
        return None
    return Recovery(size, free, isolated, step, cost.value, cost.interval, share.value, share.interval)


def shares(rows: Floats) -> Floats:
    """Of times [n, 3] free, isolated, step: the share [n] of what isolation costs that the step saves.

    Where isolation costs nothing, there is nothing to recover: what the step saves counts as all or nothing of it.
    """
    free, isolated, step = rows.T
    cost, saved = isolated - free, isolated - step
    nothing = np.where(saved > 0, _MOST, -_MOST)
    return np.clip(np.where(cost > 0, saved / np.where(cost > 0, cost, 1.0), nothing), -_MOST, _MOST)


#: Performance guidelines: a collective should take no longer than all of its parts one after the other, at the same
#: size, and less data no longer than more; else a library has something to improve (Träff, Gropp and Thakur,
#: Self-consistent MPI performance guidelines, IEEE TPDS 21 (2010) 698-709). Sizes mean the same on both sides: the
#: whole buffer, or count times ranks.
RULES = (
    ("allreduce", ("reduce", "bcast")), ("allreduce", ("reduce_scatter", "allgather")),
    ("bcast", ("scatter", "allgather")), ("gather", ("allgather",)), ("scatter", ("bcast",)),
    ("reduce", ("allreduce",)), ("reduce_scatter", ("reduce", "scatter")),
    ("allgather", ("gather", "bcast")), ("allgather", ("alltoall",)),
)  # fmt: skip
MONOTONE = "monotone in size"


@dataclass(frozen=True)
class GuidelineResult:
    """A guideline at one place and size: the ratio of the time of the collective to the time it should not exceed."""

    rule: str
    case: Case
    against: str
    ratio: Estimate
    state: Literal["violated", "held", "undecided"]


def check_guidelines(observed: Observed, margin: float = MARGIN) -> list[GuidelineResult]:
    """Every guideline wherever all its parts were measured, in launches that all of them have."""
    candidates = (*_by_rules(observed.cells), *_by_size(observed.cells))
    results = (_guideline(*candidate, margin) for candidate in candidates)
    return [result for result in results if result is not None]


#: A rule and the case it is about, what it should not exceed, its cell and those of the latter.
Candidate = tuple[str, Case, str, Cell, Sequence[Cell]]


def _by_rules(cells: dict[Case, Cell]) -> Iterator[Candidate]:
    """Parts need not have an op and a root, which only some collectives have."""
    known = grouped((case.without(("op", "root")), cell) for case, cell in cells.items() if cell.medians)
    for collective, parts in RULES:
        over = " + ".join(parts)
        for case, cell in cells.items():
            if case.workload == collective and cell.medians:
                measured = _of_parts(case, parts, known)
                if len(measured) == len(parts):
                    yield f"{collective} <= {over}", case, over, cell, measured


def _of_parts(case: Case, parts: Sequence[str], known: Mapping[Case, Sequence[Cell]]) -> list[Cell]:
    """A cell of each part, all with one op and one root, as far as they have them; fewer where one has none."""
    cells, fixed = list[Cell](), {name: case[name] for name in ("op", "root")}
    for part in parts:
        of_part = known.get(case.without(fixed).having(workload=part), ())
        alike = [cell for cell in of_part if all(None in (of, cell.case[name]) or of == cell.case[name]
                                                 for name, of in fixed.items())]  # fmt: skip
        if alike:
            cells.append(min(alike, key=lambda cell: cell.case["root"] or 0))
            fixed = {name: cells[-1].case[name] if of is None else of for name, of in fixed.items()}
    return cells


def _by_size(observed: dict[Case, Cell]) -> Iterator[Candidate]:
    """Each size of a collective against the next larger one."""
    series = grouped((case.without(("size",)), cell) for case, cell in observed.items()
                     if cell.medians and cell.work.bus_factor is not None)  # fmt: skip
    for cells in series.values():
        for smaller, larger in pairwise(sorted(cells, key=lambda cell: cell.case["size"])):
            yield MONOTONE, smaller.case, format_size(larger.case["size"]), smaller, [larger]


def _guideline(
    rule: str, case: Case, against: str, cell: Cell, parts: Sequence[Cell], margin: float
) -> GuidelineResult | None:  # fmt: skip
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
