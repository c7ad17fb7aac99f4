"""`compare`: whether two runs, or two sides of one, are equally fast. `history`: what changed over runs in time.

Both have an exit code for checks (`--fail-on`), with its reasons in words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from collbench.analysis.compare import Comparison, compare
from collbench.analysis.estimate import FEWEST
from collbench.analysis.factors import FACTORS
from collbench.analysis.launches import unequal
from collbench.analysis.options import fixed_cells, parse_fixed
from collbench.analysis.pairs import Pair
from collbench.analysis.runs import Observed, load_baseline, refuse_own_baseline, save_baseline
from collbench.analysis.sides import Matched, in_one_run, in_two_runs
from collbench.cli import options as flags
from collbench.cli.analyse import COMPLETE, STYLE, names, print_tables, read, read_each, refuse_folder, write
from collbench.errors import RequestError, suggestion
from collbench.report.caveats import flaw_text, shortage_text
from collbench.report.cells import document, tables
from collbench.report.paper import beside, paper, papers
from collbench.report.verdict import sentence
from collbench.report.verdict import tables as verdict_tables
from collbench.units import counted

if TYPE_CHECKING:
    from collbench.analysis.history import History

#: What --fail-on takes, and the verdicts that it fails on.
FAILING = {"slower": ("slower",), "faster": ("faster",), "different": ("slower", "faster"),
           "unclear": ("slower", "unclear")}  # fmt: skip


class _CompareOptions(flags.Options):
    runs: tuple[Path, ...] = flags.RUNS
    by: str | None = flags.option("--by", f"What the sides differ in: {', '.join(FACTORS)}, library; between two runs also another fact of the environment.", "FACTOR")  # fmt: skip
    between: str | None = flags.option("--between", "Only these two sides of --by: B compared with A.", "A,B")
    fixed: tuple[str, ...] = flags.GIVEN
    ignored: tuple[str, ...] = flags.several("--ignore", "Compare although this differs too.", "FACTOR")
    margin: float = flags.MARGIN
    fail_on: str | None = flags.option("--fail-on", "Exit with 1 if a cell has this verdict, failed, is missing, or has too few launches for any.", type=click.Choice(list(FAILING)))  # fmt: skip
    baseline: Path | None = flags.option(
        "--baseline", "Compare the run with this baseline instead of a second run.", "FILE", type=flags.PATH
    )
    save_baseline: Path | None = flags.option("--save-baseline", "Write the run as a baseline, one small file, and compare nothing.", "FILE", type=flags.PATH)  # fmt: skip
    against: str | None = flags.option("--against", "Judge the conclusions of this paper by all RUNS together.", type=click.Choice(papers()))  # fmt: skip
    in_blocks: bool = flags.IN_BLOCKS
    every: bool = flags.switch("--all", flags.ALL_CELLS + "differ.")
    style: str = STYLE

    @property
    def unused(self) -> str:
        """The flags of a comparison that were typed, where none takes place."""
        spelled = {"by": "by", "between": "between", "fixed": "given", "ignored": "ignore", "fail_on": "fail-on",
                   "baseline": "baseline"}  # fmt: skip
        return ", ".join(f"--{flag}" for name, flag in spelled.items() if getattr(self, name))


@flags.command("compare", _CompareOptions, epilog=flags.EXIT_1)
def compare_command(options: _CompareOptions) -> int:
    """Compare two runs, or two sides of one: collbench compare RUN --by policy.

    A run is a folder that --out or launch wrote, or a folder of such folders, each of them one launch.
    """
    runs, margin, style = options.runs, options.margin, options.style
    if options.save_baseline is not None:
        return _save(options, options.save_baseline)
    if options.against is not None:
        return _judge_paper(options, options.against)
    alone = len(runs) == 1 and options.baseline is None
    if options.between and not alone:
        raise RequestError("--between chooses sides of one run; here two are compared.")
    sides = [read(runs[0])] if alone else _two_sides(options)
    if options.fixed:
        sides = [fixed_cells(side, parse_fixed(options.fixed, side.cells)) for side in sides]
    matched = _within_run(options, *sides) if alone else _between_runs(options, *sides)
    with flags.waiting_for(f"comparing {counted(len(matched.pairs), 'cell')}"):
        comparisons = compare(matched.pairs, margin, matched.in_blocks)
    shortages = [shortage_text(lack) for side in sides for lack in side.shortages]
    doubts = (*shortages, *(flaw_text(flaw) for side in sides for flaw in side.flaws))
    result = document(comparisons, margin, doubts) | {"answer": sentence(comparisons, margin)}
    result["notes"] = [*shortages, *result["notes"]]
    if style in COMPLETE:
        shown = tables(comparisons, narrow=style == "latex")
    else:
        shown = [*verdict_tables(comparisons, margin, options.every), *(tables(comparisons) if options.every else ())]
    if shown:  # first of all, what is missing
        shown = [replace(shown[0], notes=(*shortages, *shown[0].notes)), *shown[1:]]
    print_tables(shown, result, style)
    fail_on = options.fail_on
    reasons = [] if fail_on is None else failures(comparisons, fail_on, matched.without[0], doubts)
    return _checked(fail_on, reasons, f"; {counted(len(comparisons), 'cell')} compared")


def _checked(fail_on: str | None, reasons: Sequence[str], of: str = "") -> int:
    if reasons:
        click.echo(f"collbench: --fail-on {fail_on}: {', '.join(reasons)}{of}.", err=True)
    return 1 if reasons else 0


def _within_run(options: _CompareOptions, observed: Observed) -> Matched:
    by, between = options.by, options.between
    sides = tuple(side.strip() for side in between.split(",")) if between else ()
    if between and (len(sides) != 2 or not all(sides)):
        raise RequestError(f"--between {between!r}: name two sides, as in --between multi,single.")
    if by is None:
        raise RequestError("compare: only one run. Name a second run, a --baseline, or what the sides of this run "
                           f"differ in: --by {', '.join(FACTORS)}.")  # fmt: skip
    matched = in_one_run(observed, by, names(options.ignored), sides, options.in_blocks)
    _left_out(matched.without[0], "without a partner to compare with")
    return matched


def _two_sides(options: _CompareOptions) -> list[Observed]:
    runs, baseline = options.runs, options.baseline
    if len(runs) != 2 - (baseline is not None):
        raise RequestError(f"compare: {len(runs)} runs{' and a baseline' if baseline else ''}. It takes two sides.")
    if baseline and options.in_blocks:
        raise RequestError("--in-blocks: a baseline was measured at another time; only runs can alternate.")
    if not baseline and runs[0].resolve() == runs[1].resolve():
        raise RequestError(f"compare: both sides are {runs[0]}, and a run does not differ from itself. Name two runs, "
                           f"or what the sides of one differ in: --by {', '.join(FACTORS)}. For differences by chance: "
                           "collbench selftest.")  # fmt: skip
    if baseline:
        base, other = load_baseline(baseline), read(runs[0])
        refuse_own_baseline(base, other)
        return [base, other]
    return read_each(runs)


def _between_runs(options: _CompareOptions, base: Observed, other: Observed) -> Matched:
    matched = in_two_runs(base, other, options.by, names(options.ignored), options.in_blocks)
    for run, without in zip((base, other), matched.without, strict=True):
        _left_out(without, f"that only {run.name} has")
    return matched


def _left_out(number: int, why: str) -> None:
    if number:
        flags.note(f"collbench: left out: {counted(number, 'cell')} {why}.")


def _judge_paper(options: _CompareOptions, reference: str) -> int:
    if options.unused:
        raise RequestError(f"--against judges whole runs by the conclusions of a paper: leave out {options.unused}.")
    observed = read_each(options.runs, of_plans=True)
    with flags.waiting_for(f"judging the conclusions of {reference}"):
        judged = beside(observed, paper(reference), options.margin)
    every = options.every or options.style in COMPLETE
    print_tables([judged.screen, *(judged.more if every else ())], judged.document, options.style)
    return 0


def _save(options: _CompareOptions, path: Path) -> int:
    if options.unused:
        raise RequestError(f"--save-baseline writes the whole run and compares nothing: leave out {options.unused}.")
    if len(options.runs) != 1:
        raise RequestError("--save-baseline keeps one run; name one.")
    (run,) = options.runs
    observed = read(run)
    failed = sum(bool(cell.failed) for cell in observed.cells.values())
    if failed or observed.flaws:
        why = f"{counted(failed, 'cell')} failed in some launches" if failed else flaw_text(observed.flaws[0])
        raise RequestError(f"--save-baseline: {run} is not fit for a baseline: {why}. Measure it again.")
    kept = save_baseline(observed, path)
    click.echo(f"{path}: a baseline of {counted(kept, 'cell')}. Compare a run with it: "
               f"collbench compare RUN --baseline {path}")  # fmt: skip
    return 0


def failures(comparisons: Sequence[Comparison], fail_on: str, missing: int, flaws: Sequence[str]) -> list[str]:
    """Why a check fails, in words; empty where it passes. `missing`: cells of the base that the other side lacks.

    Besides the verdicts asked for, whatever was not measured as on the other side fails every check (`_unmeasured`),
    and so do `flaws`, such as samples files that do not agree with their records. What both sides skipped fails none.
    """
    comparisons = [comparison for comparison in comparisons if not _both_skipped(comparison.pair)]
    verdicts = Counter[str](comparison.verdict for comparison in comparisons)
    counts = Counter(failed=0, missing=missing)
    for comparison in comparisons:
        counts.update(_unmeasured(comparison))
    reasons = [f"{verdicts[verdict]} {verdict}" for verdict in FAILING[fail_on] if verdicts[verdict]]
    reasons += [f"{number} {what}" for what, number in counts.items() if number]
    return reasons + ([f"what was read is in doubt ({flaws[0]})"] if flaws else [])


def _both_skipped(pair: Pair) -> bool:
    return all(cell.skipped > 0 and not cell.medians and not cell.failed for cell in (pair.base, pair.other))


def _unmeasured(comparison: Comparison) -> dict[str, bool]:
    """What makes a cell count as not measured, or as measured differently from the other side."""
    base, other = sides = comparison.pair.base, comparison.pair.other
    comparable, failed = comparison.verdict != "not comparable", any(cell.failed for cell in sides)
    paired = comparison.blocks and not base.until_decided  # there each pair has launches of its own
    used = min(comparison.launches) + comparison.left_out + comparison.contended
    return {
        "failed": failed,
        "skipped": any(cell.skipped for cell in sides),
        "not comparable": not comparable and not failed,
        "with launches measured differently": bool(comparison.left_out),
        "with launches that one side lacks": paired and comparable and max(len(cell.medians) for cell in sides) > used,
        "with unchecked results": other.unchecked > 0 and not base.unchecked,
        "with results that differ": any(figure.between_sides for figure in unequal(comparison.pair)),
        "with times that drift": comparison.why.kind == "drift",
        "with more launches or samples that are far slower on the other side":  # which no median shows
            comparison.slow is not None and comparison.slow.on_other,
        "on a shared GPU": any(cell.shared_gpu for cell in sides),
        "with most samples late": any(2 * cell.late > cell.samples for cell in sides),
        f"with fewer than {FEWEST} launches a side": comparable and min(comparison.launches) < FEWEST,
    }  # fmt: skip


# history -------------------------------------------------------------------------------------------------------------

#: What --fail-on takes of levels: the time now over the shortest and over the longest of the earlier levels.
FAILING_LEVELS: dict[str, Callable[[float, float, float], bool]] = {
    "slower": lambda over_shortest, over_longest, margin: over_shortest > 1 + margin,
    "faster": lambda over_shortest, over_longest, margin: over_longest < 1 / (1 + margin),
    "different": lambda *levels: FAILING_LEVELS["slower"](*levels) or FAILING_LEVELS["faster"](*levels),
}

OUTSIDE = "outside"  #: And of the latest run.


def kinds(value: str) -> tuple[str, ...]:
    """`slower,outside`, each once: what a check fails on."""
    typed = tuple(dict.fromkeys(value.split(",")))
    for kind in set(typed) - {*FAILING_LEVELS, OUTSIDE}:
        raise click.BadParameter(f"{kind!r} is none of {', '.join(FAILING_LEVELS)}, {OUTSIDE}.")
    return typed


class _HistoryOptions(flags.Options):
    folder: Path = flags.RUN
    fixed: tuple[str, ...] = flags.GIVEN
    margin: float = flags.margin("2%", "Smaller changes are not reported.")
    since: str | None = flags.option("--since", "Only changes that began with this run or later, or from this date on (2026-11-03).", "RUN|DATE")  # fmt: skip
    fail_on: tuple[str, ...] | None = flags.option("--fail-on", f"Exit with 1 when a cell is {', '.join(FAILING_LEVELS)} now than before, or {OUTSIDE} of its level in the latest run, or was not measured. Several with commas.", type=flags.Converted("KIND[,...]", kinds))  # fmt: skip
    output: Path | None = flags.option("-o --output", "Write a page with plots (.html).", "FILE", type=flags.PATH)
    every: bool = flags.switch("--all", flags.ALL_CELLS + "changed.")
    style: str = STYLE


@flags.command("history", _HistoryOptions, epilog=flags.EXIT_1)
def history_command(options: _HistoryOptions) -> int:
    """What changed over the runs in FOLDER: one run a night, say, each written by --out or launch.

    Every folder in it is a run, or a folder of runs of which each is one launch of the same. They are taken in the
    order in which they began.
    """
    from collbench.analysis.history import history, since_run
    from collbench.report import history as report_history

    output, complete = options.output, options.style in COMPLETE
    if output is not None:
        if output.suffix.lower() not in (".html", ".htm"):
            raise RequestError(f"-o {output}: a page of plots; the name must end in .html. For tables: --style.")
        refuse_folder(output)
    with flags.waiting_for(f"reading the runs in {options.folder}"):
        whole = history(options.folder, options.fixed, options.margin)
    first = 0 if options.since is None else _number(whole, options.since)
    recent = since_run(whole, first)
    series = report_history.SeriesNames([cell.series for cell in recent.cells])
    shown = report_history.tables(recent, series, options.every or complete)
    print_tables(shown[1:] if complete else shown, report_history.document(recent, series), options.style)
    if output is not None:
        flags.note(f"collbench: {output}: {write(output, report_history.page(recent, series))}")
    fail_on = options.fail_on or ()
    return _checked(",".join(fail_on), history_failures(recent, fail_on, first) if fail_on else [])


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

    Besides the cells of each kind in `fail_on`, what the latest runs did not measure fails every check, and so does a
    history without a run that counts, or without any cell that could be judged.
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
