"""Text for the terminal that comes from elsewhere: an image, a world, a run."""

from __future__ import annotations

from collbench.characters import in_lines


def harmless(text: str) -> str:
    """The text with control characters, which the terminal would interpret, written out; newlines remain."""
    return in_lines(text)
