"""What the user waits for before the first number: help, imports, and the start of two ranks.

    python bench/startup.py --env DIR [--env DIR]

The start of two ranks is measured as a ladder of programs under one mpirun, interleaved: each does a little more than
the one before, so that the differences say where the time goes. -X importtime then says which package takes how much.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median
from typing import Any

from import_time import PACKAGES, times_of
from installation import HERE, OUT, Installation, add_env, end_on_sigterm
from machine import Watched, core_distance, describe
from results import keep, table, verdict

LIMIT = 60.0  # s, one program
HELP_TARGET, IMPORT_TARGET, RESIDENT_TARGET, START_TARGET = 0.15, 0.3, 60e6, 1.5  # s, s, bytes, ratio
COLLBENCH = ("allreduce", "-b", "8", "-e", "8", "-n", "10")

HELLO = "from mpi4py import MPI; print('hello', MPI.COMM_WORLD.rank)"
#: What a rank imports; MPI is loaded, but not initialised.
NEEDED = (
    "import collbench.run.experiment, collbench.backends.mpi; from collbench.bindings.mpi import load_mpi; load_mpi()"
)
HELLO_WITH_COLLBENCH = (
    f"{NEEDED}; from mpi4py import MPI; MPI.Init(); print('hello', MPI.COMM_WORLD.rank); MPI.Finalize()"
)
IMPORTS = f"""\
import time; began = time.perf_counter()
{NEEDED}
took = time.perf_counter() - began
print(took, next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmRSS')))
"""


def ladder(here: Installation) -> dict[str, tuple[str, ...]]:
    """Programs on two ranks, each with a little more to do."""
    return {
        "mpirun true": here.mpirun(2, "true"),
        "python -c pass": here.mpirun(2, here.python, "-c", "pass"),
        "hello world": here.mpirun(2, here.python, "-c", HELLO),
        "hello world + import numpy": here.mpirun(2, here.python, "-c", "import numpy; " + HELLO),
        "hello world + collbench's imports": here.mpirun(2, here.python, "-c", HELLO_WITH_COLLBENCH),
        "collbench allreduce -b 8 -e 8 -n 10": here.mpirun(2, here.collbench, *COLLBENCH),
    }


def wall(run: Callable[[], object]) -> float:
    """Seconds that it takes."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def alone(here: Installation, rounds: int, watched: Watched) -> dict[str, list[float]]:
    """`--help` and the imports of a rank, each in a fresh process without mpirun."""
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        watched.begin(1.0)
        found["help"].append(wall(lambda: here.run((here.collbench, "--help"), LIMIT)))
        took, kilobytes = here.run((here.python, "-c", IMPORTS), LIMIT, OPENBLAS_NUM_THREADS="1").split()
        found["import"].append(float(took))
        found["resident"].append(float(kilobytes) * 1024)
    return found


def start(here: Installation, rounds: int, order: random.Random, watched: Watched) -> dict[str, list[float]]:
    """Seconds of every rung in every round, rungs in random order."""
    rungs = ladder(here)
    found: dict[str, list[float]] = {name: [] for name in rungs}
    for _ in range(rounds):
        for name in order.sample(list(rungs), len(rungs)):
            watched.begin(1.0)
            found[name].append(wall(lambda name=name: here.run(rungs[name], LIMIT, OPENBLAS_NUM_THREADS="1")))  # type: ignore[misc]
    return found


def phases(here: Installation, rounds: int) -> dict[str, float]:
    """Median seconds of what rank 0 does, in its order."""
    argv = here.mpirun(2, here.python, HERE / "start_phases.py")
    runs = [json.loads(here.run(argv, LIMIT, OPENBLAS_NUM_THREADS="1")) for _ in range(rounds)]
    return {name: median(run[name] for run in runs) for name in runs[0]}


def imports(here: Installation, rounds: int) -> dict[str, tuple[float, float]]:
    """Median seconds of every package's own modules, and of the standard library that it pulls in, on rank 0."""
    OUT.mkdir(exist_ok=True)
    where = OUT / "importtime"
    program = f'exec "$0" -X importtime "$@" 2>{where}-${{PMI_RANK:-$OMPI_COMM_WORLD_RANK}}'
    argv = here.mpirun(2, "sh", "-c", program, here.python, here.collbench, *COLLBENCH)
    runs = []
    for _ in range(rounds):
        here.run(argv, LIMIT)
        runs.append(times_of(where.with_name("importtime-0").read_text(encoding="utf-8")))
    return {
        name: (median(run[name][0] for run in runs), median(run[name][1] for run in runs))
        for name in PACKAGES
        if any(sum(run[name]) for run in runs)
    }


def rows_alone(here: Installation, found: dict[str, list[float]]) -> list[list[str]]:
    """Against the targets."""
    lines = (
        ("collbench --help", "help", 1.0, "s", HELP_TARGET),
        ("imports of a rank", "import", 1.0, "s", IMPORT_TARGET),
        ("resident after them", "resident", 1e-6, "MB", RESIDENT_TARGET * 1e-6),
    )
    rows = []
    for title, name, unit, symbol, target in lines:
        values = [value * unit for value in found[name]]
        middle = median(values)
        digits = 3 if symbol == "s" else 1
        spread = f"{min(values):.{digits}f} .. {max(values):.{digits}f}"
        rows.append([f"{here.name}: {title}", f"{middle:.{digits}f} {symbol}", spread, f"{target:g} {symbol}",
                     verdict(middle, target)])  # fmt: skip
    return rows


def rows_start(here: Installation, found: dict[str, list[float]]) -> list[list[str]]:
    """The ladder: median, step from the rung below, ratio to hello world."""
    rows, below = [], 0.0
    hello = median(found["hello world"])
    for name, values in found.items():
        middle = median(values)
        rows.append([f"{here.name}: {name}", f"{middle:.3f}", f"{min(values):.3f} .. {max(values):.3f}",
                     f"{middle - below:+.3f}", f"{middle / hello:.2f}"])  # fmt: skip
        below = middle
    last = median(found["collbench allreduce -b 8 -e 8 -n 10"]) / hello
    rows[-1].append(f"{START_TARGET:g} {verdict(last, START_TARGET)}")
    return [row + [""] * (6 - len(row)) for row in rows]


def page(asked: argparse.Namespace, data: dict[str, Any]) -> str:
    """Everything as tables."""
    every = [(here, data[here.name]) for here in asked.installations]
    parts = [
        f"# Start-up\n\n{describe()}. Medians of {asked.rounds} (smallest .. largest); seed {asked.seed}.\n",
        table(("", "median", "range", "target", ""),
              [row for here, d in every for row in rows_alone(here, d["alone"])]),
        "## Two ranks\n\nWall time of the whole command in s; `step` is the difference to the row above.\n",
        table(("", "median", "range", "step", "over hello", "target"),
              [row for here, d in every for row in rows_start(here, d["start"])]),
        "## Inside rank 0, in ms\n",
        table(("", *(here.name for here, _ in every)),
              [[name, *(f"{d['phases'][name] * 1e3:.1f}" for _, d in every)] for name in every[0][1]["phases"]]),
        "## Imports of rank 0 by -X importtime, in ms (which itself slows them)\n",
        table(("", "own", "standard library for it"),
              [[f"{here.name}: {name}", *(f"{part * 1e3:.1f}" for part in both)]
               for here, d in every for name, both in d["imports"].items()]),
    ]  # fmt: skip
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_env(parser)
    parser.add_argument("--rounds", type=int, default=11, help="repetitions, at least 7 [11]")
    parser.add_argument("--seed", type=int, default=1, help="of the order [1]")
    asked = parser.parse_args()
    end_on_sigterm()
    order = random.Random(asked.seed)  # noqa: S311 - an order, not a secret
    watched = Watched(core_distance(asked.installations[0]))
    data: dict[str, Any] = {"seed": asked.seed, "machine": describe()}
    for here in asked.installations:
        data[here.name] = {
            "alone": alone(here, asked.rounds, watched),
            "start": start(here, asked.rounds, order, watched),
            "phases": phases(here, asked.rounds),
            "imports": imports(here, 5),
        }
    keep("startup", page(asked, data), data)


if __name__ == "__main__":
    main()
