"""What comes in pieces is handed on in lines."""

from __future__ import annotations

import pytest

from collbench.launch.engines.docker.streams import lines


@pytest.mark.parametrize(
    ("pieces", "found"),
    [
        ([], []),
        ([(b"one\ntwo\n", None)], [(False, "one"), (False, "two")]),
        ([(b"o", None), (b"ne\nt", None), (b"wo", b"")], [(False, "one"), (False, "two")]),
        ([(b"o", b"er"), (None, b"ror\n"), (b"ut\n", None)], [(True, "error"), (False, "out")]),
        ([(b"left", b"over")], [(False, "left"), (True, "over")]),
        ([(b"\n\n", None)], [(False, ""), (False, "")]),
        ([(b"\xc3", None), (b"\xa4\n\xff\n", None)], [(False, "ä"), (False, "\N{REPLACEMENT CHARACTER}")]),
    ],
)
def test_lines_of_both_streams_are_put_together(
    pieces: list[tuple[bytes | None, bytes | None]], found: list[tuple[bool, str]]
) -> None:
    assert list(lines(iter(pieces))) == found
