"""What `needs about k more launches` is worth: how many such cells have a verdict after k more launches.

    python bench/more_launches.py

Made-up comparisons of one cell, and of four in which all differ alike, in ten blocks. Of the first cell, where it is
undecided and a number of launches is suggested, so many blocks are added to all cells, and it is judged again. Needs
NumPy, SciPy and collbench; times mean nothing here.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

import numpy as np
from coverage import NOISES, Draw, Logs, Noise, launches_of
from results import keep, table

from collbench.analysis.bounds import intervals
from collbench.analysis.compare import CHANCE, MARGIN, MOST, Verdict, launches_more, verdict_on
from collbench.analysis.estimate import Estimate, in_logarithms

FIRST = 10
CELLS = (1, 4)
ADDED = (0.0, 0.01, 0.03, 0.1, 0.5)
SHOWN = [name for name, (half, _) in NOISES.items() if half != "apart"]


def judged(logs: Logs) -> tuple[Verdict, Estimate]:
    """The verdict on the first cell of [sides, blocks, cells], and its ratio."""
    value, low, high = intervals(launches_of(logs), True)[0]
    ratio = in_logarithms(Estimate(value, (low, high), logs.shape[1]), 0.0)
    return verdict_on(ratio, MARGIN), ratio


def one(noise: Noise, draw: Draw, cells: int, added: float) -> tuple[str, int]:
    """What became of a cell, and how many launches were suggested."""
    logs = noise(draw, FIRST + MOST, cells)
    logs[1] += np.log1p(added)
    verdict, ratio = judged(logs[:, :FIRST])
    if verdict != "unclear":
        return "decided at once", 0
    more = launches_more(ratio, MARGIN)
    if more is None:
        return "more than the most", 0
    later, _ = judged(logs[:, : FIRST + more])
    return ("still undecided" if later == "unclear" else "decided after"), more


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    """By cells, noise and difference: how many cells became what, and the median number that was suggested."""
    draw = np.random.default_rng(asked.seed)
    data: dict[str, Any] = {}
    for cells in CELLS:
        for name in SHOWN:
            for added in ADDED:
                found = [one(NOISES[name][1], draw, cells, added) for _ in range(asked.experiments)]
                suggested = [more for _, more in found if more]
                data[f"{cells} cells, {name}, {added:.0%}"] = {
                    **Counter(what for what, _ in found), "suggested": len(suggested),
                    "median suggested": int(np.median(suggested)) if suggested else None,
                }  # fmt: skip
    return data


def page(asked: argparse.Namespace, data: dict[str, Any]) -> str:
    """A table for each number of cells, a column for each difference."""
    parts = [
        f"# What a suggested number of launches is worth\n\nOf {asked.experiments} comparisons in {FIRST} blocks, "
        f"margin {MARGIN:.0%}: of the cells that are undecided and\nneed about k more launches, the share that has a "
        f"verdict after k more (planned for: {CHANCE:.0%}); in brackets how many cells\nthat are, and the median of "
        f"k. Fewer than ten: no share. The others were decided at once, or need more than {MOST}.\n"
    ]
    for cells in CELLS:
        rows = [[name, *(_said(data[f"{cells} cells, {name}, {added:.0%}"]) for added in ADDED)] for name in SHOWN]
        heading = "one cell alone" if cells == 1 else f"{cells} cells that differ alike"
        heads = ("noise of launches", *(f"+{added:.0%}" if added else "no difference" for added in ADDED))
        parts.append(f"## {heading.capitalize()}\n\n" + table(heads, rows))
    return "\n".join(parts)


def _said(found: dict[str, Any]) -> str:
    suggested = found["suggested"]
    if suggested < 10:
        return f"- ({suggested})"
    return f"{found.get('decided after', 0) / suggested:.0%} ({suggested}, {found['median suggested']})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=300, help="comparisons of each combination [300]")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    data = measured(asked)
    keep("more_launches", page(asked, data), {"seed": asked.seed, "experiments": asked.experiments, **data})


if __name__ == "__main__":
    main()
