"""Ctrl-C and SIGTERM: the first is heard at a safe point, the second ends every wait."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.made_engine import made_engine, raw_engine

pytest.importorskip("docker", reason="the Docker SDK for Python is not installed")

PLAN = """
collectives = ["allreduce"]
sizes = ["8"]
images = ["mpich"]
policies = ["single"]
launches = 1
oversubscribe = true
"""

#: Far below the minute that an answer of an engine may take, far above what a busy machine needs (s).
LIMIT = 30.0


@pytest.fixture
def launched(tmp_path: Path) -> Callable[[str], subprocess.Popen[str]]:
    def start(host: str) -> subprocess.Popen[str]:
        plan = tmp_path / "plan.toml"
        plan.write_text(PLAN)
        argv = (sys.executable, "-m", "collbench", "launch", str(plan), "--out", str(tmp_path / "run"), "--docker-host")
        return subprocess.Popen([*argv, host], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


def silence(asked: threading.Event) -> Callable[[Any], None]:
    def talk(connection: Any) -> None:
        while connection.recv(4096):
            asked.set()

    return talk


@pytest.mark.slow
def test_a_stop_ends_the_wait_for_an_engine_that_never_answers(
    tmp_path: Path, launched: Callable[[str], subprocess.Popen[str]]
) -> None:
    asked = threading.Event()
    with raw_engine(tmp_path, silence(asked)) as made, launched(made.host) as process:
        assert asked.wait(LIMIT)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (130, "collbench: interrupted.\n")


@pytest.mark.slow
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stalls_at", ["/images/", "/containers/create", "/containers/1/start", "/containers/1/json"])
def test_a_second_signal_ends_a_wait_in_which_something_is_made(
    tmp_path: Path, launched: Callable[[str], subprocess.Popen[str]], second: signal.Signals, stalls_at: str
) -> None:
    """An engine that stalls, and does not answer what is asked to clean up either."""
    stalled, over = threading.Event(), threading.Event()

    def answer(method: str, path: str) -> tuple[int, Any] | None:
        if stalled.is_set() or path.startswith(stalls_at):
            stalled.set()
            over.wait(4 * LIMIT)
        if path.startswith("/images/"):
            return 200, {"Id": "sha256:1"}
        return (201, {"Id": "1"}) if path.startswith("/containers/create") else None

    with made_engine(tmp_path, answer) as made, launched(made.host) as process:
        assert stalled.wait(LIMIT)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)  # or the system would make one of two that are alike
        process.send_signal(second)
        _, err = process.communicate(timeout=LIMIT)
        over.set()
    assert (process.returncode, err.splitlines()[1:]) == (130, [])
    assert err.startswith("collbench: interrupted. Containers may be left; collbench launch --sweep removes them.")
