"""How large a difference must be to be seen, and how often there is a verdict where there is none: made-up launches.

    python bench/power.py

An experiment has so many cells; either all of them have the same difference, or one alone has it. Each cell has n
blocks with a launch of each side. Launches spread within blocks, and blocks drift by 30 %. A difference is seen when
a cell is called `slower`. Beyond eight blocks 250 ways to exchange names are computed, where `compare` computes more.
Then `statistics_compared.py`, false alarms by noise and statistic, and `several_sides.py`. Needs NumPy, SciPy and
collbench; times mean nothing here.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import several_sides
import statistics_compared
from results import keep, table

from collbench.analysis import significance
from collbench.analysis.compare import MARGIN, verdict_on
from collbench.analysis.estimate import ratio_in_blocks
from collbench.analysis.significance import Sample

LAUNCHES = (6, 7, 8, 10, 15, 25)
SPREADS = (0.005, 0.01, 0.02, 0.05)
DRIFT = 0.3
#: Cells of an experiment, and how many of them have the difference.
CELLS = ((1, 1), (30, 30), (30, 1))
TITLES = {(1, 1): "one cell alone", (30, 30): "30 cells that all differ", (30, 1): "one cell that differs among 30"}
STEPS = (0.0, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
POWER = 0.8
#: So many launches are taken to be tested at once, which bounds the number of arrangements.
_AS_IF = 200_000


def verdicts(
    draw: np.random.Generator, launches: int, spread: float, added: float, cells: int, differing: int
) -> list[str]:
    """Of one experiment, a verdict for each cell that differs; without a difference, for each cell."""
    values = []
    for cell in range(cells):
        block = draw.normal(0, DRIFT, launches)
        base, other = (np.exp(block + draw.normal(0, spread, launches)) for _ in range(2))
        values.append((base, other * (1 + (added if cell < differing else 0.0))))
    tested = [Sample(np.log(sides), np.arange(launches)) for sides in values]
    p_adjusted = significance.adjusted(tested, significance.flips(launches, _AS_IF), in_blocks=True).p_adjusted.tolist()
    found: list[str] = [
        verdict_on(ratio_in_blocks(other, base), p, MARGIN) for (base, other), p in zip(values, p_adjusted, strict=True)
    ]
    return found[:differing] if added else found


def seen(
    draw: np.random.Generator, launches: int, spread: float, added: float, cells: tuple[int, int], number: int
) -> float:
    """The share of differing cells called slower or, without a difference, of cells called different."""
    wanted = ("slower",) if added else ("slower", "faster")
    experiments = max(number // (cells[1] if added else cells[0]), 1)
    found = [one for _ in range(experiments) for one in verdicts(draw, launches, spread, added, *cells)]
    return float(np.mean([one in wanted for one in found]))


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    """For each combination the share seen at every step, up to the first that is enough."""
    draw = np.random.default_rng(asked.seed)
    data: dict[str, Any] = {}
    for cells in CELLS:
        for spread in SPREADS:
            for launches in LAUNCHES:
                shares = {}
                for step in STEPS:
                    shares[f"{step:.0%}"] = seen(draw, launches, spread, step, cells, asked.experiments)
                    if step and shares[f"{step:.0%}"] >= POWER:
                        break
                data[f"{cells[1]} of {cells[0]} cells, spread {spread:.1%}, {launches} launches"] = shares
    return data


def page(asked: argparse.Namespace, data: dict[str, Any]) -> str:
    """A table for each number of cells: the smallest step seen, and in brackets the false positives."""
    parts = [
        f"# What so many launches see\n\nThe smallest difference (of {', '.join(f'{step:.0%}' for step in STEPS[1:])}) "
        f"that is called slower in 80 % of {asked.experiments} cells,\nmargin 2 %, blocks drifting by {DRIFT:.0%}; in "
        "brackets the share called different where nothing differs.\n"
    ]
    for cells in CELLS:
        rows = []
        for spread in SPREADS:
            found = [
                data[f"{cells[1]} of {cells[0]} cells, spread {spread:.1%}, {launches} launches"]
                for launches in LAUNCHES
            ]
            rows.append([f"{spread:.1%}", *(_said(shares) for shares in found)])
        title = TITLES[cells]
        heads = ("spread within blocks", *(f"{launches} launches" for launches in LAUNCHES))
        parts.append(f"## {title.capitalize()}\n\n" + table(heads, rows))
    return "\n".join(parts)


def _said(shares: dict[str, float]) -> str:
    step = next((name for name, share in shares.items() if name != "0%" and share >= POWER), "none")
    return f"{step} ({shares['0%']:.1%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--experiments", type=int, default=200, help="differing cells of each combination and step [200]"
    )
    parser.add_argument("--comparisons", type=int, default=200, help="of each noise and drift [200]")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    draw = np.random.default_rng(asked.seed)
    by_noise = statistics_compared.measured(draw, asked.comparisons)
    shared = several_sides.shared(draw, 2 * asked.comparisons)
    runs = several_sides.unpaired(draw, asked.comparisons // 2)
    data = measured(asked)
    text = "\n".join((
        page(asked, data), statistics_compared.page(by_noise, asked.comparisons),
        several_sides.page(shared, runs, 2 * asked.comparisons),
    ))  # fmt: skip
    keep("power", text, {"seed": asked.seed, "experiments": asked.experiments, **data, "by noise": by_noise,
                         "several sides": shared, "two runs": runs})  # fmt: skip


if __name__ == "__main__":
    main()
