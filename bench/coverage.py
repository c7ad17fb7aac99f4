"""How often questions say anything false, and how often intervals hold: made-up launches with known differences.

    python bench/coverage.py [--questions 300] [--seed 1]

A question is one size, or four whose intervals hold at once. The statistic was chosen on one half of the noises, and is
confirmed on the other. Needs NumPy, SciPy and collbench; times mean nothing here.
"""

from __future__ import annotations

import argparse
import math
import zlib
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


def modes(share: float, factor: float, spread: float) -> Noise:
    """A share of the launches takes so many times as long, at all sizes."""
    return lambda draw, launches, sizes: (
        draw.normal(0, spread, (2, launches, sizes)) + math.log(factor) * (draw.random((2, launches, 1)) < share)
    )


def outliers(draw: Draw, launches: int, sizes: int) -> Logs:
    """One in ten is far off."""
    far = (draw.random((2, launches, sizes)) < 0.1) * draw.exponential(0.5, (2, launches, sizes))
    return draw.normal(0, 0.01, (2, launches, sizes)) + far


def drift(draw: Draw, launches: int, sizes: int) -> Logs:
    """From the first block to the last, with 2 % of noise."""
    return draw.normal(0, 0.02, (2, launches, sizes)) + np.linspace(0, 0.3, launches)[None, :, None]


def blocks(draw: Draw, launches: int, sizes: int) -> Logs:
    """With 2 % of noise."""
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
    "normal 5 %": ("chosen", lambda draw, launches, sizes: draw.normal(0, 0.05, (2, launches, sizes))),
    "a fifth of launches 30 % slower": ("chosen", modes(0.2, 1.3, 0.01)),
    "a tenth of launches far off": ("chosen", outliers),
    "skewed": ("chosen", lambda draw, launches, sizes: draw.exponential(0.05, (2, launches, sizes))),
    "two fifths of launches twice as slow": ("confirmed", modes(0.4, 2.0, 0.02)),
    "Cauchy 1 %": (
        "confirmed",
        lambda draw, launches, sizes: 0.01 * draw.standard_cauchy((2, launches, sizes)).clip(-50, 50),
    ),
    "drift 30 %": ("confirmed", drift),
    "blocks differ by 20 %": ("confirmed", blocks),
    "launches resemble those before": ("apart", resembling),
}

INTRODUCTION = """# How often questions say anything false

Questions, in per cent, of which any 95 % interval excludes the true difference; in brackets the share of single
intervals that hold it. Of {questions} questions (25 launches: {few}): two standard errors of 5 % are {error:.1f} points
(25 launches: {twice:.1f}). The statistic was `chosen` on one half of the noises, and is `confirmed` on the other.
"""

APART = """
## Blocks whose launches resemble those before by 0.6

No order of such launches is as likely as any other, and nothing is claimed. From twenty launches on, `compare` refuses
questions in which that can be seen; the last columns are of 25 launches.

"""

#: Of two sides without common blocks these are not as likely in any order.
_OF_BLOCKS = ("drift 30 %", "blocks differ by 20 %", "launches resemble those before")


def drawing(seed: int, *of: object) -> Draw:
    """Of every combination another one, so that no two have their false statements in common."""
    return np.random.default_rng([seed, zlib.crc32(repr(of).encode())])


def launches_of(logs: Logs) -> list[Launches]:
    """For each size the times of both sides."""
    times, numbers = np.exp(logs), range(logs.shape[1])
    base, other = times.transpose(0, 2, 1).tolist()
    return [Launches(*both, numbers, numbers) for both in zip(base, other, strict=True)]


def trials(questions: int, launches: int) -> int:
    """How many questions have so many launches: of many a quarter."""
    return questions if launches <= 12 else questions // 4


def found(name: str, in_blocks: bool, launches: int, sizes: int, questions: int, seed: int) -> dict[str, float]:
    """Shares: questions with an interval that excludes the true difference; intervals that hold it; questions refused.

    `compare` gives no verdict on the last ones, because their launches depend on those before them.
    """
    draw, held, refused = drawing(seed, name, in_blocks, launches, sizes), [], []
    for _ in range(questions):
        cells = launches_of(NOISES[name][1](draw, launches, sizes))
        held.append([one.low <= 1e-12 and one.high >= -1e-12 for one in intervals(cells, in_blocks)])
        scores = [serial(cell.base, cell.other, in_blocks) for cell in cells]
        refused.append(launches >= DEPENDENT and dependent(scores))
    shares = {"false": ~np.all(held, axis=1), "held": np.array(held), "refused": np.array(refused)}
    return {key: float(np.mean(share)) for key, share in shares.items()} | {
        "false_verdicts": float(np.mean(shares["false"] & ~shares["refused"]))
    }


def row(name: str, in_blocks: bool, sizes: int, questions: int, seed: int) -> dict[str, Any]:
    """Of a noise, by launches."""
    by_launches = {str(n): found(name, in_blocks, n, sizes, trials(questions, n), seed) for n in LAUNCHES}
    return {"noise": name, "half": NOISES[name][0], "in blocks": in_blocks, "sizes": sizes, "launches": by_launches}


def page(rows: list[dict[str, Any]], questions: int) -> str:
    """A table for each kind of sides and number of sizes; those where nothing is claimed apart."""
    error, heads = 200 * math.sqrt(0.05 * 0.95 / questions), [f"{n} launches" for n in LAUNCHES]
    text = INTRODUCTION.format(questions=questions, few=trials(questions, 25), error=error, twice=2 * error)
    for in_blocks in (True, False):
        for sizes in SIZES:
            lines = [[one["noise"], one["half"], *map(_said, one["launches"].values())] for one in rows
                     if (one["in blocks"], one["sizes"]) == (in_blocks, sizes) and one["half"] != "apart"]  # fmt: skip
            text += f"\n## {'Blocks' if in_blocks else 'Two sides without blocks'}, sizes: {sizes}\n\n"
            text += table(("noise", "half", *heads), lines)
    apart = [[str(one["sizes"]), *map(_said, one["launches"].values()),
              *(f"{one['launches']['25'][key] * 100:.1f}" for key in ("refused", "false_verdicts"))]
             for one in rows if one["half"] == "apart"]  # fmt: skip
    return text + APART + table(("sizes", *heads, "refused", "false verdicts"), apart)


def _said(shares: dict[str, float]) -> str:
    return f"{shares['false'] * 100:.1f} ({shares['held'] * 100:.1f})"


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
