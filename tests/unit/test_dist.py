"""`make dist`: what a release consists of."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from tests.processes import LIMIT

ROOT = Path(__file__).parents[2]

#: e_machine of an ELF file (elf.h).
MACHINES = {"x86_64": 62, "aarch64": 183}
MAN_PAGE = "share/man/man1/collbench.1"


@pytest.mark.rare
@pytest.mark.slow
def test_a_release(tmp_path: Path) -> None:
    """Two builds are the same bytes, and each wheel has the code of its processor."""
    if not (ROOT / ".git").exists():
        pytest.skip("make dist builds a commit, and this is no clone")
    hashes = []
    for _ in range(2):
        done = subprocess.run(["make", "--silent", "dist"], cwd=ROOT, stdout=subprocess.PIPE, text=True,
                              timeout=10 * LIMIT, check=True)  # fmt: skip
        hashes.append(re.findall(r"^([0-9a-f]{64})  (\S+)$", done.stdout, re.MULTILINE))
    assert hashes[0] == hashes[1]
    names = [name for _, name in hashes[0]]
    assert [re.sub(r"-[0-9.]+(?=-cp|\.tar)", "", name) for name in names] == [
        "collbench-cp311-abi3-manylinux2014_aarch64.manylinux_2_17_aarch64.whl",
        "collbench-cp311-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
        "collbench.tar.gz",
    ]
    with tarfile.open(ROOT / "dist" / names[-1]) as sdist:
        assert all(any(name.endswith(end) for name in sdist.getnames()) for end in ("timing/_loop.c", MAN_PAGE))
    for name in names[:-1]:
        (machine,) = (number for arch, number in MACHINES.items() if arch in name)
        with zipfile.ZipFile(ROOT / "dist" / name) as wheel:
            parts = [part for part in wheel.namelist() if part.endswith((".so", "/_clock"))]
            assert len(parts) == 5
            assert {struct.unpack("<H", wheel.read(part)[18:20])[0] for part in parts} == {machine}
            assert "collbench/schema/json/plan.schema.json" in wheel.namelist()
            (page,) = (name for name in wheel.namelist() if name.endswith(MAN_PAGE))
            assert b".SH EXIT CODES" in wheel.read(page).upper()
    (ours,) = (name for name in names[:-1] if "x86_64" in name)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(tmp_path)]
    subprocess.run([*pip, str(ROOT / "dist" / ours)], timeout=LIMIT, check=True)
    loop = "import collbench.timing._loop as loop; print(loop.__file__)"
    printed = subprocess.run([sys.executable, "-c", loop], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)},
                             capture_output=True, text=True, timeout=LIMIT, check=True).stdout  # fmt: skip
    assert Path(printed.strip()).is_relative_to(tmp_path)
