"""What goes to a terminal and came from elsewhere: an image, a world, somebody's run."""

from __future__ import annotations

from collbench.characters import in_lines


def harmless(text: str) -> str:
    """The text with its control characters, which would steer the terminal, written out; newlines stay."""
    return in_lines(text)
