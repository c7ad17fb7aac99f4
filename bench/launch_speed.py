"""From the command to the first timed sample in containers, and from there to a clean engine.

    python bench/launch_speed.py --env DIR

Needs a container engine with the images openmpi and mpich. A launch of one cell measures one case once; the time of the
first sample is when the world's record appears on disk, so it contains checks and warm-up.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from subprocess import DEVNULL, Popen, TimeoutExpired

from installation import add_env, end_on_sigterm
from machine import describe
from results import keep, table, verdict

TARGET = {2: 3.0, 8: 6.0}
CLEAN = 2.0
LIMIT = 120.0

PLAN = """\
collectives = ["allreduce"]
sizes = ["8"]
images = ["{image}"]
policies = ["single"]
isolation = ["{step}"]
ranks = [{ranks}]
launches = 1
iters = 1
warmup = 1
gate = "barrier"
oversubscribe = true
timeout = "60s"
"""


def once(program: Path, folder: Path, image: str, step: str, ranks: int) -> tuple[float, float]:
    """Seconds to the first record, and from there to the end of the command, when everything is removed."""
    plan = folder / "plan.toml"
    plan.write_text(PLAN.format(image=image, step=step, ranks=ranks), encoding="utf-8")
    known = set(Path(tempfile.gettempdir()).glob("collbench-*"))
    began = time.monotonic()
    process = Popen([program, "launch", plan, "--out", folder / "run"], stdout=DEVNULL, stderr=DEVNULL)
    first = None
    try:
        while process.poll() is None and time.monotonic() - began < LIMIT:
            if first is None:
                made = set(Path(tempfile.gettempdir()).glob("collbench-*")) - known
                if any(_has_record(path) for path in made):
                    first = time.monotonic()
            time.sleep(0.01)
        ended = time.monotonic()
    finally:
        _end(process)
    if process.returncode != 0 or first is None:
        raise SystemExit(f"the launch of {ranks} containers of {image} failed (exit code {process.returncode})")
    return first - began, ended - first


def _end(process: Popen[bytes]) -> None:
    """A launch that is asked to end removes its containers."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(timeout=30)
    except TimeoutExpired:
        process.kill()
        process.wait()


def _has_record(folder: Path) -> bool:
    try:
        return (folder / "out" / "records.jsonl").stat().st_size > 0
    except OSError:
        return False


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_env(parser)
    parser.add_argument("--rounds", type=int, default=7, help="repetitions [7]")
    asked = parser.parse_args()
    end_on_sigterm()
    program = asked.installations[0].directory / "bin" / "collbench"
    cells = [(image, step, ranks) for image in ("openmpi", "mpich") for step in ("strict", "net") for ranks in TARGET]
    found: dict[tuple[str, str, int], list[tuple[float, float]]] = {cell: [] for cell in cells}
    for _ in range(asked.rounds):
        for cell in cells:
            with tempfile.TemporaryDirectory() as folder:
                found[cell].append(once(program, Path(folder), *cell))
    rows = []
    for (image, step, ranks), times in found.items():
        first, clean = median(t for t, _ in times), median(t for _, t in times)
        spread = f"{min(t for t, _ in times):.2f} .. {max(t for t, _ in times):.2f}"
        rows.append([f"{image} {step}, {ranks} containers", f"{first:.2f}", spread, f"{TARGET[ranks]:g}",
                     verdict(first, TARGET[ranks]), f"{clean:.2f}", f"{CLEAN:g}", verdict(clean, CLEAN)])  # fmt: skip
    head = ("cell", "to the first record, s", "range", "target", "", "from there to the end, s", "target", "")
    page = f"""# From the command to a sample in containers

{describe()}. Medians of {asked.rounds} commands, one cell each. The command also asks the image what it holds. With 8
containers there are more ranks than cores.

{table(head, rows)}"""
    keep("launch_speed", page, {"times": {" ".join(map(str, cell)): times for cell, times in found.items()}})


if __name__ == "__main__":
    main()
