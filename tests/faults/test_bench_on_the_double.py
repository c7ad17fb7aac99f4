"""The GPU programs of bench/ on the device that is made up, beside made-up programs of nccl-tests: what they keep."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.processes import LIMIT
from tests.unit.bench_modules import BENCH, bench

pytestmark = pytest.mark.mpi

ROOT = BENCH.parent
PEER = """
import gpu_peer_page as page
page.ENOUGH.clear()
page.ENOUGH.update({8: 5, 1 << 16: page.FEW})
import gpu_peer
gpu_peer.main()
"""
FLOOR = "import gpu_floor; gpu_floor.main()"
ROWS = """\
#!/bin/sh
echo "# nccl-library=22809"
echo "  8  2  float  sum  -1  20.0  0.00  0.00  0  10.00  0.00  0.00  0"
"""
TIMES = """\
#!/bin/sh
echo '{"ranks": 1, "nccl": 22809, "isolated": 1e-5, "isolated polling": 9e-6, "issue": 2e-6,
       "streaming": 3e-6, "streaming polling": 2e-6}'
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the programs, which keep their pages beside themselves."""
    for file in BENCH.glob("*.py"):
        shutil.copy(file, tmp_path)
    (tmp_path / "programs").mkdir()
    for name, text in (("all_reduce_perf", ROWS), ("sendrecv_perf", ROWS), ("gpu_floor", TIMES)):
        (tmp_path / "programs" / name).write_text(text)
        (tmp_path / "programs" / name).chmod(0o755)
    return tmp_path


def start(folder: Path, program: str, *flags: str, mark: Any = None) -> subprocess.Popen[bytes]:
    """Under `mark`; its ranks find collbench and the double where the tests find them."""
    libraries = ("--nccl", "/nowhere/lib/libnccl.so.2", "--cudart", "/nowhere/lib/libcudart.so.13")
    here = ("--module", "tests.double.main", "--ranks", "1", "--programs", str(folder / "programs"))
    path = os.pathsep.join((str(folder), str(ROOT / "src"), str(ROOT)))
    env = os.environ | {"PYTHONPATH": path, "DOUBLE_GPUS": "1"} | (mark.environment if mark else {})
    return subprocess.Popen((sys.executable, "-c", program, *libraries, *here, *flags), cwd=ROOT, env=env)


def kept(folder: Path, name: str) -> Any:
    return json.loads((folder / f"results-{name}.json").read_text())


def kinds(document: Any) -> set[tuple[str, str]]:
    return {(one["kind"], one["what"]) for one in document["launches"]}


def test_what_cannot_be_measured_is_a_line_and_the_rest_a_page(folder: Path) -> None:
    """The double has no torch, and one of nccl-tests crashes."""
    (folder / "programs" / "sendrecv_perf").write_text("#!/bin/sh\nkill -SEGV $$\n")
    assert start(folder, PEER, "--rounds", "1", "--limit", "500").wait(timeout=LIMIT) == 0
    document = kept(folder, "gpu_peer")
    assert kinds(document) == {
        ("nccl-tests", "allreduce"), ("nccl-tests", "allreduce in place"), ("native", "allreduce"),
        ("native", "sendrecv"), ("C", "allreduce"), ("C polling", "allreduce"), ("C", "sendrecv"),
        ("C polling", "sendrecv"),
    }  # fmt: skip
    assert {one["bytes"] for one in document["launches"] if one["kind"] == "native"} == {8, 1 << 16}
    page = (folder / "results-gpu_peer.md").read_text()
    assert "round 0, nccl-tests sendrecv 8 B: sendrecv_perf: exit code -11" in page
    assert re.search(r"round 0, torch-nccl: mpirun: exit code 2: .*backend torch-nccl", page)


def test_both_drivers_over_plain_c(folder: Path) -> None:
    assert start(folder, FLOOR, "--rounds", "1", "--limit", "500").wait(timeout=LIMIT) == 0
    found = kinds(kept(folder, "gpu_floor"))
    assert found >= {(kind, name) for kind in ("C", "native", "python") for name in ("allreduce", "sendrecv")}


def test_sigterm_leaves_every_number_and_no_process(folder: Path) -> None:
    mark = bench("marks").Mark("BENCH_TEST", folder.name)
    process = start(folder, PEER, "--rounds", "50", "--limit", "500", mark=mark)
    try:
        until = time.monotonic() + LIMIT
        while not (folder / "results-gpu_peer.json").exists():
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=LIMIT) == 128 + signal.SIGTERM
        assert mark.processes() == []
    finally:
        mark.end()
        process.wait()
    assert kept(folder, "gpu_peer")["launches"] or kept(folder, "gpu_peer")["failed"]
