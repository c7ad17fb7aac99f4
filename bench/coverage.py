"""How often questions say anything false, and how often intervals hold: made-up launches with known differences.

    python bench/coverage.py [--questions 300] [--seed 1]

A question is one size, or four at once. Needs NumPy, SciPy and collbench; times mean nothing here.
"""

from __future__ import annotations

import argparse
import math
import zlib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from results import keep, table
from scipy.signal import lfilter

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
    return lambda draw, n, m: draw.normal(0, spread, (2, n, m)) + math.log(factor) * (draw.random((2, n, 1)) < share)


def outliers(draw: Draw, launches: int, sizes: int) -> Logs:
    """One in ten is far off."""
    far = (draw.random((2, launches, sizes)) < 0.1) * draw.exponential(0.5, (2, launches, sizes))
    return draw.normal(0, 0.01, (2, launches, sizes)) + far


def shared(of_block: Callable[[Draw, int], Logs]) -> Noise:
    """What both sides of a block have in common, with 2 % of noise."""
    return lambda draw, launches, sizes: draw.normal(0, 0.02, (2, launches, sizes)) + of_block(draw, launches)[:, None]


def resembling(draw: Draw, launches: int, sizes: int) -> Logs:
    """Each side resembles its launch before by 0.6: not as likely in any order."""
    return np.asarray(lfilter([1.0], [1.0, -0.6], draw.normal(0, 0.05, (2, launches, sizes)), axis=1))


#: By name, and the half of them that they belong to.
NOISES: dict[str, tuple[str, Noise]] = {
    "normal 5 %": ("chosen", lambda draw, *shape: draw.normal(0, 0.05, (2, *shape))),
    "a fifth of launches 30 % slower": ("chosen", modes(0.2, 1.3, 0.01)),
    "a tenth of launches far off": ("chosen", outliers),
    "skewed": ("chosen", lambda draw, *shape: draw.exponential(0.05, (2, *shape))),
    "two fifths of launches twice as slow": ("confirmed", modes(0.4, 2.0, 0.02)),
    "Cauchy 1 %": ("confirmed", lambda draw, *shape: 0.01 * draw.standard_cauchy((2, *shape)).clip(-50, 50)),
    "drift 30 %": ("confirmed", shared(lambda draw, launches: np.linspace(0, 0.3, launches))),
    "blocks differ by 20 %": ("confirmed", shared(lambda draw, launches: draw.normal(0, 0.2, launches))),
    "launches resemble those before": ("apart", resembling),
}

INTRODUCTION = """# How often questions say anything false

Questions, in per cent, of which any 95 % interval excludes the true difference; in brackets the share of single
intervals that hold it. Of {} questions (25 launches: {}): two standard errors of 5 % are {:.1f} points
(25 launches: {:.1f}). The statistic was `chosen` on one half of the noises, and is `confirmed` on the other.

Of {} shares {} exceed 5 % by more than that; {:.0f} would by chance. Of six blocks 3.1 % is the most.
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
    """Shares: false questions; intervals that hold the true difference; questions that `compare` refuses."""
    draw, held, refused = drawing(seed, name, in_blocks, launches, sizes), [], []
    for _ in range(questions):
        cells = launches_of(NOISES[name][1](draw, launches, sizes))
        held.append([one.low <= 1e-12 and one.high >= -1e-12 for one in intervals(cells, in_blocks)])
        refused.append(launches >= DEPENDENT and dependent([serial(*cell[:2], in_blocks) for cell in cells]))
    wrong = ~np.all(held, axis=1)
    shares = {"false": wrong, "held": held, "refused": refused, "false_verdicts": wrong & ~np.array(refused)}
    return {key: float(np.mean(share)) for key, share in shares.items()}


def row(name: str, in_blocks: bool, sizes: int, questions: int, seed: int) -> dict[str, Any]:
    """Of a noise, by launches."""
    by_launches = {str(n): found(name, in_blocks, n, sizes, trials(questions, n), seed) for n in LAUNCHES}
    return {"noise": name, "half": NOISES[name][0], "in blocks": in_blocks, "sizes": sizes, "launches": by_launches}


def page(rows: list[dict[str, Any]], questions: int) -> str:
    """A table for each kind of sides and number of sizes; those where nothing is claimed apart."""

    def said(one: dict[str, Any]) -> list[str]:
        return [f"{shares['false'] * 100:.1f} ({shares['held'] * 100:.1f})" for shares in one["launches"].values()]

    heads, claimed = [f"{n} launches" for n in LAUNCHES], [one for one in rows if one["half"] != "apart"]
    errors = {n: 2 * math.sqrt(0.05 * 0.95 / trials(questions, n)) for n in LAUNCHES}
    above = sum(one["launches"][str(n)]["false"] > 0.05 + errors[n] for one in claimed for n in LAUNCHES)
    text = INTRODUCTION.format(questions, trials(questions, 25), 100 * errors[6], 100 * errors[25],
                               number := len(claimed) * len(LAUNCHES), above, 0.023 * number)  # fmt: skip
    for in_blocks, sizes in product((True, False), SIZES):
        lines = [[one["noise"], one["half"], *said(one)] for one in claimed
                 if (one["in blocks"], one["sizes"]) == (in_blocks, sizes)]  # fmt: skip
        text += f"\n## {'Blocks' if in_blocks else 'Two sides without blocks'}, sizes: {sizes}\n\n"
        text += table(("noise", "half", *heads), lines)
    apart = [[str(one["sizes"]), *said(one),
              *(f"{one['launches']['25'][key] * 100:.1f}" for key in ("refused", "false_verdicts"))]
             for one in rows if one["half"] == "apart"]  # fmt: skip
    return text + APART + table(("sizes", *heads, "refused", "false verdicts"), apart)


def main() -> None:
    """Simulate, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=300, help="of each; a quarter of 25 launches [300]")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    work = [one for one in product(NOISES, (True, False), SIZES) if one[1] or one[0] not in _OF_BLOCKS]
    with ProcessPoolExecutor() as pool:
        rows = [one.result() for one in [pool.submit(row, *one, asked.questions, asked.seed) for one in work]]
    keep("coverage", page(rows, asked.questions), {"seed": asked.seed, "questions": asked.questions, "rows": rows})


if __name__ == "__main__":
    main()
