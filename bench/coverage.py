"""How often questions say anything false, and how often intervals hold: made-up launches with known differences.

    python bench/coverage.py [--questions 300] [--seed 1]

A question is one size, or four whose intervals hold at once. The statistic was chosen on one half of the noises, and is
confirmed on the other. Needs NumPy, SciPy and collbench; times mean nothing here.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from results import keep, table

from collbench.analysis.bounds import Launches, intervals
from collbench.analysis.compare import DEPENDENT
from collbench.analysis.launches import dependent, serial

LAUNCHES, SIZES = (6, 7, 8, 10, 25), (1, 4)

Draw = np.random.Generator
Logs = NDArray[np.float64]
#: Logarithms of launches [sides, launches, sizes]; launch n of both sides is one block.
Noise = Callable[[Draw, int, int], Logs]


def normal(spread: float) -> Noise:
    """Every launch and size by itself."""
    return lambda draw, launches, sizes: draw.normal(0, spread, (2, launches, sizes))


def modes(share: float, factor: float, spread: float) -> Noise:
    """A share of the launches takes so many times as long, at all sizes."""

    def made(draw: Draw, launches: int, sizes: int) -> Logs:
        jump = math.log(factor) * (draw.random((2, launches, 1)) < share)
        return draw.normal(0, spread, (2, launches, sizes)) + jump

    return made


def outliers(draw: Draw, launches: int, sizes: int) -> Logs:
    """One in ten is far off."""
    far = (draw.random((2, launches, sizes)) < 0.1) * draw.exponential(0.5, (2, launches, sizes))
    return draw.normal(0, 0.01, (2, launches, sizes)) + far


def heavy(draw: Draw, launches: int, sizes: int) -> Logs:
    """Cauchy, 1 %."""
    return 0.01 * draw.standard_cauchy((2, launches, sizes)).clip(-50, 50)


def skewed(draw: Draw, launches: int, sizes: int) -> Logs:
    """Exponential, 5 %."""
    return draw.exponential(0.05, (2, launches, sizes))


def drift(draw: Draw, launches: int, sizes: int) -> Logs:
    """By 30 % from the first block to the last, with 2 % of noise."""
    trend = np.linspace(0, 0.3, launches)[None, :, None]
    return draw.normal(0, 0.02, (2, launches, sizes)) + trend


def blocks(draw: Draw, launches: int, sizes: int) -> Logs:
    """Blocks that differ by 20 %, with 2 % of noise."""
    return draw.normal(0, 0.02, (2, launches, sizes)) + draw.normal(0, 0.2, (1, launches, 1))


def resembling(draw: Draw, launches: int, sizes: int) -> Logs:
    """Each side resembles its launch before by 0.6: not as likely in any order."""
    found = np.zeros((2, launches, sizes))
    for launch in range(launches):
        before = found[:, launch - 1] if launch else 0.0
        found[:, launch] = 0.6 * before + draw.normal(0, 0.05, (2, sizes))
    return found


#: By name, and the half of them that they belong to.
NOISES: dict[str, tuple[str, Noise]] = {
    "normal 5 %": ("chosen", normal(0.05)),
    "a fifth of launches 30 % slower": ("chosen", modes(0.2, 1.3, 0.01)),
    "a tenth of launches far off": ("chosen", outliers),
    "skewed": ("chosen", skewed),
    "two fifths of launches twice as slow": ("confirmed", modes(0.4, 2.0, 0.02)),
    "Cauchy 1 %": ("confirmed", heavy),
    "drift 30 %": ("confirmed", drift),
    "blocks differ by 20 %": ("confirmed", blocks),
    "launches resemble those before": ("apart", resembling),
}

#: Of two sides without common blocks these are not as likely in any order.
_OF_BLOCKS = ("drift 30 %", "blocks differ by 20 %", "launches resemble those before")


def launches_of(logs: Logs) -> list[Launches]:
    """For each size the times of both sides."""
    numbers = range(logs.shape[1])
    times = np.exp(logs)
    return [Launches(times[0, :, size].tolist(), times[1, :, size].tolist(), numbers, numbers)
            for size in range(logs.shape[2])]  # fmt: skip


def trials(questions: int, launches: int) -> int:
    """How many questions have so many launches: of many a quarter."""
    return questions if launches <= 12 else questions // 4


def found(name: str, in_blocks: bool, launches: int, sizes: int, questions: int, seed: int) -> dict[str, float]:
    """Shares: questions with an interval that excludes the true difference; intervals that hold it; questions refused.

    `compare` gives no verdict on the last ones, because their launches depend on those before them.
    """
    draw, made = np.random.default_rng(seed), NOISES[name][1]
    held, refused = [], []
    for _ in range(questions):
        cells = launches_of(made(draw, launches, sizes))
        held.append([one.low <= 1e-12 and one.high >= -1e-12 for one in intervals(cells, in_blocks)])
        scores = [serial(cell.base, cell.other, in_blocks) for cell in cells]
        refused.append(launches >= DEPENDENT and dependent(scores))
    false = ~np.array(held).all(axis=1)
    return {"false": float(np.mean(false)), "held": float(np.mean(held)), "refused": float(np.mean(refused)),
            "false_verdicts": float(np.mean(false & ~np.array(refused)))}  # fmt: skip


def row(name: str, in_blocks: bool, sizes: int, questions: int, seed: int) -> dict[str, Any]:
    """Of a noise, by launches."""
    shares = {str(n): found(name, in_blocks, n, sizes, trials(questions, n), seed) for n in LAUNCHES}
    return {"noise": name, "half": NOISES[name][0], "in blocks": in_blocks, "sizes": sizes, "launches": shares}


def page(rows: list[dict[str, Any]], questions: int) -> str:
    """A table for each kind of sides and number of sizes; those where nothing is claimed apart."""
    error, few = 200 * math.sqrt(0.05 * 0.95 / questions), trials(questions, 25)
    parts = [
        "# How often questions say anything false\n\nQuestions, in per cent, of which any 95 % interval excludes the true "
        f"difference; in brackets the share of single\nintervals that hold it. Of {questions} questions (25 launches: "
        f"{few}): two standard errors of 5 % are {error:.1f} points (25 launches:\n{2 * error:.1f}). The statistic was "
        "`chosen` on one half of the noises, and is `confirmed` on the other.\n"
    ]
    for in_blocks in (True, False):
        for sizes in SIZES:
            here = [one for one in rows if (one["in blocks"], one["sizes"]) == (in_blocks, sizes)]
            lines = [[one["noise"], one["half"], *map(_said, one["launches"].values())]
                     for one in here if one["half"] != "apart"]  # fmt: skip
            title = f"{'Blocks' if in_blocks else 'Two sides without blocks'}, {_sizes(sizes)}"
            parts.append(f"## {title}\n\n" + table(("noise", "half", *(f"{n} launches" for n in LAUNCHES)), lines))
    parts.append(_apart([one for one in rows if one["half"] == "apart"]))
    return "\n".join(parts)


def _sizes(sizes: int) -> str:
    return f"{sizes} {'size' if sizes == 1 else 'sizes'}"


def _said(shares: dict[str, float]) -> str:
    return f"{shares['false'] * 100:.1f} ({shares['held'] * 100:.1f})"


def _apart(rows: list[dict[str, Any]]) -> str:
    lines = [[f"blocks, {_sizes(one['sizes'])}", *map(_said, one["launches"].values()),
              *(f"{one['launches']['25'][key] * 100:.1f}" for key in ("refused", "false_verdicts"))] for one in rows]  # fmt: skip
    heads = ("", *(f"{n} launches" for n in LAUNCHES), "refused", "false verdicts")
    return (
        "## Where launches resemble those before by 0.6\n\nNo order of such launches is as likely as any other, and "
        "nothing is claimed. From twenty launches on, `compare` refuses\nquestions in which that can be seen; the last "
        f"columns are of 25 launches.\n\n{table(heads, lines)}"
    )


def main() -> None:
    """Simulate, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--questions", type=int, default=300, help="of each combination; a quarter of 25 launches [300]"
    )
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    work = [(name, in_blocks) for name in NOISES for in_blocks in (True, False) if in_blocks or name not in _OF_BLOCKS]
    with ProcessPoolExecutor() as pool:
        made = [pool.submit(row, *one, sizes, asked.questions, asked.seed) for sizes in SIZES for one in work]
        rows = [one.result() for one in made]
    keep("coverage", page(rows, asked.questions), {"seed": asked.seed, "questions": asked.questions, "rows": rows})


if __name__ == "__main__":
    main()
