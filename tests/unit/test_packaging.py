"""What is built and installed is enough: plans and images are found by name, far from any clone."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.processes import LIMIT

from collbench.launch.probe import sources

pytestmark = pytest.mark.slow  # every test starts programs

ROOT = Path(__file__).parents[2]
#: What a build may need of the clone, as Git has it: nothing that was built here.
SOURCES = (
    "LICENSE", "README.md", "constraints.txt", "pyproject.toml", "setup.py", "src", "launch", "containers",
)  # fmt: skip
BUILT = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info", "ca.crt", "*.whl")
#: What pip does after it has fetched what a build needs, which is here already.
BUILD = "from setuptools import build_meta; import sys; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
#: No engine answers there.
NO_ENGINE = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}

#: Python 3.11 has filters from 3.11.4 on; what is extracted is our own.
SAFELY: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def copied(folder: Path) -> Path:
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=BUILT)
        else:
            folder.mkdir(exist_ok=True)
            shutil.copy(source, folder)
    return folder


def built(what: str, tree: Path, out: Path) -> Path:
    """A wheel or sdist of a source tree; without a network, with the setuptools that is here."""
    done = subprocess.run(
        [sys.executable, "-c", BUILD, f"build_{what}", out],
        cwd=tree, env=os.environ | {"PYTHONPATH": ""}, capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return built("wheel", copied(folder / "clone"), folder)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that a Python finds it in, and an environment around it knows nothing of the clone."""
    folder = tmp_path_factory.mktemp("installed") / "packages"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder, wheel],
        cwd=folder.parent, capture_output=True, text=True, timeout=LIMIT, check=True,
    )  # fmt: skip
    return folder


def run(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The installed collbench, started in a folder, with no engine."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder, env=os.environ | NO_ENGINE | {"PYTHONPATH": str(installed)},
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip


def told(installed: Path, folder: Path, *arguments: str) -> str:
    done = run(installed, folder, "-m", "collbench", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_package_is_the_installed_one(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "-c", "import collbench, collbench.timing._loop as loop; print(loop.__file__)")
    assert done.stdout.strip() == str(installed / "collbench" / "timing" / "_loop.abi3.so"), done.stderr


def test_the_kernels_of_programs_are_installed(installed: Path) -> None:
    folder = "collbench/workloads/gpu"
    assert {path.name for path in (installed / folder).glob("*.cu")} == {
        path.name for path in (ROOT / "src" / folder).glob("*.cu")
    }


def test_benchmarks_have_their_tables(installed: Path, tmp_path: Path) -> None:
    table = "from collbench.workloads.dl.deepbench import TABLE, table; print(TABLE, *table())"
    done = run(installed, tmp_path, "-c", table)
    path, *kinds = done.stdout.split()
    assert (Path(path).is_relative_to(installed), kinds) == (True, ["gemm", "conv", "rnn", "all_reduce"]), done.stderr


def test_the_code_that_measures_is_known_by_the_hash_of_its_clone(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "-c", "from collbench.launch.probe import sources; print(sources())")
    assert done.stdout.strip() == sources(), done.stderr


def test_plans_are_found_by_name(installed: Path, tmp_path: Path) -> None:
    *listed, last = told(installed, tmp_path, "plan").splitlines()
    assert {line.split()[2] for line in listed} == {path.stem for path in (ROOT / "launch").glob("*.toml")}
    assert last == f"To change one, copy it from {installed / 'collbench' / 'source_tree' / 'launch'}."
    assert told(installed, tmp_path, "plan", "quick").startswith("quick: what a container costs here: 10 cells")
    for more in ((), ("--dry-run",)):
        launched = run(installed, tmp_path, "-m", "collbench", "launch", "quick", *more)
        assert launched.returncode != 0
        assert "/nowhere/docker.sock" in launched.stderr  # the plan was read, and its engine asked for


def test_an_image_is_built_from_what_is_installed(installed: Path, tmp_path: Path) -> None:
    shown = told(installed, tmp_path, "image", "build", "openmpi", "--dry-run", "--base", "debian:bookworm-slim")
    first, *files, last, command = shown.splitlines()
    assert first.startswith("# collbench/openmpi: ")
    context = dict(line.split(maxsplit=1) for line in files)
    package = installed / "collbench"
    assert context["containers/openmpi.Dockerfile"] == str(package / "source_tree/containers/openmpi.Dockerfile")
    assert context["src/collbench/timing/_loop.c"] == str(package / "timing/_loop.c")
    assert last == "# with these files as a tar on its standard input:"
    assert command == (
        "docker build --file containers/openmpi.Dockerfile --tag collbench/openmpi "
        "--build-arg BASE=debian:bookworm-slim -"
    )
    _, file, _, command = told(
        installed, tmp_path, "image", "build", "openmpi", "--with", "sshd", "--dry-run"
    ).splitlines()
    assert file.split() == ["containers/sshd.Dockerfile", str(package / "source_tree/containers/with/sshd.Dockerfile")]
    assert command == (
        "docker build --file containers/sshd.Dockerfile --tag collbench/openmpi-sshd "
        "--build-arg BASE=collbench/openmpi -"
    )


def context_of(installed: Path, into: Path) -> Path:
    """The context of the image openmpi, as the builder finds it."""
    program = (
        "from collbench.launch.engines.docker import images as b; import sys; "
        "sys.stdout.buffer.write(b.pack(b.prepare('openmpi', b.Recipe()).files))"
    )
    packed = subprocess.run(
        [sys.executable, "-c", program], cwd=into.parent, env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True, timeout=LIMIT, check=True,
    ).stdout  # fmt: skip
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extractall(into, **SAFELY)  # noqa: S202 - our own
    return into


def test_what_an_image_is_given_holds_what_its_dockerfile_copies_and_installs_with_the_loop(
    installed: Path, tmp_path: Path
) -> None:
    tree = context_of(installed, tmp_path / "context")
    for line in (tree / "containers" / "openmpi.Dockerfile").read_text(encoding="utf-8").splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            assert all((tree / name).exists() for name in line.split()[1:-1]), line
    assert files(tree) == files(context_of(copied(tmp_path / "clone") / "src", tmp_path / "of-the-clone"))
    with zipfile.ZipFile(built("wheel", tree, tmp_path)) as archive:
        assert "collbench/timing/_loop.abi3.so" in archive.namelist()


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_wheel_of_the_sdist_holds_the_same(wheel: Path, tmp_path: Path) -> None:
    sdist = built("sdist", copied(tmp_path / "clone"), tmp_path)
    with tarfile.open(sdist) as tar:
        tar.extractall(tmp_path / "sdist", **SAFELY)  # noqa: S202 - our own
    (tree,) = (tmp_path / "sdist").iterdir()
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(built("wheel", tree, tmp_path)) as second:
        assert sorted(first.namelist()) == sorted(second.namelist())
