"""The pages of the manual, and their tables, as tests read them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

#: By name, and those of docs/ by their path in it; what is only for the site has no text of its own.
PAGES = {
    path.name: path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md")
} | {
    str(path.relative_to(DOCS)): path.read_text(encoding="utf-8")
    for path in sorted((*DOCS.glob("*.md"), *DOCS.glob("tutorials/*.md")))
    if path.name != "index.md"
}


def section(page: str, title: str) -> str:
    """The text under a heading, up to the next heading of its level or above; headings in code do not count."""
    text = re.sub(r"```.*?```", lambda code: re.sub("^#", " #", code[0], flags=re.MULTILINE), PAGES[page], flags=re.S)
    match = re.search(rf"^(#+) {re.escape(title)}\n(.*)", text, re.MULTILINE | re.DOTALL)
    assert match is not None, f"{page} has no section {title!r}"
    return re.split(rf"^#{{1,{len(match[1])}}} ", match[2], maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str, *head: str) -> dict[str, list[str]]:
    """First cell of every row, and the others, of all tables with this head."""
    found: dict[str, list[str]] = {}
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        lines = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()]
        if tuple(lines[0]) == head:
            found |= {line[0]: line[1:] for line in lines[2:]}
    assert found, head
    return found
