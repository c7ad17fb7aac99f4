"""How often a conclusion on many cells is contradicted although it is true in all: with own intervals, and at once.

Every cell lies exactly at the bound of the conclusion, on normal noise of 1 % in each launch, in blocks. Usage:
`python bench/paper_verdicts.py [RUNS]`.
"""

from __future__ import annotations

import sys

import numpy as np

from collbench.analysis.bounds import Launches, intervals

LAUNCHES, NOISE = 10, 0.01


def main(runs: int) -> None:
    rng = np.random.default_rng(1)
    print(f"{'cells':>5}  {'own':>7}  {'at once':>7}  {'width':>6}")
    for cells in (1, 4, 14, 44):
        own_wrong = joint_wrong = 0
        widths = []
        for _ in range(runs):
            times = np.exp(rng.normal(0, NOISE, (cells, 2, LAUNCHES)))
            numbers = range(LAUNCHES)
            made = [Launches(base.tolist(), other.tolist(), numbers, numbers) for base, other in times]
            alone = [intervals([one], True)[0] for one in made]
            joint = intervals(made, True)
            own_wrong += any(one.low > 0 for one in alone)
            joint_wrong += any(one.low > 0 for one in joint)
            widths += [(two.high - two.low) / (one.high - one.low) for one, two in zip(alone, joint, strict=True)]
        print(f"{cells:5}  {own_wrong / runs:7.1%}  {joint_wrong / runs:7.1%}  {np.median(widths):5.2f}x")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
