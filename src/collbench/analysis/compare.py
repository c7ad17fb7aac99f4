"""Two sides, cell by cell: both medians, the difference with its interval, the verdict, and how many launches it lacks.

The sizes of one operation on one pair of sides are a question. Its intervals hold at once, so in at most one question
of twenty anything false is said. Of a run's own sides, what cannot be compared stops nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from collbench.analysis.bounds import ALPHA, Launches, intervals, intervals_of_sides, location, ratio_at_any_time
from collbench.analysis.estimate import FEWEST, Estimate, HalfSteps, centre, in_logarithms, needed, open_to_clock, stats
from collbench.analysis.factors import FACTORS
from collbench.analysis.launches import ProcessorTime, Slow, cpu_time, dependent, drift, serial, slow, slow_samples
from collbench.analysis.pairs import Alike, Pair, alike, listed_facts, undisturbed, within
from collbench.analysis.results import Cell, grouped
from collbench.analysis.runs import Observed
from collbench.errors import RequestError
from collbench.schema.axes import Value
from collbench.schema.case import Case

if TYPE_CHECKING:
    from collbench.analysis.estimate import Floats

MARGIN = 0.05  # two sides whose whole interval lies within this are the same
DEPENDENT = 20  # from so many launches on it can be seen whether they depend on those before: then there is no verdict
MOST = 1000  # more launches than this are not suggested
CHANCE = 0.8  # the probability of a verdict that is planned for
USUAL = 0.2  # the usual size of differences (logarithm of a ratio)

NORMAL = NormalDist()

#: Numbers of launches that are tried: each, then in steps of 6 %.
_TRIED = np.unique(np.concatenate((np.arange(1, 17), np.geomspace(17, MOST, 72).astype(int))))

Verdict = Literal["same", "faster", "slower", "unclear", "not comparable"]

#: What a reason is, in the order in which it is found, and its values: the side, its status and the records' reasons;
#: the side and its launches with wrong results; the side and what it did not load (`Cell.not_loaded`); differences of
#: the measuring (`pairs.Differences`); amount and unit of both sides' work; none; none; none; launches that are missing
#: for an interval; blocks; the share that the clock resolves; launches that are missing, at most so many; the share by
#: which times drift; none; none.
ReasonKind = Literal[
    "not measured", "wrong results", "not loaded", "measured differently", "other work", "no common blocks",
    "no launches", "clock 0",
    "few launches", "blocks", "clock", "launches", "drift", "dependent", "within margin", "excludes equality"
]  # fmt: skip


class Reason(NamedTuple):
    """Why a comparison has its verdict, as data; `contended` launches were left out, so that too few remain."""

    kind: ReasonKind
    values: tuple[Any, ...] = ()
    contended: int = 0


@dataclass(frozen=True)
class Comparison:
    """One cell. Times in seconds; `ratio` is the other side over the base, so above 1 the other is slower.

    The interval of the ratio holds together with those of the `sizes` of its question, at 95 %; it is None with fewer
    than six launches a side. `paper_diff` is the Diff% of Xu, Shi and Chu (2017), (base - other) / base x 100 on means
    of what is shown: of times it is negative where the other is slower, of rates positive. `launches_more`: how many
    launches more give a verdict with a probability of 80 %; None where there is one, or launches would not help.
    `blocks`: launches of both sides were paired. `launches` are those of each side that were used, `left_out` those
    that were measured in another way, `contended` those of programs during which others used the cores. `slow`:
    launches that are far slower than most of their cell, where one side has more of them. `serial`: the autocorrelation
    of neighbouring launches as a normal score, None with too few launches. `cpu` is what the program of each side used,
    where recorded.
    """

    pair: Pair
    base: Estimate | None
    other: Estimate | None
    ratio: Estimate | None
    sizes: int
    paper_diff: float | None
    verdict: Verdict
    why: Reason
    launches_more: int | None
    blocks: bool
    launches: tuple[int, int]
    left_out: int = 0
    slow: Slow | None = None
    serial: float | None = None
    contended: int = 0
    cpu: tuple[ProcessorTime | None, ProcessorTime | None] = (None, None)


def question_of(pair: Pair) -> Hashable:
    """Of all sizes of an operation on two sides the same."""
    return (pair.base.case.without(("size",)), pair.other.case.without(("size",)), pair.base_name, pair.other_name)


def differing_questions(comparisons: Sequence[Comparison]) -> tuple[int, int, bool]:
    """How many questions say that the sides differ, of how many, and whether chance alone may make so many differ.

    A false statement has a chance of `ALPHA` in each: their number is binomial, here by its normal approximation, at
    the upper 95 %. Of fewer than 20 questions not even one is expected.
    """
    judged = {question_of(row.pair) for row in comparisons if row.ratio is not None and row.ratio.interval is not None}
    differ = {question_of(row.pair) for row in comparisons if row.verdict in ("slower", "faster")}
    expected = ALPHA * len(judged)
    most = expected + NORMAL.inv_cdf(0.95) * (expected * (1 - ALPHA)) ** 0.5
    return len(differ), len(judged), expected >= 1 and len(differ) <= most


def compare(
    pairs: Sequence[Pair], margin: float = MARGIN, in_blocks: bool = True,
    question: Callable[[Pair], Hashable] = question_of,
) -> list[Comparison]:  # fmt: skip
    """A comparison of each pair, in their order; the intervals of pairs with the same `question` hold at once.

    `in_blocks`: launches of equal number are paired. Raises RequestError where SciPy is not installed.
    """
    stats()  # some cells need it, and that shall not depend on their times
    quiet = [undisturbed(pair, in_blocks) for pair in pairs]
    values = [alike(pair, in_blocks) for pair, _ in quiet]
    reasons = [not_comparable(pair, both, in_blocks) for pair, both in zip(pairs, values, strict=True)]
    questions = grouped((question(pair), index) for index, pair in enumerate(pairs) if not reasons[index])
    compared = {index: _not_compared(pairs[index], why, in_blocks) for index, why in enumerate(reasons) if why}
    for indices in questions.values():
        used = [(quiet[index][0], values[index]) for index in indices]
        compared |= dict(zip(indices, _of_question(used, margin, in_blocks), strict=True))
    return [_as_measured(compared[index], pair, *quiet[index]) for index, pair in enumerate(pairs)]


def _of_question(used: Sequence[tuple[Pair, Alike]], margin: float, in_blocks: bool) -> list[Comparison]:
    """The comparisons of its cells, whose intervals hold at once; none has a verdict where launches are dependent."""
    until_decided = in_blocks and any(pair.base.until_decided for pair, _ in used)
    ratios = _ratios(used, in_blocks, until_decided)
    sizes = sum(until_decided or ratio.interval is not None for ratio in ratios)
    comparisons = [_compared(pair, both, ratio, sizes, margin, in_blocks)
                   for (pair, both), ratio in zip(used, ratios, strict=True)]  # fmt: skip
    if not dependent([comparison.serial for comparison in comparisons if min(comparison.launches) >= DEPENDENT]):
        return comparisons
    return [comparison if comparison.verdict == "unclear"
            else replace(comparison, verdict="unclear", why=Reason("dependent"), launches_more=None)
            for comparison in comparisons]  # fmt: skip


def _ratios(used: Sequence[tuple[Pair, Alike]], in_blocks: bool, until_decided: bool) -> list[Estimate]:
    """Of a question: until decided by bets, also of cells with few blocks yet; else these have no interval."""
    if until_decided:
        confidence = 1 - ALPHA / len(used)
        return [ratio_at_any_time(both.other, both.base, confidence, half_steps(pair)) for pair, both in used]
    launches = [Launches(*both[:4]) for _, both in used]
    enough = [launch for launch in launches if min(len(launch.base), len(launch.other)) >= FEWEST]
    several = len({question_of(pair) for pair, _ in used}) > 1
    at_once = intervals_of_sides if several else intervals
    known = iter(at_once(enough, in_blocks) if enough else ())
    estimates = []
    for measured, (pair, _) in zip(launches, used, strict=True):
        n = min(len(measured.base), len(measured.other))
        value, *ends = next(known) if n >= FEWEST else (location(measured, in_blocks),)
        hidden = open_to_clock(measured.other, measured.base, half_steps(pair))
        estimates.append(in_logarithms(Estimate(value, (ends[0], ends[1]) if ends else None, n), hidden))
    return estimates


def half_steps(pair: Pair) -> HalfSteps:
    """By how much the clock leaves the times of the other side and of the base open."""
    return (pair.other.half_step, pair.base.half_step)


def _compared(
    pair: Pair, both: Alike, ratio: Estimate, sizes: int, margin: float, in_blocks: bool
) -> Comparison:  # fmt: skip
    """`ratio` has the interval of its question."""
    base, other, steps = both.base, both.other, half_steps(pair)
    verdict, why, more = judge(ratio, margin, in_blocks and pair.base.until_decided)
    if verdict in ("slower", "faster") and not in_blocks and (moved := drift(base, other)):
        verdict, why, more = "unclear", Reason("drift", (moved,)), None
    kinds = slow(base, other, one_median=verdict == "same")
    if kinds is None and in_blocks and not pair.base.until_decided:  # whose bound holds at one look
        kinds = slow_samples(pair, both.of_base)
        if kinds is not None and verdict == ("slower" if kinds.on_other else "faster"):
            kinds = None  # the verdict says it already
    sides = (centre(base, half_step=steps[1]), centre(other, half_step=steps[0]))
    return Comparison(
        pair, *sides, ratio, sizes, _paper_diff(pair), verdict, why, more, in_blocks, (len(base), len(other)),
        both.left_out, kinds, serial(base, other, in_blocks),
    )  # fmt: skip


def _as_measured(comparison: Comparison, pair: Pair, used: Pair, contended: int) -> Comparison:
    """With every launch of the pair, and with how many were not used because they were contended."""
    base, other = (cpu_time(cell) or cpu_time(whole)
                   for cell, whole in ((used.base, pair.base), (used.other, pair.other)))  # fmt: skip
    comparison = replace(comparison, pair=pair, contended=contended, cpu=(base, other))
    refused = comparison.verdict == "not comparable" and comparison.why.kind not in ("no common blocks", "no launches")
    if refused or not contended or min(len(used.base.medians), len(used.other.medians)) >= FEWEST:
        return comparison
    if used.base.medians and used.other.medians:
        return replace(comparison, why=comparison.why._replace(contended=contended))
    return replace(comparison, verdict="unclear", why=Reason("no launches", contended=contended), launches=(0, 0))


def _not_compared(pair: Pair, why: Reason, in_blocks: bool) -> Comparison:
    """Shows what was measured nevertheless, of every launch."""
    base, other = (centre(cell.medians, half_step=cell.half_step) if cell.medians else None
                   for cell in (pair.base, pair.other))  # fmt: skip
    launches = (len(pair.base.medians), len(pair.other.medians))
    return Comparison(pair, base, other, None, 0, None, "not comparable", why, None, in_blocks, launches)


def not_comparable(pair: Pair, both: Alike, in_blocks: bool) -> Reason | None:
    """Why a cell has no verdict; None where it can have one."""
    for cell, name in ((pair.base, pair.base_name), (pair.other, pair.other_name)):
        if not cell.medians:
            return Reason("not measured", (name, "failed" if cell.failed else "skipped", *sorted(cell.reasons)))
        if cell.wrong:
            return Reason("wrong results", (name, cell.wrong))
        if not_loaded := cell.not_loaded:
            return Reason("not loaded", (name, *not_loaded))
    if both.refused:
        return Reason("measured differently", both.refused)
    works = (pair.base.work, pair.other.work)
    least, most = sorted(work.amount for work in works)
    if works[0].unit != works[1].unit or least * 1.05 < most:
        return Reason("other work", tuple((work.amount, work.unit) for work in works))
    if not both.base or not both.other:
        return Reason("no common blocks" if in_blocks else "no launches")
    return Reason("clock 0") if min(*both.base, *both.other) <= 0.0 else None


def judge(ratio: Estimate, margin: float, until_decided: bool = False) -> tuple[Verdict, Reason, int | None]:
    """The verdict on a ratio, why, and how many launches it lacks: None where they would not help, or come anyway."""
    if ratio.interval is None and not (until_decided and ratio.n >= FEWEST):
        lacking = max(FEWEST - ratio.n, 1)
        return "unclear", Reason("few launches", (lacking,)), lacking
    verdict = verdict_on(ratio, margin)  # without an interval `unclear`
    if verdict != "unclear":
        return verdict, Reason("within margin" if verdict == "same" else "excludes equality"), None
    if until_decided:
        return verdict, Reason("blocks", (ratio.n,)), None
    more = launches_more(ratio, margin)
    if more is None and hidden_by_clock(ratio, margin):
        return verdict, Reason("clock", (math.expm1(ratio.resolution),)), None
    return verdict, Reason("launches", (more,)), more


def verdict_on(ratio: Estimate, margin: float) -> Verdict:
    """`same` where the whole interval lies within the margin; else `faster` or `slower` where it excludes 1."""
    if ratio.within(1 / (1 + margin), 1 + margin):
        return "same"
    if ratio.excludes(1.0):
        return "slower" if ratio.value > 1 else "faster"
    return "unclear"


def _paper_diff(pair: Pair) -> float | None:
    base, other = (sum(cell.means) / len(cell.means) for cell in (pair.base, pair.other))
    if pair.base.work.shown in ("rate", "score"):  # amount over seconds: the sides change places
        base, other = other, base
    percent = (base - other) / base * 100 if base > 0 else math.inf
    return percent if math.isfinite(percent) else None


def launches_more(ratio: Estimate, margin: float) -> int | None:
    """Launches a side after which there is a verdict with probability `CHANCE`; None above `MOST`.

    The prior: nothing differs with probability 1/2, otherwise the logarithm of the ratio is normal, 0 +- `USUAL`. The
    interval makes a posterior of it, from which follows how the estimate and its interval are distributed after more
    launches (predictive power: Spiegelhalter, Freedman and Blackburn, Controlled Clinical Trials 7 (1986) 8-17).
    """
    assert ratio.interval is not None
    if hidden_by_clock(ratio, margin) or not all(0 < end < math.inf for end in ratio.interval):
        return None
    low, high = (math.log(end) for end in ratio.interval)
    half = max((high - low) / 2 - ratio.resolution, 1e-9)
    later = ratio.n + _TRIED
    narrower = half * np.sqrt(ratio.n / later)
    inside = np.maximum(math.log1p(margin) - narrower - ratio.resolution, 0.0)
    estimate = abs(math.log(ratio.value)), half / NORMAL.inv_cdf(1 - ALPHA / 2)
    outside = _chance_outside(narrower + ratio.resolution, 1 - ratio.n / later, *estimate)
    chance = outside + 1 - _chance_outside(inside, 1 - ratio.n / later, *estimate)
    enough = np.flatnonzero(chance >= CHANCE)
    return int(_TRIED[enough[0]]) if len(enough) else None


def hidden_by_clock(ratio: Estimate, margin: float) -> bool:
    """Whether the clock's step, more than the spread of launches, keeps the interval from being narrow enough."""
    assert ratio.interval is not None
    half = math.log(ratio.interval[1] / ratio.interval[0]) / 2
    return ratio.resolution > math.log1p(margin) / 3 and ratio.resolution > half / 2


def _chance_outside(bound: Floats, new: Floats, effect: float, error: float) -> Floats:
    """The chance [m] that in the end, with a share `new` [m] of later launches, the estimate is beyond +-`bound` [m].

    Those before have a difference (a logarithm) of `effect`, with this standard error.
    """
    wide = math.hypot(error, USUAL)
    nothing, something = (math.exp(-((effect / deviation) ** 2) / 2) / deviation for deviation in (error, wide))
    share = nothing / max(nothing + something, 1e-300)
    shrunk = (USUAL / wide) ** 2
    chances: list[Floats] = []
    below = needed("scipy.special", "SciPy").ndtr  # the normal distribution function
    for true, unsure in ((0.0, 0.0), (effect * shrunk, error * math.sqrt(shrunk))):  # of no difference, and of one
        centre = (1 - new) * effect + new * true
        deviation = np.maximum(np.sqrt((new * unsure) ** 2 + new * (1 - new) * error**2), 1e-12)
        chances.append(below((centre - bound) / deviation) + below((-centre - bound) / deviation))
    return share * chances[0] + (1 - share) * chances[1]


#: The suite of a benchmark that nobody knows here.
OTHER = "other"

#: What the sides of programs may differ in, the likeliest first.
OF_PROGRAMS = ("policy", "isolation", "gpus", "cores", "storage", "seccomp", "image")

#: Factors by which the sides of collectives are compared, where a run has several.
OF_COLLECTIVES = ("policy", "gpus", "cores", "image", "backend", "driver")


@dataclass(frozen=True)
class NotCompared:
    """A benchmark, or one way to run it (`fio ioengine psync`); `why` is empty if it was measured on one side only."""

    benchmark: str
    label: str
    why: str


@dataclass(frozen=True)
class Suite:
    """Benchmarks, by name with their comparisons, and those whose sides are not compared."""

    name: str
    compared: Mapping[str, Sequence[Comparison]]
    refused: tuple[NotCompared, ...] = ()

    @property
    def comparisons(self) -> list[Comparison]:
        return [comparison for of_benchmark in self.compared.values() for comparison in of_benchmark]

    @property
    def benchmarks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.compared, *(refused.benchmark for refused in self.refused))))


def factors_of(observed: Observed) -> list[str]:
    """Those in which the cells differ; isolation alone where the policy is the same everywhere."""
    varying = [name for name in OF_PROGRAMS if FACTORS[name].varies(observed.cells)]
    policies = {case.where.policy for case in observed.cells}
    return [name for name in varying if name != ("isolation" if len(policies) > 1 else "policy")]


def by_suite(observed: Observed, factor: str, suite_of: Mapping[str, str], margin: float = MARGIN) -> tuple[Suite, ...]:
    """The programs `observed`, by the suite of each benchmark, those of unknown suites last."""
    pairs, refused = _pairs(observed, factor)
    comparisons = compare(pairs, margin, observed.interleaved)
    by_name = grouped((comparison.pair.base.case.workload, comparison) for comparison in comparisons)
    compared = grouped((suite_of.get(name, OTHER), (name, of_name)) for name, of_name in by_name.items())
    lacking = grouped((suite_of.get(refusal.benchmark, OTHER), refusal) for refusal in refused)
    names = sorted({*compared, *lacking}, key=lambda name: (name == OTHER, name))
    return tuple(Suite(name, dict(compared.get(name, ())), tuple(lacking.get(name, ()))) for name in names)


def _pairs(observed: Observed, factor: str) -> tuple[list[Pair], list[NotCompared]]:
    """Of each benchmark, storage and way to run it by themselves: what is wrong with one stops no other."""
    groups: dict[tuple[str, tuple[tuple[str, Value], ...]], dict[Case, Cell]] = {}
    for case, cell in observed.cells.items():
        ways = {name: value for name, value in (*case.how.items(), ("storage", case.where.storage)) if name != factor}
        groups.setdefault((case.workload, tuple(ways.items())), {})[case] = cell
    pairs: list[Pair] = []
    refused: list[NotCompared] = []
    for (name, ways_of), cells in groups.items():
        try:
            pairs += within(replace(observed, cells=cells), FACTORS[factor], frozenset())
        except RequestError as error:
            others = [dict(other) for workload, other in groups if workload == name]
            differing = [way for way, value in ways_of if any(other.get(way) != value for other in others)]
            label = " ".join([name, *(f"{way} {dict(ways_of)[way]}" for way in differing)])
            refused.append(NotCompared(name, label, listed_facts(error) if FACTORS[factor].varies(cells) else ""))
    return pairs, refused


def planned(observed: Observed, margin: float = MARGIN) -> list[Comparison]:
    """Every comparison of a run's sides, those of each factor tested together: of collectives, then of programs."""
    collectives, programs = (
        replace(observed, cells={case: cell for case, cell in observed.cells.items() if bool(case["backend"]) is ranks})
        for ranks in (True, False)
    )
    of_factors = [of_factor for of_factor, _ in of_collectives(collectives, margin).values()]
    of_factors += [suite.comparisons for name in factors_of(programs) for suite in by_suite(programs, name, {}, margin)]
    return [comparison for of_factor in of_factors for comparison in of_factor]


def of_collectives(observed: Observed, margin: float = MARGIN) -> dict[str, tuple[list[Comparison], str]]:
    """By every factor of `OF_COLLECTIVES`, or why there are none; by isolation where no two policies can be."""

    def by(name: str) -> tuple[list[Comparison], str]:
        try:
            pairs = within(observed, FACTORS[name], frozenset())
        except RequestError as error:
            return [], str(error)
        return compare(pairs, margin, observed.interleaved), ""

    varying = [name for name in (*OF_COLLECTIVES, "isolation") if FACTORS[name].varies(observed.cells)]
    by_factor = {name: by(name) for name in varying if name in OF_COLLECTIVES}
    if "isolation" in varying and by_factor["policy"][1]:  # an axis of policy, which therefore varies too
        by_factor["isolation"] = by("isolation")
    return by_factor
