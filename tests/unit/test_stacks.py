"""Software of a cell: what engines say of images, what probes find, where sides differ."""

from __future__ import annotations

import importlib.util
import json
import runpy
import shutil
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
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
from collbench.errors import BackendUnavailable, CollbenchError, ImageMissing, PlanError
from collbench.launch import probe
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.fake import contents
from collbench.launch.engines.spec import Look, Looks
from collbench.launch.expansion import expand
from collbench.launch.probe import MEASURING, Build, Contents, source_files, sources
from collbench.launch.probe import contents as environment_contents
from collbench.launch.shipped import PACKAGE
from collbench.launch.stacks import Stacks, contents_in, differences_of, look_at, refuse_missing, stack_of
from collbench.machine.cgroup import priority
from collbench.machine.topology import Core, Topology
from collbench.run.facts_of_ranks import packages
from collbench.schema.manifest import Library
from collbench.schema.plan import Plan
from collbench.schema.record import SCHEMA

MPI = Library(name="Open MPI", version="5.0.11", sha256="aa")
SAME = Contents(collbench="1", python="3.11.7", vendor="openmpi", libraries=(MPI,), packages={"mpi4py": "4.1.2"},
                native=True, missing={})  # fmt: skip


def inside(**fields: Any) -> list[str]:
    """How an image that differs by these fields differs from the environment."""
    return differences_of(SAME, msgspec.structs.replace(SAME, **fields))


def library(**fields: Any) -> tuple[Library, ...]:
    return (msgspec.structs.replace(MPI, **fields),)


def test_what_is_the_same_does_not_differ() -> None:
    assert inside() == []
    assert inside(missing={"nccl": "no GPU"}, cuda="12") == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"python": "3.12.1"}, "Python 3.11.7 on the host, 3.12.1 in the image"),
        ({"native": False}, "the native loop is missing in the image"),
        ({"libraries": library(version="5.0.5")}, "Open MPI 5.0.11 on the host, 5.0.5 in the image"),
        ({"libraries": library(sha256="bb")}, "Open MPI 5.0.11: two builds, aa and bb"),
        ({"libraries": ()}, "Open MPI 5.0.11 on the host, missing in the image"),
        ({"libraries": (MPI, Library(name="NCCL", version="2.27"))}, "NCCL missing on the host, 2.27 in the image"),
        ({"packages": {"mpi4py": "4.0.0"}}, "mpi4py 4.1.2 on the host, 4.0.0 in the image"),
        ({"packages": {}}, "mpi4py 4.1.2 on the host, missing in the image"),
        ({"packages": {"mpi4py": "4.1.2", "cupy": "13"}}, "cupy missing on the host, 13 in the image"),
    ],
)
def test_each_difference_besides_the_container_is_said(fields: dict[str, Any], said: str) -> None:
    assert inside(**fields) == [said]


@pytest.mark.parametrize("kernel", ["Katmai", None])
def test_another_kernel_of_the_same_blas_is_a_difference(kernel: str | None) -> None:
    """As OPENBLAS_CORETYPE chooses it on the host alone."""
    blas = Library(name="OpenBLAS", version="0.3.34", sha256="aa", used_by=("linpack",), kernel=kernel)
    host, image = (
        msgspec.structs.replace(SAME, libraries=(msgspec.structs.replace(blas, kernel=name),))
        for name in (kernel, "SkylakeX")
    )
    (line,) = differences_of(host, image, communicate=False)
    assert "OpenBLAS" in line
    assert "SkylakeX" in line
    assert differences_of(image, image) == []


def test_the_native_loop_may_be_missing_on_the_host() -> None:
    without = msgspec.structs.replace(SAME, native=False)
    assert differences_of(without, SAME) == ["the native loop is missing on the host"]
    assert differences_of(without, without) == []


def test_a_library_of_another_version_is_no_second_build_of_one() -> None:
    (line,) = inside(libraries=library(version="5.0.5", sha256="bb"))
    assert "builds" not in line


def test_torch_is_compared_as_a_library_alone() -> None:
    """Its package says the CUDA that it is made for, which the library's version says too."""
    assert inside(packages={"mpi4py": "4.1.2", "torch": "2.9.0+cpu"}) == []


# What engines say of images, put together -----------------------------------------------------------------------------

PLAN = Plan(
    collectives=("bcast",), images=("openmpi", "mpich"), policies=("host", "single"), sizes=("8",), engine="fake"
)
OPENMPI = Library(name="MPI", version="5", sha256="aa")


@dataclass
class Says:
    """An engine that says this of images; it remembers what it was asked."""

    looks: dict[str, Look]
    remarks: tuple[str, ...] = ()
    asked: list[tuple[set[str], dict[str, str]]] = field(default_factory=list)

    def look(self, plan: Plan, placements: Mapping[LaunchCell, Any], vendors: Mapping[str, str]) -> Looks:
        self.asked.append(({cell.policy for cell in placements}, dict(vendors)))
        return Looks(self.looks, self.remarks)


def held(vendor: str, **fields: Any) -> Contents:
    return msgspec.structs.replace(contents(vendor), **({"libraries": (OPENMPI,)} | fields))


def image(name: str, **fields: Any) -> Look:
    return Look(
        held(name, **fields), f"ref:{name}", f"image {name}", f"sha256:{name}", (f"{name}@1",), {"collbench.x": "1"},
        frozenset({"kcmp"}), frozenset({"memlock"}),
    )  # fmt: skip


def beside(name: str, **fields: Any) -> Look:
    return Look(held(name, **fields), f"/venv/{name}", f"the environment beside {name}")


def looked(fake: Says, host: Says, plan: Plan = PLAN) -> Stacks:
    expanded = expand(plan, lambda engine: Topology(tuple(map(Core, range(2)))))
    sessions: Any = {"host": host, "fake": fake}
    return look_at(expanded, sessions)


def look_at_containers(fake: Says) -> Stacks:
    """Of a plan without the host."""
    plan = msgspec.structs.replace(PLAN, policies=("single",))
    expanded = expand(plan, lambda engine: Topology(tuple(map(Core, range(2)))))
    sessions: Any = {"fake": fake}
    return look_at(expanded, sessions)


def both() -> tuple[Says, Says]:
    inside = Says({"openmpi": image("openmpi", python="3.12"), "mpich": image("mpich")}, ("no memlock",))
    return inside, Says({name: beside(name) for name in ("openmpi", "mpich")}, ("a remark",))


def test_the_host_is_asked_last_for_what_the_images_hold() -> None:
    fake, host = both()
    looked(fake, host)
    assert fake.asked == [({"single"}, {})]
    assert host.asked == [({"host"}, {"openmpi": "openmpi", "mpich": "mpich"})]


@pytest.mark.parametrize("fields", [{"sources": "0" * 64}, {"sources": ""}, {"collbench": "0.0.1"}])
def test_clusters_too_refuse_an_image_with_other_code(fields: dict[str, Any]) -> None:
    """Kubernetes and Slurm, before the first launch: it might not be able to read the plan."""
    printed = msgspec.json.encode(held("openmpi", **fields)).decode()
    with pytest.raises(ImageMissing, match=r"0\.0\.1|sources"):
        contents_in(["a line", printed], "image openmpi", "openmpi", {}, PLAN)
    same = msgspec.json.encode(held("openmpi")).decode()
    assert contents_in([same], "image openmpi", "openmpi", {}, PLAN) == held("openmpi")


def test_what_the_first_engine_found_in_an_image_counts() -> None:
    fake, host = both()
    host.looks["openmpi"] = beside("mpich")
    looked(fake, host)
    assert host.asked[0][1]["openmpi"] == "openmpi"


def test_images_and_environments_are_described_apart() -> None:
    found = looked(*both())
    openmpi, mpich = found.images
    assert (openmpi.name, openmpi.id, openmpi.digests, openmpi.labels) == (
        "openmpi", "sha256:openmpi", ("openmpi@1",), {"collbench.x": "1"}
    )  # fmt: skip
    assert (openmpi.python, openmpi.libraries, mpich.name) == ("3.12", (OPENMPI,), "mpich")
    assert [(one.name, one.id, one.python) for one in found.environments] == [
        ("openmpi", None, "3.11"), ("mpich", None, "3.11")
    ]  # fmt: skip


def test_differences_come_before_what_engines_cannot_give() -> None:
    assert looked(*both()).differences == (
        "openmpi: apart from the container, host and image differ: Python 3.11 on the host, 3.12 in the image",
        "no memlock", "a remark",
    )  # fmt: skip


def test_ranks_with_another_priority_on_the_host_are_refused_before_the_first_launch() -> None:
    """They inherit that of the launcher, which containers do not have."""
    fake, host = both()
    for looks, found in ((fake.looks, "nice 0, other"), (host.looks, "nice 19, other")):
        for look in looks.values():
            object.__setattr__(look, "contents", msgspec.structs.replace(look.contents, priority=found))
    with pytest.raises(PlanError, match="nice 19"):
        looked(fake, host)
    assert look_at_containers(fake).differences == ("no memlock",)


def test_without_the_host_nothing_differs() -> None:
    fake, _ = both()
    found = look_at_containers(fake)
    assert (found.environments, found.differences) == ((), ("no memlock",))
    assert len(found.images) == 2


def test_an_image_that_only_containers_have_is_beside_nothing() -> None:
    fake, host = both()
    del host.looks["openmpi"]
    found = looked(fake, host)
    assert found.differences == ("no memlock", "a remark")


def test_every_cell_runs_the_stack_of_its_engine_and_image() -> None:
    found = looked(*both())
    inside = found.of(LaunchCell("mpich", "single", "strict", 2, engine="fake"))
    assert (inside.launcher.vendor, inside.reference, inside.refused, inside.grants, inside.nccl) == (
        "mpich", "ref:mpich", frozenset({"kcmp"}), frozenset({"memlock"}), False
    )  # fmt: skip
    outside = found.of(LaunchCell("openmpi", "host", None, 2, engine="host"))
    assert (outside.launcher.vendor, outside.reference, outside.refused) == ("openmpi", "/venv/openmpi", frozenset())


@pytest.mark.parametrize(
    ("backends", "nccl"),
    [(("mpi",), False), (("mpi", "nccl"), True), (("torch-nccl",), True), (("torch-gloo",), False)],
)
def test_a_stack_knows_whether_something_goes_over_nccl(backends: tuple[str, ...], nccl: bool) -> None:
    plan = msgspec.structs.replace(PLAN, backends=backends)
    assert stack_of(plan, "mpich", image("mpich")).nccl is nccl


def test_what_holds_no_library_cannot_be_started() -> None:
    with pytest.raises(ImageMissing, match="image mpich: holds no MPI; the launcher starts mpich, openmpi, torch"):
        stack_of(PLAN, "mpich", Look(held(""), "r", "image mpich"))


# Backends that are not there -----------------------------------------------------------------------------------------


def refused(look: Look, *backends: str, **plan: Any) -> str:
    with pytest.raises(PlanError) as caught:
        refuse_missing(msgspec.structs.replace(PLAN, backends=backends, **plan), "mpich", look)
    return str(caught.value)


def lacking(*names: str, **fields: Any) -> Look:
    return image("mpich", missing={name: f"no {name}" for name in names}, **fields)


EVERYTHING = ("mpi", "mpi-cuda", "mpi-staged", "nccl", "torch-gloo", "torch-nccl")


def test_a_missing_backend_is_said_with_those_that_are_there() -> None:
    others = tuple(name for name in EVERYTHING if name not in ("mpi", "torch-gloo"))
    assert refused(lacking(*others), "mpi", "torch-nccl", "nccl") == (
        "image mpich: backend torch-nccl: no torch-nccl. Build it for GPUs: collbench image build mpich --cuda 12 "
        "(or 13). It has mpi, torch-gloo: set image_backends = { mpich = [...] }, or backends."
    )
    assert refused(lacking(*EVERYTHING), "mpi") == (
        "image mpich: backend mpi: no mpi. It has none: set image_backends = { mpich = [...] }, or backends."
    )


@pytest.mark.parametrize(
    ("look", "built"),
    [
        (lacking("nccl"), True),
        (lacking("nccl", cuda="12"), False),
        (Look(held("mpich", missing={"nccl": "no nccl"}), "/venv", "the environment beside mpich"), False),
    ],
)
def test_only_an_image_without_cuda_is_to_be_built_again(look: Look, built: bool) -> None:
    assert ("collbench image build mpich" in refused(look, "nccl")) is built


def test_a_backend_of_the_cpu_needs_no_other_build() -> None:
    assert "Build it for GPUs" not in refused(lacking("mpi"), "mpi")


def test_a_plan_that_may_skip_needs_one_of_its_backends() -> None:
    plan = msgspec.structs.replace(PLAN, backends=("mpi", "nccl"), unusable="skip")
    refuse_missing(plan, "mpich", lacking("nccl"))
    refuse_missing(plan, "mpich", lacking("mpi"))
    assert refused(lacking("mpi", "nccl"), "mpi", "nccl", unusable="skip").startswith(
        "image mpich: backend mpi: no mpi."
    )


# What an environment says it holds, asked from inside -----------------------------------------------------------------

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


@pytest.fixture
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


@pytest.mark.usefixtures("made_up")
def test_where_there_is_nothing() -> None:
    assert environment_contents() == Contents(
        collbench=collbench.__version__, python=sys.version.split()[0], vendor="", libraries=(), native=False,
        packages={"numpy": "2", "cupy-cuda12x": "14"}, missing={"mpi": "no MPI"}, cuda="12", build=None, schema=SCHEMA,
        sources=sources(), priority=priority(), backends=("mpi", "torch-gloo"),
    )  # fmt: skip


@pytest.mark.usefixtures("made_up")
def test_where_there_is_an_mpi(with_mpi: None, with_torch: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch beside it makes no difference."""
    monkeypatch.setattr(probe, "native_loop", lambda: object())
    found = environment_contents()
    assert (found.vendor, found.native, found.build, found.cuda) == ("openmpi", True, None, "12")
    assert found.libraries == (Library(name="Open MPI", version="5.0.11", path="/no/libmpi.so"),)


@pytest.mark.usefixtures("made_up")
def test_how_an_mpi_was_built_is_asked_for(with_mpi: None) -> None:
    assert environment_contents(build=True).build == Build(
        configure="--prefix of Open MPI v5", cuda_built=True, cuda_claimed=False
    )
    assert environment_contents(build=True, torch=True).build is None


@pytest.mark.usefixtures("made_up")
def test_an_mpi_is_left_aside_where_torch_is_asked_for(with_mpi: None, with_torch: None) -> None:
    found = environment_contents(torch=True)
    assert (found.vendor, found.cuda, found.libraries) == ("torch", "13.0", (Library(name="torch", version="2"),))


@pytest.mark.usefixtures("made_up")
def test_torch_is_what_there_is_without_an_mpi(with_torch: None) -> None:
    assert environment_contents().vendor == "torch"


@pytest.mark.usefixtures("made_up")
def test_nccl_is_a_library_where_it_can_be_loaded(with_mpi: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "load", lambda *names: SimpleNamespace(handle=names, path="/no/libnccl.so"))
    monkeypatch.setattr(probe, "nccl_version", lambda handle: (2, 29, 3))
    mpi, nccl = environment_contents().libraries
    assert (mpi.name, nccl) == ("Open MPI", Library(name="NCCL", version="2.29.3", path="/no/libnccl.so"))


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize(("names", "cuda"), [((), None), (("numpy",), None), (("cupy-cuda13x",), "13")])
def test_the_cuda_of_cupy(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], cuda: str | None) -> None:
    monkeypatch.setattr(probe, "packages", lambda: dict.fromkeys(names, "1"))
    assert environment_contents().cuda == cuda


@pytest.mark.usefixtures("made_up")
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


@pytest.mark.usefixtures("made_up")
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


@pytest.mark.usefixtures("made_up")
def test_the_code_that_measures_is_what_an_inner_run_imports_apart_from_tables() -> None:
    covered = {path.relative_to(PACKAGE).as_posix() for path in source_files()}
    assert {path for path in imported_by_ranks() - covered if not path.startswith("report/")} == set()
    assert {"timing/_loop.c", "timing/_loop_timed.h", "workloads/_stream.c", "workloads/dl/deepbench.toml",
            "workloads/gpu/transpose.cu"} <= covered  # fmt: skip


@pytest.mark.usefixtures("made_up")
def test_its_packages_are_those_that_may_import_no_analysis() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (contract,) = (one for one in settings["contracts"] if one["name"] == "Measuring knows no analysis")
    packages = {name for name in MEASURING if (PACKAGE / name).is_dir()}
    assert packages == {name.removeprefix("collbench.") for name in contract["source_modules"]} - {
        "launch",
        "yardsticks",
    }
    assert all((PACKAGE / name).exists() for name in MEASURING)


@pytest.mark.usefixtures("made_up")
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


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize("there", ["", "0" * 64])
def test_other_code_of_the_same_version_is_told(there: str) -> None:
    held = msgspec.structs.replace(environment_contents(), sources=there)
    assert held.another is not None
    assert sources()[:12] in held.another
    assert environment_contents().another is None
