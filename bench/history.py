"""False alarms of `collbench history`, and changes found, in made-up histories; other libraries beside it.

    python bench/history.py

A history has 40 cells, each with one value a run. Where nothing changes, a page has a false alarm if it names any
change beyond the margin of 2 %. Where something does, one cell changes, and it is found if a change is named within
three runs of it. Beside collbench, where they are installed: ruptures (PELT, mean of each level, penalty 2 log n
variances, levels of three runs or more) and Apache Otava (`otava`, E-divisive in windows of 50 with t tests at 0.001,
its default), both without changes below the margin. Needs NumPy, SciPy and collbench; times mean nothing here but for
the last table, which is measured on this machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
from history_noise import CELLS, NOISES, Values
from results import keep, table

from collbench.analysis.history.change_points import Trace, find, matter, spread_of

MARGIN = 0.02
LENGTHS = (12, 20, 60)
ADDED = (0.05, 0.1, 0.2)
#: Noises of the tables of changes found.
SHOWN = (
    "log-normal, 1 %",
    "log-normal, 5 %",
    "heavy-tailed, 2 %",
    "one run in ten is an outlier",
    "AR(1), r = 0.3, 1 %",
)
#: Pages and histories of each kind for other libraries.
OTHERS = 10
AFTER = (3, 4, 5, 6, 8, 10, 15, 20)
SEEN = 0.8

#: A method: from the logarithms of times [runs, cells] to the cells that changed and the runs with which they did.
Method = Callable[[Values], list[tuple[int, int]]]


def collbench(values: Values) -> list[tuple[int, int]]:
    """As the command does."""
    runs, cells = values.shape
    traces = [Trace(values[:, cell], np.arange(runs)) for cell in range(cells)]
    found = find(traces, spread_of(MARGIN)).levels
    return [(cell, level.start) for cell, levels in enumerate(found)
            for level in matter(values[:, cell], levels, MARGIN)[1:]]  # fmt: skip


def pelt(values: Values) -> list[tuple[int, int]]:
    """ruptures: the penalty of the Schwarz criterion, the variance from the distances of neighbours."""
    import ruptures

    found = []
    for cell, series in enumerate(values.T):
        spread = max(float(np.median(np.abs(np.diff(series)))) / 0.954, spread_of(MARGIN))
        detector = ruptures.Pelt(model="l2", min_size=3, jump=1).fit(series / spread)
        found += [(cell, at) for at in _large(series, detector.predict(pen=2 * np.log(len(series)))[:-1])]
    return found


def otava(values: Values) -> list[tuple[int, int]]:
    """Apache Otava with its defaults."""
    from otava.analysis import compute_change_points

    found = []
    for cell, series in enumerate(values.T):
        points, _ = compute_change_points(np.exp(series).tolist())
        found += [(cell, at) for at in _large(series, [int(point.index) for point in points])]
    return found


def _large(series: Values, ats: list[int]) -> list[int]:
    """Those changes whose levels differ by more than the margin."""
    ends = [0, *ats, len(series)]
    medians = [float(np.median(series[a:b])) for a, b in pairwise(ends)]
    return [at for index, at in enumerate(ats) if abs(medians[index + 1] - medians[index]) > np.log1p(MARGIN)]


def methods() -> dict[str, Method]:
    """Those that are installed."""
    others: dict[str, tuple[str, Method]] = {"ruptures, PELT": ("ruptures", pelt), "Apache Otava": ("otava", otava)}
    return {"collbench": collbench} | {name: of for name, (module, of) in others.items() if find_spec(module)}


def false_alarms(draw: np.random.Generator, pages: int) -> dict[str, Any]:
    """By noise, length and method the share of pages that name a change; of other libraries fewer pages."""
    data: dict[str, Any] = {}
    for name, noise in NOISES.items():
        for runs in LENGTHS:
            shares = {}
            for method, of in methods().items():
                if method == "collbench" or runs == max(LENGTHS):
                    number = pages if method == "collbench" else OTHERS
                    shares[method] = float(np.mean([bool(of(noise(draw, runs))) for _ in range(number)]))
            data[f"{name}, {runs} runs"] = shares
    return data


def found(draw: np.random.Generator, pages: int) -> dict[str, Any]:
    """Of 60 runs: by noise and change the share found ten runs after it, and after how many runs it is."""
    data: dict[str, Any] = {}
    for name in SHOWN:
        for added in ADDED:
            shares = {method: _share(draw, name, added, 10, pages if method == "collbench" else OTHERS, of)
                      for method, of in methods().items()}  # fmt: skip
            after = next((one for one in AFTER if _share(draw, name, added, one, pages, collbench) >= SEEN), None)
            data[f"{name}, +{added:.0%}"] = {"found": shares, "after": after}
    return data


def _share(draw: np.random.Generator, noise: str, added: float, last: int, pages: int, of: Method) -> float:
    runs = 60
    seen = []
    for _ in range(pages):
        values = NOISES[noise](draw, runs)
        values[runs - last :, 0] += np.log1p(added)
        seen.append(any(cell == 0 and abs(at - (runs - last)) <= 3 for cell, at in of(values)))
    return float(np.mean(seen))


def special(draw: np.random.Generator, pages: int) -> dict[str, float]:
    """Shares of pages: one slow night named, a slow week found at both ends, and any alarm of who looks every night."""
    quiet = NOISES["log-normal, 1 %"]
    slow_night, slow_week, nightly = [], [], []
    for _ in range(pages):
        values = quiet(draw, 60)
        values[int(draw.integers(0, 60))] += np.log(1.5)
        slow_night.append(bool(collbench(values)))
        values = quiet(draw, 60)
        values[30:37, 0] += np.log1p(0.1)
        ends = {at for cell, at in collbench(values) if cell == 0}
        slow_week.append({30, 37} <= ends)
    for _ in range(3 * pages):
        values = quiet(draw, 40)
        nightly.append(any(collbench(values[:runs]) for runs in range(8, 41)))
    return {"slow night": float(np.mean(slow_night)), "slow week": float(np.mean(slow_week)),
            "every night": float(np.mean(nightly))}  # fmt: skip


def seconds(draw: np.random.Generator) -> dict[str, float]:
    """The time of the analysis, with no change and with one in each cell."""
    taken = {}
    for runs, cells in ((60, 40), (400, 200)):
        for changed in (False, True):
            values = draw.normal(0, 0.01, (runs, cells))
            values[runs // 2 :] += np.log1p(0.1) * changed
            start = time.perf_counter()
            collbench(values)
            what = "a change in each" if changed else "no change"
            taken[f"{runs} runs of {cells} cells, {what}"] = time.perf_counter() - start
    return taken


def page(data: dict[str, Any]) -> str:
    names = list(methods())
    alarms = [
        [name, *(f"{100 * of[method]:.1f}" if method in of else "" for method in names)]
        for name, of in data["false alarms"].items()
    ]
    rows = [[name, *(f"{100 * of['found'][method]:.0f}" for method in names), str(of["after"] or f"> {AFTER[-1]}")]
            for name, of in data["found"].items()]  # fmt: skip
    special, number, changes = data["special"], data["pages"], data["changes"]
    return "\n".join((
        f"# False alarms and changes found in a history\n\n{CELLS} cells. Pages with any false alarm, in per cent, of "
        f"{number} pages (of the other libraries {OTHERS}):\n",
        table(("noise", *names), alarms),
        f"One of {CELLS} cells changes, 10 of 60 runs before the end: found within three runs, in per cent, of "
        f"{changes} histories\n(of the other libraries {OTHERS}); and after how many runs collbench finds it "
        f"in {SEEN:.0%}:\n",
        table(("noise and change", *names, "runs"), rows),
        f"Log-normal, 1 %, of {changes} histories (of the last row {3 * changes}):\n",
        table(("", "%"), [
            ["pages that name a change where all cells took 50 % longer in one run of 60",
             f"{100 * special['slow night']:.1f}"],
            ["histories in which 7 runs of 60 took 10 % longer, found at both ends",
             f"{100 * special['slow week']:.0f}"],
            ["histories without a change with any alarm, looked at after each of the runs 8 to 40",
             f"{100 * special['every night']:.1f}"],
        ]),
        table(("time of the analysis", "s"), [[what, f"{taken:.2f}"] for what, taken in data["seconds"].items()]),
    ))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=120, help="without a change, of each noise and length [120]")
    parser.add_argument("--changes", type=int, default=24, help="histories with a change, of each noise and size [24]")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    draw = np.random.default_rng(asked.seed)
    data: dict[str, Any] = {"seed": asked.seed, "pages": asked.pages, "changes": asked.changes}
    data |= {"seconds": seconds(draw), "special": special(draw, asked.changes)}
    data |= {"found": found(draw, asked.changes), "false alarms": false_alarms(draw, asked.pages)}
    keep("history", page(data), data)


if __name__ == "__main__":
    main()
