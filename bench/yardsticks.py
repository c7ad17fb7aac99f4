"""What yardsticks explain: launches of one cell on the host, and the share of the variance of their log times.

    python bench/yardsticks.py --env DIR [--env DIR]

Each launch measures an all-reduce of two ranks at three sizes; `collbench launch` reads the yardsticks before and after
it. What is explained are log launch medians, by an ordinary least squares fit on log readings. Needs NumPy. It says
something only where the machine is restless meanwhile: the page has the spread of launches and of readings.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from installation import Installation, LaunchFailed, add_env, end_on_sigterm
from machine import describe
from numpy.typing import NDArray
from results import keep, table

SIZES = {"8": 8, "64K": 65536, "1M": 1048576}
MOMENTS = ("before", "after")
#: Readings before launches are used for adjustment only where they explain so much of every size.
ENOUGH = 0.5
LAUNCH = 60.0  # s, the longest of one

PLAN = """\
title = "yardsticks"
collectives = ["allreduce"]
sizes = {sizes}
images = ["{image}"]
policies = ["host"]
ranks = [2]
launches = {launches}
iters = 300
"""

#: By moment [launches, yardsticks], and by size [launches], in one order of launches; in their units, and s.
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Launches:
    """Complete launches: every size measured, every yardstick read before and after."""

    yardsticks: tuple[str, ...]
    readings: dict[str, Floats]
    medians: dict[int, Floats]


def measured(here: Installation, launches: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Records and readings of a run.

    Raises:
        LaunchFailed: it failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        plan, out = Path(folder, "plan.toml"), Path(folder, "run")
        text = PLAN.format(sizes=json.dumps(list(SIZES)), image=here.name, launches=launches)
        plan.write_text(text, encoding="utf-8")
        argv = (here.collbench, "launch", str(plan), "--out", str(out))
        here.run(argv, LAUNCH * launches, PATH=f"{here.bin}:/usr/local/bin:/usr/bin:/bin")
        records, readings = (
            [json.loads(line) for line in (out / name).read_text(encoding="utf-8").splitlines()]
            for name in ("records.jsonl", "yardsticks.jsonl")
        )
    return records, readings


def complete(records: list[dict[str, Any]], readings: list[dict[str, Any]]) -> Launches:
    """The launches of which all is known. Those that others disturbed count: that is what there is to explain.

    Raises:
        LaunchFailed: too few of them for a fit.
    """
    medians = {
        (one["launch"], one["work"]["amount"]): one["seconds"]["p50"] for one in records if one["status"] == "ok"
    }
    read = {(one["launch"], one["moment"]): one["values"] for one in readings if one["reason"] is None}
    names = tuple(sorted(next(iter(read.values()), {})))
    numbers = sorted(
        number
        for number in {number for number, _ in medians}
        if all((number, size) in medians for size in SIZES.values()) and all((number, one) in read for one in MOMENTS)
    )
    if len(numbers) < len(names) + 3:
        raise LaunchFailed(f"{len(numbers)} launches were measured with every yardstick; {len(names) + 3} are needed")
    return Launches(
        names,
        {one: np.array([[read[number, one][name] for name in names] for number in numbers]) for one in MOMENTS},
        {size: np.array([medians[number, size] for number in numbers]) for size in SIZES.values()},
    )


def explained(readings: Floats, medians: Floats) -> float:
    """The adjusted R^2 of log medians [n] on log readings [n, k]: 0 is expected where these say nothing."""
    n, k = readings.shape
    y = np.log(medians) - np.log(medians).mean()
    x = np.log(readings) - np.log(readings).mean(axis=0)
    left = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    whole = float(y @ y)
    return 1 - float(left @ left) / whole * (n - 1) / (n - k - 1) if whole > 0 else 0.0


def spread(values: Floats) -> float:
    """The standard deviation of logarithms."""
    return float(np.log(values).std(ddof=1))


def shares(found: Launches) -> dict[str, dict[str, float]]:
    """By size, the spread of launches and the shares explained: by each yardstick and by all, before and after."""
    return {
        f"{size} B": {"spread": spread(medians)} | {
            f"{moment} {name}": explained(found.readings[moment][:, columns], medians)
            for moment in MOMENTS
            for name, columns in columns_of(found.yardsticks)
        }
        for size, medians in found.medians.items()
    }  # fmt: skip


def columns_of(yardsticks: tuple[str, ...]) -> list[tuple[str, list[int]]]:
    """Each yardstick alone, then all of them."""
    return [*((name, [i]) for i, name in enumerate(yardsticks)), ("all", list(range(len(yardsticks))))]


def is_enough(of_sizes: dict[str, dict[str, float]]) -> bool:
    """Whether readings before launches may be used for adjustment."""
    return all(of_size["before all"] >= ENOUGH for of_size in of_sizes.values())


def part(name: str, found: Launches, of_sizes: dict[str, dict[str, float]]) -> str:
    """The part of the page on one library."""
    rows = [
        [what, *(f"{of_size[what]:.2f}" for of_size in of_sizes.values())] for what in next(iter(of_sizes.values()))
    ]
    moved = ", ".join(f"{one} {spread(found.readings['before'][:, i]):.2f}" for i, one in enumerate(found.yardsticks))
    used = "at least" if is_enough(of_sizes) else "not everywhere at least"
    return f"""## {name}

{len(found.readings["before"])} launches. Spread of the readings before: {moved}.
Readings before explain {used} {ENOUGH:.0%}.

{table(("", *of_sizes), rows)}"""


def page(parts: list[str]) -> str:
    """All libraries, below how it was measured."""
    text = "\n".join(parts)
    return f"""# What yardsticks explain

{describe()}; 2 ranks, all-reduce, host.
Spread: standard deviation of the logarithm of launch medians, or of readings. Below it the adjusted R^2 of log launch
medians on log readings, 0 where these say nothing. Readings before launches serve adjustment only where all of them
together explain at least {ENOUGH:.0%} at every size; readings after launches never do.

{text}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_env(parser)
    parser.add_argument("--launches", type=int, default=60, help="launches of each library [60]")
    asked = parser.parse_args()
    end_on_sigterm()
    parts, data = [], {}
    for here in asked.installations:
        records, readings = measured(here, asked.launches)
        found = complete(records, readings)
        of_sizes = shares(found)
        parts.append(part(here.name, found, of_sizes))
        data[here.name] = {
            "explained": of_sizes,
            "adjust": is_enough(of_sizes),
            "yardsticks": found.yardsticks,
            "readings": {moment: values.tolist() for moment, values in found.readings.items()},
            "medians": {size: values.tolist() for size, values in found.medians.items()},
        }
    keep("yardsticks", page(parts), {"machine": describe(), "enough": ENOUGH, **data})


if __name__ == "__main__":
    main()
