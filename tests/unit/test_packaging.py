"""The package: what is shipped and installed, with a compiler or without."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from click.testing import CliRunner
from tests.processes import LIMIT

from collbench import registry
from collbench.cli import cli
from collbench.errors import PlanError, RequestError
from collbench.launch.engines.docker import images
from collbench.launch.engines.docker.images import Recipe, pack
from collbench.launch.probe import sources
from collbench.registry import dockerfiles, find_dockerfile, find_layer, find_plan, plans
from collbench.report.paper import papers
from collbench.schema.plan import load_launch_plan

ROOT = Path(__file__).parents[2]
#: What a build may need of the clone, as Git has it: nothing that was built here.
SOURCES = ("LICENSE", "README.md", "constraints.txt", "pyproject.toml", "setup.py", "src", "launch", "containers")
BUILT = shutil.ignore_patterns("__pycache__", "*.so", "_clock", "*.egg-info", "ca.crt", "*.whl")
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


def started(arguments: Sequence[str | Path], folder: Path, **variables: str) -> CompletedProcess[str]:
    """This Python, in a folder."""
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=os.environ | variables, capture_output=True,
                          text=True, timeout=LIMIT, check=False)  # fmt: skip


def built(what: str, tree: Path, out: Path) -> Path:
    """A wheel or sdist of a source tree; without a network, with the setuptools that is here."""
    done = started(["-c", BUILD, f"build_{what}", out], tree, PYTHONPATH="")
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
    pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder), str(wheel)]
    done = started(pip, folder.parent)
    assert done.returncode == 0, done.stderr
    return folder


def run(installed: Path, folder: Path, *arguments: str) -> CompletedProcess[str]:
    """The installed collbench, started in a folder, with no engine."""
    return started(arguments, folder, **NO_ENGINE, PYTHONPATH=str(installed))


def printed(installed: Path, folder: Path, *arguments: str) -> str:
    done = run(installed, folder, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def command(installed: Path, folder: Path, words: str) -> list[str]:
    """The lines that a command prints."""
    return printed(installed, folder, "-m", "collbench", *words.split()).splitlines()


@pytest.mark.slow
def test_the_package_is_the_installed_one_with_kernels_and_tables(installed: Path, tmp_path: Path) -> None:
    """And the code that measures is known by the hash of its clone."""
    loop = "import collbench, collbench.timing._loop as loop; print(loop.__file__)"
    assert printed(installed, tmp_path, "-c", loop) == str(installed / "collbench/timing/_loop.abi3.so")
    gpu = "collbench/workloads/gpu"
    kernels, of_clone = ({path.name for path in (folder / gpu).glob("*.cu")} for folder in (installed, ROOT / "src"))
    assert kernels == of_clone != set()
    table = "from collbench.workloads.dl.deepbench_programs import TABLE, table; print(TABLE, *table())"
    path, *kinds = printed(installed, tmp_path, "-c", table).split()
    assert (Path(path).is_relative_to(installed), kinds) == (True, ["gemm", "conv", "rnn", "all_reduce"])
    hashed = "from collbench.launch.probe import sources; print(sources())"
    assert printed(installed, tmp_path, "-c", hashed) == sources()


@pytest.mark.slow
def test_plans_are_found_by_name(installed: Path, tmp_path: Path) -> None:
    *listed, _, last = command(installed, tmp_path, "plan")
    assert {line.split()[2] for line in listed} == {path.stem for path in (ROOT / "launch").glob("*.toml")}
    assert last.endswith(f" {installed / 'collbench' / 'source_tree' / 'launch'}.")
    assert re.match(r"quick: .*: 10 cells", command(installed, tmp_path, "plan quick")[0])
    for more in ((), ("--dry-run",)):
        launched = run(installed, tmp_path, "-m", "collbench", "launch", "quick", *more)
        assert launched.returncode != 0
        assert "/nowhere/docker.sock" in launched.stderr  # the plan was read, and its engine asked for


@pytest.mark.slow
def test_an_image_is_built_from_what_is_installed(installed: Path, tmp_path: Path) -> None:
    package, build = installed / "collbench", "image build openmpi --dry-run"
    first, *files, _, docker = command(installed, tmp_path, f"{build} --base debian:bookworm-slim")
    assert first.startswith("# collbench/openmpi: ")
    context = dict(line.split(maxsplit=1) for line in files)
    assert context["containers/openmpi.Dockerfile"] == str(package / "source_tree/containers/openmpi.Dockerfile")
    assert context["src/collbench/timing/_loop.c"] == str(package / "timing/_loop.c")
    assert docker == ("docker build --file containers/openmpi.Dockerfile --tag collbench/openmpi "
                      "--build-arg BASE=debian:bookworm-slim -")  # fmt: skip
    _, file, _, docker = command(installed, tmp_path, f"{build} --with sshd")
    assert file.split() == ["containers/sshd.Dockerfile", str(package / "source_tree/containers/with/sshd.Dockerfile")]
    assert docker == ("docker build --file containers/sshd.Dockerfile --tag collbench/openmpi-sshd "
                      "--build-arg BASE=collbench/openmpi -")  # fmt: skip


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


def test_no_shipped_plan_measures_what_compare_refuses() -> None:
    """Of several numbers of hosts, `auto` lines ranks up in another way on one host than for two."""
    several = [load_launch_plan(path) for path in plans().values() if "hosts = [" in path.read_text(encoding="utf-8")]
    assert several and all(plan.align != "auto" for plan in several)


def test_a_file_wins_over_a_name_and_a_folder_does_not(here: Path) -> None:
    (here / "ladder").mkdir()  # as results/ladder is a run
    for name in ("quick", "site.Dockerfile"):
        (here / name).touch()
    assert find_plan("ladder") == ROOT / "launch" / "ladder.toml"
    assert find_plan("quick") == Path("quick")
    assert find_dockerfile("./site.Dockerfile") == ("site", Path("site.Dockerfile"))


def test_unknown_names_are_answered_with_the_nearest_and_the_list(
    here: Path, monkeypatch: pytest.MonkeyPatch, golden: Callable[[str, str], None]
) -> None:
    """As in an image, too, which is given no plans."""
    (here / "My Site.Dockerfile").touch()
    finders: list[tuple[Callable[[str], object], tuple[str, ...]]] = [
        (find_plan, ("qick", "launch/quick.toml", "./quick")), (lambda text: find_plan(text, papers()), ("xu2018",)),
        (find_layer, ("ssh",)),
        (find_dockerfile, ("openmp", "containers/openmp.Dockerfile", "My Site.Dockerfile")),
    ]  # fmt: skip
    said = []

    def refuse(find: Callable[[str], object], text: str) -> None:
        with pytest.raises((PlanError, RequestError)) as refused:
            find(text)
        said.append(f"{refused.value}\n")

    for find, texts in finders:
        for text in texts:
            refuse(find, text)
    monkeypatch.setattr(registry, "PACKAGE", here / "lib" / "collbench")
    refuse(find_plan, "quick")
    listed = CliRunner().invoke(cli, ["plan"], catch_exceptions=False)
    golden("names-unknown.txt", "".join((*said, listed.stdout)))


@pytest.mark.usefixtures("here")
def test_plans_are_listed_with_the_command_that_takes_them(collbench: Collbench) -> None:
    *listed, of_papers, last = collbench("plan").stdout.splitlines()
    assert listed[0].split()[:3] == ["collbench", "launch", "choi2021-cpu"]
    (other,) = (line for line in listed if line.startswith("collbench run "))
    assert (other.split()[2], len(listed)) == ("choi2021-gpu-smoke", len(plans()))
    assert all(reference in of_papers for reference in papers())
    assert last.endswith(f" {ROOT / 'launch'}.")


@pytest.mark.usefixtures("here")
def test_a_dry_run_shows_what_only_this_site_has(collbench: Collbench, here: Path) -> None:
    (here / "ca.pem").touch()
    (here / "wheels").mkdir()
    (here / "wheels" / "torch-1-none-any.whl").touch()
    site = ("--ca-bundle", "ca.pem", "--wheelhouse", "wheels", "--no-index", "--no-cache", "--cuda", "13")
    shown = collbench("image", "build", "torch", "--dry-run", *site).stdout.splitlines()
    assert "ca.pem" in next(line for line in shown if line.startswith("containers/site/ca.crt "))
    assert "torch-1" in next(line for line in shown if line.startswith("containers/site/wheels/torch-1-none-any.whl "))
    assert shown[-1] == ("docker build --file containers/torch.Dockerfile --tag collbench/torch --build-arg NO_INDEX=1 "
                         "--build-arg CUDA=13 --no-cache -")  # fmt: skip


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


@pytest.mark.parametrize(("compiler", "built"), [("cc", 1), ("false", 0), ("/no/such/compiler", 0)])
def test_what_is_in_c_is_built_where_it_can_be_and_only_there(tmp_path: Path, compiler: str, built: int) -> None:
    folders = ("--build-temp", tmp_path / "temp", "--build-lib", tmp_path / "lib")
    done = started(["setup.py", "build_ext", *folders], ROOT, CC=compiler)
    assert done.returncode == 0, done.stderr
    for name in ("_loop", "_stream", "_chase"):
        assert len(list((tmp_path / "lib").rglob(f"{name}.abi3.so"))) == built
    programs = [*(tmp_path / "lib").rglob("_clock")]
    assert len(programs) == built
    assert all(subprocess.check_output([program]).strip().isdigit() for program in programs)


def test_without_the_loop_python_measures_and_the_record_says_so() -> None:
    words = "allreduce -e 8 -n 5 --style json --backend fake"
    (record,) = json.loads(started(["-c", UNBUILT, *words.split()], ROOT).stdout)["records"]
    assert (record["case"]["how"]["driver"], record["driver"]) == ("native", "python")
    (note,) = record["notes"]
    assert note.startswith("driver python: ") and "Python.h" in note
