"""`collbench compare A B`: whether two runs, or two sides of one, are equally fast, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from collbench.analysis import baseline as baselines
from collbench.analysis.compare import MARGIN, Comparison, compare
from collbench.analysis.environment import facts
from collbench.analysis.factors import FACTORS, find_factor
from collbench.analysis.observations import Observed
from collbench.analysis.pairs import METHODS, Pair, across, refuse_not_in_turns, within, without_partner
from collbench.cli.analysing import RUN, Share, in_blocks, names, read, say, style
from collbench.cli.failing import FAILING, failures
from collbench.cli.terminal import harmless
from collbench.errors import RequestError
from collbench.report.comparison import document, tables
from collbench.schema.case import Case, own_axes
from collbench.spelling import suggestion
from collbench.units import counted


@click.command(name="compare", epilog="Exit code 1 where --fail-on found what it looks for, or something not measured.")
@click.argument("runs", nargs=-1, type=RUN, required=True)
@click.option(
    "--by",
    default=None,
    metavar="FACTOR",
    help=f"What the sides differ in: {', '.join(FACTORS)}; between two runs also a fact of the environment, such as library.",
)
@click.option("--between", default=None, metavar="A,B", help="Only these two sides of --by, B held against A.")
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    default=None,
    metavar="FACTOR",
    help="Compare although this differs too. Can be repeated.",
)
@click.option(
    "--margin",
    type=Share(),
    default=None,
    metavar="PERCENT",
    help="Differences within it are negligible.  [default: 2%]",
)
@click.option(
    "--fail-on",
    type=click.Choice(list(FAILING)),
    default=None,
    help="Exit with 1 when a cell has this verdict, failed, is missing, or has too few launches for any.",
)
@click.option("--baseline", type=RUN, default=None, metavar="FILE", help="Hold the run against this baseline.")
@click.option(
    "--tolerance", type=Share(), default=None, metavar="PERCENT", help="The margin, by the name it has for baselines."
)
@click.option(
    "--save-baseline", type=RUN, default=None, metavar="FILE", help="Write the run as a baseline and compare nothing."
)
@in_blocks
@style
def command(
    runs: tuple[Path, ...],
    by: str | None,
    between: str | None,
    ignored: tuple[str, ...],
    margin: float | None,
    fail_on: str | None,
    baseline: Path | None,
    tolerance: float | None,
    save_baseline: Path | None,
    in_blocks: bool,
    style: str,
) -> int:
    """Compare two runs, or two sides of one: collbench compare RUN --by policy.

    A run is a folder that --out or launch wrote, or a folder of such folders, each of them one launch.
    """
    if margin is not None and tolerance is not None:
        raise RequestError("--margin and --tolerance are two names for one thing; give one of them.")
    if save_baseline is not None:
        return _save(runs, save_baseline)
    chosen = next((share for share in (margin, tolerance) if share is not None), MARGIN)
    asked = _asked(runs, by, between, ignored, baseline, in_blocks)
    found = compare(asked.pairs, chosen, asked.in_blocks)
    say(tables(found), document(found, chosen, asked.doubts), style)
    return _judged(found, fail_on, asked)


class Asked(NamedTuple):
    """What is held against what, whether launches of equal number belong together, and what speaks against a check.

    `missing` are cells that only the base has, `doubts` records that their samples do not bear out.
    """

    pairs: list[Pair]
    in_blocks: bool
    missing: int
    doubts: tuple[str, ...]


def _known(asked: frozenset[str], *runs: Observed) -> frozenset[str]:
    """The names, if each of them is one of a field, a fact or a way of measuring."""
    fields = [name.replace("_", "-") for name in Case.__struct_fields__]
    there = {*fields, *METHODS, *(name for run in runs for name in facts(run, run.cells))}
    for name in sorted(asked - there):
        raise RequestError(f"--ignore {name!r}: unknown. {suggestion(name, sorted(there))}")
    return asked


def _asked(
    runs: tuple[Path, ...],
    by: str | None,
    between: str | None,
    ignored: tuple[str, ...],
    baseline: Path | None,
    in_blocks: bool,
) -> Asked:
    without = names(ignored)
    sides = tuple(side.strip() for side in between.split(",")) if between else ()
    if between and (len(sides) != 2 or not all(sides)):
        raise RequestError(f"--between {between!r}: name two sides, as in --between multi,single.")
    if len(runs) == 1 and baseline is None:
        observed = read(runs[0])
        if by is None:
            raise RequestError(
                "compare: one run and no question. Name a second run, a --baseline, or what its sides differ in: "
                f"--by {', '.join(FACTORS)}."
            )
        factor = find_factor(by, own=own_axes(observed.cells))
        pairs = within(observed, factor, _known(without, observed), sides)
        alone = without_partner(observed, factor, pairs)
        _left_out(alone, "no partner to be compared with")
        return Asked(pairs, observed.interleaved or in_blocks, alone, _doubts(observed))
    if len(runs) != 2 - (baseline is not None):
        raise RequestError(f"compare: {len(runs)} runs{' and a baseline' if baseline else ''}. It takes two sides.")
    if between:
        raise RequestError("--between chooses sides of one run; here two are compared.")
    if baseline and in_blocks:
        raise RequestError("--in-blocks: a baseline was measured at another time; only runs can be measured in turns.")
    if not baseline and runs[0].resolve() == runs[1].resolve():
        raise RequestError(
            f"compare: both sides are {runs[0]}, and a run does not differ from itself. Name two runs, or what the sides "
            f"of one differ in: --by {', '.join(FACTORS)}. What differs by chance: collbench selftest."
        )
    base, other = baselines.load(baseline) if baseline else read(runs[0]), read(runs[-1])
    if in_blocks:
        refuse_not_in_turns(base, other)
    known = sorted({*facts(base, base.cells), *facts(other, other.cells)})
    between_runs = find_factor(by, known, own_axes([*base.cells, *other.cells])) if by else None
    pairs = across(base, other, between_runs, _known(without, base, other))
    missing, more = len(base.cells) - len(pairs), len(other.cells) - len(pairs)
    _left_out(missing, f"in {base.name} only, left out")
    _left_out(more, f"in {other.name} only, left out")
    return Asked(pairs, in_blocks, missing, (*_doubts(base), *_doubts(other)))


def _doubts(observed: Observed) -> tuple[str, ...]:
    """What was read and cannot be relied on, and launches that the run should have."""
    cut = tuple(f"{folder}: the last record was cut off" for folder in observed.truncated)
    experiment = observed.manifests[0].experiment if len(observed.manifests) == 1 else None
    if experiment is None:
        return observed.doubts + cut
    short = [cell for cell in observed.cells.values() if cell.medians and len(cell.medians) < experiment.launches]
    lacking = (
        (f"{observed.name}: fewer launches than its {experiment.launches} in {counted(len(short), 'cell')}",)
        if short
        else ()
    )
    return observed.doubts + cut + lacking


def _left_out(number: int, why: str) -> None:
    if number:
        click.echo(harmless(f"collbench: {counted(number, 'cell')} of those measured: {why}."), err=True)


def _save(runs: tuple[Path, ...], path: Path) -> int:
    if len(runs) != 1:
        raise RequestError("--save-baseline keeps one run; name one.")
    observed = read(runs[0])
    spoilt = sum(bool(cell.failed) for cell in observed.cells.values())
    if spoilt or observed.doubts:
        why = f"{counted(spoilt, 'cell')} failed in some launches" if spoilt else observed.doubts[0]
        raise RequestError(f"--save-baseline: {runs[0]} is none to hold others against: {why}. Measure it anew.")
    kept = baselines.keep(observed, path)
    click.echo(
        f"{path}: a baseline of {counted(kept, 'cell')}. Hold a run against it: collbench compare RUN --baseline {path}"
    )
    return 0


def _judged(found: Sequence[Comparison], fail_on: str | None, asked: Asked) -> int:
    said = [] if fail_on is None else failures(found, fail_on, asked.missing, asked.doubts)
    if said:
        click.echo(
            f"collbench: --fail-on {fail_on}: {', '.join(said)}; {counted(len(found), 'cell')} compared.", err=True
        )
    return 1 if said else 0
