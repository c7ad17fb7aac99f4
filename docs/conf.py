"""The documentation site, and the man page: `make site`. The pages are those that readers of the repository see."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent

project = "collbench"
extensions = ["myst_parser", "sphinx_copybutton"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "collbench"
html_theme_options = {
    "source_repository": "https://github.com/collbench/collbench/",
    "source_branch": "main",
    "source_directory": "docs/",
}
html_extra_path = ["../src/collbench/schema/json"]  # the JSON Schemas, where plans name them
man_pages = [("commands", "collbench", "measure how jobs communicate", "The collbench developers", 1)]
myst_heading_anchors = 4
highlight_language = "text"
copybutton_prompt_text = "$ "
nitpicky = True

_REPOSITORY = "https://github.com/collbench/collbench/blob/main"

#: A line of the gallery that makes a figure.
_FIGURE = re.compile(r"^collbench (report .* -o \S+\.svg)$", re.MULTILINE)


def read(app: Any, page: str, source: list[str]) -> None:
    """A page, whose links to files outside docs/ lead to the repository."""
    above = "../" * (page.count("/") + 1)
    source[0] = re.sub(rf"\]\({re.escape(above)}(?!docs/)([^)\s]+)\)", rf"]({_REPOSITORY}/\1)", source[0])


def included(app: Any, path: Any, page: str, source: list[str]) -> None:
    """The README, whose links begin in the folder above."""
    source[0] = re.sub(r"\]\((?!docs/|https?:|#)([^)\s]+)\)", rf"]({_REPOSITORY}/\1)", source[0])


def draw(app: Any) -> None:
    """The figures of the gallery, each by the command that the page shows."""
    if app.builder.format != "html":
        return
    (DOCS / "figures").mkdir(exist_ok=True)
    for words in _FIGURE.findall((DOCS / "gallery.md").read_text(encoding="utf-8")):
        *rest, figure = shlex.split(words)
        command = [sys.executable, "-m", "collbench", *rest, str(DOCS / "figures" / figure)]
        subprocess.run(command, cwd=DOCS.parent, timeout=600, check=True)


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", draw)
    app.connect("source-read", read)
    app.connect("include-read", included)
