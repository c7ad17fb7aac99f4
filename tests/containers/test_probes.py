"""What is tried before the first launch: images that print without end, a temporary folder that is not the engine's."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from collbench.launch.engines.docker.client import Docker
from collbench.launch.engines.docker.look import ask, find
from tests.containers.conftest import Launch, Started, ended, skip_or_fail
from tests.containers.worlds import LONG, ranks_of
from tests.processes import LIMIT, wait_for

#: Of what a probe prints, no more than this is read (bytes): its log has 1 MiB.
MOST = 2 << 20


@pytest.mark.docker
def test_of_what_an_image_prints_the_end_is_read(engine: Docker) -> None:
    flood = "import sys\nfor _ in range(64): sys.stdout.write(('x' * 1023 + '\\n') * 1024)\nprint('the end')"
    code, said = ask(engine, find(engine, "collbench/mpich"), ("python", "-c", flood))
    assert (code, said.splitlines()[-1]) == (0, "the end")
    assert len(said) < MOST


@pytest.mark.docker
def test_who_asks_an_image_has_a_folder_to_write_to(engine: Docker) -> None:
    """CuPy makes one in the home folder when it is imported; the number that asks belongs to nobody in the image."""
    code, said = ask(engine, find(engine, "collbench/mpich"), ("sh", "-c", "touch $HOME/x && echo $USER"))
    assert (code, said.strip()) == (0, "collbench")


@pytest.mark.docker
def test_the_engine_keeps_no_log_of_a_launch(clean: Started, launch: Launch) -> None:
    process = launch(LONG.format(image="mpich", step="ipc", launches=1))
    wait_for(lambda: ranks_of(clean))
    found = [clean.engine.api.inspect_container(one["Id"])["HostConfig"] for one in clean.containers()]
    process.terminate()
    assert ended(process)[0] == 130
    assert [(one["LogConfig"]["Type"], one["PidsLimit"]) for one in found] == [("none", 4096)] * 3


@pytest.mark.docker
def test_a_temporary_folder_that_the_engine_does_not_see(clean: Started, tmp_path: Path) -> None:
    """A driver in a container, or an engine on another machine: one message before anything is started."""
    own = ("unshare", "--mount", "--propagation", "private")
    if subprocess.run((*own, "true"), capture_output=True, check=False).returncode:
        skip_or_fail("a mount namespace of one's own takes root")
    there = tmp_path / "tmp"
    there.mkdir()
    plan = tmp_path / "plan.toml"
    plan.write_text(LONG.format(image="openmpi", step="strict", launches=3))
    command = shlex.join((sys.executable, "-m", "collbench", "launch", str(plan), "--out", str(tmp_path / "run")))
    done = subprocess.run(
        (*own, "sh", "-c", f"mount -t tmpfs tmpfs {there} && exec {command}"), env={**os.environ, "TMPDIR": str(there)},
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"collbench: temporary folder {there}: containers of the engine at ")
    assert "Engine and driver must share it: set TMPDIR" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(there.iterdir()) == []  # the engine has made nothing of its own there
    assert not (tmp_path / "run").exists()
