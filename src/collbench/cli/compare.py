"""`collbench compare A B`: whether two runs, or two sides of one, are equally fast, with a verdict on each cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import click

from collbench.analysis.compare import Comparison, compare
from collbench.analysis.estimate import FEWEST
from collbench.analysis.factors import FACTORS, facts_of, find_factor
from collbench.analysis.launches import unequal
from collbench.analysis.options import fixed_cells, parse_fixed
from collbench.analysis.pairs import METHODS, Pair, across, axes_by_name, refuse_not_alternated, within, without_partner
from collbench.analysis.results import Cell
from collbench.analysis.runs import Observed, load_baseline, refuse_own_baseline, save_baseline
from collbench.cli import options as flags
from collbench.cli.analyse import COMPLETE, STYLE, names, print_tables, read, read_each
from collbench.cli.terminal import note, waiting_for
from collbench.errors import RequestError, suggestion
from collbench.report.caveats import flaw_text, shortage_text
from collbench.report.cells import document, tables
from collbench.report.paper import beside, paper, papers
from collbench.report.verdict import sentence
from collbench.report.verdict import tables as verdict_tables
from collbench.schema.case import own_axes
from collbench.units import counted

#: What --fail-on takes, and the verdicts that it fails on.
FAILING = {"slower": ("slower",), "faster": ("faster",), "different": ("slower", "faster"),
           "unclear": ("slower", "unclear")}  # fmt: skip


class _CompareOptions(flags.Options):
    # fmt: off
    runs: tuple[Path, ...] = flags.RUNS
    by: str | None = flags.option("--by", f"What the sides differ in: {', '.join(FACTORS)}, library; between two runs also another fact of the environment.", "FACTOR")
    between: str | None = flags.option("--between", "Only these two sides of --by: B compared with A.", "A,B")
    given: tuple[str, ...] = flags.GIVEN
    ignored: tuple[str, ...] = flags.several("--ignore", "Compare although this differs too.", "FACTOR")
    margin: float = flags.MARGIN
    fail_on: str | None = flags.option("--fail-on", "Exit with 1 when a cell has this verdict, failed, is missing, or has too few launches for any.", type=click.Choice(list(FAILING)))
    baseline: Path | None = flags.option("--baseline", "Compare the run with this baseline.", "FILE", type=flags.PATH)
    save_baseline: Path | None = flags.option("--save-baseline", "Write the run as a baseline and compare nothing.", "FILE", type=flags.PATH)
    against: str | None = flags.option("--against", "Judge the conclusions of this paper by all RUNS together.", type=click.Choice(papers()))
    in_blocks: bool = flags.IN_BLOCKS
    every: bool = flags.switch("--all", flags.ALL_CELLS + "differ.")
    style: str = STYLE
    # fmt: on

    @property
    def unused(self) -> str:
        """The flags of a comparison that were typed, where none takes place."""
        compares = ("by", "between", "given", "ignored", "fail_on", "baseline")
        spelled = (
            ("ignore" if name == "ignored" else name).replace("_", "-") for name in compares if getattr(self, name)
        )
        return ", ".join(f"--{flag}" for flag in spelled)


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
        shortages = tuple(shortage_text(lack) for run in runs for lack in run.shortages)
        return cls(pairs, in_blocks, missing, flaws, shortages)


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
    if len(runs) == 1 and options.baseline is None:
        pairing = _within_run(_given(read(runs[0]), options.given), options)
    elif options.between:
        raise RequestError("--between chooses sides of one run; here two are compared.")
    else:
        base, other = (_given(side, options.given) for side in _two_sides(options))
        pairing = _between_runs(base, other, options)
    with waiting_for(f"comparing {counted(len(pairing.pairs), 'cell')}"):
        comparisons = compare(pairing.pairs, margin, pairing.in_blocks)
    doubts = (*pairing.shortages, *pairing.flaws)
    result = document(comparisons, margin, doubts) | {"answer": sentence(comparisons, margin)}
    result["notes"] = [*pairing.shortages, *result["notes"]]
    if style in COMPLETE:
        shown = tables(comparisons, narrow=style == "latex")
    else:
        shown = [*verdict_tables(comparisons, margin, options.every), *(tables(comparisons) if options.every else ())]
    if shown:  # first of all, what is missing
        shown = [replace(shown[0], notes=(*pairing.shortages, *shown[0].notes)), *shown[1:]]
    print_tables(shown, result, style)
    fail_on = options.fail_on
    reasons = [] if fail_on is None else failures(comparisons, fail_on, pairing.missing, doubts)
    if reasons:
        compared = f"{counted(len(comparisons), 'cell')} compared"
        click.echo(f"collbench: --fail-on {fail_on}: {', '.join(reasons)}; {compared}.", err=True)
    return 1 if reasons else 0


def _given(observed: Observed, texts: tuple[str, ...]) -> Observed:
    """The run without cells that have other values of factors."""
    return fixed_cells(observed, parse_fixed(texts, own_axes(observed.cells))) if texts else observed


def _known(ignored: frozenset[str], *runs: Observed) -> frozenset[str]:
    """The names, if each of them is that of an axis, a fact or a way of measuring."""
    known = {
        *axes_by_name(*runs),
        *METHODS,
        "transport",
        *(name for run in runs for name in facts_of(run, run.cells)),
    }
    for name in sorted(ignored - known):
        raise RequestError(f"--ignore {name!r}: unknown. {suggestion(name, sorted(known))}")
    return ignored


def _within_run(observed: Observed, options: _CompareOptions) -> Pairing:
    by, between = options.by, options.between
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
    pairs = within(observed, factor, _known(names(options.ignored), observed), sides)
    alone = without_partner(observed, factor, pairs)
    _left_out(alone, "without a partner to compare with")
    return Pairing.of(pairs, observed.interleaved or options.in_blocks, alone, observed)


def _two_sides(options: _CompareOptions) -> tuple[Observed, Observed]:
    runs, baseline = options.runs, options.baseline
    if len(runs) != 2 - (baseline is not None):
        raise RequestError(f"compare: {len(runs)} runs{' and a baseline' if baseline else ''}. It takes two sides.")
    if baseline and options.in_blocks:
        raise RequestError("--in-blocks: a baseline was measured at another time; only runs can alternate.")
    if not baseline and runs[0].resolve() == runs[1].resolve():
        raise RequestError(
            f"compare: both sides are {runs[0]}, and a run does not differ from itself. Name two runs, or what the sides "
            f"of one differ in: --by {', '.join(FACTORS)}. For differences by chance: collbench selftest."
        )
    if baseline:
        base, other = load_baseline(baseline), read(runs[0])
        refuse_own_baseline(base, other)
        return base, other
    base, other = read_each(runs)
    return base, other


def _between_runs(base: Observed, other: Observed, options: _CompareOptions) -> Pairing:
    if options.in_blocks:
        refuse_not_alternated(base, other)
    known = sorted({*facts_of(base, base.cells), *facts_of(other, other.cells)})
    factor = find_factor(options.by, known, own_axes([*base.cells, *other.cells])) if options.by else None
    pairs = across(base, other, factor, _known(names(options.ignored), base, other))
    missing, more = len(base.cells) - len(pairs), len(other.cells) - len(pairs)
    _left_out(missing, f"that only {base.name} has")
    _left_out(more, f"that only {other.name} has")
    return Pairing.of(pairs, options.in_blocks, missing, base, other)


def _left_out(number: int, why: str) -> None:
    if number:
        note(f"collbench: left out: {counted(number, 'cell')} {why}.")


def _judge_paper(options: _CompareOptions, reference: str) -> int:
    if options.unused:
        raise RequestError(f"--against judges whole runs by the conclusions of a paper: leave out {options.unused}.")
    observed = read_each(options.runs)
    with waiting_for(f"judging the conclusions of {reference}"):
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
    click.echo(
        f"{path}: a baseline of {counted(kept, 'cell')}. Compare a run with it: collbench compare RUN --baseline {path}"
    )
    return 0


def failures(comparisons: Sequence[Comparison], fail_on: str, missing: int, flaws: Sequence[str]) -> list[str]:
    """Why a check fails, in words; empty where it passes. `missing`: cells of the base that the other side lacks.

    Besides the verdicts asked for, whatever was not measured fails every check: a cell that is missing, failed, was
    skipped, measured differently or unchecked, whose results differ, which has launches that the other side lacks, or
    too few for a verdict; and `flaws`, such as samples files that do not agree with their records. What both sides
    skipped fails no check.
    """
    comparisons = [comparison for comparison in comparisons if not all(map(_skipped, _sides(comparison)))]
    verdicts = Counter[str](comparison.verdict for comparison in comparisons)
    reasons = [f"{verdicts[verdict]} {verdict}" for verdict in FAILING[fail_on] if verdicts[verdict]]
    counts = {what: sum(map(holds, comparisons)) for what, holds in _UNMEASURED.items()}
    counts = {"failed": counts.pop("failed"), "missing": missing, **counts}
    reasons += [f"{number} {what}" for what, number in counts.items() if number]
    return reasons + ([f"what was read is in doubt ({flaws[0]})"] if flaws else [])


def _sides(comparison: Comparison) -> tuple[Cell, Cell]:
    return comparison.pair.base, comparison.pair.other


def _skipped(cell: Cell) -> bool:
    return cell.skipped > 0 and not cell.medians and not cell.failed


def _lacks_launches(comparison: Comparison) -> bool:
    most = max(len(cell.medians) for cell in _sides(comparison))
    used = min(comparison.launches) + comparison.left_out + comparison.contended
    paired = comparison.blocks and not comparison.pair.base.until_decided  # there each pair has launches of its own
    return paired and comparison.verdict != "not comparable" and most > used


#: What makes a cell count as not measured, or as measured differently from the other side.
_UNMEASURED: dict[str, Callable[[Comparison], bool]] = {
    "failed": lambda comparison: any(cell.failed for cell in _sides(comparison)),
    "skipped": lambda comparison: any(cell.skipped for cell in _sides(comparison)),
    "not comparable": lambda comparison: (
        comparison.verdict == "not comparable" and not any(cell.failed for cell in _sides(comparison))
    ),
    "with launches measured differently": lambda comparison: bool(comparison.left_out),
    "with launches that one side lacks": _lacks_launches,
    "with unchecked results": lambda comparison: (
        _sides(comparison)[1].unchecked > 0 and not _sides(comparison)[0].unchecked
    ),
    "with results that differ": lambda comparison: bool(unequal(comparison.pair)),
    "with times that drift": lambda comparison: comparison.why.kind == "drift",
    "with more launches or samples that are far slower on the other side": (  # which no median shows
        lambda comparison: comparison.slow is not None and comparison.slow.on_other
    ),
    "on a shared GPU": lambda comparison: any(cell.shared_gpu for cell in _sides(comparison)),
    "with most samples late": lambda comparison: any(2 * cell.late > cell.samples for cell in _sides(comparison)),
    f"with fewer than {FEWEST} launches a side": lambda comparison: (
        comparison.verdict != "not comparable" and min(comparison.launches) < FEWEST
    ),
}
