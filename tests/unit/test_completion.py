"""Shell completion: the script, and what it is answered."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.processes import LIMIT


def asked(*arguments: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "collbench", *arguments],
        env=os.environ | env, capture_output=True, text=True, timeout=LIMIT, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_calls_back_collbench(shell: str) -> None:
    script = asked("completion", shell)
    assert f"_COLLBENCH_COMPLETE={shell}_complete" in script


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("collbench all", {"allgather", "allreduce", "alltoall"}),
        ("collbench do", {"doctor"}),
        ("collbench bcast --thr", {"--thread-level"}),
        ("collbench show --style n", {"nccl-tests"}),
        ("collbench launch la", {"ladder"}),
        ("collbench plan mine", {"mine"}),
    ],
)
def test_tab_completes_commands_flags_and_choices(words: str, expected: set[str]) -> None:
    position = str(len(words.split()) - 1)
    answer = asked(_COLLBENCH_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=position)
    assert {line.partition(",")[2] for line in answer.splitlines()} == expected
