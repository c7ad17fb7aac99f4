"""What goes to a terminal and came from elsewhere: an image, a world, somebody's run."""

from __future__ import annotations

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) != "\n"}

#: They turn the order of letters round, so that a text reads as another, or begin lines.
_ORDER = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_CONTROL |= {code: f"\\u{code:04x}" for code in _ORDER}


def harmless(text: str) -> str:
    """The text with its control characters, which would steer the terminal, written out; newlines stay."""
    return text.translate(_CONTROL)


def in_one_line(text: str) -> str:
    """The same, and newlines are written out too."""
    return harmless(text).replace("\n", "\\x0a")
