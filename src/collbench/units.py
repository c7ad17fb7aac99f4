"""Sizes, times and rates: parse what people type, print what people read.

Sizes are binary, as in nccl-tests (`1K` = 1024 bytes). Bandwidth is decimal: 1 GB/s = 1e9 bytes per second.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from fractions import Fraction

from collbench.errors import UnitError

LARGEST_SIZE = 2**62  # the largest size in bytes; more would not fit a pointer

LONGEST_QUOTE = 40  # characters of a number that a message quotes

_SIZE = re.compile(r"(?P<number>[0-9]{1,40}(?:\.[0-9]{1,40})?)\s*(?P<prefix>[kKmMgGtT]?)(?P<unit>i?[bB])?")
_UNIT = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_DURATION = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>ns|us|ms|s|m|min|h)?")
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_size(text: str | int) -> int:
    """Bytes of `8`, `64K`, `1M`, `1GiB` (all binary).

    Raises UnitError: not a size, negative, not a whole number of bytes, or more than any memory has.
    """
    match = _SIZE.fullmatch(str(text).strip())
    if match is None:
        raise UnitError(f"size {str(text)!r}: not a number of bytes. Write 8, 64K, 1M or 1G (powers of 1024).")
    size = Fraction(match["number"]) * _UNIT[match["prefix"].upper()]
    if size.denominator != 1:
        raise UnitError(f"size {str(text)!r}: not a whole number of bytes.")
    if size > LARGEST_SIZE:
        typed = str(text).strip()
        quoted = typed if len(typed) <= LONGEST_QUOTE else f"{typed[:LONGEST_QUOTE]}..."
        raise UnitError(f"size {quoted!r}: larger than any memory ({format_size(LARGEST_SIZE)}).")
    return size.numerator


def as_typed(text: str | float) -> str:
    """`-1` for -1.0, as it stands in a plan."""
    return text if isinstance(text, str) else f"{text:.15g}"


def format_size(size: int) -> str:
    """`65536` as `64K`: the largest binary unit that divides it, so that `parse_size` gives it back exactly."""
    exact = (f"{size // unit}{prefix}" for prefix, unit in reversed(_UNIT.items()) if size and size % unit == 0)
    return next(exact, "0")


def format_bytes(size: float) -> str:
    """`1610612736` as `1.50 GiB`: rounded, for messages."""
    for prefix, unit in reversed(_UNIT.items()):
        if prefix and size >= unit:
            return f"{size / unit:.2f} {prefix}iB"
    return f"{size:.0f} B"


def parse_duration(text: str | float, what: str = "time") -> float:
    """Seconds of `0.5s`, `200ms`, `2m`; a bare number is seconds. The message says `what` it is.

    Raises UnitError: not a duration.
    """
    match = _DURATION.fullmatch(str(text).strip())
    seconds = -1.0
    if isinstance(text, (int, float)):
        seconds = float(text)
    elif match is not None:
        seconds = float(match["number"]) * SECONDS[match["unit"] or "s"]
    if not 0.0 <= seconds < math.inf:
        raise UnitError(f"{what} {as_typed(text)!r}: not a duration. Write 0.5s, 200ms or 2m.")
    return seconds


def format_long(seconds: float) -> str:
    """`8 min`, `2 h 5 min`: rounded to minutes; below two minutes to seconds."""
    if seconds < 120:
        return f"{round(seconds)} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def format_duration(seconds: float) -> str:
    """`0.00042` as `420 us`, `5400` as `5400 s`: three significant digits or more, in units of at most a second."""
    if not math.isfinite(seconds):
        return str(seconds)
    for unit, scale in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if abs(seconds) < 999.5 * scale:  # larger values round to 1000, and belong to the next unit
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:.3g} s" if abs(seconds) < 999.5 else f"{seconds:.0f} s"


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 cell`, `3 cells`, `2 launches` (with its plural given)."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {plural or f'{noun}s'}"


def format_spans(numbers: Iterable[int]) -> str:
    """`0-3,8` for {0, 1, 2, 3, 8}: the format in which the kernel lists cores."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][-1] + 1:
            spans[-1][1:] = [number]
        else:
            spans.append([number])
    return ",".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)


def parse_spans(text: str) -> frozenset[int]:
    """The inverse of `format_spans`."""
    cores: set[int] = set()
    for span in text.split(","):
        if span.strip():
            first, _, last = span.partition("-")
            cores.update(range(int(first), int(last or first) + 1))
    return frozenset(cores)
