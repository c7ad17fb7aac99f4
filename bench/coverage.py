"""How often questions say anything false, and how often intervals hold: made-up launches with known differences.

    python bench/coverage.py [--questions 400] [--seed 1]

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


def dependent(draw: Draw, launches: int, sizes: int) -> Logs:
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
    "launches resemble those before": ("apart", dependent),
}

#: Of two sides without common blocks these are not as likely in any order.
_OF_BLOCKS = ("drift 30 %", "blocks differ by 20 %", "launches resemble those before")


def launches_of(logs: Logs) -> list[Launches]:
    """For each size the times of both sides."""
    numbers = range(logs.shape[1])
    times = np.exp(logs)
    return [Launches(times[0, :, size].tolist(), times[1, :, size].tolist(), numbers, numbers)
            for size in range(logs.shape[2])]  # fmt: skip


def false(name: str, in_blocks: bool, launches: int, sizes: int, questions: int, seed: int) -> tuple[float, float]:
    """The share of questions with an interval that excludes the true difference; and of intervals that hold it."""
    draw, made = np.random.default_rng(seed), NOISES[name][1]
    found = [intervals(launches_of(made(draw, launches, sizes)), in_blocks) for _ in range(questions)]
    held = np.array([[one.low <= 1e-12 and one.high >= -1e-12 for one in of_question] for of_question in found])
    return float(np.mean(~held.all(axis=1))), float(held.mean())


def row(name: str, in_blocks: bool, questions: int, seed: int) -> dict[str, Any]:
    """Of a noise, by sizes and launches."""
    found = {f"{sizes} sizes, {launches} launches":
             false(name, in_blocks, launches, sizes, questions if launches <= 10 else questions // 4, seed)
             for sizes in SIZES for launches in LAUNCHES}  # fmt: skip
    return {"noise": name, "half": NOISES[name][0], "in blocks": in_blocks, **found}


def page(rows: list[dict[str, Any]], questions: int) -> str:
    """A table for each number of sizes and kind of sides."""
    error = 2 * math.sqrt(0.05 * 0.95 / questions) * 100
    parts = [
        "# How often questions say anything false\n\nQuestions, in per cent, of which any 95 % interval excludes the true "
        f"difference; in brackets the share of intervals that hold it. Of {questions} questions (25: "
        f"{questions // 4}): two standard errors of 5 % are {error:.1f} points (25: {2 * error:.1f}). The "
        "statistic was chosen on half of the noises, and confirmed on the other half. Where launches resemble those "
        "before, no order is as likely as any other, and nothing is claimed.\n"
    ]
    for in_blocks in (True, False):
        for sizes in SIZES:
            lines = [[one["noise"], one["half"], *(_said(one[f"{sizes} sizes, {n} launches"]) for n in LAUNCHES)]
                     for one in rows if one["in blocks"] is in_blocks]  # fmt: skip
            title = (
                f"{'Blocks' if in_blocks else 'Two sides without blocks'}, {sizes} {'size' if sizes == 1 else 'sizes'}"
            )
            parts.append(f"## {title}\n\n" + table(("noise", "half", *(f"{n} launches" for n in LAUNCHES)), lines))
    return "\n".join(parts)


def _said(found: tuple[float, float]) -> str:
    return f"{found[0] * 100:.1f} ({found[1] * 100:.1f})"


def main() -> None:
    """Simulate, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=400, help="of each combination [400]")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    work = [(name, in_blocks) for name in NOISES for in_blocks in (True, False) if in_blocks or name not in _OF_BLOCKS]
    with ProcessPoolExecutor() as pool:
        made = [pool.submit(row, *one, asked.questions, asked.seed) for one in work]
        rows = [one.result() for one in made]
    keep("coverage", page(rows, asked.questions), {"seed": asked.seed, "questions": asked.questions, "rows": rows})


if __name__ == "__main__":
    main()
