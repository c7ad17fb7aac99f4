"""The package: what is shipped and installed, with a compiler or without."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from tests.processes import LIMIT

from collbench.cli import cli
from collbench.errors import PlanError, RequestError
from collbench.launch import shipped
from collbench.launch.engines.docker import images
from collbench.launch.engines.docker.images import Recipe, pack
from collbench.launch.probe import sources
from collbench.launch.shipped import dockerfiles, find_dockerfile, find_layer, find_plan, plans
from collbench.schema.plan import load_launch_plan

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


@pytest.mark.slow
def test_the_package_is_the_installed_one(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "-c", "import collbench, collbench.timing._loop as loop; print(loop.__file__)")
    assert done.stdout.strip() == str(installed / "collbench" / "timing" / "_loop.abi3.so"), done.stderr


@pytest.mark.slow
def test_the_kernels_of_programs_are_installed(installed: Path) -> None:
    folder = "collbench/workloads/gpu"
    assert {path.name for path in (installed / folder).glob("*.cu")} == {
        path.name for path in (ROOT / "src" / folder).glob("*.cu")
    }


@pytest.mark.slow
def test_benchmarks_have_their_tables(installed: Path, tmp_path: Path) -> None:
    table = "from collbench.workloads.dl.deepbench import TABLE, table; print(TABLE, *table())"
    done = run(installed, tmp_path, "-c", table)
    path, *kinds = done.stdout.split()
    assert (Path(path).is_relative_to(installed), kinds) == (True, ["gemm", "conv", "rnn", "all_reduce"]), done.stderr


@pytest.mark.slow
def test_the_code_that_measures_is_known_by_the_hash_of_its_clone(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "-c", "from collbench.launch.probe import sources; print(sources())")
    assert done.stdout.strip() == sources(), done.stderr


@pytest.mark.slow
def test_plans_are_found_by_name(installed: Path, tmp_path: Path) -> None:
    *listed, last = told(installed, tmp_path, "plan").splitlines()
    assert {line.split()[2] for line in listed} == {path.stem for path in (ROOT / "launch").glob("*.toml")}
    assert last == f"To change one, copy it from {installed / 'collbench' / 'source_tree' / 'launch'}."
    assert told(installed, tmp_path, "plan", "quick").startswith("quick: what a container costs here: 10 cells")
    for more in ((), ("--dry-run",)):
        launched = run(installed, tmp_path, "-m", "collbench", "launch", "quick", *more)
        assert launched.returncode != 0
        assert "/nowhere/docker.sock" in launched.stderr  # the plan was read, and its engine asked for


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_wheel_of_the_sdist_holds_the_same(wheel: Path, tmp_path: Path) -> None:
    sdist = built("sdist", copied(tmp_path / "clone"), tmp_path)
    with tarfile.open(sdist) as tar:
        tar.extractall(tmp_path / "sdist", **SAFELY)  # noqa: S202 - our own
    (tree,) = (tmp_path / "sdist").iterdir()
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(built("wheel", tree, tmp_path)) as second:
        assert sorted(first.namelist()) == sorted(second.namelist())


# Names of plans and images --------------------------------------------------------------------------------------------

Collbench = Callable[..., CompletedProcess[str]]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("here")
def test_in_a_clone_names_are_those_of_its_folders() -> None:
    assert find_plan("quick") == ROOT / "launch" / "quick.toml"
    assert find_dockerfile("mpich") == ("mpich", ROOT / "containers" / "mpich.Dockerfile")
    assert list(plans()) == sorted(path.stem for path in (ROOT / "launch").iterdir())
    assert dockerfiles() == {
        path.name.removesuffix(".Dockerfile"): path for path in sorted((ROOT / "containers").glob("*.Dockerfile"))
    }
    assert {"mpich", "openmpi", "openmpi-cuda", "tools", "torch"} <= set(dockerfiles())
    assert find_layer("sshd") == ROOT / "containers" / "with" / "sshd.Dockerfile"
    with pytest.raises(RequestError, match=r"^--with ssh: unknown\. Did you mean sshd\? There are: sshd\.$"):
        find_layer("ssh")


@pytest.mark.usefixtures("here")
def test_no_shipped_plan_measures_what_compare_refuses() -> None:
    """Of several numbers of hosts, `auto` chooses another timing gate for one host than for two."""
    several = [load_launch_plan(path) for path in plans().values() if "hosts = [" in path.read_text(encoding="utf-8")]
    assert several
    assert all(plan.gate != "auto" for plan in several)


@pytest.mark.usefixtures("here")
def test_a_file_wins_over_a_name_and_a_folder_does_not(here: Path) -> None:
    (here / "ladder").mkdir()  # as results/ladder is a run
    (here / "quick").touch()
    assert find_plan("ladder") == ROOT / "launch" / "ladder.toml"
    assert find_plan("quick") == Path("quick")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("text", ["qick", "launch/quick.toml", "./quick"])
def test_an_unknown_plan_is_answered_with_the_nearest_and_the_list(text: str) -> None:
    with pytest.raises(PlanError) as refused:
        find_plan(text)
    assert str(refused.value) == (
        f"plan {text}: no such file, and no plan of this name. Did you mean quick? There are: {', '.join(plans())}."
    )


@pytest.mark.usefixtures("here")
def test_an_unknown_image_is_answered_with_the_nearest_and_the_list() -> None:
    for text in ("openmp", "containers/openmp.Dockerfile"):
        with pytest.raises(RequestError) as refused:
            find_dockerfile(text)
        assert str(refused.value) == (
            f"image {text}: no such Dockerfile, and no image of this name. "
            f"Did you mean openmpi? There are: {', '.join(dockerfiles())}."
        )


@pytest.mark.usefixtures("here")
def test_where_nothing_is_shipped_that_is_said(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in an image, which is given no plans."""
    monkeypatch.setattr(shipped, "PACKAGE", here / "lib" / "collbench")
    cli(["plan"], standalone_mode=False)
    assert capsys.readouterr().out == "This collbench was installed without plans, as in an image.\n"
    with pytest.raises(PlanError, match=r"plan quick: no such file, and no plan of this name\. There are: none\."):
        find_plan("quick")


@pytest.mark.usefixtures("here")
def test_a_dockerfile_of_ones_own_is_named_by_its_path(here: Path) -> None:
    (here / "site.Dockerfile").touch()
    assert find_dockerfile("./site.Dockerfile") == ("site", Path("site.Dockerfile"))
    (here / "My Site.Dockerfile").touch()
    with pytest.raises(RequestError, match=r"image My Site\.Dockerfile: the image is named like the file"):
        find_dockerfile("My Site.Dockerfile")


@pytest.mark.usefixtures("here")
def test_plans_are_listed_with_the_command_that_takes_them(collbench: Collbench) -> None:
    listed = collbench("plan").stdout.splitlines()
    assert " ".join(listed[0].split()) == "collbench launch choi2021 one container per worker, or one for all"
    (other,) = (line for line in listed if line.startswith("collbench run "))
    assert other.split()[2] == "choi2021-gpu-smoke"
    assert len(listed) == len(plans()) + 1
    assert listed[-1] == f"To change one, copy it from {ROOT / 'launch'}."


@pytest.mark.usefixtures("here")
def test_a_dry_run_shows_what_only_this_site_has(collbench: Collbench, here: Path) -> None:
    (here / "ca.pem").touch()
    (here / "wheels").mkdir()
    (here / "wheels" / "torch-1-none-any.whl").touch()
    asked = ("--ca-bundle", "ca.pem", "--wheelhouse", "wheels", "--no-index", "--no-cache", "--cuda", "13")
    shown = collbench("image", "build", "torch", "--dry-run", *asked).stdout.splitlines()
    assert "ca.pem" in next(line for line in shown if line.startswith("containers/site/ca.crt "))
    assert "torch-1" in next(line for line in shown if line.startswith("containers/site/wheels/torch-1-none-any.whl "))
    assert shown[-1] == (
        "docker build --file containers/torch.Dockerfile --tag collbench/torch --build-arg NO_INDEX=1 "
        "--build-arg CUDA=13 --no-cache -"
    )


@pytest.mark.usefixtures("here")
def test_a_link_to_certificates_is_given_as_what_it_leads_to(here: Path) -> None:
    """Where a distribution keeps one bundle, its usual paths are links to it."""
    (here / "bundle").write_text("certificates", encoding="utf-8")
    (here / "ca.pem").symlink_to(here / "bundle")
    files = images.prepare("mpich", Recipe(ca_bundle=Path("ca.pem"))).files
    with tarfile.open(fileobj=io.BytesIO(pack(files))) as tar:
        member = tar.extractfile("containers/site/ca.crt")
        assert member is not None
        assert member.read() == b"certificates"
        assert "containers/site/README.md" in tar.getnames()


# Without a compiler installation succeeds, and the python driver says why it stands in --------------------------------

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
