"""Synchronised clocks against the truth: two ranks of one machine, the second in a time namespace of its own.

    python bench/clocks.py --env DIR [--env DIR]

The second rank's CLOCK_MONOTONIC is hours ahead, as on another host, and /proc/self/timens_offsets says by how much
exactly. Each launch synchronises the clocks again and again, and then takes samples with align roundtime; both are
compared with the truth. Needs root, or user namespaces. With `--containers` also over TCP between two containers of
the images collbench/openmpi and collbench/mpich, by Docker.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from statistics import median
from typing import Any

from clock_containers import launched
from installation import HERE, Installation, LaunchFailed, add_env, end_on_sigterm
from machine import Moment, describe
from results import keep, table

LIMIT = 120.0  # s, one launch
AHEAD = 12_345  # s

#: By MPI and path, the variables that make messages go that way.
PATHS = {
    "openmpi": {
        "shared memory": {},
        "TCP": {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,tcp", "OMPI_MCA_btl_tcp_if_include": "lo"},
    },
    "mpich": {"shared memory": {}, "TCP": {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "FI_PROVIDER": "tcp"}},
}
CONTAINERS = "TCP between containers"
Found = list[dict[str, Any]]


def launch(here: Installation, path: str, times: int, samples: int) -> dict[str, Any]:
    """What one launch printed.

    Raises:
        LaunchFailed: an error, or too long.
    """
    asked = (str(times), str(samples))
    user = () if os.geteuid() == 0 else ("-Ur",)
    namespace = ("--time", "--fork", "--kill-child", f"--monotonic={AHEAD}", f"--boottime={AHEAD}", "--")
    if path == CONTAINERS:
        program: tuple[str, ...] = ("python", "/clone/bench/clock_ranks.py", *asked)
        text = launched(here.name, program, ("unshare", *namespace), LIMIT)
    else:
        program = (here.python, str(HERE / "clock_ranks.py"), *asked)
        command = (*here.mpirun(1, *program), ":", "-n", "1", "unshare", *user, *namespace, *program)
        text = here.run(command, LIMIT, **PATHS[here.name][path])
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    return found


def row_of_offsets(name: str, launches: Found) -> list[str]:
    """Of all synchronisations of all launches."""
    errors = [abs(error) for one in launches for error in one["offsets"]["error"]]
    halves = [half for one in launches for half in one["offsets"]["half"]]
    inside = sum(error <= half for error, half in zip(errors, halves, strict=True)) / len(errors)
    return [
        name,
        str(len(errors)),
        *(f"{x:.0f}" for x in (median(errors), max(errors), median(halves))),
        f"{inside:.1%}",
    ]


def rows_of_samples(name: str, launches: Found) -> list[list[str]]:
    """A line for each case: medians over the launches, and the worst of them."""
    rows = []
    for cases in zip(*(one["cases"] for one in launches), strict=True):
        wrong = [abs(case["synced"] - case["true"]) for case in cases]
        usual = (median(case[key] for case in cases) for key in ("true", "apart", "seen", "bound"))
        late = sum(case["late"] for case in cases) / sum(case["n"] for case in cases)
        time, apart, seen, bound = (f"{x:.0f}" for x in usual)
        shown = (f"{median(wrong):.0f}", f"{max(wrong):.0f}", f"{max(case['off'] for case in cases):.0f}")
        rows.append([f"{name}, {cases[0]['what']}", time, *shown, apart, seen, bound, f"{late:.1%}"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_env(parser)
    parser.add_argument("--rounds", type=int, default=5, help="launches of each MPI and path [5]")
    parser.add_argument("--times", type=int, default=100, help="synchronisations in a launch [100]")
    parser.add_argument("--samples", type=int, default=2000, help="of each case in a launch [2000]")
    parser.add_argument("--containers", action="store_true", help="also between two containers")
    parser.add_argument("--seed", type=int, default=1, help="of the order [1]")
    asked = parser.parse_args()
    end_on_sigterm()
    order = random.Random(asked.seed)  # noqa: S311 - an order, not a secret
    more = [CONTAINERS] * asked.containers
    kinds = [(here, path) for here in asked.installations for path in (*PATHS[here.name], *more)]
    found: dict[str, Found] = {f"{here.name}, {path}": [] for here, path in kinds}
    failures, before = [], Moment.now()
    for number in range(asked.rounds):
        for here, path in order.sample(kinds, len(kinds)):
            try:
                made = launch(here, path, asked.times, asked.samples)
                found[f"{here.name}, {path}"].append(made)
            except LaunchFailed as failure:
                failures.append(f"round {number}, {here.name}, {path}: {failure}")
    others = Moment.now().others_since(before)
    measured = {name: launches for name, launches in found.items() if launches}
    offsets = table(
        ("offsets", "synchronisations", "error, median", "error, largest", "half width, median", "truth inside"),
        (row_of_offsets(name, launches) for name, launches in measured.items()),
    )
    off = ("off, median", "off, worst launch", "off, worst sample")
    head = ("samples", "true median", *off, "ranks begin apart", "seen", "bound", "late")
    samples = table(head, (row for name, launches in measured.items() for row in rows_of_samples(name, launches)))
    page = f"""# Synchronised clocks and the truth

{describe()}; two ranks, a core each, the second in a time namespace {AHEAD} s ahead. {asked.rounds} launches of each
kind, {len(failures)} failed; times in ns. Others, ranks in containers
among them, used {others:.0%} of the cores meanwhile.

{offsets}
Round time on synchronised clocks, native driver. `off` is how far the median of a launch, or a sample, is from that
by the truth; `ranks begin apart` is by the truth; `seen` and `bound` are those of the records, medians of launches.

{samples}"""
    keep("clocks", page, {"seed": asked.seed, "machine": describe(), "others": others, "failed": failures} | found)


if __name__ == "__main__":
    main()
