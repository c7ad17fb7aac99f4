"""A comparison in one breath: the verdict in a sentence, what differs with the losses first, and what could mislead."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.analysis.compare import Comparison
from collbench.report import cpu_time, repeatable
from collbench.report.cells import disturbances, unlike, waited
from collbench.report.comparison import (
    common_case,
    difference,
    of_difference,
    of_launches,
    row_launches,
    side_names,
    verdict,
    what_differs,
)
from collbench.report.headings import heading
from collbench.report.more_launches import ways_to_tell, what_tells
from collbench.report.tables import Table, without_empty
from collbench.units import counted, format_duration, format_size

#: More rows of what differs are counted, and so are more reasons.
MOST_ROWS, MOST_REASONS = 20, 4

_NOT_IN_TURNS = "the sides were not measured in turns"

COLUMNS = ("verdict", "what", "image", "sides", "size (B)", "difference (%)", "difference 95 %", "base", "other",
           "launches")  # fmt: skip

_ORDER = {"slower": 0, "faster": 2}

#: Verdicts of cells that are within the margin.
_EQUAL = ("same", "negligible")


def tables(comparisons: Sequence[Comparison], margin: float, every: bool = False) -> list[Table]:
    """The verdict with what must be known of it, and a table of the cells that differ, unless `every` cell follows."""
    shown = _differing(comparisons)
    left_out = 0 if every else len(comparisons) - len(shown[:MOST_ROWS])
    lines = [*_of_open(comparisons), *_refused(comparisons), *remarks(comparisons)]
    lines += [f"every cell, with its times: --all ({left_out} more)"] if left_out else []
    found = [Table(sentence(comparisons, margin), (), (), tuple(lines))]
    return [*found, _table(comparisons, shown[:MOST_ROWS])] if shown and not every else found


def sentence(comparisons: Sequence[Comparison], margin: float) -> str:
    """`b against a: 2 of 14 cells are slower, worst +12.0 % (+10.1 .. +13.9) at 64K; 9 same within 2 %; 3 open`.

    Of those that are open the largest loss that their intervals do not exclude: not significant is not no loss. Where
    sides were not measured in turns the machine may be what differs: `2 of 14 cells are slower, or the machine was`.
    """
    slower, faster, open_, refused = (
        [one for one in comparisons if one.verdict == name]
        for name in ("slower", "faster", "inconclusive", "not comparable")
    )
    equal = [one for one in comparisons if one.verdict in _EQUAL]
    apart = any(not one.blocks for one in comparisons)
    number = counted(len(comparisons), "cell")
    if slower:
        worst = _most("worst", slower, max(slower, key=_ratio), comparisons)
        parts = [f"{len(slower)} of {number} {'is' if len(slower) == 1 else 'are'} slower{_by(apart)} {worst}"]
    elif len(open_) + len(refused) == len(comparisons):
        parts = [f"Nothing is established of {number}"]
    else:
        parts = [f"None of {number} is established to be slower"]
    if faster:
        best = _most("at most", faster, min(faster, key=_ratio), comparisons)
        parts.append(f"{len(faster)} faster{_by(apart and not slower)} {best}")
    parts += [_same(equal, margin, apart and not slower and not faster)] if equal else []
    parts += [f"{len(open_)} open{_not_excluded(open_, comparisons)}"] if open_ else []
    parts += [f"{len(refused)} not compared"] if refused else []
    return f"{_against(comparisons)}{'; '.join(parts)}"


def _by(apart: bool) -> str:
    """What else may be the cause where sides were measured `apart`, or a comma."""
    return f", or the machine was: {_NOT_IN_TURNS};" if apart else ","


def _most(what: str, of: Sequence[Comparison], most: Comparison, among: Sequence[Comparison]) -> str:
    return f"{f'{what} ' if len(of) > 1 else ''}{_named(most, among)}"


def _same(equal: Sequence[Comparison], margin: float, apart: bool) -> str:
    """`9 same within 2 %`, with what a median hides; and of sides measured `apart`, what the machine may hide."""
    unlike = sum(one.slow is not None for one in equal)
    tails = f" in the median, {unlike} of them with other numbers of slow launches" if unlike else ""
    return f"{len(equal)} same within {margin * 100:g} %{tails}{f', but {_NOT_IN_TURNS}' if apart else ''}"


def _not_excluded(open_: Sequence[Comparison], among: Sequence[Comparison]) -> str:
    """` (a loss of up to 148.8 % at 64K is not excluded)`; empty where no interval tells."""
    known = [one for one in open_ if one.ratio is not None and one.ratio.interval is not None]
    if not known:
        return ""
    largest = max(known, key=_upper)
    loss = (_upper(largest) - 1) * 100
    size = f" at {_size(largest)}" if len({_size(one) for one in among}) > 1 else ""
    return f" (a loss of up to {loss:.1f} %{size} is not excluded)" if loss > 0 else ""


def _upper(comparison: Comparison) -> float:
    ratio = comparison.ratio
    return 0.0 if ratio is None or ratio.interval is None else ratio.interval[1]


def _against(comparisons: Sequence[Comparison]) -> str:
    """`single against host: `, where there are only these two sides."""
    names = {(one.pair.other_name, one.pair.base_name) for one in comparisons}
    return f"{' against '.join(names.pop())}: " if len(names) == 1 else ""


def _ratio(comparison: Comparison) -> float:
    return comparison.ratio.value if comparison.ratio is not None else 1.0


def _differing(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The largest loss first, the largest gain last; between them those that differ in slow launches alone."""
    found = [one for one in comparisons if one.verdict in _ORDER or one.slow is not None]
    return sorted(found, key=lambda one: (_ORDER.get(one.verdict, 1), -_ratio(one)))


def _named(comparison: Comparison, among: Sequence[Comparison]) -> str:
    """`+12.0 % (+10.1 .. +13.9) at 64K (allreduce, host > single strict)`: what tells it from the others."""
    percent, ends = difference(comparison)
    size = _size(comparison) if len({_size(one) for one in among}) > 1 else ""
    labels, _ = _labels(among)
    words = [labels[id(comparison)]]
    words += [text(comparison) for text in (_image, _sides) if len({text(one) for one in among}) > 1]
    where = ", ".join(filter(None, words))
    return (f"{percent} %{f' ({ends})' if ends else ''}{f' at {size}' if size else ''}"
            f"{f' ({where})' if where else ''}")  # fmt: skip


def _labels(comparisons: Sequence[Comparison]) -> tuple[dict[int, str], str]:
    """What is measured in each cell, without what is the same in all of them; and that."""
    parts = {id(one): heading(common_case(one.pair)).split(", ") for one in comparisons}
    shared = [part for part in next(iter(parts.values()), []) if all(part in own for own in parts.values())]
    return {name: ", ".join(part for part in own if part not in shared) for name, own in parts.items()}, ", ".join(
        shared
    )


def _size(comparison: Comparison) -> str:
    case = comparison.pair.base.case
    return format_size(case["size"]) if "size" in case.what else ""


def _image(comparison: Comparison) -> str:
    base, other = (cell.case.where.image or "" for cell in (comparison.pair.base, comparison.pair.other))
    return base if base == other else ""


def _sides(comparison: Comparison) -> str:
    return side_names(comparison.pair, False)


def _table(comparisons: Sequence[Comparison], shown: Sequence[Comparison]) -> Table:
    labels, shared = _labels(comparisons)
    rows = tuple(_row(one, labels[id(one)]) for one in shown)
    title = f"what differs{f'; in all of them: {shared}' if shared else ''}"
    return without_empty(Table(title, COLUMNS, rows, (of_difference(shown[0].blocks),)))


def _row(comparison: Comparison, label: str) -> tuple[str, ...]:
    times = ("" if side is None else format_duration(side.value) for side in (comparison.base, comparison.other))
    return (verdict(comparison), label, _image(comparison), _sides(comparison), _size(comparison),
            *difference(comparison), *times, row_launches(comparison))  # fmt: skip


def _of_open(comparisons: Sequence[Comparison]) -> list[str]:
    """What is open, said once, with what would tell."""
    found = [one for one in comparisons if one.verdict == "inconclusive"]
    return [f"{len(found)} open: {what_tells(found)}", *ways_to_tell(found)] if found else []


def _refused(comparisons: Sequence[Comparison]) -> list[str]:
    reasons: dict[str, int] = {}
    for one in comparisons:
        if one.verdict == "not comparable":
            reasons[one.why] = reasons.get(one.why, 0) + 1
    lines = [f"not compared: {why}{f' ({number} cells)' if number > 1 else ''}" for why, number in reasons.items()]
    more = len(lines) - MOST_REASONS
    return lines[:MOST_REASONS] + ([f"not compared, for {counted(more, 'other reason')}: --all"] if more > 0 else [])


def remarks(comparisons: Sequence[Comparison]) -> list[str]:
    """What could mislead, each line once."""
    pairs = [one.pair for one in comparisons]
    cells = list({id(cell): cell for pair in pairs for cell in (pair.base, pair.other)}.values())
    several = len({pair.base.case.workload for pair in pairs}) > 1
    unequal = repeatable.findings(comparisons) if several else repeatable.remarks(comparisons)
    differing = what_differs(comparisons)
    told = [line for line in differing if not line.startswith("transport: ")]
    transports = [line for line in differing if line not in told]
    more = len(transports) - MOST_REASONS
    told += transports if more <= 0 else [f"transports differ between {len(transports)} pairs of places: --all"]
    delayed = [line for line in cpu_time.remarks(comparisons) if not line.startswith(cpu_time.COLUMN)]
    limits = of_launches(comparisons, planned=False) if comparisons else []
    found = (*unequal, *delayed, *limits, *told, *disturbances(cells), *waited(cells),
             *unlike([(pair.base, pair.other) for pair in pairs]))  # fmt: skip
    return list(dict.fromkeys(found))
