"""False alarms of `collbench history`, and changes found, in made-up histories; other libraries beside it.

    python bench/history.py

A history has 8 cells, each with one value a run. Where nothing changes, a page has a false alarm if it names any change
beyond the margin of 2 %. Where something does, one cell or all become 10 % slower, and the change of a cell is found if
it is named within three runs. Beside collbench, where they are installed: ruptures (PELT, mean of each level, penalty
2 log n variances, levels of three runs or more) and Apache Otava (`otava`, E-divisive in windows of 50 with t tests at
0.001, its default), both without changes below the margin. Needs NumPy, SciPy and collbench; times mean nothing here
but for the last table, which is measured on this machine.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
from history_noise import CELLS, NOISES, Values, shared
from results import keep, table

from collbench.analysis.change_points import Trace, find, matter, spread_of

MARGIN = 0.02
LENGTHS = (12, 33)
#: Of a state that all cells share: runs, cells, correlations.
SHARED = ((33, 1), (33, 8), (60, 1), (60, 8))
CORRELATIONS = (0.0, 0.3, 0.6)
#: Noises of the table of changes found, of `PLANTED` runs with which they begin, of 33, in so many cells.
SHOWN = ("log-normal, 1 %", "log-normal, 5 %", "heavy-tailed, 2 %", "7 % of values + 49 %, 1 %", "AR(1), r = 0.3, 1 %")
PLANTED = ((16, 1), (16, CELLS), (28, 1), (28, CELLS))
ADDED = 0.1
#: Pages and histories of each kind for other libraries.
OTHERS = 10

#: A method: from the logarithms of times [runs, cells] to the cells that changed and the runs with which they did.
Method = Callable[[Values], list[tuple[int, int]]]


def collbench(values: Values) -> list[tuple[int, int]]:
    """As the command does."""
    return _collbench(values)[0]


def _collbench(values: Values) -> tuple[list[tuple[int, int]], str]:
    """And whether runs are said to resemble their neighbours."""
    runs, cells = values.shape
    found, correlation = find([Trace(values[:, cell], np.arange(runs)) for cell in range(cells)], spread_of(MARGIN))
    changed = [(cell, level.start) for cell, levels in enumerate(found)
               for level in matter(values[:, cell], levels, MARGIN)[1:]]  # fmt: skip
    return changed, correlation.dependence


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


def of_shared(draw: np.random.Generator, pages: int) -> dict[str, Any]:
    """By runs, cells and correlation the share of pages that name a change, and those of each `Dependence`."""
    data: dict[str, Any] = {}
    for runs, cells in SHARED:
        for r in CORRELATIONS:
            found = [_collbench(shared(draw, runs, cells, r)) for _ in range(pages)]
            kinds = Counter(kind for _, kind in found)
            data[f"{runs} runs, {cells} cell{'s' * (cells > 1)}, r = {r}"] = {
                "alarms": float(np.mean([bool(changed) for changed, _ in found])),
                **{kind: kinds[kind] / pages for kind in ("none", "alike", "unknown")},
            }
    return data


def found(draw: np.random.Generator, pages: int) -> dict[str, Any]:
    """By noise, first run and number of cells the share of the changed cells that are found, by method."""
    return {
        f"{name}, {'one cell' if cells == 1 else 'all cells'}, from run {first}": {
            method: _share(draw, name, first, cells, pages if method == "collbench" else OTHERS, of)
            for method, of in methods().items()
        }
        for name in SHOWN for first, cells in PLANTED
    }  # fmt: skip


def _share(draw: np.random.Generator, noise: str, first: int, cells: int, pages: int, of: Method) -> float:
    seen = []
    for _ in range(pages):
        values = NOISES[noise](draw, 33)
        values[first:, :cells] += np.log1p(ADDED)
        seen.append(len({cell for cell, at in of(values) if cell < cells and abs(at - first) <= 3}) / cells)
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
        slow_week.append({30, 37} <= {at for cell, at in collbench(values) if cell == 0})
        values = quiet(draw, 33)
        nightly.append(any(collbench(values[:runs]) for runs in range(8, 34)))
    return {"slow night": float(np.mean(slow_night)), "slow week": float(np.mean(slow_week)),
            "every night": float(np.mean(nightly))}  # fmt: skip


def seconds(draw: np.random.Generator) -> dict[str, float]:
    """The time of the analysis, with no change and with one in each cell."""
    taken = {}
    for runs, cells in ((60, 40), (400, 40)):
        for changed in (False, True):
            values = draw.normal(0, 0.01, (runs, cells))
            values[runs // 2 :] += np.log1p(0.1) * changed
            start = time.process_time()
            collbench(values)
            what = "a change in each" if changed else "no change"
            taken[f"{runs} runs of {cells} cells, {what}"] = time.process_time() - start
    return taken


def page(data: dict[str, Any]) -> str:
    names = list(methods())

    def rows(shares: dict[str, Any], form: str) -> list[list[str]]:
        return [[name, *(f"{100 * of[key]:{form}}" if key in of else "" for key in names)]
                for name, of in shares.items()]  # fmt: skip

    def share(value: float, form: str = ".0f") -> str:
        return f"{100 * value:{form}}"

    kinds = ("none", "alike", "unknown")
    of_shared = [[name, *(share(of[key], ".1f") for key in ("alarms", *kinds))] for name, of in data["shared"].items()]
    special, number, changes = data["special"], data["pages"], data["changes"]
    return "\n".join((
        f"# False alarms and changes found in a history\n\n{CELLS} cells. Pages with any false alarm, in per cent, of "
        f"{number} pages (of the other libraries {OTHERS}):\n",
        table(("noise", *names), rows(data["false alarms"], ".1f")),
        "A state of the machine that all cells share, 3 %, AR(1) with correlation r; cells have 1 % besides. Pages "
        f"with\nany false alarm, in per cent, of {data['shared pages']}; and the share of pages by `dependence`:\n",
        table(("history", "false alarms", *kinds), of_shared),
        f"+{ADDED:.0%} in one of {CELLS} cells, or in all, of 33 runs: changed cells that are found within three runs, "
        f"in per cent, of {changes}\nhistories (of the other libraries {OTHERS}):\n",
        table(("noise and change", *names), rows(data["found"], ".0f")),
        f"Log-normal, 1 %, of {changes} histories:\n",
        table(("", "%"), [
            ["pages that name a change where all cells took 50 % longer in one run of 60",
             share(special["slow night"])],
            ["histories in which 7 runs of 60 took 10 % longer, found at both ends", share(special["slow week"])],
            ["histories without a change with any alarm, looked at after each of the runs 8 to 33",
             share(special["every night"])],
        ]),
        table(("CPU time of the analysis", "s"), [[what, f"{taken:.2f}"] for what, taken in data["seconds"].items()]),
    ))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=120, help="without a change, of each noise and length [120]")
    parser.add_argument("--shared", type=int, default=200, help="without a change, of each shared state [200]")
    parser.add_argument("--changes", type=int, default=24, help="histories with a change, of each noise and size [24]")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    draw = np.random.default_rng(asked.seed)
    data: dict[str, Any] = {"seed": asked.seed, "pages": asked.pages, "changes": asked.changes,
                            "shared pages": asked.shared}  # fmt: skip
    data |= {"seconds": seconds(draw), "special": special(draw, asked.changes)}
    data |= {"found": found(draw, asked.changes), "false alarms": false_alarms(draw, asked.pages)}
    data |= {"shared": of_shared(draw, asked.shared)}
    keep("history", page(data), data)


if __name__ == "__main__":
    main()
