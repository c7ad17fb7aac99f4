"""The wait for a world: ranks that start late are waited for, and one that is silent for too long is ended."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from collbench.errors import LaunchFailed
from collbench.launch.job import GRACE, STARTING, Job, run_job
from collbench.launch.log import Log
from collbench.launch.starters import mpich

TIMEOUT = 0.5
JOB = Job(mpich.STARTER, (), 2, False, ("collbench", "run"), {}, None, TIMEOUT)


@dataclass
class Ends:
    """Still runs at the first look, has ended at the second."""

    looks: int = 0

    @property
    def code(self) -> int | None:
        self.looks += 1
        return None if self.looks == 1 else 3


def code_after(quiet: float, spoke: bool) -> int:
    """What `run_job` returns for a world that was quiet for so many seconds (or never said anything) and then ended."""
    log = Log()
    if spoke:
        log.add(False, "# collbench")
    log.heard = time.monotonic() - quiet
    return run_job(JOB, lambda *_: Ends(), log, lambda: None, lambda: None)


def test_before_its_first_line_a_world_has_time_to_start() -> None:
    assert code_after(TIMEOUT + GRACE + 1, spoke=False) == 3
    with pytest.raises(LaunchFailed, match=r"nothing was heard for 120.5 s: the ranks did not start$"):
        code_after(TIMEOUT + STARTING + 1, spoke=False)


def test_a_world_that_falls_silent_is_ended() -> None:
    assert code_after(0, spoke=True) == 3
    with pytest.raises(LaunchFailed, match=r"nothing was heard for 15.5 s$"):
        code_after(TIMEOUT + GRACE + 1, spoke=True)
