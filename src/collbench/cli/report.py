"""`collbench report RUN... -o report.html`: the results of runs as a page, with figures and verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from collbench import workloads
from collbench.analysis.options import parse_given
from collbench.cli.analysing import RUN, given, margin, read_each
from collbench.cli.terminal import amount, harmless, refuse_folder, waiting_for, write, write_bytes
from collbench.errors import RequestError
from collbench.report import tables
from collbench.report.page.contents import chapter, paper_chapter
from collbench.report.page.drawing import Figure, as_file
from collbench.report.page.render import Chapter
from collbench.report.paper import beside, paper
from collbench.schema.case import own_axes

#: What a single figure is written as.
FIGURES = (".svg", ".pdf")

#: By the suffix of the file's name.
FORMATS: dict[str, Callable[[list[tables.Table]], str]] = {
    ".md": tables.markdown, ".csv": tables.csv_text, ".tex": tables.latex, ".txt": tables.terminal,
}  # fmt: skip


@click.command(name="report")
@click.argument("runs", nargs=-1, type=RUN, required=True)
@click.option(
    "-o",
    "--output",
    type=RUN,
    default="report.html",
    show_default=True,
    metavar="FILE",
    help="The file to write; its suffix chooses the format: .html, .md, .csv, .tex, .txt.",
)
@click.option(
    "--against",
    metavar="PAPER",
    default=None,
    help="Put the runs beside the figures of this paper (choi2021, xu2017, ...), with a verdict on each conclusion by all of them.",
)
@click.option(
    "--figure",
    default=None,
    metavar="NAME",
    help="Write this figure alone, as .svg or .pdf: its number or part of its title.",
)
@given
@margin
def command(
    runs: tuple[Path, ...], output: Path, against: str | None, figure: str | None, given: tuple[str, ...], margin: float
) -> None:  # fmt: skip
    """Write a report on RUNS as one HTML file that needs no network; or its tables as Markdown, CSV or LaTeX.

    Several runs have a chapter each and are not compared with each other: that does `collbench compare A B`. Beside a
    paper they are judged together, in a chapter of its own.
    """
    kind = output.suffix.lower()
    if figure is not None and kind not in FIGURES:
        raise RequestError(f"-o {output}: --figure writes one figure. The name must end in {' or '.join(FIGURES)}.")
    if figure is None and kind in FIGURES:
        raise RequestError(f"-o {output}: name the figure by --figure: its number, or part of its title.")
    if kind not in (".html", ".htm", *FORMATS, *FIGURES):
        raise RequestError(f"-o {output}: unknown format. The name must end in .html, {', '.join(FORMATS)}.")
    refuse_folder(output)
    published = paper(against) if against else None
    observed = read_each(runs)
    wanted = parse_given(given, own_axes([case for run in observed for case in run.cells]))
    pages = kind not in FORMATS
    suites = {name: suite for suite, names in workloads.suites().items() for name in names}
    with waiting_for(f"writing {output}"):
        chapters = [paper_chapter(published.reference, beside(observed, published, margin))] if published else []
        chapters += [chapter(run, wanted, margin, number, pages, suites) for number, run in enumerate(observed)]
        if figure is not None:
            write_bytes(output, as_file(_figure(chapters, figure), kind[1:]))
        else:
            write(output, harmless(_html(chapters) if pages else FORMATS[kind](_tables(chapters))))
    click.echo(f"{harmless(str(output))}: {amount(output.stat().st_size)}")


def _figure(chapters: Sequence[Chapter], name: str) -> Figure:
    """The figure of this number, or the only one with these words in its title.

    Raises:
        RequestError: there is none, or more than one.
    """
    figures: list[Figure] = []
    for run in chapters:
        figures += run.picture
        for section in run.sections:
            figures += (*section.figures, *section.folded)
    numbered = dict(enumerate(figures, 1))
    chosen = [
        figure for number, figure in numbered.items() if name == str(number) or name.lower() in figure.title.lower()
    ]
    if name.isdecimal() and int(name) in numbered:
        chosen = [numbered[int(name)]]
    if len(chosen) == 1:
        return chosen[0]
    wrong = (
        f"{len(chosen)} figures have these words in their titles" if chosen else "no figure has this number or title"
    )
    listed = "".join(f"\n  {number}  {figure.title}" for number, figure in numbered.items())
    raise RequestError(f"--figure {name!r}: {wrong}. {'There are:' + listed if listed else 'There is none.'}")


def _html(chapters: list[Chapter]) -> str:
    from collbench.report.page.render import html

    return html(chapters)


def _tables(chapters: list[Chapter]) -> list[tables.Table]:
    listed = []
    for run in chapters:
        lines = (("answer", line) for line in run.answer)
        warnings = (("what could mislead", line) for line in run.misleading)
        listed.append(tables.Table(run.question, ("what", "line"), (*lines, *warnings)))
        for section in run.sections:
            listed += [*section.tables, *section.folded_tables]
        listed += run.environment
    return listed
