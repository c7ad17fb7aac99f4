"""`collbench history FOLDER`: what changed over runs in time, when, by how much, and together with what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from collbench.analysis.history import History, history, since_run
from collbench.cli.analyse import COMPLETE, STYLE, print_tables
from collbench.cli.options import ALL_CELLS, EXIT_1, GIVEN, PATH, RUN, Options, command, margin, option, switch
from collbench.cli.terminal import amount, harmless, note, refuse_folder, waiting_for, write
from collbench.errors import RequestError, suggestion
from collbench.report.history import SeriesNames, document, page, tables
from collbench.units import counted

#: What --fail-on takes of levels: the time now over the shortest and over the longest of the earlier levels.
FAILING_LEVELS: dict[str, Callable[[float, float, float], bool]] = {
    "slower": lambda over_shortest, over_longest, margin: over_shortest > 1 + margin,
    "faster": lambda over_shortest, over_longest, margin: over_longest < 1 / (1 + margin),
    "different": lambda over_shortest, over_longest, margin: (
        over_shortest > 1 + margin or over_longest < 1 / (1 + margin)
    ),
}

#: And of the latest run.
OUTSIDE = "outside"


class Kinds(click.ParamType[tuple[str, ...]]):
    """`slower,outside`: what a check fails on."""

    name = "KIND[,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Each once."""
        kinds = tuple(dict.fromkeys(str(value).split(",")))
        for kind in set(kinds) - {*FAILING_LEVELS, OUTSIDE}:
            self.fail(f"{kind!r} is none of {', '.join(FAILING_LEVELS)}, {OUTSIDE}.", param, ctx)
        return kinds


class _HistoryOptions(Options):
    # fmt: off
    folder: Path = RUN
    given: tuple[str, ...] = GIVEN
    margin: float = margin("2%", "Smaller changes are not reported.")
    since: str | None = option("--since", "Only changes that began with this run or later; a date as 2026-11-03.", "RUN|DATE")
    fail_on: tuple[str, ...] | None = option("--fail-on", f"Exit with 1 when a cell is {', '.join(FAILING_LEVELS)} now than before, or {OUTSIDE} of its level in the latest run, or was not measured. Several with commas.", type=Kinds())
    output: Path | None = option("-o --output", "Write a page with plots: FILE.html.", "FILE", type=PATH)
    every: bool = switch("--all", ALL_CELLS + "changed.")
    style: str = STYLE
    # fmt: on


@command("history", _HistoryOptions, epilog=EXIT_1)
def history_command(options: _HistoryOptions) -> int:
    """What changed over the runs in FOLDER: one run a night, say, each written by --out or launch.

    Every folder in it is a run, or a folder of runs of which each is one launch of the same. They are taken in the
    order in which they began.
    """
    output, fail_on, complete = options.output, options.fail_on, options.style in COMPLETE
    if output is not None:
        if output.suffix.lower() not in (".html", ".htm"):
            raise RequestError(f"-o {output}: a page of plots; the name must end in .html. For tables: --style.")
        refuse_folder(output)
    with waiting_for(f"reading the runs in {options.folder}"):
        whole = history(options.folder, options.given, options.margin)
    first = 0 if options.since is None else _number(whole, options.since)
    recent = since_run(whole, first)
    names = SeriesNames([cell.series for cell in recent.cells])
    shown = tables(recent, names, options.every or complete)
    print_tables(shown[1:] if complete else shown, document(recent, names), options.style)
    if output is not None:
        write(output, harmless(page(recent, names)))
        note(f"collbench: {output}: {amount(output.stat().st_size)}")
    reasons = history_failures(recent, fail_on, first) if fail_on else []
    if reasons:
        click.echo(f"collbench: --fail-on {','.join(fail_on or ())}: {', '.join(reasons)}.", err=True)
    return 1 if reasons else 0


def _number(history: History, since: str) -> int:
    """Of the run of that name, or of the first one on that day or later; after the last one where there is none."""
    runs = history.runs
    named = [number for number, run in enumerate(runs) if run.name == since.strip().rstrip("/").rpartition("/")[2]]
    if named:
        return named[0]
    try:
        day = datetime.fromisoformat(since.strip())
    except ValueError as error:
        hint = suggestion(since, [run.name for run in runs])
        raise RequestError(f"--since {since!r}: neither a run nor a date (2026-11-03). {hint}") from error
    start = day if day.tzinfo else day.replace(tzinfo=UTC)
    return next((number for number, run in enumerate(runs) if run.started >= start), len(runs))


def history_failures(history: History, fail_on: Sequence[str], since: int) -> list[str]:
    """Why a check fails, in words; empty where it passes. `since`: the number of the first run that counts.

    Besides the cells of each kind in `fail_on` (of `FAILING_LEVELS`, or `OUTSIDE`), what the latest runs did not
    measure fails every check, and so does a history without a run that counts, or without any cell that could be
    judged.
    """
    reasons = []
    for kind in fail_on:
        if kind == OUTSIDE:
            number, where = sum(len(latest.cells) for latest in history.latest), "of its level in the latest run"
        else:
            number = sum(FAILING_LEVELS[kind](*cell.now, history.margin) for cell in history.cells)
            where = "now than before"
        reasons += [f"{counted(number, 'cell')} {kind} {where}"] if number else []
    current = [cell for cell in history.cells if cell.series.last >= since or (cell.series.missing or -1) >= since]
    lacking = sum(cell.series.missing is not None or bool(cell.series.lacks) for cell in current)
    if lacking:
        reasons.append(f"{counted(lacking, 'cell')} not measured in the latest run")
    if since >= len(history.runs):
        reasons.append("no run since then")
    if not any(cell.series.tested for cell in history.cells):
        reasons.append("too few runs to judge any cell")
    return reasons
