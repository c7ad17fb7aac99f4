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
            yield f"{pair.label(suite.name)}: {'; '.join(filter(None, (text, refused)))}."


def _refused(suite: Suite) -> str:
    """`not compared: dd, fio (library: ...)`: by reason."""
    by_reason: dict[str, list[str]] = {}
    for one in suite.refused:
        by_reason.setdefault(one.why, []).append(one.label)
    listed = [f"{', '.join(names)} ({why})" for why, names in by_reason.items()]
    return f"not compared: {'; '.join(listed)}" if listed else ""


def _between(comparisons: Sequence[Comparison], pair: Sides) -> list[Comparison]:
    return [one for one in comparisons if (one.pair.base_name, one.pair.other_name) == (pair.base, pair.other)]


def _found(found: Found, sides: Sides, margin: float, all_of: int) -> str:
    by_verdict = {verdict: _with(found, verdict) for verdict in ("slower", "faster", "inconclusive", "not comparable")}
    if not any(by_verdict.values()) and all_of == len(found):
        return (
            f"{_cost(found, sides, margin)}: {_all(found)} {_within(margin)} ({_range(found)}){_slow_at_times(found)}"
        )
    other = {name for verdict in by_verdict.values() for name in verdict}
    alike = {name: own for name, own in found.items() if name not in other}
    in_all = f" of {counted(all_of, 'benchmark')}"
    decided = [(word, by_verdict[word]) for word in ("slower", "faster") if by_verdict[word]]
    parts = [_decided(own, word, "" if index else in_all, sides) for index, (word, own) in enumerate(decided)]
    parts += [f"{_named(alike)} {_within(margin)}{_slow_at_times(alike)}" if alike else ""]
    parts += [_undecided(by_verdict["inconclusive"], margin, all_of), _apart(by_verdict["not comparable"])]
    return "; ".join(part for part in parts if part)


def _cost(found: Found, sides: Sides, margin: float) -> str:
    """A difference that is negligible is measurable nevertheless."""
    same = all(one.verdict == "same" for own in found.values() for one in own)
    if sides.contained:
        return f"the container costs {'nothing measurable' if same else f'less than {margin * 100:g} %'}"
    return "no measurable difference" if same else f"no difference of {margin * 100:g} % or more"


def _with(found: Found, verdict: str) -> dict[str, list[Comparison]]:
    return {name: own for name, all_of in found.items() if (own := [one for one in all_of if one.verdict == verdict])}


def _all(found: Found) -> str:
    return f"all {len(found)} benchmarks are" if len(found) > 2 else _named(found)


def _named(found: Found) -> str:
    """One or two by their names, more by their number."""
    return _are(found) if len(found) > 2 else f"{' and '.join(found)} {_verb(found)}"


def _verb(found: Found) -> str:
    return "is" if len(found) == 1 else "are"


def _are(found: Found) -> str:
    return f"{len(found)} {_verb(found)}"


def _within(margin: float) -> str:
    return f"within ±{margin * 100:g} %"


def _range(found: Found) -> str:
    """Of all intervals together."""
    ends = _ends([one for own in found.values() for one in own])
    return f"95 % intervals from {signed(min(ends))} to {signed(max(ends))} %"


def _ends(comparisons: Iterable[Comparison]) -> list[float]:
    """Of all intervals that there are."""
    return [end for one in comparisons if one.ratio for end in one.ratio.interval or ()]


def _decided(found: Found, word: str, in_all: str, sides: Sides) -> str:
    """`2 of 7 benchmarks are slower in the container, the worst dd (count 16) by 6.1 % (5.2 to 6.8 %)`."""
    ordered = sorted((one for own in found.values() for one in own), key=_ratio, reverse=word == "slower")
    where = f" {sides.where}" if in_all else ""
    most = "" if len(ordered) == 1 else "the worst " if word == "slower" else "the most "
    name = case_words(ordered[0], found[ordered[0].pair.base.case.workload])
    return f"{len(found)}{in_all} {_verb(found)} {word}{where}, {most}{name} by {by_how_much(ordered[0])}"


def _undecided(found: Found, margin: float, all_of: int) -> str:
    """`1 is undecided: intervals reach beyond ±2 % (ioping, -2.3 to +2.3 %)`."""
    if not found:
        return ""
    start = "undecided" if len(found) == all_of else f"{_are(found)} undecided"
    few = [one for own in found.values() for one in own if one.ratio is None or one.ratio.interval is None]
    ends = {name: _ends(own) for name, own in found.items()}
    wide = [f"{name}, {signed(min(own))} to {signed(max(own))} %" for name, own in ends.items() if own]
    reasons = [f"intervals reach beyond ±{margin * 100:g} % ({_some(wide, '; ')})"] if wide else []
    reasons += [f"launches are too few for an interval ({few[0].why})"] if few else []
    return f"{start}: {', '.join(reasons)}"


def _apart(found: Found) -> str:
    names = [f"{name} ({own[0].why.partition(';')[0]})" for name, own in found.items()]
    return f"{_are(found)} not comparable: {_some(names)}" if found else ""


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
