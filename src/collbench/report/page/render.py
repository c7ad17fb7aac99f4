"""Chapters as one HTML file: no script, no network, every text from a run escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files

from collbench import __version__
from collbench.analysis.estimate import needed
from collbench.report.page.contents import Chapter
from collbench.report.tables import joined

#: What every number of a report is.
FOOTER = (
    "Times are medians of launch medians; a difference has a verdict only with six launches a side or more. How it is "
    "measured and judged: docs/method.md and docs/statistics.md of collbench."
)


def html(chapters: Sequence[Chapter], footer: str = FOOTER) -> str:
    """The page.

    Raises:
        RequestError: Jinja is not installed.
    """
    jinja = needed("jinja2", "Jinja2")
    here = files(__package__)
    strict = jinja.StrictUndefined
    environment = jinja.Environment(autoescape=True, undefined=strict, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((here / "page.html.j2").read_text(encoding="utf-8"))
    style = (here / "page.css").read_text(encoding="utf-8")
    page: str = template.render(chapters=chapters, style=style, version=__version__, joined=joined, footer=footer,
                                first_sentence=first_sentence)  # fmt: skip
    return page


def first_sentence(line: str) -> tuple[str, str]:
    """The first sentence of an answer and the others, which there may be none of; ` .. ` in an interval ends none."""
    first, *rest = re.split(r"(?<![. ]\.)(?<=\.) ", line, maxsplit=1)
    return first, "".join(rest)
