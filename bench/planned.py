"""Whether launches show the differences that `plan --like` says they show, from an earlier run of 7 or 10 launches.

    python bench/planned.py [--experiments 100] [--seed 1]

Needs NumPy, SciPy and collbench; times mean nothing here.
"""

from __future__ import annotations

import argparse
import math
from concurrent.futures import ProcessPoolExecutor
from itertools import product

import numpy as np
from coverage import NOISES, drawing, launches_of
from results import keep, table

from collbench.analysis.bounds import intervals
from collbench.analysis.compare import MARGIN
from collbench.analysis.estimate import Estimate
from collbench.analysis.planning import power

SIZES, EARLIER, LATER = 3, (7, 10), (15, 25)

NAMES = tuple(name for name, (half, _) in NOISES.items() if half != "apart")

INTRODUCTION = """# Whether a plan says beforehand what its launches show

An earlier run of one question (three sizes, both sides equal) says which difference so many launches show in four of
five experiments. Then they are made, with the middle of these differences in every size: the share of sizes in which
the interval excludes equality, in per cent; in brackets that difference. {} experiments a row, so one share is good to
{:.0f} points. The spread of 7 launches is itself only known to a quarter, and modes may be missing in it.

"""


def seen(name: str, earlier: int, later: int, experiments: int, seed: int) -> tuple[float, float]:
    """The share of sizes whose interval excludes equality, and the median of the differences that were planned for."""
    draw, noise = drawing(seed, name, earlier, later), NOISES[name][1]
    hits, planned = [], []
    for _ in range(experiments):
        known = intervals(launches_of(noise(draw, earlier, SIZES)), True)
        ratios = [Estimate(math.exp(one.value), (math.exp(one.low), math.exp(one.high)), earlier) for one in known]
        difference = float(np.median(power(ratios, later, MARGIN).differences))
        logs = noise(draw, later, SIZES)
        logs[1] += math.log1p(difference)
        hits.append(np.mean([not one.low <= 0.0 <= one.high for one in intervals(launches_of(logs), True)]))
        planned.append(difference)
    return float(np.mean(hits)), float(np.median(planned))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rows = list(product(NAMES, EARLIER, LATER))
    with ProcessPoolExecutor() as pool:
        waiting = {row: pool.submit(seen, *row, asked.experiments, asked.seed) for row in rows}
        found = {row: future.result() for row, future in waiting.items()}
    lines = [
        [name, str(earlier), *(f"{shown * 100:.0f} ({difference * 100:.0f} %)"
                               for shown, difference in (found[name, earlier, later] for later in LATER))]
        for name, earlier in product(NAMES, EARLIER)
    ]  # fmt: skip
    heads = ["noise", "earlier launches", *(f"{later} launches" for later in LATER)]
    points = 200 * math.sqrt(0.8 * 0.2 / asked.experiments)
    text = INTRODUCTION.format(asked.experiments, points) + table(heads, lines)
    keep("planned", text, {"experiments": asked.experiments, "seed": asked.seed,
                          "rows": [[*row, *values] for row, values in found.items()]})  # fmt: skip


if __name__ == "__main__":
    main()
