"""How often questions say anything false, and how often intervals hold: made-up launches with known differences.

    python bench/coverage.py [--questions 2000] [--seed 1]

A question is one size, or four at once; its intervals are looked at where the true difference lies. Needs NumPy, SciPy
and collbench; times mean nothing here.
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

from collbench.analysis import bounds
from collbench.analysis.bounds import Launches, excluded
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
intervals that hold it. Of {} questions: two standard errors of 5 % are {:.1f} points. The statistic was
`chosen` on one half of the noises, and is `confirmed` on the other.

Of {} shares {} exceed 5 % by more than that; {:.0f} would by chance. Of six blocks 3.1 % is the most.
"""

APART = """
## Blocks whose launches resemble those before by 0.6

No order of such launches is as likely as any other, and nothing is claimed. From twenty launches on, `compare` refuses
questions in which that can be seen; the last columns are of 25 launches.

"""

OPTIONS, OF_OPTIONS = 6, 7

#: How much launches of each option spread, and who is slower than the first.
SPREADS, LATER = np.linspace(0.01, 0.05, OPTIONS)[:, None], 0.01 * (np.arange(OPTIONS)[:, None] > 0)

#: Logarithms of launches [options, blocks], by name. The first may be the best: no other is faster.
BEST: dict[str, Callable[[Draw, tuple[int, int]], Logs]] = {
    "all equal, 3 %": lambda draw, shape: draw.normal(0, 0.03, shape),
    "all equal, spreads of 1 to 5 %": lambda draw, shape: draw.normal(0, SPREADS, shape),
    "all equal, spreads of 5 to 1 %": lambda draw, shape: draw.normal(0, SPREADS[::-1], shape),
    "the best is 1 % faster, spreads of 1 to 5 %": lambda draw, shape: draw.normal(LATER, SPREADS, shape),
    "all equal, another one is skewed": lambda draw, shape: _skewed(draw, shape, OPTIONS - 1),
    "all equal, the best is skewed": lambda draw, shape: _skewed(draw, shape, 0),
    "all equal, a fifth of launches 30 % slower": lambda draw, shape: (
        draw.normal(0, 0.01, shape) + math.log(1.3) * (draw.random(shape) < 0.2)
    ),
}


def _skewed(draw: Draw, shape: tuple[int, int], option: int) -> Logs:
    """One option is exponential; as often slower than another one as faster."""
    logs = draw.normal(0, 0.03, shape)
    logs[option] = draw.exponential(0.05, shape[1]) - 0.0406
    return logs


def best_out(name: str, in_blocks: bool, questions: int, seed: int) -> float:
    """The share of questions in which another option is faster than the best, as `advise` has it.

    That is where a bound of the best as the control is above 0; so 0 is not kept.
    """
    draw, out = drawing(seed, name, in_blocks), 0
    logs = np.array([BEST[name](draw, (OPTIONS, OF_OPTIONS)) for _ in range(questions)]).transpose(0, 2, 1)
    both = np.stack(np.broadcast_arrays(logs[..., 1:], logs[..., :1]), axis=1)
    for sides in both[left_out_alone(both, in_blocks, 2 * bounds.ALPHA).any(axis=1)]:
        pairs = {(number, 0): cell for number, cell in enumerate(launches_of(sides), start=1)}
        tests = [one for one in bounds._of_controls(pairs, in_blocks, bounds.ALPHA) if one[0][1] == 0]
        out += any(not kept(np.zeros(1))[0] and turn * cell.value > 0 for _, cell, turn, kept in tests)
    return out / questions


OF_ADVISE = """
## The best of {} options in {} launches

Questions, in per cent, in which `advise` wrongly has another option faster than the best.

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


def left_out_alone(logs: Logs, in_blocks: bool, alpha: float = bounds.ALPHA) -> NDArray[np.bool_]:
    """[questions, sizes]: whether the test of a size alone leaves out 0; only then can that of all sizes.

    `excluded` for all questions at once; `logs` are [questions, sides, launches, sizes].
    """
    base, other = logs.transpose(1, 0, 3, 2)
    launches, sizes = logs.shape[2:]
    if in_blocks:
        values = bounds._bounded(other - base)
        rows = bounds.flips(launches, bounds._PASSES * launches * sizes)
    else:  # in the order of `excluded`
        turned = (base > other)[:, :1, :1]
        both = np.concatenate([np.where(turned, base, other), np.where(turned, other, base)], axis=-1)
        values = bounds._bounded(both - bounds._medians(both))
        values -= values.mean(axis=-1, keepdims=True)
        rows = bounds.exchanges(launches, launches, bounds._PASSES * 2 * launches * sizes)
    values /= np.sqrt((values**2).sum(axis=-1, keepdims=True)) * len(rows[0]) ** 0.5
    columns = rows.T.astype(float)
    as_large = np.array([np.count_nonzero(shares >= shares[:, :1] - 1e-9, axis=1)
                         for own in values for shares in [np.abs(own @ columns)]])  # fmt: skip
    return as_large <= int(alpha * len(rows) + 1e-9)


def found(name: str, in_blocks: bool, launches: int, sizes: int, questions: int, seed: int) -> dict[str, float]:
    """Shares: false questions; intervals that hold the true difference; questions that `compare` refuses."""
    draw = drawing(seed, name, in_blocks, launches, sizes)
    logs = np.array([NOISES[name][1](draw, launches, sizes) for _ in range(questions)])
    held = ~left_out_alone(logs, in_blocks)
    for number in np.flatnonzero(~held.all(axis=1)) if sizes > 1 else ():
        held[number] = [not out for (out,) in excluded(launches_of(logs[number]), in_blocks, [[0.0]] * sizes)]
    wrong, refused = ~held.all(axis=1), np.zeros(questions, bool)
    if launches >= DEPENDENT:
        refused[:] = [dependent([serial(*cell[:2], in_blocks) for cell in launches_of(one)]) for one in logs]
    shares = {"false": wrong, "held": held, "refused": refused, "false_verdicts": wrong & ~refused}
    return {key: float(np.mean(share)) for key, share in shares.items()}


def row(name: str, in_blocks: bool, sizes: int, questions: int, seed: int) -> dict[str, Any]:
    """Of a noise, by launches."""
    by_launches = {str(n): found(name, in_blocks, n, sizes, questions, seed) for n in LAUNCHES}
    return {"noise": name, "half": NOISES[name][0], "in blocks": in_blocks, "sizes": sizes, "launches": by_launches}


def page(rows: list[dict[str, Any]], best: list[dict[str, Any]], questions: int) -> str:
    """A table for each kind of sides and number of sizes; those where nothing is claimed apart."""

    def said(one: dict[str, Any]) -> list[str]:
        return [f"{shares['false'] * 100:.1f} ({shares['held'] * 100:.1f})" for shares in one["launches"].values()]

    heads, claimed = [f"{n} launches" for n in LAUNCHES], [one for one in rows if one["half"] != "apart"]
    error = 2 * math.sqrt(0.05 * 0.95 / questions)
    above = sum(shares["false"] > 0.05 + error for one in claimed for shares in one["launches"].values())
    number = len(claimed) * len(LAUNCHES)
    text = INTRODUCTION.format(questions, 100 * error, number, above, 0.023 * number)
    for in_blocks, sizes in product((True, False), SIZES):
        lines = [[one["noise"], one["half"], *said(one)] for one in claimed
                 if (one["in blocks"], one["sizes"]) == (in_blocks, sizes)]  # fmt: skip
        text += f"\n## {'Blocks' if in_blocks else 'Two sides without blocks'}, sizes: {sizes}\n\n"
        text += table(("noise", "half", *heads), lines)
    apart = [[str(one["sizes"]), *said(one),
              *(f"{one['launches']['25'][key] * 100:.1f}" for key in ("refused", "false_verdicts"))]
             for one in rows if one["half"] == "apart"]  # fmt: skip
    text += APART + table(("sizes", *heads, "refused", "false verdicts"), apart)
    lines = [[name, *(f"{one['out'] * 100:.1f}" for one in best if one["options"] == name)] for name in BEST]
    return text + OF_ADVISE.format(OPTIONS, OF_OPTIONS) + table(("options", "blocks", "without blocks"), lines)


def main() -> None:
    """Simulate, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=2000, help="of each [2000]")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    work = [one for one in product(NOISES, (True, False), SIZES) if one[1] or one[0] not in _OF_BLOCKS]
    with ProcessPoolExecutor() as pool:
        made = [pool.submit(row, *one, asked.questions, asked.seed) for one in work]
        of_best = {
            one: pool.submit(best_out, *one, asked.questions, asked.seed) for one in product(BEST, (True, False))
        }
        rows = [one.result() for one in made]
        best = [{"options": name, "in blocks": in_blocks, "out": one.result()}
                for (name, in_blocks), one in of_best.items()]  # fmt: skip
    data = {"seed": asked.seed, "questions": asked.questions, "rows": rows, "best": best}
    keep("coverage", page(rows, best, asked.questions), data)


if __name__ == "__main__":
    main()
