"""What launching until decided saves, and how often it errs: made-up launches that are looked at after every block.

    python bench/sequential.py [--questions 2000] [--seed 1]

A question is launched until all of its sizes are decided or given up, 20 blocks at most. Needs NumPy, SciPy and
collbench; times mean nothing here.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from coverage import NOISES, drawing, left_out_alone
from numpy.typing import NDArray
from results import keep, table

from collbench.analysis.bounds import ALPHA, fewest_wins
from collbench.analysis.compare import MARGIN, Verdict
from collbench.analysis.estimate import FEWEST
from collbench.analysis.planning import LEAST_CHANCE, chance_of_verdict

MOST, SIZES, ADDED = 20, (1, 4, 8), (0.0, 0.03, 0.1, 0.5)

#: Verdicts as numbers, so that those of all questions are one array.
VERDICTS: tuple[Verdict, ...] = ("unclear", "same", "slower", "faster")


def verdicts(logs: NDArray[np.float64]) -> NDArray[np.int64]:
    """[questions, sizes]: by bets on log ratios [questions, blocks, sizes], the sizes of a question at once."""
    _, blocks, sizes = logs.shape
    ordered = np.sort(logs, axis=1)
    outside = blocks - fewest_wins(blocks, 2 * sizes / ALPHA)
    if outside < 0:
        return np.zeros_like(logs[:, 0], np.int64)
    low, high = ordered[:, outside], ordered[:, blocks - 1 - outside]
    return np.select([np.maximum(-low, high) <= np.log1p(MARGIN), low > 0, high < 0], [1, 2, 3], 0)


def lies(added: float) -> set[Verdict]:
    """The verdicts that are false of such a difference: of one within the margin, `same` is true as well."""
    if not added:
        return {"slower", "faster"}
    return {"faster"} if added <= MARGIN else {"faster", "same"}


def fixed(name: str, questions: int, seed: int) -> float:
    """The share of questions of one size whose interval for a fixed number ever excludes equality, which is true."""
    draw = drawing(seed, name, "fixed")
    logs = np.array([NOISES[name][1](draw, MOST, 1) for _ in range(questions)])
    looks = [left_out_alone(logs[:, :, :blocks], True) for blocks in range(FEWEST, MOST + 1)]
    return float(np.any(looks, axis=0).mean())


def row(name: str, sizes: int, added: float, questions: int, seed: int) -> dict[str, Any]:
    """Shares of questions that ever said anything false and of sizes with a verdict; the mean number of blocks."""
    draw = drawing(seed, name, sizes, added)
    sides = np.array([NOISES[name][1](draw, MOST, sizes) for _ in range(questions)])
    logs = sides[:, 1] - sides[:, 0] + np.log1p(added)
    false = [VERDICTS.index(verdict) for verdict in lies(added)]
    wrong, decided, used = np.zeros(questions, bool), np.zeros(questions), np.zeros(questions)
    open_ = np.arange(questions)
    for blocks in range(FEWEST, MOST + 1):
        said = verdicts(logs[open_, :blocks])
        wrong[open_] |= np.isin(said, false).any(axis=1)
        decided[open_], used[open_] = (said > 0).mean(axis=1), blocks
        open_ = open_[[any(_hopeful(logs[number, :blocks, size], sizes) for size in np.flatnonzero(own == 0))
                       for number, own in zip(open_, said, strict=True)]]  # fmt: skip
    return {"noise": name, "sizes": sizes, "added": added, "wrong": float(wrong.mean()),
            "decided": float(decided.mean()), "blocks": float(used.mean())}  # fmt: skip


def _hopeful(logs: NDArray[np.float64], sizes: int) -> bool:
    """Whether a size is launched again."""
    return chance_of_verdict(logs.tolist(), MOST - len(logs), MARGIN, sizes) >= LEAST_CHANCE


def page(rows: list[dict[str, Any]], at_fixed: dict[str, float], questions: int) -> str:
    """False statements by noise; verdicts and blocks by difference."""
    by = {(one["noise"], one["sizes"], one["added"]): one for one in rows}
    false = [[name, f"{at_fixed[name] * 100:.0f}",
              *(f"{max(by[name, sizes, added]['wrong'] for added in ADDED) * 100:.1f}" for sizes in SIZES)]
             for name in at_fixed]  # fmt: skip
    used = [[name, str(sizes), *(_used(by[name, sizes, added]) for added in ADDED)]
            for name in at_fixed for sizes in SIZES]  # fmt: skip
    sizes_of = [f"{sizes} {'size' if sizes == 1 else 'sizes'}" for sizes in SIZES]
    differences = [f"+{added:.0%}" if added else "no difference" for added in ADDED]
    error = 200 * (0.05 * 0.95 / questions) ** 0.5
    return (
        f"# Launching until decided\n\nQuestions of up to {MOST} blocks, margin {MARGIN:.0%}, {questions} of each "
        f"kind; two standard errors of 5 % are {error:.1f} points.\n\n"
        "## False statements\n\nQuestions, in per cent, that said anything false after any block, at the worst of the "
        f"{len(ADDED)} differences below.\nFixed: questions of one size without a difference whose interval for a "
        "fixed number of launches excludes equality\nafter any block.\n\n"
        f"{table(('noise', 'fixed, 1 size', *sizes_of), false)}\n"
        "## Verdicts, and blocks used\n\nSizes with a verdict when the launches ended, in per cent; in brackets the "
        f"mean number of blocks.\nAll sizes differ alike.\n\n{table(('noise', 'sizes', *differences), used)}"
    )


def _used(one: dict[str, Any]) -> str:
    return f"{one['decided'] * 100:.0f} ({one['blocks']:.1f})"


def main() -> None:
    """Simulate, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=2000, help="of each combination [2000]")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    names = [name for name, (half, _) in NOISES.items() if half != "apart"]
    work = [(name, sizes, added) for name in names for sizes in SIZES for added in ADDED]
    with ProcessPoolExecutor() as pool:
        looks = {name: pool.submit(fixed, name, asked.questions, asked.seed) for name in names}
        made = [pool.submit(row, *one, asked.questions, asked.seed) for one in work]
        rows, at_fixed = [one.result() for one in made], {name: one.result() for name, one in looks.items()}
    data = {"seed": asked.seed, "questions": asked.questions, "fixed": at_fixed, "rows": rows}
    keep("sequential", page(rows, at_fixed, asked.questions), data)


if __name__ == "__main__":
    main()
