"""What goes to a terminal and came from elsewhere: an image, a world, somebody's run."""

from __future__ import annotations

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) != "\n"}


def harmless(text: str) -> str:
    """The text with its control characters, which would steer the terminal, written out; newlines stay."""
    return text.translate(_CONTROL)
