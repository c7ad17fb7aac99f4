"""What a page consists of, and the page as one HTML file: no script, no network, every text from a run escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import accumulate

from collbench import __version__
from collbench.analysis.estimate import needed
from collbench.report.page.drawing import Figure
from collbench.report.tables import Table, joined


@dataclass(frozen=True)
class Section:
    """One operation on all its numbers of ranks, or one kind of table. `fold`: the line above what is folded."""

    title: str
    lines: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    folded: tuple[Figure, ...] = ()
    folded_tables: tuple[Table, ...] = ()
    fold: str = ""


@dataclass(frozen=True)
class Chapter:
    """One run: the question, the answer in a few lines, a picture of it, what could mislead, and the evidence."""

    title: str
    question: str
    answer: tuple[str, ...]
    misleading: tuple[str, ...]
    sections: tuple[Section, ...]
    environment: tuple[Table, ...] = ()
    picture: tuple[Figure, ...] = ()


#: What every number of a report is.
FOOTER = (
    "Times are medians of launch medians; a difference has a verdict only with six launches a side or more. How it is "
    "measured and judged: docs/method.md and docs/statistics.md of collbench."
)

#: Words of an answer that are seen at once; more are folded, and so are caveats beyond so many.
MOST_WORDS, MOST_CAVEATS = 60, 3


def html(chapters: Sequence[Chapter], footer: str = FOOTER) -> str:
    """The page.

    Raises:
        RequestError: Jinja is not installed.
    """
    jinja = needed("jinja2", "Jinja2")
    here = files(__package__)
    environment = jinja.Environment(autoescape=True, undefined=jinja.StrictUndefined, trim_blocks=True,
                                    lstrip_blocks=True)  # fmt: skip
    template = environment.from_string((here / "page.html.j2").read_text(encoding="utf-8"))
    style = (here / "page.css").read_text(encoding="utf-8")
    return str(template.render(chapters=chapters, style=style, version=__version__, joined=joined, footer=footer,
                               seen_at_once=seen_at_once, most_caveats=MOST_CAVEATS))  # fmt: skip


def seen_at_once(lines: Sequence[str]) -> int:
    """How many lines of an answer have at most `MOST_WORDS` together, signs not counted; at least one."""
    words = accumulate(sum(any(map(str.isalnum, word)) for word in line.split()) for line in lines)
    return max(1, sum(number <= MOST_WORDS for number in words))
