"""What launching until decided saves, and how often it errs: made-up launches that are looked at after every block.

    python bench/sequential.py [--questions 300] [--seed 1]

A question is launched until all of its sizes are decided or given up, 20 blocks at most. Needs NumPy, SciPy and
collbench; times mean nothing here.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from coverage import NOISES, Logs, drawing, launches_of
from results import keep, table

from collbench.analysis.bounds import ALPHA, intervals, ratio_at_any_time
from collbench.analysis.compare import MARGIN, Verdict, verdict_on
from collbench.analysis.deciding import LEAST_CHANCE, chance_of_verdict
from collbench.analysis.estimate import FEWEST

MOST, SIZES, ADDED = 20, (1, 4, 8), (0.0, 0.03, 0.1, 0.5)

#: Intervals for a fixed number of launches take long: of so many questions they are looked at after every block.
FIXED = 100


def looked(logs: Logs) -> tuple[list[list[Verdict]], int]:
    """The verdicts on [sides, blocks, sizes] after every block from the sixth on, and the blocks that were measured."""
    times, sizes = np.exp(logs), logs.shape[2]
    found: list[list[Verdict]] = []
    for blocks in range(FEWEST, MOST + 1):
        verdicts, open_ = list[Verdict](), False
        for size in range(sizes):
            base, other = times[:, :blocks, size]
            ratio = ratio_at_any_time(other, base, 1 - ALPHA / sizes)
            verdicts.append("unclear" if ratio.interval is None else verdict_on(ratio, MARGIN))
            if verdicts[-1] == "unclear":
                logs_of = (np.log(other) - np.log(base)).tolist()
                open_ |= chance_of_verdict(logs_of, MOST - blocks, MARGIN, sizes) >= LEAST_CHANCE
        found.append(verdicts)
        if not open_:
            return found, blocks
    return found, MOST


def lies(added: float) -> set[Verdict]:
    """The verdicts that are false of such a difference: of one within the margin, `same` is true as well."""
    if not added:
        return {"slower", "faster"}
    return {"faster"} if added <= MARGIN else {"faster", "same"}


def fixed(name: str, seed: int) -> float:
    """The share of questions of one size whose interval for a fixed number ever excludes equality, which is true."""
    draw, wrong = drawing(seed, name, "fixed"), 0
    for _ in range(FIXED):
        logs = NOISES[name][1](draw, MOST, 1)
        each = (intervals(launches_of(logs[:, :blocks]), True)[0] for blocks in range(FEWEST, MOST + 1))
        wrong += any(one.low > 1e-12 or one.high < -1e-12 for one in each)
    return wrong / FIXED


def row(name: str, sizes: int, added: float, questions: int, seed: int) -> dict[str, Any]:
    """Shares of questions that ever said anything false and of sizes with a verdict; the mean number of blocks."""
    draw, made = drawing(seed, name, sizes, added), NOISES[name][1]
    wrong, decided, used = [], [], []
    for _ in range(questions):
        logs = made(draw, MOST, sizes)
        logs[1] += np.log1p(added)
        found, blocks = looked(logs)
        wrong.append(any(verdict in lies(added) for verdicts in found for verdict in verdicts))
        decided.append(np.mean([verdict != "unclear" for verdict in found[-1]]))
        used.append(blocks)
    return {"noise": name, "sizes": sizes, "added": added, "wrong": float(np.mean(wrong)),
            "decided": float(np.mean(decided)), "blocks": float(np.mean(used))}  # fmt: skip


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
        f"{len(ADDED)} differences below.\nFixed: of {FIXED} questions of one size without a difference, those whose "
        "interval for a fixed number of launches excludes\nequality after any block.\n\n"
        f"{table(('noise', 'fixed, 1 size', *sizes_of), false)}\n"
        "## Verdicts, and blocks used\n\nSizes with a verdict when the launches ended, in per cent; in brackets the "
        f"mean number of blocks.\nAll sizes differ alike.\n\n{table(('noise', 'sizes', *differences), used)}"
    )


def _used(one: dict[str, Any]) -> str:
    return f"{one['decided'] * 100:.0f} ({one['blocks']:.1f})"


def main() -> None:
    """Simulate, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=300, help="of each combination [300]")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    names = [name for name, (half, _) in NOISES.items() if half != "apart"]
    work = [(name, sizes, added) for name in names for sizes in SIZES for added in ADDED]
    with ProcessPoolExecutor() as pool:
        looks = {name: pool.submit(fixed, name, asked.seed) for name in names}
        made = [pool.submit(row, *one, asked.questions, asked.seed) for one in work]
        rows, at_fixed = [one.result() for one in made], {name: one.result() for name, one in looks.items()}
    data = {"seed": asked.seed, "questions": asked.questions, "fixed": at_fixed, "rows": rows}
    keep("sequential", page(rows, at_fixed, asked.questions), data)


if __name__ == "__main__":
    main()
