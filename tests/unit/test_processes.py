"""What a test leaves running is found, ended and named, whatever started it and whoever is its parent now."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from tests import processes


def test_a_process_whose_parent_is_gone_is_ended_and_named() -> None:
    before = processes.running()
    subprocess.run(("sh", "-c", "setsid sleep 3600 & :"), check=True)
    while list(processes.started_since(before).values()) != ["sleep 3600"]:
        time.sleep(0.01)
    assert processes.end_what_is_left(before, limit=0) == ["sleep 3600"]
    assert processes.end_what_is_left(before) == []


def test_what_ends_by_itself_is_waited_for() -> None:
    before = processes.running()
    with subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE) as process:
        while list(processes.started_since(before)) != [process.pid]:  # its mark can be read a moment after its start
            time.sleep(0.01)
        process.communicate(b"\n", timeout=processes.LIMIT)
        assert processes.end_what_is_left(before) == []


def test_what_is_not_ours_is_left_alone() -> None:
    before = processes.running()
    with subprocess.Popen(("sleep", "3600"), env=processes.unmarked()) as process:
        assert processes.end_what_is_left(before, limit=0) == []
        assert process.poll() is None
        process.kill()


def test_what_is_started_hears_ctrl_c() -> None:
    """Though the tests themselves may have been started by a script in the background, which ignores it."""
    with subprocess.Popen(("sleep", "3600")) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(processes.LIMIT) == -signal.SIGINT
