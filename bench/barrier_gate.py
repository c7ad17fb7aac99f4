"""What leaving a barrier and starting reads, over the number of messages that went one way before: plain C, both MPIs.

    python bench/barrier_gate.py --env DIR [--env DIR]

Every launch takes samples behind a barrier with 0 to 127 more messages sent from rank 0 than from rank 1. All columns
come from the same stamps. The machine may change between launches, so ratios are taken within a launch.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from statistics import median

from installation import HERE, Installation, LaunchFailed, add_env, end_on_sigterm
from machine import Moment, describe
from results import keep, table

SAMPLES, OFFSETS = 1000, 128
LIMIT = 60.0  # s, one launch
#: Groups of offsets: in Open MPI's rings of 127 places an odd one does most at the beginning, an even one at the end.
GROUPS = {
    "0 to 6, even": range(0, 8, 2),
    "1 to 7, odd": range(1, 8, 2),
    "60 to 67": range(60, 68),
    "120 to 126, even": range(120, 128, 2),
    "121 to 127, odd": range(121, 128, 2),
}
COLUMNS = ("span", "largest", "mean", "apart")
Launch = dict[str, dict[str, float]]  # by group and column


def launch(here: Installation, program: Path) -> Launch:
    """The medians of one launch in ns: of each group the median over its offsets."""
    text = here.run(here.mpirun(2, program, str(SAMPLES), str(OFFSETS)), LIMIT)
    lines = [json.loads(line) for line in text.splitlines()]
    return {
        group: {column: median(lines[offset][column] for offset in offsets) for column in COLUMNS}
        for group, offsets in GROUPS.items()
    }


def rows(name: str, launches: list[Launch]) -> list[list[str]]:
    """A line for each group of offsets."""
    found = []
    for group in GROUPS:
        each = {column: [one[group][column] for one in launches] for column in COLUMNS}
        ratios = sorted(one[group]["span"] / one["0 to 6, even"]["span"] for one in launches)
        quartiles = f"{ratios[len(ratios) // 4]:.2f} / {median(ratios):.2f} / {ratios[-1 - len(ratios) // 4]:.2f}"
        found.append([f"{name} {group}", *(f"{median(each[c]):.0f}" for c in COLUMNS), quartiles])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_env(parser)
    parser.add_argument("--rounds", type=int, default=14, help="launches with each MPI [14]")
    parser.add_argument("--seed", type=int, default=1, help="of the order [1]")
    asked = parser.parse_args()
    end_on_sigterm()
    order = random.Random(asked.seed)  # noqa: S311 - an order, not a secret
    programs = {here.name: here.compile(HERE / "barrier_gate.c") for here in asked.installations}
    found: dict[str, list[Launch]] = {name: [] for name in programs}
    failures = []
    before = Moment.now()
    for number in range(asked.rounds):
        for here in order.sample(asked.installations, len(asked.installations)):
            try:
                found[here.name].append(launch(here, programs[here.name]))
            except LaunchFailed as failure:
                failures.append(f"round {number}, {here.name}, {failure}")
    others = Moment.now().others_since(before)
    head = (
        "messages ahead",
        "last out - first in",
        "largest local",
        "mean local",
        "entered apart",
        "over 0 to 6, even",
    )
    lines = [line for name, launches in found.items() if launches for line in rows(name, launches)]
    page = f"""# Behind a barrier

{describe()}; plain C, 8-byte all-reduce, 2 ranks, one core each, thread level single;
{SAMPLES} samples for each number of messages by which rank 0 is ahead. Medians in ns over {asked.rounds} launches with
each MPI, {len(failures)} failed. The last column: lower quartile, median and upper quartile of the ratio of
`last out - first in` within a launch. Others used {others:.0%} of the cores meanwhile.

{table(head, lines)}"""
    keep(
        "barrier_gate", page, {"seed": asked.seed, "machine": describe(), "others": others, "failed": failures} | found
    )


if __name__ == "__main__":
    main()
