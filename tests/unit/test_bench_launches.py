"""Programs that bench/ starts: ended in time with all they started, also when the bench program is told to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.unit.bench_modules import BENCH, bench

#: Starts a process in a session of its own, as launchers do, says its number, and goes on.
PARENT = """
import subprocess, sys, time
child = subprocess.Popen((sys.executable, "-c", "import time; time.sleep(300)"), start_new_session=True,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
open(sys.argv[1], "w").write(str(child.pid))
"""
WAITS, FAILS = "time.sleep(300)", "sys.exit(4)"
#: A bench program with one launch.
MEASURES = """
import sys
from installation import end_on_sigterm, run
end_on_sigterm()
run((sys.executable, "-c", sys.argv[1], sys.argv[2]), 300.0, {})
"""


def alive(number: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def child_in(file: Path) -> int:
    """The number that was written, once it is."""
    until = time.monotonic() + 30
    while not file.exists() or not file.read_text():
        assert time.monotonic() < until
        time.sleep(0.02)
    return int(file.read_text())


@pytest.mark.slow
def test_a_launch_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", PARENT + WAITS, str(tmp_path / "child"))
    with pytest.raises(bench("installation").LaunchFailed, match="more than 4 s"):
        bench("installation").run(argv, 4.0, dict(os.environ))
    assert not alive(child_in(tmp_path / "child"))


def test_a_launch_that_fails_leaves_nothing_and_says_its_code(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", PARENT + FAILS, str(tmp_path / "child"))
    with pytest.raises(bench("installation").LaunchFailed) as failed:
        bench("installation").run(argv, 60.0, dict(os.environ))
    assert failed.value.code == 4
    assert not alive(child_in(tmp_path / "child"))


def test_a_program_that_is_not_there_is_a_failed_launch() -> None:
    with pytest.raises(bench("installation").LaunchFailed, match="/no/such/mpirun cannot be started"):
        bench("installation").run(("/no/such/mpirun",), 60.0, {})


def test_sigterm_ends_a_program_with_what_it_started(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", MEASURES, PARENT + WAITS, str(tmp_path / "child"))
    process = subprocess.Popen(argv, cwd=BENCH)
    try:
        child = child_in(tmp_path / "child")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 128 + signal.SIGTERM
        assert not alive(child)
    finally:
        process.kill()


STARTING = (
    "native_floor", "startup", "million_records", "gpu_peer", "gpu_floor", "gpu_copies", "gpu_programs",
    "gpu_environment", "gpu_session",
)  # fmt: skip


@pytest.mark.parametrize("program", STARTING)
def test_every_program_with_launches_ends_by_sigterm(program: str) -> None:
    assert "    end_on_sigterm()\n" in (BENCH / f"{program}.py").read_text(encoding="utf-8")


def test_a_job_is_found_by_its_mark_and_nobody_else(tmp_path: Path) -> None:
    mark = bench("marks").Mark("BENCH_TEST", tmp_path.name)
    argv = (sys.executable, "-c", PARENT, str(tmp_path / "child"))
    subprocess.run(argv, env=os.environ | mark.environment, check=True, timeout=60)
    child = child_in(tmp_path / "child")
    assert mark.processes() == [child]
    assert bench("marks").Mark("BENCH_TEST", tmp_path.name + "0").end() == []
    assert alive(child)
    assert mark.end() == []
    assert not alive(child)
