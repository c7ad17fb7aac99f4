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
from typing import Any

import numpy as np
from coverage import drawing
from machine import describe
from numpy.typing import NDArray
from results import write
from scipy import stats

from collbench.analysis import bounds

CELLS, BLOCKS, MARGINS = 14, (6, 8, 12, 31), (0.02, 0.05)

#: Losses as multiples of the margin, of all cells, of half of them, or of the first alone.
LOSSES = (0.5, 0.95, 1.0, 1.05, 2.0)

#: Statistics that differ by less are equal.
_EQUAL = 1e-9

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


def answers(logs: Logs) -> dict[str, Any]:
    """Of one gate, without a loss in `logs`: by margin what it says where all cells lose so much, or some.

    A bound is beyond a margin where the test there rejects; with a loss that is the test nearer by as much.
    """
    cells = bounds._of_blocks([dict(enumerate(row.tolist())) for row in logs], either=True)
    answered: dict[str, Any] = {}
    for margin in MARGINS:
        at = np.array([1.0, *(1 - times for times in LOSSES)]) * math.log1p(margin)
        shares = np.array([cell.shares(at) for cell in cells])
        most = int(bounds.ALPHA * shares.shape[-1] + _EQUAL)
        none = np.count_nonzero(shares <= shares[..., :1] + _EQUAL, axis=-1) <= most
        of_one, of_half = shares[1:, :1].max(axis=0), shares[CELLS // 2 :, :1].max(axis=0)
        answered[f"margin_{margin * 100:g}"] = {
            "equal": none[:, 0].all(),
            **_by_loss("failed_all", _fails(shares.max(axis=0), most)),
            **_by_loss("failed_half", _fails(np.maximum(shares[: CELLS // 2].max(axis=0), of_half), most)),
            **_by_loss("failed_one", _fails(np.maximum(shares[0], of_one), most)),
            **_by_loss("passed_one", none[0] & none[1:, 0].all()),
        }
    answered["wrong_upper"] = none[:, 1 + LOSSES.index(1.0)].mean()
    return answered


def _fails(largest: Logs, most: int) -> NDArray[np.bool_]:
    """[places]: whether the largest statistic of all cells, [places, arrangements], stands out as it was measured."""
    failed: NDArray[np.bool_] = np.count_nonzero(largest >= largest[:, :1] - _EQUAL, axis=-1) <= most
    return failed


def _by_loss(name: str, answered: NDArray[np.bool_]) -> dict[str, np.bool_]:
    return {f"{name}_{times:g}": one for times, one in zip(LOSSES, answered[1:], strict=True)}


def row(name: str, blocks: int, trials: int, seed: int) -> dict[str, Any]:
    """The shares of gates of one noise and one number of blocks."""
    draw = drawing(seed, name, blocks)
    each = [answers(NOISES[name](draw, CELLS, blocks)) for _ in range(trials)]
    return {"noise": name, "blocks": blocks, "gates": trials, **_means(each)}


def _means(each: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {key: _means([one[key] for one in each]) if isinstance(value, dict)
            else float(np.mean([one[key] for one in each])) for key, value in each[0].items()}  # fmt: skip


#: Columns of false answers at a margin of 5 %.
FALSE = ("failed_all_1", "failed_half_1", "failed_all_0.95", "failed_all_0.5", "passed_one_1", "passed_one_1.05")


def page(rows: Sequence[dict[str, Any]], seconds: float) -> str:
    """The page in Markdown."""
    gates = rows[0]["gates"]
    limit = 0.05 + 2 * math.sqrt(0.05 * 0.95 / gates)
    each = [(one["wrong_upper"], *(one["margin_5"][name] for name in FALSE)) for one in rows]
    shares = [share for one in each for share in one[1:]]
    lines = [
        "# How often gates pass and fail", "",
        f"`python bench/gates.py`: {CELLS} cells, logarithms of ratios drawn within blocks, judged by the bounds of "
        "[docs/statistics.md](../docs/statistics.md#bounds-of-a-gate). A loss below the margin may pass; the margin or "
        f"more may not. {gates} gates of each; {seconds / 60:.0f} minutes.", "",
        "**False answers** at a margin of 5 %, in per cent. Of cells, those whose upper bound is below their loss. Of "
        "gates, those that fail where all cells lose the margin, half of the cells do and the others nothing, all lose "
        "0.95 of it, or half of it. And those that pass where one cell loses the margin, or a twentieth more. "
        f"At most 5 each is what they should be. Of {len(shares)} shares of gates "
        f"{sum(share > limit for share in shares)} exceed {limit * 100:.1f}: 5, and two standard errors.", "",
        "| noise | blocks | bound wrong | fail at margin | half of the cells | fail at 0.95 | fail at half | "
        "pass at margin | pass at 1.05 |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]  # fmt: skip
    lines += [_line(one, own, 1) for one, own in zip(rows, each, strict=True)]
    lines += ["", "**Answers**, in per cent of gates with a margin of 2 and of 5 %: equal sides that pass; a loss of "
              "twice the margin in one cell that is found.", "",
              "| noise | blocks | pass at 2 % | pass at 5 % | 4 % found at 2 % | 10 % found at 5 % |",
              "| --- | ---: | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for one in rows:
        of_margins = [one[f"margin_{margin * 100:g}"] for margin in MARGINS]
        lines.append(_line(one, [of[name] for name in ("equal", "failed_one_2") for of in of_margins], 1))
    exact = ", ".join(f"{student(*of) * 100:.1f} ({of[1]} blocks, {of[0] * 100:.1f} %)" for of in EXACT)
    lines += ["", "**Student's t** as the test of each cell passes these gates of equal sides at a margin of 5 %, "
              "in per cent (with so many blocks, whose log ratios vary by so much): " + exact + ". Where noise is "
              "normal no test that errs in 5 % of cells passes more."]  # fmt: skip
    return "\n".join((*lines, ""))


#: Standard deviations of log ratios, and blocks.
EXACT = ((0.03, 6), (0.03, 8), (0.03, 9), (0.03, 12), (0.05 * 2**0.5, 31), (0.05 * 2**0.5, 34))


def student(spread: float, blocks: int) -> float:
    """How many gates of independent cells pass, each where the one-sided t test at 5 % rejects a loss of 5 %."""
    away = math.log1p(0.05) / spread * math.sqrt(blocks)
    return float(stats.nct.sf(stats.t.isf(bounds.ALPHA, blocks - 1), blocks - 1, away)) ** CELLS


def _line(one: dict[str, Any], shares: Sequence[float], digits: int) -> str:
    """A row of a table, in per cent."""
    return f"| {one['noise']} | {one['blocks']} | {' | '.join(f'{share * 100:.{digits}f}' for share in shares)} |"


def main() -> None:
    """Simulate, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000, help="of each [2000]")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    began = time.monotonic()
    with ProcessPoolExecutor() as pool:
        made = [pool.submit(row, name, blocks, asked.trials, asked.seed) for name in NOISES for blocks in BLOCKS]
        rows = [one.result() for one in made]
    seconds = time.monotonic() - began
    data = {"seed": asked.seed, "trials": asked.trials, "machine": describe(), "rows": rows}
    write("gates", data, lambda: page(rows, seconds))


if __name__ == "__main__":
    main()
