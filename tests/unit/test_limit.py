"""The native limit ends a process that keeps the interpreter lock; lifted or replaced, it does not."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.processes import LIMIT

#: PyDLL keeps the interpreter lock during the call, as MPI_Init does.
STUCK = "import ctypes; ctypes.PyDLL(None).usleep(ctypes.c_uint({}))"


def run(before: str, microseconds: int) -> subprocess.CompletedProcess[str]:
    program = f"from collbench.timing import _loop; {before}; {STUCK.format(microseconds)}"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT, check=False)


def test_a_process_that_is_stuck_ends_with_the_message_and_the_code() -> None:
    done = run("_loop.set_limit(0.1, 'too late\\n', 3)", 600_000_000)
    assert (done.returncode, done.stderr) == (3, "too late\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "then",
    ["_loop.lift_limit()", "_loop.set_limit(60.0, 'later', 4)", "_loop.set_limit(60.0, '', 4); _loop.lift_limit()"],
)
def test_a_limit_that_is_lifted_or_replaced_does_nothing(then: str) -> None:
    done = run(f"_loop.set_limit(1.0, 'too late', 3); {then}", 1_500_000)
    assert (done.returncode, done.stderr) == (0, "")
