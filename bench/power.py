"""How large a difference must be to be seen, and how often equal sides are the same: made-up launches in blocks.

    python bench/power.py [--questions 200] [--seed 1]

A question of four sizes, of which one or all differ, by the intervals of `compare`; beside it, from the same launches,
Student's t interval with Bonferroni's share for each size. Needs NumPy, SciPy and collbench; times mean nothing here.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from coverage import NOISES, Logs, launches_of
from results import keep, table
from scipy import stats

from collbench.analysis.arrangements import ALPHA
from collbench.analysis.bounds import intervals

LAUNCHES, SIZES, ADDED, MARGINS = (8, 12, 25), 4, (0.05, 0.1, 0.2), (0.02, 0.05, 0.1)

Ends = list[tuple[float, float]]


def ours(logs: Logs) -> Ends:
    return [(one.low, one.high) for one in intervals(launches_of(logs), True)]


def student(logs: Logs) -> Ends:
    """Of each size, with its share of 5 %."""
    differences = logs[1] - logs[0]
    n = len(differences)
    half = stats.t.ppf(1 - ALPHA / SIZES / 2, n - 1) * differences.std(axis=0, ddof=1) / np.sqrt(n)
    middle = differences.mean(axis=0)
    return list(zip((middle - half).tolist(), (middle + half).tolist(), strict=True))


METHODS = {"collbench": ours, "t, Bonferroni": student}


def row(name: str, launches: int, questions: int, seed: int) -> dict[str, Any]:
    """The share of sizes that differ and are seen; and of those that do not, the share that is the same."""
    draw, made = np.random.default_rng(seed), NOISES[name][1]
    seen: dict[str, list[float]] = {}
    for _ in range(questions):
        logs = made(draw, launches, SIZES)
        for method, interval in METHODS.items():
            ends = interval(logs)
            for margin in MARGINS:
                same = [max(-low, high) <= np.log1p(margin) for low, high in ends]
                seen.setdefault(f"{method}: same, {margin:.0%}", []).append(float(np.mean(same)))
            for added in ADDED:
                found = [low > -np.log1p(added) for low, _ in ends]  # a difference moves an interval by as much
                seen.setdefault(f"{method}: +{added:.0%}", []).append(float(np.mean(found)))
    return {"noise": name, "launches": launches, **{key: float(np.mean(values)) for key, values in seen.items()}}


def page(rows: list[dict[str, Any]], questions: int) -> str:
    """A table for each method."""
    parts = [
        f"# What so many launches see\n\nOf {questions} questions of {SIZES} sizes in blocks, in per cent: sizes that "
        "are slower by so much and called slower, and sizes that do not differ and lie within the margin.\n"
    ]
    keys = [f"+{added:.0%}" for added in ADDED] + [f"same, {margin:.0%}" for margin in MARGINS]
    for method in METHODS:
        lines = [[one["noise"], str(one["launches"]), *(f"{one[f'{method}: {key}'] * 100:.0f}" for key in keys)]
                 for one in rows]  # fmt: skip
        parts.append(f"## {method}\n\n" + table(("noise", "launches", *keys), lines))
    return "\n".join(parts)


def main() -> None:
    """Simulate, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=200, help="of each combination [200]")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rows = [row(name, launches, asked.questions, asked.seed)
            for name, (half, _) in NOISES.items() if half != "apart" for launches in LAUNCHES]  # fmt: skip
    keep("power", page(rows, asked.questions), {"seed": asked.seed, "questions": asked.questions, "rows": rows})


if __name__ == "__main__":
    main()
