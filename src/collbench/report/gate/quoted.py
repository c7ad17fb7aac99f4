"""Text of programs and of users in Markdown: in code spans, in which nothing is a mention, a link or markup."""

from __future__ import annotations

import re

#: Words and numbers with plain punctuation, in which GitHub and GitLab see no reference to anything.
_PLAIN = re.compile(r"(?:[A-Za-z]++(?![0-9])|(?<![\w-])[+-]?[0-9]++(?:\.[0-9]++)?(?!\w)|[ ,;()]|%(?!\w)|: |\.\. )*:?")


def shortened(text: str, longest: int) -> str:
    """The text, cut where it is longer than so many characters."""
    return text if len(text) <= longest else f"{text[: longest - 4].rstrip()} ..."


def quoted(text: str) -> str:
    """In one line; in a code span unless it is plain words and numbers."""
    text = " ".join(text.split())
    if _PLAIN.fullmatch(text):
        return text
    fence = "`" * (1 + _longest_run(text))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def quoted_in_table(text: str) -> str:
    """The same in a cell of a table: cells are told apart before code spans are, by bars without a backslash."""
    return quoted(text.replace("\\|", "\\ |")).replace("|", "\\|")


def block(text: str) -> str:
    """Lines of their own, as they are."""
    fence = "`" * max(3, 1 + _longest_run(text))
    return f"{fence}text\n{text}\n{fence}\n"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
