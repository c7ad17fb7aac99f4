"""A sentence for each suite: what the other side costs, what is undecided, and what was not compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from collbench.analysis.compare import Comparison
from collbench.analysis.suites import Suite
from collbench.report.parameters import row_words, varying
from collbench.units import counted

#: How suites are called where their name is not a word.
_TITLES = {"cpu": "CPU", "io": "I/O", "gpu": "GPU", "dl": "Deep learning"}

#: Benchmarks that a sentence names, before it counts the rest.
MOST_NAMED = 4

Found = Mapping[str, Sequence[Comparison]]


@dataclass(frozen=True)
class Sides:
    """Both sides by name. `contained`: the base is the host, the other a container, and there is no third side."""

    base: str
    other: str
    contained: bool

    @property
    def where(self) -> str:
        return "in the container" if self.contained else f"with {self.other}"

    def label(self, suite: str) -> str:
        return title_of(suite) if self.contained else f"{title_of(suite)}, {self.other} against {self.base}"


def title_of(suite: str) -> str:
    return _TITLES.get(suite, suite.capitalize())


def sentences(suites: Sequence[Suite], margin: float) -> tuple[str, ...]:
    """For every suite and pair of sides, by suite."""
    pairs = [comparison.pair for suite in suites for comparison in suite.comparisons]
    names = dict.fromkeys((pair.base_name, pair.other_name) for pair in pairs)
    on_host = all(pair.base.case.where.on_host and not pair.other.case.where.on_host for pair in pairs)
    sides = [Sides(*name, on_host and len(names) == 1) for name in names]
    return tuple(line for suite in suites for line in _of_suite(suite, sides, margin))


def _of_suite(suite: Suite, sides: Sequence[Sides], margin: float) -> Iterable[str]:
    refused = _refused(suite)
    if not suite.compared:
        yield f"{title_of(suite.name)}: {refused}."
    for pair in sides:
        found = {name: own for name, all_of in suite.compared.items() if (own := _between(all_of, pair))}
        if found:
            text = _found(found, pair, margin, len(suite.benchmarks))
            yield f"{pair.label(suite.name)}: {'; '.join(filter(None, (text, _second(found), refused)))}."


def _refused(suite: Suite) -> str:
    """`not compared: dd, fio (library: ...)`: by reason."""
    by_reason: dict[str, list[str]] = {}
    for one in suite.refused:
        by_reason.setdefault(one.why, []).append(one.label)
    listed = [f"{', '.join(names)} ({why})" for why, names in by_reason.items()]
    return f"not compared: {'; '.join(listed)}" if listed else ""


def _between(comparisons: Sequence[Comparison], pair: Sides) -> list[Comparison]:
    return [one for one in comparisons if (one.pair.base_name, one.pair.other_name) == (pair.base, pair.other)]


def decisive(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Those that decide a benchmark: of a training the whole step, if it was measured, and not its parts."""
    steps = [one for one in comparisons if one.pair.base.case["measure"] == "step"]
    return steps or list(comparisons)


def _second(found: Found) -> str:
    """`of 8 parts of steps 1 is slower, ddp (communication, network lstm) by 46.0 % (28.5 to 60.5 %), 7 undecided`."""
    cells = [one for own in found.values() for one in own if one not in decisive(own)]
    if not cells:
        return ""
    parts = []
    for word in ("slower", "faster"):
        decided = [one for one in cells if one.verdict == word]
        parts += [f"{_are(len(decided))} {word}, {_worst(decided, word, found)}"] if decided else []
    left = len(cells) - sum(one.verdict in ("slower", "faster", "unclear") for one in cells)
    still = sum(one.verdict == "unclear" for one in cells)
    parts += [f"{left} without a difference or not comparable"] if left else []
    parts += [f"{still} undecided"] if still else []
    if still == len(cells):
        return f"all {counted(still, 'part')} of steps undecided"
    return f"of {counted(len(cells), 'part')} of steps {', '.join(parts)}"


def _found(every: Found, sides: Sides, margin: float, all_of: int) -> str:
    """Of what decides benchmarks: counted in these where each has one cell, else in cells: numbers add up."""
    found = {name: decisive(own) for name, own in every.items()}
    cells = [one for own in found.values() for one in own]
    by_verdict = {verdict: [one for one in cells if one.verdict == verdict]
                  for verdict in ("slower", "faster", "unclear", "not comparable")}  # fmt: skip
    if not any(by_verdict.values()) and all_of == len(found):
        return (
            f"{_cost(found, sides, margin)}: {_all(found)} {_within(margin)} ({_range(found)}){_slow_at_times(found)}"
        )
    single = len(cells) == len(found)
    total = all_of if single else len(cells)
    alike = {name: kept for name, own in found.items() if (kept := [one for one in own if _is_alike(one)])}
    in_all = f" of {counted(total, 'benchmark' if single else 'cell')}"
    decided = [(word, by_verdict[word]) for word in ("slower", "faster") if by_verdict[word]]
    parts = [_decided(own, word, "" if index else in_all, sides, every) for index, (word, own) in enumerate(decided)]
    named = single or not any(by_verdict.values())
    equal = _named(alike) if named else _are(sum(map(len, alike.values())))
    parts += [f"{equal} {_within(margin)}{_slow_at_times(alike)}" if alike else ""]
    parts += [_undecided(by_verdict["unclear"], margin, total, every), _apart(by_verdict["not comparable"])]
    return "; ".join(part for part in parts if part)


def _is_alike(comparison: Comparison) -> bool:
    return comparison.verdict == "same"


def _cost(found: Found, sides: Sides, margin: float) -> str:
    """A difference within the margin may be measurable nevertheless."""
    same = not any(one.ratio.excludes(1.0) for own in found.values() for one in own if one.ratio is not None)
    if sides.contained:
        return f"the container costs {'nothing measurable' if same else f'less than {margin * 100:g} %'}"
    return "no measurable difference" if same else f"no difference of {margin * 100:g} % or more"


def _all(found: Found) -> str:
    return f"all {len(found)} benchmarks are" if len(found) > 2 else _named(found)


def _named(found: Found) -> str:
    """One or two by their names, more by their number."""
    return _are(len(found)) if len(found) > 2 else f"{' and '.join(found)} {_is_or_are(len(found))}"


def _is_or_are(number: int) -> str:
    return "is" if number == 1 else "are"


def _are(number: int) -> str:
    return f"{number} {_is_or_are(number)}"


def _within(margin: float) -> str:
    return f"within ±{margin * 100:g} %"


def _range(found: Found) -> str:
    """Of all intervals together."""
    ends = _ends([one for own in found.values() for one in own])
    return f"95 % intervals from {signed(min(ends))} to {signed(max(ends))} %"


def _ends(comparisons: Iterable[Comparison]) -> list[float]:
    """Of all intervals that there are."""
    return [end for one in comparisons if one.ratio for end in one.ratio.interval or ()]


def _decided(cells: Sequence[Comparison], word: str, in_all: str, sides: Sides, found: Found) -> str:
    """`2 of 7 benchmarks are slower in the container, the worst dd (count 16) by 6.1 % (5.2 to 6.8 %)`."""
    where = f" {sides.where}" if in_all else ""
    where += "" if cells[0].blocks else ", or the machine was (not measured alternately)"
    return f"{len(cells)}{in_all} {_is_or_are(len(cells))} {word}{where}, {_worst(cells, word, found)}"


def _worst(cells: Sequence[Comparison], word: str, found: Found) -> str:
    """The cell that differs most, by what tells it from all others of its benchmark, whatever their verdicts."""
    worst = (max if word == "slower" else min)(cells, key=_ratio)
    most = "" if len(cells) == 1 else "the worst " if word == "slower" else "the most "
    return f"{most}{case_words(worst, found[worst.pair.base.case.workload])} by {by_how_much(worst)}"


def _undecided(cells: Sequence[Comparison], margin: float, total: int, found: Found) -> str:
    """`1 is undecided: intervals reach beyond ±2 % (ioping, -2.3 to +2.3 %)`: of each benchmark and measure."""
    if not cells:
        return ""
    start = "undecided" if len(cells) == total else f"{_are(len(cells))} undecided"
    few = [one for one in cells if one.ratio is None or one.ratio.interval is None]
    apart: dict[str, list[Comparison]] = {}
    for one in cells:
        apart.setdefault(_measured(one, found), []).append(one)
    wide = [
        f"{name}, {signed(min(ends))} to {signed(max(ends))} %" for name, own in apart.items() if (ends := _ends(own))
    ]
    reasons = [f"intervals reach beyond ±{margin * 100:g} % ({_some(wide, '; ')})"] if wide else []
    reasons += [f"launches are too few for an interval ({few[0].why})"] if few else []
    return f"{start}: {', '.join(reasons)}"


def _measured(comparison: Comparison, found: Found) -> str:
    """`fio p99`: the benchmark, with the measure where it has several or this is a step."""
    case = comparison.pair.base.case
    measures = {one.pair.base.case["measure"] for one in found[case.workload]}
    return f"{case.workload} {case['measure']}" if len(measures) > 1 or "step" in measures else case.workload


def _apart(cells: Sequence[Comparison]) -> str:
    """By benchmark the first reason of each."""
    reasons = {one.pair.base.case.workload: one.why.partition(";")[0] for one in reversed(cells)}
    names = [f"{name} ({why})" for name, why in reversed(reasons.items())]
    return f"{_are(len(cells))} not comparable: {_some(names)}" if cells else ""


def _slow_at_times(found: Found) -> str:
    """Medians that agree hide launches that are far slower."""
    names = [name for name, own in found.items() if any(one.slow is not None for one in own)]
    return f", but launches are slow at times on one side: {_some(names)}" if names else ""


def _some(names: Sequence[str], between: str = ", ") -> str:
    more = len(names) - MOST_NAMED
    return between.join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def case_words(comparison: Comparison, among: Sequence[Comparison]) -> str:
    """`fio (p99, bs 4096)`: the benchmark, and what tells this comparison from the others of it."""
    cases = [one.pair.base.case for one in among]
    several = [name for name in varying(cases) if len({case[name] for case in cases}) > 1]
    words = row_words(comparison.pair.base.case, sorted(several, key=lambda name: name != "measure"))
    return comparison.pair.base.case.workload + (f" ({words})" if words else "")


def _ratio(comparison: Comparison) -> float:
    return 1.0 if comparison.ratio is None else comparison.ratio.value


def by_how_much(comparison: Comparison) -> str:
    """`6.1 % (5.2 to 6.8 %)`: without sign, the smaller end first."""
    ratio = comparison.ratio
    if ratio is None:
        return "-"
    shares = [abs(end - 1) * 100 for end in ratio.interval or ()]
    ends = f" ({_percent(min(shares))} to {_percent(max(shares))} %)" if shares else ""
    return f"{_percent(abs(ratio.value - 1) * 100)} %{ends}"


def _percent(value: float) -> str:
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def signed(ratio: float) -> str:
    """`+6.1`: in per cent; a difference that rounds to nothing has no sign."""
    text = f"{(ratio - 1) * 100:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text
