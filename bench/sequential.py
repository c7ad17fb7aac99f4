"""What launching until decided saves, and how often it errs: experiments made up, and drawn from runs in results/.

    python bench/sequential.py

Comparisons are measured in blocks until they are decided or given up, at most 20 times, and beside it 20 times as in a
plan without `until`. Drawn from a run: its blocks' log ratios, each pair's median taken out, blocks in any order with
both names exchanged at random, and a difference planted. Needs NumPy, SciPy and collbench; times mean nothing here.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from results import keep, table
from until_decided import Layout, as_in, at_any_time, made_up, until

from collbench.analysis.compare import MARGIN, verdict_on
from collbench.analysis.estimate import FEWEST, ratio_in_blocks
from collbench.analysis.sequential import evidence
from collbench.analysis.significance import Launches, p_values

MOST = 20
#: Blocks over which somebody looks for a false alarm after each.
LOOKS = 40
SIZES = 14
PLANTED = (0.0, 0.03, 0.05, 0.1, 0.5)
RUNS = ("ladder", "one-container", "choi2021-cpu", "storage", "train-cpu")
RESULTS = Path(__file__).parents[1] / "results"

Draw = np.random.Generator
#: Logarithms of times [sides, blocks, pairs] where nothing differs.
Noise = Callable[[Draw, int, int], NDArray[np.float64]]


def independent(one: Callable[[Draw, tuple[int, ...]], NDArray[np.float64]], drift: float = 0.3) -> Noise:
    """Launches with this noise, in blocks that drift."""

    def noise(draw: Draw, blocks: int, pairs: int) -> NDArray[np.float64]:
        return one(draw, (2, blocks, pairs)) + draw.normal(0, drift, (1, blocks, pairs))

    return noise


def lognormal(spread: float) -> Noise:
    return independent(lambda draw, shape: draw.normal(0, spread, shape))


def stepped(draw: Draw, blocks: int, pairs: int) -> NDArray[np.float64]:
    """A clock with steps of 10 ns, and operations of some 200 ns."""
    true = draw.uniform(195, 205, pairs)
    return np.asarray(np.log(np.round(true * np.exp(draw.normal(0, 0.005, (2, blocks, pairs))) / 10) * 10))


def slowing(draw: Draw, blocks: int, pairs: int) -> NDArray[np.float64]:
    """A machine that slows down by 30 % over all launches; which side of a block comes first is drawn."""
    order = draw.permuted(np.broadcast_to([[0.0], [1.0]], (blocks, 2, 1)), axis=1).transpose(1, 0, 2)
    when = (np.arange(blocks)[:, None] + order / 2) / blocks
    return np.asarray(draw.normal(0, 0.01, (2, blocks, pairs)) + math.log(1.3) * when)


def moved_together(draw: Draw, blocks: int, pairs: int) -> NDArray[np.float64]:
    """A launch moves all its sizes by 5 %."""
    return lognormal(0.01)(draw, blocks, pairs) + draw.normal(0, 0.05, (2, blocks, 1))


def far_off(draw: Draw, shape: tuple[int, ...]) -> NDArray[np.float64]:
    return np.asarray(draw.normal(0, 0.01, shape) + (draw.random(shape) < 0.1) * draw.normal(0, 1, shape))


NOISES: dict[str, Noise] = {
    "lognormal 1 %": lognormal(0.01),
    "lognormal 5 %": lognormal(0.05),
    "lognormal 20 %": lognormal(0.2),
    "a fifth of launches 30 % slower": independent(
        lambda draw, shape: draw.normal(0, 0.01, shape) + math.log(1.3) * (draw.random(shape) < 0.2)
    ),
    "Cauchy 1 %": independent(lambda draw, shape: np.clip(0.01 * draw.standard_cauchy(shape), -9, 9)),
    "a tenth of launches far off": independent(far_off),
    "skewed": independent(lambda draw, shape: np.log1p(draw.exponential(0.05, shape))),
    "launches that move all sizes": moved_together,
    "drift of 30 %": slowing,
    "clock of 10 ns at 200 ns": stepped,
}


def fixed(logs: NDArray[np.float64]) -> list[str]:
    """Verdicts on times [sides, blocks, pairs] as those of a plan with so many launches."""
    values = [(base.tolist(), other.tolist()) for base, other in np.exp(logs).transpose(2, 0, 1)]
    numbers = range(logs.shape[1])
    tests = p_values([Launches(*both, numbers, numbers) for both in values], in_blocks=True)
    return [
        "inconclusive" if p is None else verdict_on(ratio_in_blocks(other, base), p.p_adjusted, MARGIN)
        for (base, other), p in zip(values, tests, strict=True)
    ]


def alarms(noise: Noise, draw: Draw, experiments: int) -> dict[str, float]:
    """Shares of experiments in which somebody who looks after every block ever sees a difference, or a wrong `same`."""
    seen = {"bets": 0, "fixed test at every look": 0, "wrong same": 0}
    for number in range(experiments):
        sides = noise(draw, LOOKS, SIZES)
        logs = sides[1] - sides[0]
        found = evidence([dict(enumerate(column)) for column in logs.T.tolist()])
        seen["bets"] += min(one.p_adjusted for one in found) <= 0.05
        shifted = logs[:, 0] + math.log(1.03)
        bound = math.log1p(MARGIN)
        for blocks in range(FEWEST, LOOKS + 1):
            if at_any_time(shifted[:blocks]).within(math.exp(-bound), math.exp(bound)):
                seen["wrong same"] += 1
                break
        if number < experiments // 25:
            looks = range(FEWEST, LOOKS + 1)
            seen["fixed test at every look"] += any(
                {"faster", "slower"} & {*fixed(sides[:, :blocks])} for blocks in looks
            )
    scale = {"fixed test at every look": experiments // 25}
    return {name: number / scale.get(name, experiments) for name, number in seen.items()}


def drawn_from(run: str) -> tuple[Noise, Layout]:
    """Noise as in a run, and what the run compares."""
    layout, sides = as_in(RESULTS / run)
    sides -= np.median(sides, axis=1, keepdims=True)
    sides[1] -= np.median(sides[1] - sides[0], axis=0)

    def noise(draw: Draw, blocks: int, pairs: int) -> NDArray[np.float64]:
        drawn = sides[:, draw.integers(sides.shape[1], size=blocks)]
        return np.asarray(np.where(draw.random((1, blocks, 1)) < 0.5, drawn, drawn[::-1]))

    return noise, layout


#: What is counted of an experiment that ended when decided, in the order of `Layout.cost`.
COSTS = ("launches", "measurements", "seconds")


def planted(noise: Noise, layout: Layout, draw: Draw, experiments: int) -> dict[str, float]:
    """Experiments in which pairs differ by `PLANTED` in turn: how verdicts agree, and what part of all is used."""
    effects, pairs = np.log1p(np.array(PLANTED)), len(layout.pairs)
    count = dict.fromkeys(("alike", "decided by 20 alone", "decided by bets alone", "contrary", "other later"), 0)
    used, own = [], list[float]()
    found_by = {"bets": np.zeros(len(PLANTED)), "fixed": np.zeros(len(PLANTED))}
    total = np.zeros(len(PLANTED))
    for number in range(experiments):
        which = (np.arange(pairs) + number) % len(PLANTED)
        logs = noise(draw, MOST, pairs)
        logs[1] += effects[which]
        ended, all_of_it = until(logs[1] - logs[0], layout), fixed(logs)
        used.append(ended.cost / layout.whole / MOST)
        own.append(float(ended.blocks.mean()) / MOST)
        for pair, verdicts in enumerate(zip(ended.verdicts, ended.decided, all_of_it, strict=True)):
            mine, decided, theirs = (verdict.replace("negligible", "same") for verdict in verdicts)
            count[_agreement(mine, theirs)] += 1
            count["other later"] += decided not in ("inconclusive", mine)
            total[which[pair]] += 1
            right = "slower" if PLANTED[which[pair]] else "same"
            found_by["bets"][which[pair]] += mine == right
            found_by["fixed"][which[pair]] += theirs == right
    shares = {name: number / (experiments * pairs) for name, number in count.items()}
    by_effect = {f"{name} {added:.0%}": float(hits[at] / max(total[at], 1)) for name, hits in found_by.items()
             for at, added in enumerate(PLANTED)}  # fmt: skip
    costs = dict(zip(COSTS, np.mean(used, axis=0).tolist(), strict=True))
    return {**costs, "comparisons": float(np.mean(own)), **shares, **by_effect}


def _agreement(mine: str, theirs: str) -> str:
    if mine == theirs:
        return "alike"
    if mine == "inconclusive":
        return "decided by 20 alone"
    return "decided by bets alone" if theirs == "inconclusive" else "contrary"


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    draw = np.random.default_rng(asked.seed)
    plans: dict[str, tuple[Noise, Layout]] = {name: (noise, made_up(SIZES)) for name, noise in NOISES.items()}
    plans |= {f"as in results/{run}": drawn_from(run) for run in RUNS}
    return {
        "alarms": {name: alarms(noise, draw, asked.experiments) for name, noise in NOISES.items()},
        "planted": {name: planted(*plan, draw, asked.experiments // 40) for name, plan in plans.items()},
    }


def page(asked: argparse.Namespace, data: dict[str, Any]) -> str:
    verdicts = ("alike", "decided by bets alone", "decided by 20 alone", "contrary", "other later")
    costs = (*COSTS, "comparisons")
    errors = ("bets", "fixed test at every look", "wrong same")
    parts = [TEXT[0].format(experiments=asked.experiments, sizes=SIZES, looks=LOOKS),
             table(("noise", *errors), _rows(data["alarms"], errors, "{:.1%}")),
             TEXT[1].format(most=MOST, planted=", ".join(f"{one:.0%}" for one in PLANTED)),
             table(("noise", *costs), _rows(data["planted"], costs, "{:.0%}")), TEXT[2].format(most=MOST),
             table(("noise", *verdicts), _rows(data["planted"], verdicts, "{:.1%}")), TEXT[3].format(most=MOST),
             ]  # fmt: skip
    right = [
        [name, *(f"{found[f'bets {added:.0%}']:.0%} ({found[f'fixed {added:.0%}']:.0%})" for added in PLANTED)]
        for name, found in data["planted"].items()
    ]
    return "\n".join((*parts, table(("noise", *(f"{added:.0%}" for added in PLANTED)), right)))


def _rows(data: dict[str, dict[str, float]], keys: tuple[str, ...], how: str) -> list[list[str]]:
    return [[name, *(how.format(found[key]) for key in keys)] for name, found in data.items()]


#: What stands before each table.
TEXT = (
    """# Launches until decided

## Errors of who looks after every block

Of {experiments} experiments with {sizes} comparisons and up to {looks} blocks, those in which one was ever called
different although nothing differs: by bets, and by the test for a fixed number of launches, repeated after each block
(of one in 25 of them). Wrong same: those in which a difference of 3 % was ever called `same` (margin 2 %).
""",
    """## What is used

Shares of what a plan of {most} launches without `until` takes; comparisons differ by {planted} in turn. Launches:
starts of ranks; a cell is started while any of its cases is open. Measurements: cases in launches, those that are open.
Seconds: an estimate, starts as `collbench plan` estimates them, cases by their samples in the run that they are drawn
from (made-up plans have starts of 1 s, and seven sizes of 0.3 s), and 0.05 s for one that is executed without a record.
Comparisons: the share of blocks until each was decided or given up, the least that could be used.
""",
    """## Verdicts

Shares of comparisons: the same verdict as after all {most} blocks (`same` and `negligible` are one), or one in only one
of both. Other later: decided, and by the end of the experiment with another verdict, because its cases were measured
further for other comparisons; it is open again then, if it can still be decided.
""",
    """## What is seen

The share of comparisons with the right verdict (`same` at 0 %, else `slower`); in brackets that of all {most} blocks.
""",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=1000, help="of each noise; a 40th of them planted [1000]")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    data = measured(asked)
    keep("sequential", page(asked, data), {"seed": asked.seed, "experiments": asked.experiments, **data})


if __name__ == "__main__":
    main()
