from __future__ import annotations

import pytest

from collbench.errors import UnitError
from collbench.units import (
    LARGEST_SIZE,
    format_bytes,
    format_duration,
    format_long,
    format_size,
    parse_duration,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("8", 8),
        (8, 8),
        (" 64K ", 65536),
        ("64k", 65536),
        ("1M", 1 << 20),
        ("1MB", 1 << 20),
        ("1MiB", 1 << 20),
        ("1 GiB", 1 << 30),
        ("2T", 1 << 41),
        ("1.5K", 1536),
        ("0.5M", 1 << 19),
        ("9007199254740993", 2**53 + 1),
        ("4194304T", LARGEST_SIZE),
    ],
)
def test_sizes_are_binary(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "K", "-1", "1e3", "8Q", "1 2", "1.5", "0.3K", "nan", "٣", "1K2", "9" * 5000, "4194305T", -8, None]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UnitError, match="size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0"), (1000, "1000"), (1024, "1K"), (1536, "1536"), (3 << 20, "3M"), (1 << 50, "1024T")]
)
def test_sizes_print_exactly(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (3 << 29, "1.50 GiB"), (1 << 52, "4096.00 TiB")],
)
def test_bytes_print_rounded(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0.5s", 0.5), ("200ms", 0.2), ("2m", 120.0), ("2 min", 120.0), ("1h", 3600.0), ("3", 3.0), ("7us", 7e-6),
        ("5ns", 5e-9), (2, 2.0), (0.25, 0.25), (1e-5, 1e-5), (1e20, 1e20),
    ],
)  # fmt: skip
def test_durations(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds, rel=1e-15)


@pytest.mark.parametrize("text", ["", "s", "-1s", "1 week", "1e3s", "inf", "9" * 400, float("inf"), float("nan"), -2.0])
def test_what_is_no_duration_is_refused(text: str | float) -> None:
    with pytest.raises(UnitError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ns"),
        (4.2e-7, "420 ns"),
        (0.00042, "420 us"),
        (0.25, "250 ms"),
        (0.9996, "1 s"),
        (9.996e-7, "1 us"),
        (2.0, "2 s"),
        (300.0, "300 s"),
        (5400.0, "5400 s"),
        (float("inf"), "inf"),
    ],
)
def test_durations_print_in_the_unit_a_person_would_pick(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (119.4, "119 s"), (120, "2 min"), (3570, "1 h 0 min"), (7501, "2 h 5 min")]
)
def test_how_long_a_person_waits(seconds: float, text: str) -> None:
    assert format_long(seconds) == text
