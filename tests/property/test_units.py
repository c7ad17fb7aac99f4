from __future__ import annotations

import contextlib
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.errors import UnitError
from collbench.units import LARGEST_SIZE, format_duration, format_size, parse_duration, parse_size

PREFIXES = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


@given(st.integers(0, LARGEST_SIZE))
def test_a_printed_size_is_read_exactly(size: int) -> None:
    assert parse_size(format_size(size)) == parse_size(size) == size


@given(st.integers(0, 2**20), st.sampled_from("KMGT"))
def test_whole_units_are_printed_short(number: int, prefix: str) -> None:
    size = number * 1024 ** PREFIXES[prefix]
    assert parse_size(format_size(size)) == size
    assert len(format_size(size)) <= len(f"{number}{prefix}")


@given(
    st.integers(0, 10**6),
    st.text("0123456789", min_size=1, max_size=12),
    st.sampled_from(list(PREFIXES)),
    st.sampled_from(["", "B", "b", "iB"]),
    st.booleans(),
)
def test_fractions_are_exact_or_refused(whole: int, digits: str, prefix: str, unit: str, small: bool) -> None:
    text = f"{whole}.{digits}{prefix.lower() if small else prefix}{unit}"
    expected = Fraction(f"{whole}.{digits}") * 1024 ** PREFIXES[prefix]
    if expected.denominator == 1:
        assert parse_size(text) == expected
    else:
        with pytest.raises(UnitError, match="not a whole number"):
            parse_size(text)


@pytest.mark.slow
@given(st.text(max_size=30))
def test_any_text_is_a_size_or_a_unit_error(text: str) -> None:
    with contextlib.suppress(UnitError):
        assert 0 <= parse_size(text) <= LARGEST_SIZE


@given(st.text(max_size=30) | st.floats())
def test_anything_is_a_duration_or_a_unit_error(text: str | float) -> None:
    with contextlib.suppress(UnitError):
        assert 0.0 <= parse_duration(text) < math.inf


@given(st.floats(1e-9, 1e12))
def test_a_printed_duration_is_read_to_three_digits(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=5.1e-3)


@given(st.floats(0.0, 1e15))
def test_a_duration_given_as_a_number_is_itself(seconds: float) -> None:
    assert parse_duration(seconds) == seconds
