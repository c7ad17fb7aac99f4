"""Chapters as one HTML file: no script, no network, every text from a run escaped."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from collbench import __version__
from collbench.errors import RequestError
from collbench.report.page.contents import Chapter
from collbench.report.tables import joined


def html(chapters: Sequence[Chapter]) -> str:
    """The page.

    Raises:
        RequestError: Jinja is not installed.
    """
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        wanted = "a report needs Jinja2, which is not installed. Install it: pip install 'collbench[analysis]'"
        raise RequestError(f"{wanted} ({error})") from error
    here = files(__package__)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((here / "page.html.j2").read_text(encoding="utf-8"))
    style = (here / "page.css").read_text(encoding="utf-8")
    return template.render(chapters=chapters, style=style, version=__version__, joined=joined)
