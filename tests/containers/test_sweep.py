"""What a sweep leaves alone: a launch that lives, wherever its driver is and however far it has come."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collbench.launch.engines.docker.client import Docker
from collbench.launch.engines.docker.containers import sweep
from collbench.launch.engines.docker.spec import DRIVER_LABEL
from collbench.launch.folders import namespace
from collbench.schema.store import read_run
from tests.containers.conftest import skip_or_fail
from tests.containers.worlds import LONG
from tests.processes import LIMIT, wait_for

#: A benchmark of files that are in a folder of the host, where no sweep looks by itself.
IN_FILES = """
images = ["tools"]
policies = ["multi"]
storage = ["bind"]
folder = "{folder}"
launches = 1
warmup = 0
iters = 1
timeout = "10m"
benchmarks = [{{ name = "fio", size = "16M", direct = 0, cache = "warm", runtime = 600, ramp = 0 }}]
"""

#: A PID namespace of its own, as a job in a container has it.
ELSEWHERE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


class Ours(Docker):
    """Sees what is driven from other PID namespaces than this test's, and was made since.

    Others may use the same engine, and theirs are not this test's to sweep.
    """

    def __init__(self) -> None:
        super().__init__()
        self.others: frozenset[str] = frozenset()
        self.others = frozenset(one["Id"] for one in (*self.labelled(), *self.networks()))

    def labelled(self, *labels: str) -> list[dict[str, Any]]:
        return self._ours(super().labelled(*labels))

    def networks(self, *labels: str) -> list[dict[str, Any]]:
        return self._ours(super().networks(*labels))

    def _ours(self, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        here = f"/{namespace('pid')}/"
        return [one for one in found if one["Id"] not in self.others and here not in one["Labels"][DRIVER_LABEL]]


@pytest.fixture
def ours(engine: Docker) -> Docker:
    return Ours()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`elsewhere(toml)`: a launch that is driven from another PID namespace, with the temporary folder of this test."""
    if subprocess.run((*ELSEWHERE, "true"), capture_output=True, check=False).returncode:
        skip_or_fail("a PID namespace of one's own takes root")
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    begun: list[subprocess.Popen[str]] = []

    def start(plan: str) -> subprocess.Popen[str]:
        path = tmp_path / "plan.toml"
        path.write_text(plan)
        argv = (*ELSEWHERE, sys.executable, "-m", "collbench", "launch", str(path), "--out", str(tmp_path / "run"))
        begun.append(subprocess.Popen(argv, env={**os.environ, "TMPDIR": str(folder)}, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True))  # fmt: skip
        return begun[0]

    yield start
    for process in begun:
        process.kill()
        process.communicate()


@pytest.mark.docker
@pytest.mark.parametrize("image", ["openmpi", "mpich"])
def test_sweeps_all_along_a_launch_in_another_pid_namespace(
    ours: Docker, elsewhere: Any, tmp_path: Path, image: str
) -> None:
    process = elsewhere(LONG.format(image=image, step="ipc", launches=2).replace('"10s"', '"0.2s"'))
    removed, kept = [], set()
    while process.poll() is None:
        gone, left = sweep(ours)
        removed += gone
        kept.update(left)
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, (out, err)
    assert removed == []
    assert len(kept) > 6  # probes, and of each launch three containers and a network
    assert [record.status for record in read_run(tmp_path / "run").records] == ["ok"] * 12


@pytest.mark.docker
def test_what_a_killed_driver_of_another_pid_namespace_left_is_swept(ours: Docker, elsewhere: Any) -> None:
    process = elsewhere(LONG.format(image="mpich", step="strict", launches=1))
    names = wait_for(lambda: [one["Names"][0].lstrip("/") for one in ours.labelled() if "-c1" in one["Names"][0]])
    assert sweep(ours)[0] == []
    process.kill()  # and with it what it has started
    process.communicate()
    removed, kept = sweep(ours)
    assert set(names) <= set(removed)
    assert kept == []
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


@pytest.mark.docker
def test_the_files_of_a_killed_launch_are_swept_wherever_they_are(ours: Docker, elsewhere: Any, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    process = elsewhere(IN_FILES.format(folder=folder))
    wait_for(lambda: process.poll() is not None or list(folder.glob("collbench-*/files/collbench-files-*/data")))
    assert process.poll() is None, process.communicate()
    assert sweep(ours)[0] == [] and list(folder.iterdir()) != []
    process.kill()
    process.communicate()
    _, kept = sweep(ours)
    assert kept == []
    assert list(folder.iterdir()) == list(Path(tempfile.gettempdir()).iterdir()) == []
