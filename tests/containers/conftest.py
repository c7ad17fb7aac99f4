"""A real engine with our images, or a reason to skip. What must not skip is named in COLLBENCH_REQUIRE=docker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collbench.errors import CollbenchError
from collbench.launch.engines.docker import images
from collbench.launch.engines.docker.client import Docker
from collbench.launch.engines.docker.spec import DRIVER_LABEL
from tests.processes import LIMIT

ROOT = Path(__file__).parents[2]

Launch = Callable[..., subprocess.Popen[str]]


def skip_or_fail(reason: str) -> None:
    if "docker" in os.environ.get("COLLBENCH_REQUIRE", "").split(","):
        pytest.fail(f"COLLBENCH_REQUIRE names docker, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def engine() -> Docker:
    try:
        found = Docker()
        for name in ("openmpi", "mpich"):
            images.inspect(found, f"collbench/{name}")
    except CollbenchError as error:
        skip_or_fail(str(error))
        raise AssertionError from error
    return found


class Started:
    """The launches of one test; others may use the same engine meanwhile."""

    def __init__(self, engine: Docker) -> None:
        self.engine = engine
        self.processes: list[int] = []

    def _of_ours(self, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        drivers = [(one.get("Labels") or {}).get(DRIVER_LABEL, "///").split("/")[2] for one in found]
        return [one for one, driver in zip(found, drivers, strict=True) if driver in map(str, self.processes)]

    def containers(self) -> list[dict[str, Any]]:
        """Those of this test's launches."""
        return self._of_ours(self.engine.labelled())

    def networks(self) -> list[dict[str, Any]]:
        """Those of this test's launches."""
        return self._of_ours(self.engine.networks())


@pytest.fixture
def started(engine: Docker) -> Started:
    return Started(engine)


@pytest.fixture
def clean(started: Started) -> Iterator[Started]:
    """Nothing may be left behind by a test's launches."""
    yield started
    assert started.containers() == []
    assert started.networks() == []


@pytest.fixture
def launch(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Launch]:
    """`launch(toml, *arguments)`: collbench launch of a plan, from the root of the source tree."""
    begun: list[subprocess.Popen[str]] = []

    def start(plan: str, *arguments: str) -> subprocess.Popen[str]:
        path = tmp_path / "plan.toml"
        path.write_text(plan, encoding="utf-8")
        where = () if "--resume" in arguments else ("--out", str(tmp_path / "run"))
        process = subprocess.Popen(
            [sys.executable, "-m", "collbench", "launch", str(path), *where, *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip
        begun.append(process)
        if "started" in request.fixturenames:
            request.getfixturevalue("started").processes.append(process.pid)
        return process

    yield start
    for process in begun:  # those of a test that failed
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=LIMIT)


def ended(process: subprocess.Popen[str], limit: float = LIMIT) -> tuple[int, str, str]:
    """Exit code, standard output and error of a launch, which must end within the limit."""
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"did not end within {limit:g} s:\n{out}\n{err}")
    return process.returncode, out, err
