"""A real engine with our images, or a reason to skip. What must not skip is named in COLLBENCH_REQUIRE=docker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collbench.errors import CollbenchError
from collbench.launch.engine import Engine

ROOT = Path(__file__).parents[2]
LIMIT = 180.0

Launch = Callable[..., subprocess.Popen[str]]


def skip_or_fail(reason: str) -> None:
    if "docker" in os.environ.get("COLLBENCH_REQUIRE", "").split(","):
        pytest.fail(f"COLLBENCH_REQUIRE names docker, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def engine() -> Engine:
    try:
        found = Engine()
        for name in ("openmpi", "mpich"):
            found.image(f"collbench/{name}")
    except CollbenchError as error:
        skip_or_fail(str(error))
        raise AssertionError from error
    return found


@pytest.fixture
def clean(engine: Engine) -> Iterator[Engine]:
    """Nothing of ours may be left behind by a test."""
    before = {found["Id"] for found in (*engine.labelled(), *engine.networks())}
    yield engine
    left = [found for found in (*engine.labelled(), *engine.networks()) if found["Id"] not in before]
    assert left == []


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """`launch(toml, *arguments)`: collbench launch of a plan, from the root of the source tree."""

    def start(plan: str, *arguments: str) -> subprocess.Popen[str]:
        path = tmp_path / "plan.toml"
        path.write_text(plan, encoding="utf-8")
        return subprocess.Popen(
            [sys.executable, "-m", "collbench", "launch", str(path), "--out", str(tmp_path / "run"), *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip

    return start


def ended(process: subprocess.Popen[str], limit: float = LIMIT) -> tuple[int, str, str]:
    """Exit code, standard output and error of a launch, which must end within the limit."""
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"did not end within {limit} s:\n{out}\n{err}")
    return process.returncode, out, err
