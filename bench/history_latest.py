"""How often `collbench history` tells of the latest run without a reason, and with one, in made-up histories.

    python bench/history_latest.py

Histories of 8 cells as for `history.py`. Where nothing changes, a page that names any cell of its latest run has a
false alarm. Where something does, one cell takes longer in the latest run, or in the last two, and the page has to name
it, or a change with one of the last three runs. Needs NumPy, SciPy and collbench; nothing is timed.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from history_noise import CELLS, NOISES, Values, shared
from results import keep, table

from collbench.analysis.change_points import Trace, find, matter, outside, spread_of

MARGIN = 0.02
LENGTHS = (8, 12, 20, 33)
ALL = NOISES | {f"a state of all cells, AR(1), r = {r}": lambda draw, runs, r=r: shared(draw, runs, CELLS, r)
                for r in (0.3, 0.6)}  # fmt: skip
#: By how much one cell takes longer, and in how many of the last runs.
ADDED = ((0.1, 1), (0.5, 1), (0.5, 2), (9.1, 1))
SHOWN = (
    "log-normal, 1 %",
    "log-normal, 5 %",
    "heavy-tailed, 2 %",
    "one run in ten is an outlier",
    "AR(1), r = 0.3, 5 %",
)


def named(values: Values) -> tuple[set[int], set[int]]:
    """The cells of the latest run that the command names, and those that changed with one of the last three runs.

    `values` are logarithms of times [runs, cells].
    """
    runs, cells = values.shape
    traces = [Trace(values[:, cell], np.arange(runs)) for cell in range(cells)]
    levels = [
        matter(trace.values, found, MARGIN)
        for trace, found in zip(traces, find(traces, spread_of(MARGIN))[0], strict=True)
    ]
    changed = {cell for cell, of in enumerate(levels) if of[-1].start >= runs - 3}
    return set(outside(traces, levels, MARGIN)), changed


def false_alarms(draw: np.random.Generator, pages: int) -> dict[str, list[float]]:
    """By noise the share of pages that name a cell, for each length."""
    return {
        name: [float(np.mean([bool(named(noise(draw, runs))[0]) for _ in range(pages)])) for runs in LENGTHS]
        for name, noise in ALL.items()
    }


def found(draw: np.random.Generator, pages: int, runs: int) -> dict[str, list[float]]:
    """By noise the share of histories in which the cell is named, for each of `ADDED`."""
    return {name: [_share(draw, name, runs, pages, *added) for added in ADDED] for name in SHOWN}


def _share(draw: np.random.Generator, noise: str, runs: int, pages: int, added: float, nights: int) -> float:
    seen = []
    for _ in range(pages):
        values = NOISES[noise](draw, runs)
        values[runs - nights :, 0] += np.log1p(added)
        seen.append(any(0 in cells for cells in named(values)))
    return float(np.mean(seen))


def page(data: dict[str, Any]) -> str:
    def rows(shares: dict[str, list[float]], form: str) -> list[list[str]]:
        return [[name, *(f"{100 * share:{form}}" for share in of)] for name, of in shares.items()]

    heads = [f"+{added:.0%}, {nights} run{'s' * (nights > 1)}" for added, nights in ADDED]
    return "\n".join((
        f"# The latest run of a history\n\n{CELLS} cells. Pages that name a cell of their latest run although nothing "
        f"changed, in per cent, of {data['pages']} pages:\n",
        table(("noise", *(f"{runs} runs" for runs in LENGTHS)), rows(data["false alarms"], ".1f")),
        f"Of 20 runs, one of {CELLS} cells takes longer in the last run or in the last two: histories in which the "
        f"page names it,\nor a change with one of the last three runs, in per cent, of {data['changes']}:\n",
        table(("noise", *heads), rows(data["found"], ".0f")),
    ))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=200, help="without a change, of each noise and length [200]")
    parser.add_argument("--changes", type=int, default=40, help="histories with a change, of each noise and size [40]")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    draw = np.random.default_rng(asked.seed)
    data: dict[str, Any] = {"seed": asked.seed, "pages": asked.pages, "changes": asked.changes}
    data |= {"found": found(draw, asked.changes, 20), "false alarms": false_alarms(draw, asked.pages)}
    keep("history_latest", page(data), data)


if __name__ == "__main__":
    main()
