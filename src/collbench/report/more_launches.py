"""What would decide cells that are undecided: so many more launches, or something else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

from collbench.analysis.compare import Comparison
from collbench.analysis.deciding import standing, standing_of_sides, still_open
from collbench.analysis.observations import Cell
from collbench.analysis.planning import MOST
from collbench.schema.gate_plan import is_gate, read_gate_plan
from collbench.schema.launch_plan import MOST_LAUNCHES
from collbench.units import counted, format_size

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
IN_TURNS = "more launches: measure both sides in turns, by one launch plan (collbench launch PLAN)"


def ways_to_tell(comparisons: Iterable[Comparison]) -> list[str]:
    """What measures more of those that more launches may decide; none where no launch would be started.

    Twice the launches that a run was to have are suggested, as far as a plan may have so many.
    """
    every = list(comparisons)
    open_ = [one for one in every if one.verdict == "inconclusive" and _may_tell(one)]
    lines = []
    for run in dict.fromkeys(one.pair.base.experiment for one in open_ if _in_one_run(one)):
        cells = {cell.case: cell for one in every for cell in (one.pair.base, one.pair.other) if cell.experiment == run}
        most = min(2 * max(cell.planned for cell in cells.values()), MOST_LAUNCHES)
        if _starts_launches(run, list(cells.values()), most):
            command = "gate" if is_gate(Path(run)) else "launch"
            lines.append(EXTEND.format(command=command, run=quote(run), most=most))
    return [*lines, *([] if all(map(_in_one_run, open_)) else [IN_TURNS])]


def _starts_launches(run: str, cells: Sequence[Cell], most: int) -> bool:
    """Whether a run that is resumed until decided has a comparison that launches up to so many may still decide.

    What `launch` and `gate` decide is asked of these cells, by bets, and with their margin, whatever the reader's is.
    """
    if most <= max(cell.planned for cell in cells):
        return False
    asked = [replace(cell, until_decided=True) for cell in cells]
    blocks = 1 + max(cell.highest for cell in cells) - min(min(cell.launches, default=0) for cell in cells)
    if is_gate(Path(run)):
        found = standing_of_sides(asked, blocks, most, read_gate_plan(Path(run)).margin)
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
