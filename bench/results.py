"""What a program of this folder leaves behind: a table for people, and beside it every number as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table with columns of equal width; all but the first column are numbers and stand to the right."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines.insert(1, rule)
    return "\n".join("| " + " | ".join(_cells(line, widths)) + " |" for line in lines) + "\n"


def _cells(line: list[str], widths: list[int]) -> list[str]:
    return [line[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True))]


def keep(name: str, text: str, data: dict[str, Any]) -> None:
    """Print the text; write results-NAME.md and results-NAME.json beside this file."""
    print(text)
    write(name, data, lambda: text)


def write(name: str, data: dict[str, Any], page: Callable[[], str]) -> None:
    """The two files without printing, the numbers first, each file whole: the program may be cut off."""
    texts: dict[str, Callable[[], str]] = {"json": lambda: json.dumps(data, indent=1) + "\n", "md": page}
    for suffix, make in texts.items():
        path = HERE / f"results-{name}.{suffix}"
        path.with_suffix(".new").write_text(make(), encoding="utf-8")
        path.with_suffix(".new").replace(path)


def verdict(value: float, target: float) -> str:
    """`met` or `missed`: targets are upper limits."""
    return "met" if value <= target else "missed"
