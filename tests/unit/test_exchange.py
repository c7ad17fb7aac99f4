"""Messages by which two ranks compare their clocks: in C and in Python, asked and answered."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.unit.c_functions import Library

from collbench.errors import LibraryError
from collbench.run.host_clocks import answer, ask
from collbench.timing.call import Messages
from collbench.timing.clocks import Offset
from collbench.timing.loop import native_loop

HOUR = 3_600 * 10**9
loop: Any = native_loop()
in_c = pytest.mark.skipif(loop is None, reason="no native loop was built here (no C compiler at installation)")


class Peer:
    """The other rank, an hour ahead: it takes every question, and answers with its clock."""

    def __init__(self) -> None:
        self.cell, self.events = np.zeros(1, np.int64), list[tuple[str, int]]()
        self.sent: list[int] = []

    def send(self, rank: int) -> int:
        self.events.append(("send", rank))
        self.sent.append(int(self.cell[0]))
        return 0

    def receive(self, rank: int) -> int:
        self.events.append(("receive", rank))
        self.cell[0] = time.monotonic_ns() + HOUR
        return 0

    def messages(self, native: bool) -> Messages:
        plain = Messages(self.cell, self.send, self.receive)
        if not native:
            return plain
        library = Library()
        send, receive = library.function(self.send, 1), library.function(self.receive, 1)
        return replace(
            plain,
            send=lambda rank: pytest.fail("called from Python"),
            receive=lambda rank: pytest.fail("called from Python"),
            native_send=lambda rank: (send, rank),
            native_receive=lambda rank: (receive, rank),
            keep=library,
        )


@pytest.mark.parametrize("native", [False, pytest.param(True, marks=in_c)])
def test_who_asks_sends_first_and_finds_its_clock_behind(native: bool) -> None:
    peer = Peer()
    found = ask(peer.messages(native), 7, time.monotonic_ns, 4)
    assert peer.events == [("send", 7), ("receive", 7)] * 4
    assert abs(found.offset + HOUR) <= found.half < HOUR
    assert 0 <= time.monotonic_ns() - found.at < HOUR


@pytest.mark.parametrize("native", [False, pytest.param(True, marks=in_c)])
def test_who_answers_waits_first_and_sends_its_clock(native: bool) -> None:
    peer, before = Peer(), time.monotonic_ns()
    answer(peer.messages(native), 7, time.monotonic_ns, 4)
    assert peer.events == [("receive", 7), ("send", 7)] * 4
    stamps = [before, *peer.sent, time.monotonic_ns()]
    assert stamps == sorted(stamps)


@in_c
def test_another_clock_than_the_machines_is_read_in_python() -> None:
    peer, reads = Peer(), iter(range(0, 800, 100))
    plain = peer.messages(native=False)
    library = Library()
    words = (library.named("C"),)
    messages = replace(plain, native_send=lambda rank: words[0], native_receive=lambda rank: words[0])
    found = ask(messages, 1, lambda: next(reads), 4)
    assert isinstance(found, Offset) and found.at == 700
    assert library.order == []


@in_c
def test_an_error_of_the_library_says_at_which_message() -> None:
    library = Library()
    send, receive = library.named("send"), library.named("receive", fails_at=2, code=17)
    messages = Messages(
        np.zeros(1, np.int64), int, int, lambda rank: send, lambda rank: receive, explain=lambda code: f"E{code}"
    )
    with pytest.raises(LibraryError, match=r"the library returned an error \(E17\) in message 3 of 9 to rank 4"):
        ask(messages, 4, time.monotonic_ns, 9)
    assert library.order == ["send", "receive"] * 3
    library.order.clear()
    with pytest.raises(LibraryError, match="error 17 in message 1 of 9 to rank 4"):
        answer(replace(messages, native_receive=lambda rank: library.named("bad", 0), explain=None), 4,
               time.monotonic_ns, 9)  # fmt: skip


@in_c
@pytest.mark.parametrize("missing", ["send", "receive", "cell", "before", "after", "long"])
def test_what_is_no_exchange_is_refused(missing: str) -> None:
    call, three = Library().named("C"), np.zeros(3, np.int64)
    given: dict[str, Any] = {"send": call, "receive": call, "cell": np.zeros(1, np.int64), "n": 3,
                             "before": three, "theirs": three.copy(), "after": three.copy()}  # fmt: skip
    given |= {"after": np.zeros(4, np.int64)} if missing == "long" else {missing: None}
    with pytest.raises((ValueError, TypeError)):
        loop.exchange(*given.values())
