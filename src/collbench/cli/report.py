"""`collbench report RUN... -o report.html`: what runs say, for people who were not there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import click

from collbench.analysis.options import parse_given
from collbench.cli.analysing import RUN, margin, read
from collbench.cli.terminal import harmless
from collbench.errors import RequestError, RunWriteError
from collbench.report import tables
from collbench.report.page.contents import Chapter, chapter
from collbench.report.paper import PAPERS, paper

#: By the end of the file's name.
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
    help="What to write; its ending says how: .html, .md, .csv, .tex, .txt.",
)
@click.option(
    "--against",
    type=click.Choice(PAPERS),
    default=None,
    help="Put the run beside the figures of this paper, with a verdict on each of its conclusions.",
)
@click.option(
    "--given",
    default=None,
    multiple=True,
    metavar="FACTOR=VALUE",
    help="What cannot be chosen, such as policy=single. Can be repeated.",
)
@margin
def command(runs: tuple[Path, ...], output: Path, against: str | None, given: tuple[str, ...], margin: float) -> None:
    """Write what RUNS say as one HTML file that needs no network; or their tables as Markdown, CSV or LaTeX."""
    kind = output.suffix.lower()
    if kind not in (".html", ".htm", *FORMATS):
        raise RequestError(f"-o {output}: no such format. The name must end in .html, {', '.join(FORMATS)}.")
    wanted = parse_given(given)
    pages = kind not in FORMATS
    published = paper(against) if against else None
    chapters = [chapter(read(run), wanted, margin, number, pages, published) for number, run in enumerate(runs)]
    _write(output, harmless(_html(chapters) if pages else FORMATS[kind](_tables(chapters))))
    click.echo(f"{harmless(str(output))}: {output.stat().st_size / 1e6:.1f} MB")


def _html(chapters: list[Chapter]) -> str:
    from collbench.report.page.render import html

    return html(chapters)


def _tables(chapters: list[Chapter]) -> list[tables.Table]:
    found = []
    for one in chapters:
        lines = (("answer", line) for line in one.answer)
        warnings = (("what could mislead", line) for line in one.misleading)
        found.append(tables.Table(one.question, ("what", "line"), (*lines, *warnings)))
        for section in one.sections:
            found += [*section.tables, *section.folded_tables]
        found += one.environment
    return found


def _write(path: Path, text: str) -> None:
    """Whole or not at all: a page that was there stays until the new one is complete."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_text(text, encoding="utf-8", errors="backslashreplace")
        half.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            half.unlink(missing_ok=True)
        raise RunWriteError(f"-o {path}: {error.strerror}.") from error
