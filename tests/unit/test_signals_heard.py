"""Signals that end an experiment, heard in this process: at safe points, and the second one at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from collbench.errors import Interrupted
from collbench.launch import waiting
from collbench.launch.waiting import Stopping
from collbench.machine.process import SIGNALS

#: The timer is what is tested.
pytestmark = pytest.mark.timeout(method="thread")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Handlers and timer are given back."""
    numbers = (*SIGNALS, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    assert [signal.getsignal(number) for number in numbers] == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize("number", SIGNALS)
def test_one_signal_is_heard_at_the_next_safe_point(number: signal.Signals) -> None:
    found = Stopping()
    with found.listening():
        found.check()
        os.kill(os.getpid(), number)
        assert found.requested
        with pytest.raises(Interrupted, match=r"^interrupted\.$"):
            found.check()
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0), "one alone ends no wait"


def test_what_somebody_told_us_to_ignore_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        found = Stopping()
        with found.listening():
            os.kill(os.getpid(), signal.SIGHUP)
            assert (found.requested, signal.getsignal(signal.SIGHUP)) == (False, signal.SIG_IGN)
            os.kill(os.getpid(), signal.SIGINT)
            assert found.requested, "Ctrl-C is heard whoever ignored it"
    finally:
        signal.signal(signal.SIGHUP, before)
        signal.signal(signal.SIGINT, interrupt)


def test_after_a_second_one_every_wait_ends_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is removed on the way out may wait too; what it says is kept."""
    monkeypatch.setattr(waiting, "MOMENT", 0.05)
    monkeypatch.setattr(waiting, "AGAIN", 0.05)
    found, ended = Stopping(), list[str]()

    def wait() -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGINT):
            os.kill(os.getpid(), number)
        try:
            time.sleep(60)
        finally:
            ended.append("the first wait")
            try:
                time.sleep(60)
            except KeyboardInterrupt as error:
                ended.append("the second wait")
                error.add_note(" Containers may be left.")
                raise

    with pytest.raises(Interrupted) as caught, found.listening():
        wait()
    assert ended == ["the first wait", "the second wait"]
    assert (str(caught.value), caught.value.__notes__) == ("interrupted.", [" Containers may be left."])
    assert isinstance(caught.value.__cause__, KeyboardInterrupt)


def test_what_else_ends_it_is_raised_as_it_is() -> None:
    with pytest.raises(OSError, match="something else"), Stopping().listening():
        raise OSError("something else")


def test_after_the_second_signal_there_is_a_moment() -> None:
    assert 0.1 < waiting.AGAIN < waiting.MOMENT <= 1.0
