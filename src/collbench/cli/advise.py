"""`collbench advise RUN...`: what to take for each operation, what the rest costs, and how sure that is."""

from __future__ import annotations

from pathlib import Path

import click

from collbench.analysis.advise import advise
from collbench.analysis.guidelines import check
from collbench.analysis.options import FACTORS, merged, parse_given, questions
from collbench.analysis.pairs import refuse_not_in_turns
from collbench.cli.analysing import RUN, in_blocks, margin, names, read, say, style
from collbench.report.advice.document import document
from collbench.report.advice.sentences import complete
from collbench.report.advice.tables import tables
from collbench.report.comparison import NOT_INTERLEAVED


@click.command(name="advise")
@click.argument("runs", nargs=-1, type=RUN, required=True)
@click.option(
    "--given",
    default=None,
    multiple=True,
    metavar="FACTOR=VALUE",
    help=f"What cannot be chosen, such as policy=single. Can be repeated. Factors: {', '.join(FACTORS)}.",
)
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
@style
def command(
    runs: tuple[Path, ...], given: tuple[str, ...], margin: float, ignored: tuple[str, ...], in_blocks: bool, style: str
) -> None:
    """For each operation, range of sizes and number of ranks: what to take, what other choices cost.

    Several runs of one machine advise together: what differs between them in libraries is a choice.
    """
    wanted = parse_given(given)
    found = [read(run) for run in runs]
    if in_blocks:
        for one in found[1:]:
            refuse_not_in_turns(found[0], one)
    observed = merged(found, names(ignored), in_blocks)
    advised = complete(advise(questions(observed, wanted), observed.interleaved, margin), observed.interleaved)
    findings = check(observed, margin)
    cautions = () if observed.interleaved else (NOT_INTERLEAVED,)
    say(tables(advised, findings, cautions), document(advised, findings, cautions), style)
