"""How large a difference must be to be seen, and how often equal sides are the same: made-up launches in blocks.

    python bench/power.py [--questions 300] [--seed 1]

A question of four sizes by the intervals of `compare`; beside them, from the same launches and with a quarter of 5 %
for each size, Student's t intervals and intervals of the median by the sign test. Needs NumPy, SciPy and collbench;
times mean nothing here.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from coverage import NOISES, Logs, drawing, launches_of
from numpy.typing import NDArray
from results import keep, table
from scipy import stats

from collbench.analysis.bounds import ALPHA, intervals
from collbench.analysis.estimate import ratio_in_blocks

LAUNCHES, SIZES, ADDED, MARGINS = (8, 12, 25), 4, (0.05, 0.1, 0.2), (0.02, 0.05, 0.1)

#: Of intervals, logarithms [sizes, 2].
Ends = NDArray[np.float64]


def ours(logs: Logs) -> Ends:
    return np.array([(one.low, one.high) for one in intervals(launches_of(logs), True)])


def student(logs: Logs) -> Ends:
    differences = logs[1] - logs[0]
    n = len(differences)
    half = stats.t.ppf(1 - ALPHA / SIZES / 2, n - 1) * differences.std(axis=0, ddof=1) / np.sqrt(n)
    middle = differences.mean(axis=0)
    return np.stack([middle - half, middle + half], axis=1)


def signs(logs: Logs) -> Ends:
    times = np.exp(logs)
    ratios = [ratio_in_blocks(times[1, :, size], times[0, :, size], 1 - ALPHA / SIZES) for size in range(SIZES)]
    return np.log([one.interval or (0.0, np.inf) for one in ratios])


METHODS = {"collbench": ours, "t": student, "signs": signs}


def row(name: str, launches: int, questions: int, seed: int) -> dict[str, Any]:
    """Shares of questions and of sizes, by method. A difference moves an interval by as much, and no other one."""
    draw = drawing(seed, name, launches)
    drawn = [NOISES[name][1](draw, launches, SIZES) for _ in range(questions)]
    found: dict[str, Any] = {"noise": name, "launches": launches, "questions": questions}
    for method, interval in METHODS.items():
        ends = np.array([interval(logs) for logs in drawn])
        low, high = ends[..., 0], ends[..., 1]
        of_method = {"false": float(((low > 1e-12) | (high < -1e-12)).any(axis=1).mean())}
        for added in ADDED:
            seen = low > -np.log1p(added)
            of_method |= {f"one +{added:.0%}": float(seen.mean()), f"all +{added:.0%}": float(seen.all(axis=1).mean())}
        for margin in MARGINS:
            of_method[f"same {margin:.0%}"] = float((np.maximum(-low, high) <= np.log1p(margin)).mean())
        found[method] = of_method
    return found


def page(rows: list[dict[str, Any]], questions: int) -> str:
    """A table of differences, and one of equal sides."""
    seen = [f"{of} +{added:.0%}" for added in ADDED for of in ("one", "all")]
    equal = ["false", *(f"same {margin:.0%}" for margin in MARGINS)]
    return (
        f"# What so many launches see\n\nOf {questions} questions of {SIZES} sizes in blocks, in "
        "per cent. Each cell: collbench /\nStudent's t / the sign test, the latter two with a quarter of 5 % for each "
        "size. Two standard errors of a share of 50 %\n"
        f"are {100 / questions**0.5:.0f} points.\n\n"
        "Where launches switch modes or are far off, the sign test sees more from 12 launches on: one that is far off\n"
        "counts there as any other, in collbench's statistic as two median distances. Of normal noise collbench sees\n"
        "more. Student's t sees a little more than both at 8 launches of normal noise, and less where launches are\n"
        "far off.\n\n"
        "## Differences that are seen\n\n`one`: one size is slower by so much, and its interval excludes equality. "
        f"`all`: all four are, and do.\n\n{_table(rows, seen)}\n"
        "## Where nothing differs\n\n`false`: questions of which any interval excludes equality. `same`: sizes whose "
        f"whole interval lies within the margin.\n\n{_table(rows, equal)}"
    )


def _table(rows: list[dict[str, Any]], keys: list[str]) -> str:
    lines = [[one["noise"], str(one["launches"]),
              *(" / ".join(f"{one[method][key] * 100:.0f}" for method in METHODS) for key in keys)]
             for one in rows]  # fmt: skip
    return table(("noise", "launches", *keys), lines)


def main() -> None:
    """Simulate, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=300, help="of each combination [300]")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    work = [(name, launches) for name, (half, _) in NOISES.items() if half != "apart" for launches in LAUNCHES]
    with ProcessPoolExecutor() as pool:
        made = [pool.submit(row, *one, asked.questions, asked.seed) for one in work]
        rows = [one.result() for one in made]
    keep("power", page(rows, asked.questions), {"seed": asked.seed, "questions": asked.questions, "rows": rows})


if __name__ == "__main__":
    main()
