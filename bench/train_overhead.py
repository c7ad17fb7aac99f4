"""What collbench adds to a step of a training: `train` beside a plain loop in torch, interleaved.

    python bench/train_overhead.py --env DIR [--network NAME ...]

Needs torch in the environment. Both train the same network with as many threads, on as many batches after the same
warm-up; what is compared is the mean time of a batch. The plain loop (train_bare.py) reads no clock between batches,
and its examples are in memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from pathlib import Path
from statistics import median
from subprocess import run

from installation import HERE, add_env, end_on_sigterm
from machine import describe
from results import keep, table, verdict

TARGET = 1.01
LIMIT = 600.0

#: By network: the batch, and how many of them are timed, so that a launch takes some seconds.
NETWORKS = {"fcn5": (512, 20), "alexnet": (256, 20), "resnet56": (16, 20), "lstm": (128, 6)}

#: Batches before those that are timed.
WARMUP = 4


def by_itself(python: str, network: str, batch: int, times: int) -> float:
    argv = (python, str(HERE / "train_bare.py"), network, str(batch), str(WARMUP), str(times))
    environment = os.environ | {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))}  # as collbench sets it
    done = run(argv, capture_output=True, text=True, check=True, timeout=LIMIT, env=environment)
    return float(done.stdout)


def by_collbench(program: str, network: str, batch: int, times: int, folder: Path) -> float:
    """The mean of its samples: the first epoch is the warm-up."""
    out, asked = folder / "run", (f"network={network}", f"batch={batch}", f"epoch={WARMUP}", "cache=warm")
    argv = (program, "suite", "train", *asked, "-w", "0", "-n", str(times), "--folder", str(folder), "--out", str(out))
    run(argv, capture_output=True, check=True, timeout=LIMIT)
    records = map(json.loads, (out / "records.jsonl").read_text().splitlines())
    (mean,) = (record["seconds"]["mean"] for record in records if record["case"]["what"]["measure"] == "batch")
    return float(mean)


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_env(parser)
    parser.add_argument("--rounds", type=int, default=11, help="launches of each [11]")
    parser.add_argument("--network", choices=NETWORKS, action="append", help="may be given several times [all]")
    asked = parser.parse_args()
    end_on_sigterm()
    here, networks = asked.installations[0], asked.network or list(NETWORKS)
    order = random.Random(1)  # noqa: S311 - an order, not a secret
    found: dict[str, dict[str, list[float]]] = {name: {"plain": [], "collbench": []} for name in networks}
    for _ in range(asked.rounds):
        for network in order.sample(networks, len(networks)):
            for way in order.sample(("plain", "collbench"), 2):
                with tempfile.TemporaryDirectory() as folder:
                    asked_of = (network, *NETWORKS[network])
                    found[network][way].append(
                        by_itself(here.python, *asked_of) if way == "plain"
                        else by_collbench(here.collbench, *asked_of, Path(folder))
                    )  # fmt: skip
    rows = [_row(network, times) for network, times in found.items()]
    head = ("seconds a batch", "plain, ms", "collbench, ms", "ratio", "rounds", "target", "")
    page = f"""# What collbench adds to a step of a training

{describe()}. Medians of {asked.rounds} launches of each, in random order; a launch gives the mean of its batches after
{WARMUP} others. The ratio is the median of the ratios within rounds.

{table(head, [*rows, _of_all(found)])}"""
    keep("train_overhead", page, {"times": found, "batches": NETWORKS, "warmup": WARMUP})


def _row(network: str, times: dict[str, list[float]]) -> list[str]:
    plain, ours = times["plain"], times["collbench"]
    ratios = sorted(b / a for a, b in zip(plain, ours, strict=True))
    both = (f"{median(plain) * 1e3:.2f}", f"{median(ours) * 1e3:.2f}", f"{median(ratios):.4f}")
    name = f"{network}, {NETWORKS[network][0]}"
    spread = f"{ratios[0]:.3f} .. {ratios[-1]:.3f}"
    return [name, *both, spread, f"{TARGET:g}", verdict(median(ratios), TARGET)]


def _of_all(found: dict[str, dict[str, list[float]]]) -> list[str]:
    """Over every round of every network, where the spread between launches of one of them hides a hundredth."""
    pairs = [pair for times in found.values() for pair in zip(times["plain"], times["collbench"], strict=True)]
    ratios = sorted(b / a for a, b in pairs)
    spread = f"{ratios[0]:.3f} .. {ratios[-1]:.3f}"
    middle = median(ratios)
    return ["all of them", "", "", f"{middle:.4f}", spread, f"{TARGET:g}", verdict(middle, TARGET)]


if __name__ == "__main__":
    main()
