"""How often gates pass and fail, in simulations: equal sides, losses around the margin, every kind of noise.

    python bench/gates.py [--trials 2000] [--seed 1]

In process: no launcher, no disk. What is simulated are logarithms of ratios within blocks, as a gate has them.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from machine import describe
from numpy.typing import NDArray
from results import write

from collbench.analysis.bounds import bounds

CELLS, BLOCKS, MARGINS = 14, (6, 8, 12, 31), (0.02, 0.05)

#: Losses as multiples of the margin, of all cells or of the first alone.
LOSSES = (0.5, 0.95, 1.0, 1.05, 2.0)

Logs = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int, int], Logs]


def _sides(draw: Callable[[np.random.Generator, int, int], Logs]) -> Noise:
    """The difference of two sides with noise of their own."""
    return lambda chance, cells, blocks: draw(chance, cells, blocks) - draw(chance, cells, blocks)


def _normal(spread: float) -> Noise:
    return _sides(lambda chance, cells, blocks: chance.normal(0, spread, (cells, blocks)))


def _modes(chance: np.random.Generator, cells: int, blocks: int) -> Logs:
    """A fifth of the launches takes 30 % longer, in all cells."""
    return chance.normal(0, 0.01, (cells, blocks)) + math.log(1.3) * (chance.random(blocks) < 0.2)


def _outliers(chance: np.random.Generator, cells: int, blocks: int) -> Logs:
    return chance.normal(0, 0.01, (cells, blocks)) + (chance.random((cells, blocks)) < 0.1) * chance.exponential(
        0.5, (cells, blocks)
    )


#: By name. `duet 3 %` is what launches of equal sides in turns differ by.
NOISES: dict[str, Noise] = {
    "duet 3 %": lambda chance, cells, blocks: chance.normal(0, 0.03, (cells, blocks)),
    "duet 3 %, cells alike": lambda chance, cells, blocks: (
        chance.normal(0, 0.02, (cells, blocks)) + chance.normal(0, 0.022, blocks)
    ),
    "normal 1 % a side": _normal(0.01),
    "normal 5 % a side": _normal(0.05),
    "modes": _sides(_modes),
    "outliers": _sides(_outliers),
    "heavy tails": _sides(lambda chance, cells, blocks: 0.01 * chance.standard_cauchy((cells, blocks)).clip(-50, 50)),
    "skewed": _sides(lambda chance, cells, blocks: chance.exponential(0.05, (cells, blocks))),
}  # fmt: skip


class Simulated(NamedTuple):
    """Bounds of gates of equal sides, each [gates, cells]. A loss moves those of its cell by as much."""

    lower: Logs
    upper: Logs

    def passed(self, losses: Logs, margin: float) -> float:
        """The share of gates that pass where cells [cells] have these losses (logarithms)."""
        return float(np.mean((self.upper + losses <= math.log1p(margin)).all(axis=1)))

    def failed(self, losses: Logs, margin: float) -> float:
        """The share of those that fail."""
        return float(np.mean((self.lower + losses > math.log1p(margin)).any(axis=1)))


def simulated(noise: Noise, blocks: int, trials: int, seed: int) -> Simulated:
    """So many gates of so many blocks."""
    chance, found = np.random.default_rng(seed), []
    for _ in range(trials):
        logs = noise(chance, CELLS, blocks)
        found.append([(one.lower, one.upper) for one in bounds([dict(enumerate(row.tolist())) for row in logs])])
    both = np.array(found)
    return Simulated(both[:, :, 0], both[:, :, 1])


def row(name: str, blocks: int, trials: int, seed: int) -> dict[str, Any]:
    """The figures of one noise and one number of blocks."""
    found, none = simulated(NOISES[name], blocks, trials, seed), np.zeros(CELLS)
    one = np.eye(CELLS)[0]
    figures: dict[str, Any] = {
        "noise": name, "blocks": blocks, "gates": trials,
        "wrong_upper": float(np.mean(found.upper < 0)), "wrong_lower": float(np.mean((found.lower > 0).any(axis=1))),
    }  # fmt: skip
    for margin in MARGINS:
        log = math.log1p(margin)
        of_margin = {"equal": found.passed(none, margin)}
        of_margin |= {f"failed_all_{times:g}": found.failed(none + times * log, margin) for times in LOSSES}
        of_margin |= {f"failed_one_{times:g}": found.failed(times * log * one, margin) for times in LOSSES}
        of_margin |= {f"passed_one_{times:g}": found.passed(times * log * one, margin) for times in LOSSES}
        figures[f"margin_{margin * 100:g}"] = of_margin
    return figures


def page(rows: Sequence[dict[str, Any]], seconds: float) -> str:
    """The page in Markdown."""
    lines = [
        "# How often gates pass and fail", "",
        f"`python bench/gates.py`: {CELLS} cells, logarithms of ratios drawn within blocks, judged by the bounds of "
        "[docs/statistics.md](../docs/statistics.md#bounds-of-a-gate). A loss below the margin may pass; the margin or "
        f"more may not. {rows[0]['gates']} gates of up to 12 blocks, {rows[-1]['gates']} of 31; "
        f"{seconds / 60:.0f} minutes.", "",
        "**False answers** at a margin of 5 %, in per cent: of cells, those whose upper bound is below their loss; of "
        "gates, those that fail where all cells lose the margin, and half of it; and those that pass where one cell "
        "loses the margin, and a twentieth more. At most 5 each is what they should be.", "",
        "| noise | blocks | bound wrong | fail at margin | fail at half | pass at margin | pass at 1.05 |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]  # fmt: skip
    for one in rows:
        names = ("failed_all_1", "failed_all_0.5", "passed_one_1", "passed_one_1.05")
        lines.append(_line(one, (one["wrong_upper"], *(one["margin_5"][name] for name in names)), 1))
    lines += ["", "**Answers**, in per cent of gates with a margin of 2 and of 5 %: equal sides that pass; a loss of "
              "twice the margin in one cell that is found.", "",
              "| noise | blocks | pass at 2 % | pass at 5 % | 4 % found at 2 % | 10 % found at 5 % |",
              "| --- | ---: | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for one in rows:
        of_margins = [one[f"margin_{margin * 100:g}"] for margin in MARGINS]
        lines.append(_line(one, [of[name] for name in ("equal", "failed_one_2") for of in of_margins], 0))
    return "\n".join((*lines, ""))


def _line(one: dict[str, Any], shares: Sequence[float], digits: int) -> str:
    """A row of a table, in per cent."""
    return f"| {one['noise']} | {one['blocks']} | {' | '.join(f'{share * 100:.{digits}f}' for share in shares)} |"


def main() -> None:
    """Simulate, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000, help="of up to 12 blocks; a tenth of more [2000]")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    began = time.monotonic()
    with ProcessPoolExecutor() as pool:
        made = [pool.submit(row, name, blocks, asked.trials if blocks <= 12 else asked.trials // 10, asked.seed)
                for name in NOISES for blocks in BLOCKS]  # fmt: skip
        rows = [one.result() for one in made]
    seconds = time.monotonic() - began
    data = {"seed": asked.seed, "trials": asked.trials, "machine": describe(), "rows": rows}
    write("gates", data, lambda: page(rows, seconds))


if __name__ == "__main__":
    main()
