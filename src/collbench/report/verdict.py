"""A comparison in one breath: the verdict in a sentence, what differs, and what would decide the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

from collbench.analysis.compare import Comparison
from collbench.analysis.deciding import standing, standing_of_sides, still_open
from collbench.analysis.estimate import FEWEST
from collbench.analysis.observations import Cell
from collbench.analysis.planning import MOST
from collbench.report import cpu_time
from collbench.report import remarks as remarks_module
from collbench.report.cells import disturbances, failed, in_blocks, unlike, waited
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
from collbench.report.tables import Table, without_empty
from collbench.schema.gate_plan import is_gate, read_gate_plan
from collbench.schema.launch_plan import MOST_LAUNCHES
from collbench.units import counted, format_duration, format_size

#: Reasons that are named, before the rest is counted.
_MOST_REASONS = 2

#: Numbers of launches that differ by less than this factor are told as the largest of them.
_FAR = 3

#: Of a run until decided.
_BLOCKS = re.compile(r"not decided after ([0-9]+) blocks")

_OVER = f"needs more than {MOST} more launches"

#: What measures more of a run, and no longer what is decided.
EXTEND = (
    "more launches: collbench {command} PLAN --resume {run} --until decided --launches {most} "
    "(PLAN and other flags as it was begun; what is too noisy is given up)"
)

#: Instead, of sides that were not measured by one launch plan.
ALTERNATELY = "more launches: measure both sides alternately, by one launch plan (collbench launch PLAN)"


def ways_to_tell(comparisons: Iterable[Comparison]) -> list[str]:
    """What measures more of those that more launches may decide; none where no launch would be started.

    Twice the launches that a run was to have are suggested, as far as a plan may have so many, and enough to decide.
    """
    every = list(comparisons)
    open_ = [one for one in every if one.verdict == "inconclusive" and _may_tell(one)]
    lines = []
    for run in dict.fromkeys(one.pair.base.experiment for one in open_ if _in_one_run(one)):
        cells = {cell.case: cell for one in every for cell in (one.pair.base, one.pair.other) if cell.experiment == run}
        most = min(max(2 * max(cell.planned for cell in cells.values()), FEWEST), MOST_LAUNCHES)
        if _starts_launches(run, list(cells.values()), most):
            command = "gate" if is_gate(Path(run)) else "launch"
            lines.append(EXTEND.format(command=command, run=quote(run), most=most))
    return [*lines, *([] if all(map(_in_one_run, open_)) else [ALTERNATELY])]


def _starts_launches(run: str, cells: Sequence[Cell], most: int) -> bool:
    """Whether a run that is resumed until decided has a comparison that launches up to so many may still decide.

    What `launch` and `gate` decide is asked of these cells, by bets, and with their margin, whatever the reader's is.
    """
    if most <= max(cell.planned for cell in cells):
        return False
    asked = [replace(cell, until_decided=True) for cell in cells]
    blocks = 1 + max(cell.highest for cell in cells) - min(min(cell.launches, default=0) for cell in cells)
    if is_gate(Path(run)):
        found = standing_of_sides(asked, blocks, most, read_gate_plan(Path(run)).margins)
    else:
        found = standing(asked, blocks, most)
    return any(True for _ in still_open(found))


def _may_tell(comparison: Comparison) -> bool:
    """A run until decided may always be given more launches; how many would tell is not known."""
    judged_by_bets = comparison.blocks and comparison.pair.base.until_decided and comparison.ratio is not None
    return comparison.launches_more is not None or judged_by_bets


def _in_one_run(comparison: Comparison) -> bool:
    base, other = comparison.pair.base.experiment, comparison.pair.other.experiment
    return bool(base) and base == other


def what_tells(comparisons: Sequence[Comparison]) -> str:
    """How many launches would decide these cells, or why launches would not: first of the largest loss among them.

    Cells need so different numbers that neither the least nor the most of these stands for the others.
    """
    return "; ".join(_told(comparisons))


def tells_in_brief(comparisons: Sequence[Comparison]) -> str:
    """The first of it: `the largest loss among the undecided, +46.0 % at 1M, needs about 22 more launches`.

    Where that is out of reach, the second as well: how many others are not.
    """
    first, *others = _told(comparisons)
    second = others[:1] if first.endswith(_OVER) else []
    return "; ".join((first.replace("among them", "among the undecided"), *second))


def _told(comparisons: Sequence[Comparison]) -> list[str]:
    few = [one.launches_more for one in comparisons if one.launches_more and _few(one)]
    counts = sorted(one.launches_more for one in comparisons if one.launches_more and not _few(one))
    whys = sorted({_reason(one) for one in comparisons if one.launches_more is None})
    over = sum(_reason(one) == _OVER for one in comparisons)
    if len(few) == len(comparisons):
        return [f"at least {counted(max(few), 'more launch', 'more launches')} needed"]
    said = []
    if len(counts) == len(comparisons) and counts[0] * _FAR > counts[-1]:
        said.append(f"about {counted(counts[-1], 'more launch', 'more launches')} would tell")
    elif over == len(comparisons):
        said.append(f"not even {MOST} more launches would tell")
    elif few or counts or over:
        said += [_largest_loss(comparisons), _by_need(few, counts, over, len(comparisons))]
    others = _alike([text for text in whys if text != _OVER])
    left = len(others) - _MOST_REASONS
    return [*said, *others[:_MOST_REASONS], *([counted(left, "other reason")] if left > 0 else [])]


def _alike(whys: Sequence[str]) -> list[str]:
    """One of those that differ in a percentage alone, and one for all numbers of blocks."""
    blocks = sorted(int(match[1]) for why in whys if (match := _BLOCKS.fullmatch(why)))
    others = list({re.sub(r"[0-9.]+ %", "", why): why for why in whys if not _BLOCKS.fullmatch(why)}.values())
    after = f"{blocks[0]} to {blocks[-1]}" if len(blocks) > 1 else f"{blocks[0]}" if blocks else ""
    return [*([f"not decided after {after} blocks"] if blocks else []), *others]


def _largest_loss(comparisons: Sequence[Comparison]) -> str:
    """`the largest loss among them, +46.0 % at 1M, needs about 22 more launches`: as it was measured."""
    worst = max(comparisons, key=lambda one: 0.0 if one.ratio is None else one.ratio.value)
    sizes = {one.pair.base.case.what.get("size") for one in comparisons}
    size = worst.pair.base.case.what.get("size")
    where = f" at {format_size(size)}" if len(sizes) > 1 and isinstance(size, int) else ""
    percent, why = worst.percent or 0.0, _reason(worst)
    what = "largest loss" if percent > 0 else "slowest"
    return f"the {what} among them, {percent:+.1f} %{where}{',' if why.startswith('needs') else ':'} {why}"


def _by_need(few: Sequence[int], counts: Sequence[int], over: int, cells: int) -> str:
    """`7 of 15 need 841 or fewer, 8 more than 1000`."""
    parts = [(len(counts), f"{counts[-1]} or fewer")] if counts else []
    parts += [(over, f"more than {MOST}")] if over else []
    parts += [(len(few), f"at least {max(few)} for an interval")] if few else []
    (first, need), *others = parts
    share = f"{first} of {cells}" if others or first < cells else f"all {cells}"
    start = f"{share} need{'s' if first == 1 else ''} {need}"
    return ", ".join((start, *(f"{number} {text}" for number, text in others)))


def _few(comparison: Comparison) -> bool:
    return comparison.ratio is None or comparison.ratio.interval is None


def _reason(comparison: Comparison) -> str:
    """Why it is undecided, without slow launches, of which the same is not true of all cells."""
    about_slow = "" if comparison.slow is None else f"; {comparison.slow.text}"
    return comparison.why.removesuffix(about_slow)


#: More rows of what differs are counted, and so are more reasons.
MOST_ROWS, MOST_REASONS = 20, 4

_NOT_ALTERNATELY = "the sides were not measured alternately"

COLUMNS = ("verdict", "what", "image", "sides", "size (B)", "difference (%)", "difference 95 %", "base", "other",
           "launches")  # fmt: skip

_ORDER = {"slower": 0, "faster": 2}

#: Verdicts of cells that are within the margin.
_EQUAL = ("same", "negligible")


def tables(comparisons: Sequence[Comparison], margin: float, every: bool = False) -> list[Table]:
    """The verdict with what must be known of it, and a table of the cells that differ, unless `every` cell follows."""
    shown = _differing(comparisons)
    left_out = 0 if every else len(comparisons) - len(shown[:MOST_ROWS])
    cells = [cell for one in comparisons for cell in (one.pair.base, one.pair.other)]
    lines = [*failed(cells), *_of_open(comparisons), *_refused(comparisons), *remarks(comparisons)]
    lines += [f"every cell, with its times: --all ({left_out} more)"] if left_out else []
    found = [Table(sentence(comparisons, margin), (), (), tuple(lines))]
    return [*found, _table(comparisons, shown[:MOST_ROWS])] if shown and not every else found


def sentence(comparisons: Sequence[Comparison], margin: float) -> str:
    """`b against a: 2 of 14 cells are slower, worst +12.0 % (+10.1 .. +13.9) at 64K; 9 same within 2 %; 3 open`.

    Of those that are open the largest loss that their intervals do not exclude: not significant is not no loss. Where
    sides were not measured alternately the machine may be what differs: `2 of 14 cells are slower, or the machine was`.
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
    return f", or the machine was: {_NOT_ALTERNATELY};" if apart else ","


def _most(what: str, of: Sequence[Comparison], most: Comparison, among: Sequence[Comparison]) -> str:
    return f"{f'{what} ' if len(of) > 1 else ''}{_named(most, among)}"


def _same(equal: Sequence[Comparison], margin: float, apart: bool) -> str:
    """`9 same within 2 %`, with what a median hides; and of sides measured `apart`, what the machine may hide."""
    unlike = sum(one.slow is not None for one in equal)
    tails = f" in the median, {unlike} of them with other numbers of slow launches" if unlike else ""
    return f"{len(equal)} same within {margin * 100:g} %{tails}{f', but {_NOT_ALTERNATELY}' if apart else ''}"


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
    """`+12.0 % (+10.1 .. +13.9) at 64K (allreduce, single strict vs host)`: what tells it from the others."""
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
    unequal = remarks_module.findings(comparisons) if several else remarks_module.differing_results(comparisons)
    differing = what_differs(comparisons)
    told = [line for line in differing if not line.startswith("transport: ")]
    transports = [line for line in differing if line not in told]
    more = len(transports) - MOST_REASONS
    told += transports if more <= 0 else [f"transports differ between {len(transports)} pairs of places: --all"]
    delayed = [line for line in cpu_time.remarks(comparisons) if not line.startswith(cpu_time.COLUMN)]
    limits = of_launches(comparisons, planned=False) if comparisons else []
    found = (*unequal, *delayed, *limits, *told, *in_blocks(cells), *disturbances(cells),
             *waited(cells), *unlike([(pair.base, pair.other) for pair in pairs]))  # fmt: skip
    return list(dict.fromkeys(found))
