"""Escapes characters that control a terminal, break a line or change the direction of text, for untrusted input."""

from __future__ import annotations

#: Change the direction of text, so that it reads as another, or begin lines.
_ORDER = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))

#: Characters that JSON allows unescaped in a text get the escapes of JSON, so that a document stays valid.
_IN_LINES = {code: f"\\x{code:02x}" for code in range(0x20) if chr(code) != "\n"}
_IN_LINES |= {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), *_ORDER)}
#: Bytes of names that are none of the terminal's characters, as Python holds them: shown as the bytes that they are.
_IN_LINES |= {0xDC00 + byte: f"\\x{byte:02x}" for byte in range(0x80, 0x100)}
_IN_A_LINE = _IN_LINES | {ord("\n"): "\\x0a"}


def in_lines(text: str) -> str:
    """The text with these characters escaped; newlines stay."""
    return text.translate(_IN_LINES)


def in_one_line(text: str) -> str:
    """The text with these characters and newlines escaped."""
    return text.translate(_IN_A_LINE)
