"""What comes in pieces is handed on in lines."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.processes import wait_for

from collbench.launch.engines.docker.client import Execution, ExitWatch, lines
from collbench.launch.waiting import LONGEST_LINE, Lines


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


def test_a_line_without_an_end_is_cut_and_costs_no_more_than_its_length() -> None:
    """Else a program that prints for ever fills memory, and every piece is looked through again."""
    endless = [(b"x" * 1000, None)] * 5000
    assert list(lines(iter(endless))) == [(False, "x" * LONGEST_LINE)]
    assert list(lines(iter([*endless, (b"y\nnext\n", None)]))) == [(False, "x" * LONGEST_LINE), (False, "next")]
    short = Lines(10)
    assert [short.of(b"0123456789abc"), short.of(b"d\nab"), short.last(), short.last()] == [
        [],
        ["0123456789"],
        ["ab"],
        [],
    ]


# Deaths --------------------------------------------------------------------------------------------------------------


class Events:
    """What an engine tells, one by one as the test lets it; then an error, or the end."""

    def __init__(self, *told: Any) -> None:
        self.told, self.closed = queue.Queue[Any](), 0
        for one in told:
            self.told.put(one)

    def __iter__(self) -> Iterator[Any]:
        while (one := self.told.get(timeout=60)) is not None:
            if isinstance(one, Exception):
                raise one
            yield one

    def close(self) -> None:
        self.closed += 1
        raise OSError("it may fail")


def death(name: str | None, number: str = "0123456789abcdef") -> dict[str, Any]:
    return {"Actor": {"ID": number, "Attributes": {} if name is None else {"name": name}}}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ((death("c1"), death("c0"), None), "container c1 died"),
        ((death(None), None), "container 0123456789ab died"),
        ((OSError("away"),), "the engine is gone (OSError)"),
        ((death("c1"), OSError("away")), "container c1 died"),
        ((None,), "the engine is gone"),
        (({},), "the engine is gone (KeyError)"),
    ],
)
def test_the_first_that_is_gone_is_named(told: tuple[Any, ...], said: str) -> None:
    watch = ExitWatch(Events(*told))
    assert wait_for(watch) == said


@pytest.mark.parametrize("last", [death("c1"), OSError("away"), None])
def test_once_it_is_stopped_an_end_is_no_news(last: Any) -> None:
    """Containers die because they are removed; whatever comes then ends the thread that listens."""
    before = set(threading.enumerate())
    events = Events()
    watch = ExitWatch(events)
    (listening,) = set(threading.enumerate()) - before
    assert listening.daemon
    watch.stop()
    watch.stop()
    assert (watch(), events.closed) == (None, 1)
    events.told.put(last)
    listening.join(60)
    assert (listening.is_alive(), watch()) == (False, None)
    assert (Execution("c0", 3).how, Execution("c0").code) == ("ended with exit code 3", None)


def test_the_process_of_a_command_is_asked_for_until_it_is_known() -> None:
    answers = iter((0, 0, 7))
    known, elsewhere = Execution("c0", locate=lambda: next(answers)), Execution("c0", locate=iter((None,)).__next__)
    assert [known.pid for _ in range(4)] == [None, None, 7, 7]
    assert [elsewhere.pid for _ in range(2)] == [None, None]
    assert Execution("c0").pid is None
