"""CPU seconds of programs in tables of comparisons: whether a side computes for longer, or waits."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.analysis.compare import Comparison
from collbench.analysis.launches import ProcessorTime, only_waited
from collbench.report.parameters import row_words, varying

COLUMN = "CPU s/s"


def shares(comparison: Comparison) -> str:
    """`0.99 and 0.47`: CPU seconds in a second of each side, one number where they agree; empty where unknown."""
    if None in comparison.cpu:
        return ""
    base, other = (f"{used.share:.2f}" for used in comparison.cpu if used is not None)
    return base if base == other else f"{base} and {other}"


def remarks(rows: Sequence[Comparison]) -> list[str]:
    """What the column means, and where a difference is time that a side waited."""
    known = any(shares(comparison) for comparison in rows)
    lines = [f"{COLUMN}: CPU seconds in each second of the program, its start included, base and other"] * known
    cases = [comparison.pair.base.case for comparison in rows]
    names = [name for name in varying(cases) if name != "measure" and len({case[name] for case in cases}) > 1]
    return list(dict.fromkeys(lines + [line for comparison in rows if (line := _waited(comparison, names))]))


def _waited(comparison: Comparison, names: Sequence[str]) -> str:
    """The remark where one side took longer for the same CPU seconds, with the values of `names`; empty elsewhere."""
    base, other = comparison.cpu
    established = comparison.verdict in ("slower", "faster")
    if base is None or other is None or not established or not only_waited(base, other):
        return ""
    pair = comparison.pair
    at = f"{row_words(pair.base.case, names)}: " if names else ""
    both = f"{pair.base_name} {_seconds(base.seconds)}, {pair.other_name} {_seconds(other.seconds)}"
    longer, shorter = sorted(((base.wall, pair.base_name), (other.wall, pair.other_name)), reverse=True)
    times = f"{_seconds(longer[0])} against {_seconds(shorter[0])}"
    return f"{at}same CPU seconds for each sample ({both}), in {times}: {longer[1]} waited"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s"


def document(used: ProcessorTime | None) -> dict[str, float] | None:
    """For programs: seconds, and what `shares` shows."""
    return None if used is None else {"seconds": used.seconds, "wall": used.wall, "share": used.share}
