"""What a launch costs on Slurm, over an empty step and over the start of the MPI library.

    python bench/slurm_launch.py

Needs Docker and the images openmpi and mpich: the cluster is two containers of them (tools/toy_slurm.py). A launch
costs what an experiment takes longer with ten launches more: two ranks on two nodes, one case of one sample.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

from installation import end_on_sigterm
from machine import describe
from results import keep, table, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.toy_slurm import OUTSIDE, ToySlurm

#: s over an empty step and the library's own start.
TARGET = 2.5
FEW, MANY = 2, 12
LIMIT = 300.0
PMI = {"openmpi": "pmix", "mpich": "pmi2"}

PLAN = """\
images = ["{image}"]
policies = ["host"]
collectives = ["allreduce"]
sizes = ["8"]
ranks = [2]
hosts = [2]
launches = {launches}
iters = 1
warmup = 1
align = "barrier"
"""
SITE = """\
[slurm]
folder = "/shared/collbench"
cores = 1
time = "30"
environments = { openmpi = "/opt/collbench", mpich = "/opt/collbench" }
"""


def seconds(cluster: ToySlurm, *argv: str) -> float:
    """How long a command takes on the login node."""
    began = time.monotonic()
    done = cluster.user(*argv, limit=LIMIT)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(argv)}: exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    return time.monotonic() - began


def round_of(cluster: ToySlurm, image: str, number: int) -> dict[str, float]:
    """Every kind of command once, in an order that differs from round to round."""
    step = ("srun", "--nodes=2", "--ntasks=2", "--overcommit")
    mpi = (*step, f"--mpi={PMI[image]}", "env", "PMIX_MCA_psec=native", "python", "-c", "from mpi4py import MPI")
    kinds = {"an empty step": (*step, "true"), "the library's own start": mpi}
    for launches in (FEW, MANY):
        name = f"plan-{launches}"
        (cluster.share / f"{name}.toml").write_text(PLAN.format(image=image, launches=launches), encoding="utf-8")
        kinds[name] = ("collbench", "launch", f"{name}.toml", "--on", "slurm", "--site", "site.toml", "--out",
                       f"run-{number}-{launches}")  # fmt: skip
    order = list(kinds)[number % 4 :] + list(kinds)[: number % 4]
    found = {kind: seconds(cluster, *kinds[kind]) for kind in order}
    found["a launch"] = (found[f"plan-{MANY}"] - found[f"plan-{FEW}"]) / (MANY - FEW)
    return found


def measured(image: str, rounds: int) -> dict[str, list[float]]:
    """Seconds of every kind, round by round, on a cluster of its own."""
    share = Path(tempfile.mkdtemp(dir=OUTSIDE))
    cluster = ToySlurm(f"bench-{share.name}", f"collbench/{image}", share)
    found: dict[str, list[float]] = defaultdict(list)
    try:
        cluster.up()
        (share / "site.toml").write_text(SITE, encoding="utf-8")
        for number in range(rounds):
            for kind, took in round_of(cluster, image, number).items():
                found[kind].append(took)
    finally:
        cluster.down()
        shutil.rmtree(share, ignore_errors=True)
    return found


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="repetitions [7]")
    asked = parser.parse_args()
    end_on_sigterm()
    found = {image: measured(image, asked.rounds) for image in PMI}
    rows = []
    for image, times in found.items():
        empty, start, launch = (times[kind] for kind in ("an empty step", "the library's own start", "a launch"))
        over = [c - b for b, c in zip(start, launch, strict=True)]
        rows.append([image, *(f"{median(t):.2f} ({min(t):.2f} .. {max(t):.2f})" for t in (empty, start, launch, over)),
                     f"{TARGET:g}", verdict(median(over), TARGET)])  # fmt: skip
    head = ("library", "an empty step, s", "step with the library's start, s", "a launch, s", "over that start, s",
            "target", "")  # fmt: skip
    page = f"""# A launch on Slurm

{describe()}; two containers as nodes. Medians and ranges of {asked.rounds} rounds. An empty step
is `srun true`, which the step with the library's start contains, as it contains the start of Python.

{table(head, rows)}"""
    keep("slurm_launch", page, {"times": found})


if __name__ == "__main__":
    main()
