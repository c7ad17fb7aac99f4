"""What stands in for ssh: it leaves a request, and waits until the driver has taken it away."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from collbench.launch import relay


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLLBENCH_RELAY", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["collbench-relay", "c1", "prted", "--daemonize"])
    return tmp_path


def clock(monkeypatch: pytest.MonkeyPatch, naps: list[float], folder: Path, taken_after: int | None) -> None:
    """Time that passes in naps, of which the driver takes the request away after so many."""
    now = [1000.0]

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        now[0] += 25.0
        if len(naps) == taken_after:
            (request,) = folder.iterdir()
            assert request.name == f"{os.getpid()}.request", "the draft has become the request as a whole"
            assert json.loads(request.read_text()) == ["c1", "prted", "--daemonize"]
            request.unlink()

    monkeypatch.setattr(relay, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))


def test_a_request_is_left_and_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    clock(monkeypatch, naps, folder, 2)
    relay.main()
    assert (len(naps), list(folder.iterdir())) == (2, [])
    assert all(0 < seconds < 0.1 for seconds in naps)


def test_a_request_that_nobody_takes_ends_with_who_was_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    clock(monkeypatch, naps, folder, None)
    with pytest.raises(SystemExit) as left:
        relay.main()
    assert left.value.code == "collbench-relay: the driver did not start a daemon on c1 within 60 s"
    assert len(naps) == 3, "after 75 s"


def test_without_a_variable_the_folder_is_where_containers_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLLBENCH_RELAY", raising=False)
    written: list[str] = []

    def refuse(path: Path, text: str, encoding: str) -> None:
        written.append(str(path))
        raise OSError(2, "No such file")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(OSError, match="No such file"):
        relay.main()
    assert written == [f"/collbench/relay/{os.getpid()}.draft"]
