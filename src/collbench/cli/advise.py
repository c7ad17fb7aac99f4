"""`collbench advise RUN...`: what to take for each operation, what other options cost, and what is undecided."""

from __future__ import annotations

from pathlib import Path

import click

from collbench.analysis.advise import advise
from collbench.analysis.guidelines import check
from collbench.analysis.options import differing, given_cells, merged, parse_given, questions
from collbench.analysis.own_sides import planned
from collbench.analysis.pairs import refuse_not_alternated
from collbench.cli.analysing import COMPLETE, RUN, given, in_blocks, margin, names, read_each, say, style
from collbench.cli.terminal import waiting_for
from collbench.report.advice import brief, cautions, complete, document, evidence, with_answers
from collbench.schema.case import own_axes


@click.command(name="advise")
@click.argument("runs", nargs=-1, type=RUN, required=True)
@given
@margin
@click.option(
    "--ignore",
    "ignored",
    default=None,
    multiple=True,
    metavar="FACTOR",
    help="Take several runs together although this differs. Can be repeated.",
)
@in_blocks
@click.option("--why", is_flag=True, default=False, help="Also the evidence: what every choice costs at every size.")
@style
def command(
    runs: tuple[Path, ...],
    given: tuple[str, ...],
    margin: float,
    ignored: tuple[str, ...],
    in_blocks: bool,
    why: bool,
    style: str,
) -> None:
    """For each operation, range of sizes and number of ranks: what to take, and what other choices cost.

    Several runs of one machine are taken together: the libraries in which they differ are choices.
    """
    each = read_each(runs)
    for other in each[1:] if in_blocks else ():
        refuse_not_alternated(each[0], other)
    with waiting_for("comparing options"):
        observed = merged(each, names(ignored), in_blocks)
        wanted = parse_given(given, own_axes(observed.cells))
        asked = questions(observed, wanted)
        sides = planned(given_cells(observed, wanted), margin)
        advices = complete(advise(asked, observed.interleaved, margin), observed.interleaved)
        guidelines = check(observed, margin)
        misleading = cautions(advices, observed, sides, differing(each))
    entries = document(advices, guidelines, misleading)
    whole = why or style in COMPLETE
    answers = brief(advices, misleading, sides, whole)
    tables = evidence(advices, guidelines)
    say(with_answers(tables, answers) if style in COMPLETE else [*answers, *(tables if why else ())], entries, style)
