"""What collbench adds to a program of 100 ms: the same sysbench under collbench and under hyperfine, interleaved.

    python bench/program_overhead.py --env DIR

Needs sysbench and hyperfine. Both execute the program so many times; what is compared is the time of an execution, from
its start to its end, and its processor time. hyperfine (without a shell) does nothing between the two but wait.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from pathlib import Path
from statistics import median
from subprocess import DEVNULL, run

from installation import add_env, end_on_sigterm
from machine import describe
from results import keep, table, verdict

TARGET = 1.01
TIMES = 20
LIMIT = 300.0

#: Wall and processor time of an execution (s).
Taken = tuple[float, float]


def command(events: int) -> tuple[str, ...]:
    """As collbench spells it (workloads/host/sysbench.py)."""
    limits = ("--threads=1", f"--events={events}", "--time=0", "--cpu-max-prime=20000")
    return ("sysbench", "cpu", *limits, "run")


def by_hyperfine(events: int, folder: Path) -> Taken:
    found = folder / "hyperfine.json"
    argv = ("hyperfine", "--shell=none", "--warmup=0", f"--runs={TIMES}", f"--export-json={found}")
    run((*argv, " ".join(command(events))), stdout=DEVNULL, stderr=DEVNULL, check=True, timeout=LIMIT)
    (result,) = json.loads(found.read_text())["results"]
    return result["mean"], result["user"] + result["system"]


def by_collbench(program: str, events: int, folder: Path) -> Taken:
    out = folder / "run"
    argv = (program, "suite", "sysbench_cpu", f"events={events}", "-w", "0", "-n", str(TIMES), "--out", str(out))
    run(argv, stdout=DEVNULL, check=True, timeout=LIMIT)
    (line,) = (out / "records.jsonl").read_text().splitlines()
    cpu = json.loads(line)["cpu"]
    return cpu["wall"] / TIMES, (cpu["user"] + cpu["system"]) / TIMES


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_env(parser)
    parser.add_argument("--rounds", type=int, default=11, help="launches of each [11]")
    parser.add_argument("--events", type=int, default=160, help="events of sysbench: some 100 ms [160]")
    asked = parser.parse_args()
    end_on_sigterm()
    program = asked.installations[0].collbench
    order = random.Random(1)  # noqa: S311 - an order, not a secret
    found: dict[str, list[Taken]] = {"hyperfine": [], "collbench": []}
    for _ in range(asked.rounds):
        for name in order.sample(sorted(found), 2):
            with tempfile.TemporaryDirectory() as folder:
                at = Path(folder)
                found[name].append(
                    by_hyperfine(asked.events, at) if name == "hyperfine" else by_collbench(program, asked.events, at)
                )
    rows = []
    for column, what in enumerate(("wall", "processor")):
        plain, ours = ([taken[column] for taken in found[name]] for name in ("hyperfine", "collbench"))
        ratios = sorted(b / a for a, b in zip(plain, ours, strict=True))
        times = (f"{median(plain) * 1e3:.2f}", f"{median(ours) * 1e3:.2f}", f"{median(ratios):.4f}")
        spread = f"{ratios[0]:.3f} .. {ratios[-1]:.3f}"
        rows.append([what, *times, spread, f"{TARGET:g}", verdict(median(ratios), TARGET)])
    head = ("time of an execution", "hyperfine, ms", "collbench, ms", "ratio", "range", "target", "")
    page = f"""# What collbench adds to a program

{describe()}. Medians of {asked.rounds} launches of each, in random order in pairs; {TIMES} executions a launch of
`{" ".join(command(asked.events))}`. Of both the mean of these executions.

{table(head, rows)}"""
    keep("program_overhead", page, {"times": found, "events": asked.events})


if __name__ == "__main__":
    main()
