"""How often intervals of predictions hold the truth: made-up runs of known laws, some of which are no shape.

    python bench/predictions.py [--runs 20] [--noise 0.03] [--seed 1]

Needs NumPy and collbench; times mean nothing here.
"""

from __future__ import annotations

import argparse
import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

import numpy as np
from results import keep, table

from collbench.analysis.models import FitPoint, LinkSeries, Model, model
from collbench.analysis.predictions import PredictionQuestion, predict
from collbench.schema.case import case_of

LAUNCHES, SIZES = 8, tuple(8 << power for power in range(20))

#: Seconds of so many bytes on so many ranks.
Law = Callable[[float, int], float]


def cached(size: float) -> float:
    """1 for messages within a cache of 256 KiB, 0 far beyond."""
    return 1 / (1 + math.exp(-2 * (math.log2(size) - 18)))


#: By name; of the first seven one rank count is measured, of all from the fourth on several.
LAWS: dict[str, Law] = {
    "power 0.85 of the size": lambda m, p: 3e-6 + 1.5 * m**0.85 / 3e8,
    "root of the size, and line": lambda m, p: 1e-6 + m**0.5 * 3e-8 + m / 6e9,
    "three protocols": lambda m, p: (2e-6 + m / 1e9 if m < 2048 else
                                     8e-6 + m / 4e9 if m < 200_000 else 4e-5 + m / 10e9),
    "two protocols": lambda m, p: 2 * math.log2(p) * (1e-6 if m < 8192 else 5e-6)
    + 2 * (p - 1) / p * m / (2e9 if m < 8192 else 8e9),
    "a cache that ends": lambda m, p: 2e-6 * math.log2(p) + 2 * (p - 1) / p * m / 8e9 * (1 + 1.5 * cached(m)),
    "one line": lambda m, p: 2e-6 * math.log2(p) + m / 8e9 * math.log2(p),
    "ranks share one memory": lambda m, p: 2e-6 * math.log2(p) + m * p / 16e9,
    "a memory full from 4 ranks": lambda m, p: 2e-6 * math.log2(p) + m / 8e9 * max(1.0, p / 4),
    "bandwidth by the root of p": lambda m, p: 2e-6 * math.log2(p) + m / 8e9 * p**0.5,
    "messages wait for each other": lambda m, p: 1e-6 * p**1.5 + m / 8e9 * p**0.7,
}  # fmt: skip
WORK: list[tuple[str, tuple[int, ...]]] = [(name, (4,)) for name in list(LAWS)[:7]] + [
    (name, ranks) for name in list(LAWS)[3:] for ranks in ((2, 4, 8), (2, 8, 16))
]

#: Sizes that are asked for: between those measured, and one of them.
ASKED = (100, 700, 3000, 6000, 12_000, 50_000, 150_000, 300_000, 10**6, 3 * 10**6, 1 << 20)

INTRODUCTION = """# How often intervals of predictions hold the truth

Made-up runs of {launches} launches of 20 sizes, 8 B to 4 MiB, with {noise:.0f} % of noise between launches; {runs} runs
of each law. A cell: how many of the nominal 95 % intervals hold the law's true time, and how many the median of another
such run, which they are made for; the median width of an interval (highest over lowest); the median error of the
prediction. Laws that are no algorithm of the model test its intervals, not its fit. `beyond` is twice the largest rank
count, `between` 4 ranks where 2, 8 and 16 were measured.

Of {every} intervals {held:.1f} % hold the truth: at ranks measured {at:.1f} %, at others {off:.1f} %. The least of any
law: {least:.0f} % ({which}).

"""


def asked(ranks: Sequence[int]) -> dict[str, list[PredictionQuestion]]:
    """Questions by where they lie: at ranks measured, and at one number of ranks that was not."""
    found = {"measured": [PredictionQuestion(p, m) for p in ranks for m in ASKED]}
    if len(ranks) > 1:
        where, other = ("beyond", 2 * ranks[-1]) if 4 in ranks else ("between", 4)
        found[where] = [PredictionQuestion(other, m) for m in ASKED]
    return found


def measured(law: Law, ranks: Sequence[int], noise: float, draw: np.random.Generator) -> Model:
    """The model of a run of this law."""
    points = []
    for p in ranks:
        for m in SIZES:
            medians = law(m, p) * np.exp(draw.normal(0, noise, LAUNCHES))
            points.append(FitPoint(p, m, m, tuple(range(LAUNCHES)), tuple(map(float, medians))))
    case = case_of("allreduce", {"backend": "mpi", "driver": "native", "thread_level": "single", "size": 0,
        "dtype": "float32", "op": "sum", "ranks": 0})  # fmt: skip
    made = model(LinkSeries(case, "tcp", tuple(points), (), ()))
    assert isinstance(made, Model)
    return made


def row(name: str, ranks: tuple[int, ...], runs: int, noise: float, seed: int) -> dict[str, Any]:
    """Of a law on these ranks: by where questions lie the share of intervals that hold the truth, and median width."""
    held: dict[str, list[tuple[bool, bool, float, float]]] = {}
    for run in range(runs):
        draw = np.random.default_rng([seed, run, zlib.crc32(repr((name, ranks)).encode())])
        made = measured(LAWS[name], ranks, noise, draw)
        for where, questions in asked(ranks).items():
            for question in questions:
                found, truth = predict(made, question), LAWS[name](question.size or 0, question.ranks)
                assert found.interval is not None, (name, question)
                low, high = found.interval
                again = truth * math.exp(median(draw.normal(0, noise, LAUNCHES)))
                miss = abs(found.seconds / truth - 1)
                held.setdefault(where, []).append((low <= truth <= high, low <= again <= high, high / low, miss))
    places = {where: {"intervals": len(of), **dict(zip(("held", "again", "width", "error"), _summary(of), strict=True))}
              for where, of in held.items()}  # fmt: skip
    return {"law": name, "ranks": ranks, "places": places}


def _summary(of: Sequence[tuple[bool, bool, float, float]]) -> tuple[float, ...]:
    """Shares of both kinds, and medians of width and error."""
    held, again, widths, misses = zip(*of, strict=True)
    return sum(held) / len(of), sum(again) / len(of), median(widths), median(misses)


def page(rows: list[dict[str, Any]], runs: int, noise: float) -> str:
    """One table; at ranks measured, and at others."""

    def said(one: dict[str, Any] | None) -> str:
        if one is None:
            return ""
        shares = f"{one['held'] * 100:.0f} / {one['again'] * 100:.0f} %"
        return f"{shares}, {one['width']:.2f}x, {one['error'] * 100:.0f} %"

    def share(places: Iterable[dict[str, Any]]) -> float:
        counts = [(float(one["held"]), int(one["intervals"])) for one in places]
        return 100 * sum(held * number for held, number in counts) / sum(number for _, number in counts)

    every = [(row["law"], where, place) for row in rows for where, place in row["places"].items()]
    least = min(every, key=lambda one: one[2]["held"])
    text = INTRODUCTION.format(
        launches=LAUNCHES, noise=noise * 100, runs=runs, every=sum(one["intervals"] for *_, one in every),
        held=share(one for *_, one in every), at=share(one for _, where, one in every if where == "measured"),
        off=share(one for _, where, one in every if where != "measured"), least=least[2]["held"] * 100,
        which=f"{least[0]}, {least[1]}",
    )  # fmt: skip
    lines = [(row["law"], ", ".join(map(str, row["ranks"])), *(said(row["places"].get(where)) for where in _WHERE))
             for row in rows]  # fmt: skip
    return text + table(("law", "ranks", *_WHERE), lines)


_WHERE = ("measured", "between", "beyond")


def main() -> None:
    """Simulate, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="of each law [20]")
    parser.add_argument("--noise", type=float, default=0.03, help="between launches [0.03]")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rows = [row(name, ranks, given.runs, given.noise, given.seed) for name, ranks in WORK]
    data = {"seed": given.seed, "runs": given.runs, "noise": given.noise, "rows": rows}
    keep("predictions", page(rows, given.runs, given.noise), data)


if __name__ == "__main__":
    main()
