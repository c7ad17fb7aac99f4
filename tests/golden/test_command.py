"""What a user sees of one command with the fake backend, whose times are made up and therefore always the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from subprocess import CompletedProcess

Collbench = Callable[..., CompletedProcess[str]]


def masked(text: str) -> str:
    """Without this machine's name and processor, and without the version."""
    return re.sub(r"# collbench \S+: (.*) ranks on .*", r"# collbench VERSION: \1 ranks on HOST", text)


def test_the_table_of_a_short_sweep(collbench: Collbench, golden: Callable[[str, str], None]) -> None:
    done = collbench("allreduce", "--backend", "fake", "-b", 8, "-e", 64, "-n", 20)
    assert (done.returncode, done.stderr) == (0, "")
    golden("command-allreduce.txt", masked(done.stdout))
