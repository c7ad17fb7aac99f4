"""Without a compiler installation succeeds, and the python driver says why it stands in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.processes import LIMIT

ROOT = Path(__file__).parents[2]
#: As if the native loop had never been built.
UNBUILT = "import sys; sys.modules['collbench.timing._loop'] = None; from collbench.cli import main; main()"


def build(tmp_path: Path, compiler: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--build-temp", tmp_path / "temp", "--build-lib", tmp_path / "lib"],
        cwd=ROOT, env=os.environ | {"CC": compiler}, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(("compiler", "built"), [("cc", 1), ("false", 0), ("/no/such/compiler", 0)])
def test_what_is_in_c_is_built_where_it_can_be_and_only_there(tmp_path: Path, compiler: str, built: int) -> None:
    done = build(tmp_path, compiler)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "lib").rglob("_loop.abi3.so"))) == built
    assert len(list((tmp_path / "lib").rglob("_stream.abi3.so"))) == built


def test_without_the_loop_python_measures_and_the_record_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNBUILT, "allreduce", "-e", "8", "-n", "5", "--style", "json", "--backend", "fake"],
        capture_output=True, text=True, timeout=LIMIT, check=True,
    )  # fmt: skip
    (record,) = json.loads(done.stdout)["records"]
    assert record["case"]["how"]["driver"] == "native"
    assert record["driver"] == "python"
    assert record["notes"] == ["driver python: no native loop was built (no C compiler or no Python.h at installation)"]
