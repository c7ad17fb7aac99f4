"""`collbench compare A B`: whether two runs, or two sides of one, are equally fast, with a verdict on each cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import click

from collbench.analysis import baseline as baselines
from collbench.analysis import pairs as pairs_module
from collbench.analysis.compare import Comparison, compare
from collbench.analysis.environment import facts
from collbench.analysis.factors import FACTORS, find_factor
from collbench.analysis.options import given_cells, parse_given
from collbench.analysis.pairs import METHODS, Pair, across, axes_by_name, refuse_not_alternated, within, without_partner
from collbench.analysis.runs import Observed, refuse_own_baseline
from collbench.cli.analysing import COMPLETE, RUN, in_blocks, margin, names, read, read_each, say, style
from collbench.cli.failing import FAILING, failures
from collbench.cli.terminal import harmless, waiting_for
from collbench.errors import RequestError, suggestion
from collbench.report.caveats import flaw_text, shortage_text
from collbench.report.cells import document, tables
from collbench.report.paper import beside, paper, papers
from collbench.report.tables import Table
from collbench.report.verdict import sentence
from collbench.report.verdict import tables as of_verdict
from collbench.schema.case import own_axes
from collbench.units import counted


@click.command(
    name="compare", epilog="Exit code 1 where --fail-on found what it looks for, or something was not measured."
)
@click.argument("runs", nargs=-1, type=RUN, required=True)
@click.option(
    "--by",
    default=None,
    metavar="FACTOR",
    help=f"What the sides differ in: {', '.join(FACTORS)}, library; between two runs also another fact of the environment.",
)
@click.option("--between", default=None, metavar="A,B", help="Only these two sides of --by: B compared with A.")
@click.option(
    "--given",
    multiple=True,
    default=None,
    metavar="FACTOR=VALUE",
    help="Only cells with this value, such as policy=multi. Can be repeated.",
)
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    default=None,
    metavar="FACTOR",
    help="Compare although this differs too. Can be repeated.",
)
@margin
@click.option(
    "--fail-on",
    type=click.Choice(list(FAILING)),
    default=None,
    help="Exit with 1 when a cell has this verdict, failed, is missing, or has too few launches for any.",
)
@click.option("--baseline", type=RUN, default=None, metavar="FILE", help="Compare the run with this baseline.")
@click.option(
    "--save-baseline", type=RUN, default=None, metavar="FILE", help="Write the run as a baseline and compare nothing."
)
@click.option(
    "--against",
    type=click.Choice(papers()),
    default=None,
    help="Judge the conclusions of this paper by all RUNS together.",
)
@in_blocks
@click.option("--all", "every", is_flag=True, default=False, help="Every cell in tables, not only those that differ.")
@style
def command(
    runs: tuple[Path, ...],
    by: str | None,
    between: str | None,
    given: tuple[str, ...],
    ignored: tuple[str, ...],
    margin: float,
    fail_on: str | None,
    baseline: Path | None,
    save_baseline: Path | None,
    against: str | None,
    in_blocks: bool,
    every: bool,
    style: str,
) -> int:
    """Compare two runs, or two sides of one: collbench compare RUN --by policy.

    A run is a folder that --out or launch wrote, or a folder of such folders, each of them one launch.
    """
    asked = {
        "--by": by,
        "--between": between,
        "--given": given,
        "--ignore": ignored,
        "--fail-on": fail_on,
        "--baseline": baseline,
    }
    unused = ", ".join(flag for flag, value in asked.items() if value)
    if save_baseline is not None:
        return _save(runs, save_baseline, unused)
    if against is not None:
        return _against(runs, against, unused, margin, every or style in COMPLETE, style)
    if len(runs) == 1 and baseline is None:
        pairing = _within_run(_given(read(runs[0]), given), by, between, names(ignored), in_blocks)
    elif between:
        raise RequestError("--between chooses sides of one run; here two are compared.")
    else:
        base, other = (_given(side, given) for side in _two_sides(runs, baseline, in_blocks))
        pairing = _between_runs(base, other, by, names(ignored), in_blocks)
    with waiting_for(f"comparing {counted(len(pairing.pairs), 'cell')}"):
        comparisons = compare(pairing.pairs, margin, pairing.in_blocks)
    found = document(comparisons, margin, (*pairing.shortages, *pairing.flaws)) | {
        "answer": sentence(comparisons, margin)
    }
    found["notes"] = [*pairing.shortages, *found["notes"]]
    if style in COMPLETE:
        shown = tables(comparisons, narrow=style == "latex")
    else:
        shown = [*of_verdict(comparisons, margin, every), *(tables(comparisons) if every else ())]
    say(_first_of_all(pairing.shortages, shown), found, style)
    return _exit_code(comparisons, fail_on, pairing)


class Pairing(NamedTuple):
    """The pairs to compare, whether their launches are paired, and what makes a check fail.

    `missing` are cells that only the base has; `flaws` and `shortages`, as text, are what the runs lack.
    """

    pairs: list[Pair]
    in_blocks: bool
    missing: int
    flaws: tuple[str, ...]
    shortages: tuple[str, ...]

    @classmethod
    def of(cls, pairs: list[Pair], in_blocks: bool, missing: int, *runs: Observed) -> Pairing:
        flaws = tuple(flaw_text(flaw) for run in runs for flaw in run.flaws)
        return cls(
            pairs, in_blocks, missing, flaws, tuple(shortage_text(lack) for run in runs for lack in run.shortages)
        )


def _given(observed: Observed, texts: tuple[str, ...]) -> Observed:
    """The run without cells that have other values of factors."""
    return given_cells(observed, parse_given(texts, own_axes(observed.cells))) if texts else observed


def _known(ignored: frozenset[str], *runs: Observed) -> frozenset[str]:
    """The names, if each of them is that of an axis, a fact or a way of measuring."""
    known = {
        *axes_by_name(*runs),
        *METHODS,
        pairs_module.NAME,
        *(name for run in runs for name in facts(run, run.cells)),
    }
    for name in sorted(ignored - known):
        raise RequestError(f"--ignore {name!r}: unknown. {suggestion(name, sorted(known))}")
    return ignored


def _within_run(
    observed: Observed, by: str | None, between: str | None, ignored: frozenset[str], in_blocks: bool
) -> Pairing:
    sides = tuple(side.strip() for side in between.split(",")) if between else ()
    if between and (len(sides) != 2 or not all(sides)):
        raise RequestError(f"--between {between!r}: name two sides, as in --between multi,single.")
    if by is None:
        raise RequestError(
            "compare: only one run. Name a second run, a --baseline, or what the sides of this run differ in: "
            f"--by {', '.join(FACTORS)}."
        )
    factor = find_factor(by, own=own_axes(observed.cells))
    if factor.name == "library" and FACTORS["image"].varies(observed.cells):
        factor = FACTORS["image"]  # which has the library, in containers and on the host
    pairs = within(observed, factor, _known(ignored, observed), sides)
    alone = without_partner(observed, factor, pairs)
    _left_out(alone, "without a partner to compare with")
    return Pairing.of(pairs, observed.interleaved or in_blocks, alone, observed)


def _two_sides(runs: tuple[Path, ...], baseline: Path | None, in_blocks: bool) -> tuple[Observed, Observed]:
    if len(runs) != 2 - (baseline is not None):
        raise RequestError(f"compare: {len(runs)} runs{' and a baseline' if baseline else ''}. It takes two sides.")
    if baseline and in_blocks:
        raise RequestError("--in-blocks: a baseline was measured at another time; only runs can alternate.")
    if not baseline and runs[0].resolve() == runs[1].resolve():
        raise RequestError(
            f"compare: both sides are {runs[0]}, and a run does not differ from itself. Name two runs, or what the sides "
            f"of one differ in: --by {', '.join(FACTORS)}. For differences by chance: collbench selftest."
        )
    if baseline:
        base, other = baselines.load(baseline), read(runs[0])
        refuse_own_baseline(base, other)
        return base, other
    base, other = read_each(runs)
    return base, other


def _between_runs(base: Observed, other: Observed, by: str | None, ignored: frozenset[str], in_blocks: bool) -> Pairing:
    if in_blocks:
        refuse_not_alternated(base, other)
    known = sorted({*facts(base, base.cells), *facts(other, other.cells)})
    factor = find_factor(by, known, own_axes([*base.cells, *other.cells])) if by else None
    pairs = across(base, other, factor, _known(ignored, base, other))
    missing, more = len(base.cells) - len(pairs), len(other.cells) - len(pairs)
    _left_out(missing, f"that only {base.name} has")
    _left_out(more, f"that only {other.name} has")
    return Pairing.of(pairs, in_blocks, missing, base, other)


def _first_of_all(lines: tuple[str, ...], found: list[Table]) -> list[Table]:
    """The tables with these notes before all others."""
    return [replace(found[0], notes=(*lines, *found[0].notes)), *found[1:]] if found else found


def _left_out(number: int, why: str) -> None:
    if number:
        click.echo(harmless(f"collbench: left out: {counted(number, 'cell')} {why}."), err=True)


def _against(runs: tuple[Path, ...], reference: str, unused: str, margin: float, every: bool, style: str) -> int:
    if unused:
        raise RequestError(f"--against judges whole runs by the conclusions of a paper: leave out {unused}.")
    observed = read_each(runs)
    with waiting_for(f"judging the conclusions of {reference}"):
        judged = beside(observed, paper(reference), margin)
    say([judged.screen, *(judged.more if every else ())], judged.document, style)
    return 0


def _save(runs: tuple[Path, ...], path: Path, unused: str) -> int:
    """Write the baseline; `unused` are flags of a comparison, which does not take place."""
    if unused:
        raise RequestError(f"--save-baseline writes the whole run and compares nothing: leave out {unused}.")
    if len(runs) != 1:
        raise RequestError("--save-baseline keeps one run; name one.")
    observed = read(runs[0])
    failed = sum(bool(cell.failed) for cell in observed.cells.values())
    if failed or observed.flaws:
        why = f"{counted(failed, 'cell')} failed in some launches" if failed else flaw_text(observed.flaws[0])
        raise RequestError(f"--save-baseline: {runs[0]} is not fit for a baseline: {why}. Measure it again.")
    kept = baselines.keep(observed, path)
    click.echo(
        f"{path}: a baseline of {counted(kept, 'cell')}. Compare a run with it: collbench compare RUN --baseline {path}"
    )
    return 0


def _exit_code(comparisons: Sequence[Comparison], fail_on: str | None, pairing: Pairing) -> int:
    reasons = (
        [] if fail_on is None else failures(comparisons, fail_on, pairing.missing, (*pairing.shortages, *pairing.flaws))
    )
    if reasons:
        compared = f"{counted(len(comparisons), 'cell')} compared"
        click.echo(f"collbench: --fail-on {fail_on}: {', '.join(reasons)}; {compared}.", err=True)
    return 1 if reasons else 0
