"""What an environment says it holds, asked from inside."""

from __future__ import annotations

import importlib.util
import json
import runpy
import shutil
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grimp
import msgspec
import pytest

import collbench
from collbench import backends
from collbench.backends import mpi_cuda as cuda_aware
from collbench.bindings import mpi as loading
from collbench.bindings.gpu import shared_library
from collbench.errors import BackendUnavailable, CollbenchError
from collbench.launch import probe
from collbench.launch.probe import MEASURING, Build, Contents, source_files, sources
from collbench.launch.probe import contents as environment_contents
from collbench.launch.shipped import PACKAGE
from collbench.machine.cgroup import priority
from collbench.run.facts_of_ranks import packages
from collbench.schema.manifest import Library
from collbench.schema.record import SCHEMA

ROOT = Path(__file__).parents[2]

NO_NCCL = BackendUnavailable("not installed")


class Made:
    """A backend that is there, or why it is not."""

    packages: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()

    def __init__(self, why: str | None) -> None:
        self.why = why

    def missing(self) -> str | None:
        return self.why

    def libraries(self) -> tuple[Library, ...]:
        return (Library(name="torch", version="2"),)


def torch_is(monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
    """What is found of it."""
    usual = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found if name == "torch" else usual(name))


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """No MPI, no torch, no NCCL, no compiled loop; two backends."""
    there = {"mpi": Made("no MPI"), "torch-gloo": Made(None)}

    def no_mpi() -> Any:
        raise CollbenchError("no MPI")

    def no_nccl(*names: str) -> Any:
        raise NO_NCCL

    monkeypatch.setattr(backends, "names", lambda: tuple(there))
    monkeypatch.setattr(backends, "get", there.__getitem__)
    monkeypatch.setattr(probe, "load_mpi", no_mpi)
    monkeypatch.setattr(probe, "load", no_nccl)
    monkeypatch.setattr(probe, "native_loop", lambda: None)
    monkeypatch.setattr(probe, "packages", lambda: {"numpy": "2", "cupy-cuda12x": "14"})
    torch_is(monkeypatch, None)


@pytest.fixture
def with_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    mpi = SimpleNamespace(Get_library_version=lambda: "Open MPI v5")
    monkeypatch.setattr(probe, "load_mpi", lambda: mpi)
    monkeypatch.setattr(probe, "vendor", lambda found: "openmpi")
    monkeypatch.setattr(probe, "version_line", lambda found: "Open MPI 5.0.11")
    monkeypatch.setattr(probe, "library_path", lambda: "/no/libmpi.so")
    monkeypatch.setattr(cuda_aware, "configure_line", lambda text: f"--prefix of {text}")
    monkeypatch.setattr(cuda_aware, "built", lambda text: True)
    monkeypatch.setattr(cuda_aware, "claimed", lambda path: path != "/no/libmpi.so")


@pytest.fixture
def with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_is(monkeypatch, object())
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(version=SimpleNamespace(cuda="13.0")))


def test_where_there_is_nothing() -> None:
    assert environment_contents() == Contents(
        collbench=collbench.__version__, python=sys.version.split()[0], vendor="", libraries=(), native=False,
        packages={"numpy": "2", "cupy-cuda12x": "14"}, missing={"mpi": "no MPI"}, cuda="12", build=None, schema=SCHEMA,
        sources=sources(), priority=priority(), backends=("mpi", "torch-gloo"),
    )  # fmt: skip


def test_where_there_is_an_mpi(with_mpi: None, with_torch: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch beside it makes no difference."""
    monkeypatch.setattr(probe, "native_loop", lambda: object())
    found = environment_contents()
    assert (found.vendor, found.native, found.build, found.cuda) == ("openmpi", True, None, "12")
    assert found.libraries == (Library(name="Open MPI", version="5.0.11", path="/no/libmpi.so"),)


def test_how_an_mpi_was_built_is_asked_for(with_mpi: None) -> None:
    assert environment_contents(build=True).build == Build(
        configure="--prefix of Open MPI v5", cuda_built=True, cuda_claimed=False
    )
    assert environment_contents(build=True, torch=True).build is None


def test_an_mpi_is_left_aside_where_torch_is_asked_for(with_mpi: None, with_torch: None) -> None:
    found = environment_contents(torch=True)
    assert (found.vendor, found.cuda, found.libraries) == ("torch", "13.0", (Library(name="torch", version="2"),))


def test_torch_is_what_there_is_without_an_mpi(with_torch: None) -> None:
    assert environment_contents().vendor == "torch"


def test_nccl_is_a_library_where_it_can_be_loaded(with_mpi: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "load", lambda *names: SimpleNamespace(handle=names, path="/no/libnccl.so"))
    monkeypatch.setattr(probe, "nccl_version", lambda handle: (2, 29, 3))
    mpi, nccl = environment_contents().libraries
    assert (mpi.name, nccl) == ("Open MPI", Library(name="NCCL", version="2.29.3", path="/no/libnccl.so"))


@pytest.mark.parametrize(("names", "cuda"), [((), None), (("numpy",), None), (("cupy-cuda13x",), "13")])
def test_the_cuda_of_cupy(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], cuda: str | None) -> None:
    monkeypatch.setattr(probe, "packages", lambda: dict.fromkeys(names, "1"))
    assert environment_contents().cuda == cuda


@pytest.mark.parametrize(
    ("schema", "version", "said"),
    [
        (SCHEMA, collbench.__version__, None),
        (SCHEMA - 1, collbench.__version__, f"(schema {SCHEMA - 1}), this is"),
        (0, collbench.__version__, "(schema unknown), this is"),
        (
            SCHEMA,
            "0.0.1",
            f"holds collbench 0.0.1 (schema {SCHEMA}), this is {collbench.__version__} (schema {SCHEMA})",
        ),
    ],
)
def test_another_collbench_is_told_by_its_version_or_its_schema(schema: int, version: str, said: str | None) -> None:
    held = Contents(collbench=version, python="3", vendor="", libraries=(), packages={}, native=True, missing={},
                    schema=schema, sources=sources())  # fmt: skip
    assert (held.another is None) == (said is None)
    assert (said or "") in (held.another or "")


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")
@pytest.mark.parametrize(
    ("flags", "vendor", "build"),
    [((), "openmpi", False), (("--build",), "openmpi", True), (("--build", "--torch"), "torch", False)],
)
def test_it_answers_as_json_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], with_mpi: None, with_torch: None,
    flags: tuple[str, ...], vendor: str, build: bool,
) -> None:  # fmt: skip
    """As the program that it is: what it takes from elsewhere is made up there too."""
    for module, names in (
        (loading, ("load_mpi", "vendor", "version_line", "library_path")),
        (shared_library, ("load",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, getattr(probe, name))
    monkeypatch.setattr(sys, "argv", ["probe", *flags])
    runpy.run_module("collbench.launch.probe", run_name="__main__")
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["collbench"], found["packages"]) == (collbench.__version__, packages())
    assert (found["vendor"], found["build"] is not None) == (vendor, build)


# The code that measures ----------------------------------------------------------------------------------------------


def imported_by_ranks() -> set[str]:
    """What `collbench run` imports, directly or not, as paths below the package."""
    graph = grimp.build_graph("collbench")
    modules = {"collbench.cli.measure", *graph.find_upstream_modules("collbench.cli.measure")}
    paths = {module.removeprefix("collbench").removeprefix(".").replace(".", "/") for module in modules}
    return {f"{path}/__init__.py".lstrip("/") if (PACKAGE / path).is_dir() else f"{path}.py" for path in paths}


def test_the_code_that_measures_is_what_an_inner_run_imports_apart_from_tables() -> None:
    covered = {path.relative_to(PACKAGE).as_posix() for path in source_files()}
    assert {path for path in imported_by_ranks() - covered if not path.startswith("report/")} == set()
    assert {"timing/_loop.c", "timing/_loop_timed.h", "workloads/_stream.c", "workloads/dl/deepbench.toml",
            "workloads/gpu/transpose.cu"} <= covered  # fmt: skip


def test_its_packages_are_those_that_may_import_no_analysis() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (contract,) = (one for one in settings["contracts"] if one["name"] == "Measuring knows no analysis")
    packages = {name for name in MEASURING if (PACKAGE / name).is_dir()}
    assert packages == {name.removeprefix("collbench.") for name in contract["source_modules"]} - {
        "launch",
        "yardsticks",
    }
    assert all((PACKAGE / name).exists() for name in MEASURING)


def test_only_a_change_of_code_that_measures_makes_another_hash(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    clone = Path(shutil.copytree(PACKAGE, tmp_path / "collbench", ignore=ignored))
    assert (before := sources(clone)) == sources()
    for number, path in enumerate(("report/table.py", "analysis/pair.py", "doctor/mpi.py", "cli/gate.py", "x.so")):
        with (clone / path).open("a", encoding="utf-8") as file:
            file.write(f"# {number}\n")
    (clone / "timing" / "__pycache__").mkdir()
    (clone / "timing" / "__pycache__" / "loop.pyc").touch()
    sources.cache_clear()
    assert sources(clone) == before
    for path in ("workloads/host/sysbench.py", "timing/_loop.c", "collectives/row.py", "errors.py", "run/new.py"):
        with (clone / path).open("a", encoding="utf-8") as file:
            file.write("\n")
        sources.cache_clear()
        assert sources(clone) != before, path
        before = sources(clone)


@pytest.mark.parametrize("there", ["", "0" * 64])
def test_other_code_of_the_same_version_is_told(there: str) -> None:
    held = msgspec.structs.replace(environment_contents(), sources=there)
    assert held.another is not None
    assert sources()[:12] in held.another
    assert environment_contents().another is None
