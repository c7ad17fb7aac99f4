"""`collbench selftest`: an experiment with two equal sides, which must not differ."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import ExitStack
from importlib.resources import as_file, files
from pathlib import Path

import click
import msgspec

from collbench.analysis.bounds import Launches, in_order
from collbench.analysis.compare import Comparison, compare, question_of
from collbench.analysis.factors import FACTORS
from collbench.analysis.launches import together
from collbench.analysis.pairs import within
from collbench.analysis.planning import cost, false_positives, movements, smallest
from collbench.analysis.runs import observe
from collbench.cli.analysing import RUN, margin, say, style
from collbench.cli.continuing import Continued
from collbench.cli.experiment import Purpose, perform
from collbench.cli.sides import host_plan
from collbench.errors import LaunchFailed, RequestError
from collbench.launch.folders import signed_folder
from collbench.launch.waiting import Stopping
from collbench.machine import launcher
from collbench.report.sensitivity import SelfTest, document, tables
from collbench.report.verdict import whole_reason
from collbench.schema.plan import Side, check_launch_plan, load_plan
from collbench.schema.record import Record
from collbench.schema.store import SIDES, read_readings


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
@click.option("--out", type=RUN, default=None, metavar="DIR", help="Keep the run there.")
@click.option(
    "--timeout",
    type=click.FloatRange(1, 86400),
    default=300.0,
    show_default=True,
    help="Seconds without progress after which a launch is ended.",
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
        folder = out or stack.enter_context(signed_folder(None, "selftest-")) / "run"
        sides = {name: Side() for name in SIDES}
        twice = msgspec.structs.replace(
            host_plan(load_plan(plan), ranks, crowded=True), sides=sides, launches=launches, seed=seed,
            timeout=f"{timeout:g}s",
        )  # fmt: skip
        perform(
            Continued(check_launch_plan(twice), twice),
            folder,
            None,
            stopping.check,
            Purpose(in_vain=_failed, resumable=False),
        )
        comparisons = _compared(folder, margin)
        moved = movements(reading.values for reading in read_readings(folder))
        stopping.check()
    questions: dict[Hashable, list[Launches]] = {}
    for comparison in comparisons:
        questions.setdefault(question_of(comparison.pair), []).append(_paired(comparison))
    order = list(questions)
    rate = max(map(false_positives, questions.values()))
    least = tuple(one for cells in questions.values() for one in smallest(cells, margin))
    price = cost([one for cells in questions.values() for one in cells], margin)
    comparisons.sort(key=lambda one: order.index(question_of(one.pair)))
    found = SelfTest(tuple(comparisons), rate, least, launches, moved, price)
    say(tables(found), document(found), style)


def _failed(records: Sequence[Record]) -> str:
    """Why nothing more is measured: the reason of the first launch that failed; empty where none did."""
    if records and all(record.status == "skipped" for record in records):
        return records[0].reason or "every case is skipped"
    return next((record.reason or "a launch failed" for record in records if record.status == "failed"), "")


def _compared(folder: Path, margin: float) -> list[Comparison]:
    observed = observe(folder)
    return compare(within(observed, FACTORS["side"], frozenset()), margin)


def _paired(comparison: Comparison) -> Launches:
    cells = [comparison.pair.base, comparison.pair.other]
    medians = together(cells, in_blocks=True)
    if cells[0].skipped and not cells[0].failed:
        raise RequestError(f"selftest: {cells[0].case.workload} is skipped: {sorted(cells[0].reasons)[0]}.")
    if cells[0].reasons:
        raise LaunchFailed(f"selftest: {cells[0].case.workload} was not measured: {sorted(cells[0].reasons)[0]}.")
    if not len(medians) or any(min(cell.medians) <= 0 for cell in cells):
        raise LaunchFailed(f"selftest: {cells[0].case.workload} was not measured: {whole_reason(comparison)}.")
    base, other = medians.T.tolist()
    return in_order(base, other)
