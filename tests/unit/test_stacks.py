"""Software of a cell: what engines say of images, what probes find, where sides differ."""

from __future__ import annotations

import importlib.util
import json
import runpy
import shutil
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grimp
import msgspec
import pytest
from tests.unit.fake_engine import contents
from tests.unit.refusals import refusals

import collbench
from collbench import backends
from collbench.backends import mpi_cuda as cuda_aware
from collbench.bindings import mpi as loading
from collbench.bindings.gpu import device as gpu_device
from collbench.errors import BackendUnavailable, CollbenchError, ImageMissing, PlanError
from collbench.launch import probe
from collbench.launch.cells import LaunchCell
from collbench.launch.engines.spec import Look, Looks
from collbench.launch.expansion import expand
from collbench.launch.probe import MEASURING, Build, Contents, source_files, sources
from collbench.launch.probe import contents as environment_contents
from collbench.launch.stacks import Stacks, contents_in, differences_of, look_at, refuse_missing, stack_of
from collbench.machine.cgroup import priority
from collbench.machine.facts import Core, Topology
from collbench.registry import PACKAGE
from collbench.run.facts_of_ranks import packages
from collbench.schema.manifest import Library
from collbench.schema.plan import Plan
from collbench.schema.record import SCHEMA

Golden = Callable[[str, str], None]

MPI = Library(name="Open MPI", version="5.0.11", sha256="aa")
SAME = Contents(collbench="1", python="3.11.7", vendor="openmpi", libraries=(MPI,), packages={"mpi4py": "4.1.2"},
                native=True, missing={})  # fmt: skip

#: What an image holds that is not what the host holds.
DIFFERENT: list[dict[str, Any]] = [
    {"python": "3.12.1"}, {"native": False}, {"libraries": ()},
    {"libraries": (msgspec.structs.replace(MPI, version="5.0.5"),)},
    {"libraries": (msgspec.structs.replace(MPI, version="5.0.5", sha256="bb"),)},
    {"libraries": (msgspec.structs.replace(MPI, sha256="bb"),)},
    {"libraries": (MPI, Library(name="NCCL", version="2.27"))},
    {"libraries": (msgspec.structs.replace(MPI, settings=("A=1=2", "B=3")),)},
    {"packages": {"mpi4py": "4.0.0"}}, {"packages": {}}, {"packages": {"mpi4py": "4.1.2", "cupy": "13"}},
]  # fmt: skip


def test_each_difference_besides_the_container_is_said(golden: Golden) -> None:
    differences = [differences_of(SAME, msgspec.structs.replace(SAME, **fields)) for fields in DIFFERENT]
    differences.append(differences_of(msgspec.structs.replace(SAME, native=False), SAME))
    golden("stacks-differ.txt", "".join(f"{'; '.join(lines)}\n" for lines in differences))


@pytest.mark.parametrize(
    "fields",
    [{}, {"missing": {"nccl": "no GPU"}, "cuda": "12"}, {"packages": {"mpi4py": "4.1.2", "torch": "2.9.0+cpu"}}],
)
def test_what_is_no_difference(fields: dict[str, Any]) -> None:
    """The package of torch says the CUDA that it is made for, which the library's version says too."""
    assert differences_of(SAME, msgspec.structs.replace(SAME, **fields)) == []


@pytest.mark.parametrize("kernel", ["Katmai", None])
def test_another_kernel_of_the_same_blas_is_a_difference(kernel: str | None) -> None:
    """As OPENBLAS_CORETYPE chooses it on the host alone."""

    def holding(kernel: str | None) -> Contents:
        blas = Library(name="OpenBLAS", version="0.3.34", sha256="aa", used_by=("linpack",), kernel=kernel)
        return msgspec.structs.replace(SAME, libraries=(blas,))

    (line,) = differences_of(holding(kernel), holding("SkylakeX"), communicate=False)
    assert "OpenBLAS" in line and "SkylakeX" in line
    assert differences_of(holding(kernel), holding(kernel)) == []


# What engines say of images, put together -----------------------------------------------------------------------------

PLAN = Plan(collectives=("bcast",), images=("openmpi", "mpich"), policies=("host", "single"), sizes=("8",),
            engine="fake")  # fmt: skip
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


@pytest.fixture
def fake() -> Says:
    return Says({"openmpi": image("openmpi", python="3.12"), "mpich": image("mpich")}, ("no memlock",))


@pytest.fixture
def host() -> Says:
    return Says({name: beside(name) for name in ("openmpi", "mpich")}, ("a remark",))


def looked(fake: Says, host: Says | None = None) -> Stacks:
    """Of a plan without the host, if there is none."""
    sessions: Any = {"fake": fake} if host is None else {"host": host, "fake": fake}
    plan = PLAN if host else msgspec.structs.replace(PLAN, policies=("single",))
    return look_at(expand(plan, lambda engine: Topology((Core(0), Core(1)))), sessions)


def test_the_host_is_asked_last_for_what_the_images_hold(fake: Says, host: Says) -> None:
    """What the first engine found in an image counts."""
    host.looks["openmpi"] = beside("mpich")
    looked(fake, host)
    assert fake.asked == [({"single"}, {})]
    assert host.asked == [({"host"}, {"openmpi": "openmpi", "mpich": "mpich"})]


def test_images_and_environments_are_described_apart(fake: Says, host: Says) -> None:
    stacks = looked(fake, host)
    openmpi, mpich = stacks.images
    described = (openmpi.name, openmpi.id, openmpi.digests, openmpi.labels)
    assert described == ("openmpi", "sha256:openmpi", ("openmpi@1",), {"collbench.x": "1"})
    assert (openmpi.python, openmpi.libraries, mpich.name) == ("3.12", (OPENMPI,), "mpich")
    environments = [(side.name, side.id, side.python) for side in stacks.environments]
    assert environments == [("openmpi", None, "3.11"), ("mpich", None, "3.11")]
    difference, *remarks = stacks.differences
    assert difference.startswith("openmpi: ") and difference.index("3.11") < difference.index("3.12")
    assert remarks == ["no memlock", "a remark"]


def test_every_cell_runs_the_stack_of_its_engine_and_image(fake: Says, host: Says) -> None:
    stacks = looked(fake, host)
    inside = stacks.of(LaunchCell("mpich", "single", "strict", 2, engine="fake"))
    assert (inside.launcher.vendor, inside.reference, inside.nccl) == ("mpich", "ref:mpich", False)
    assert (inside.refused, inside.grants) == (frozenset({"kcmp"}), frozenset({"memlock"}))
    outside = stacks.of(LaunchCell("openmpi", "host", None, 2, engine="host"))
    assert (outside.launcher.vendor, outside.reference, outside.refused) == ("openmpi", "/venv/openmpi", frozenset())


def test_without_the_host_nothing_differs(fake: Says, host: Says) -> None:
    stacks = looked(fake)
    assert (len(stacks.images), stacks.environments, stacks.differences) == (2, (), ("no memlock",))
    del host.looks["openmpi"]  # the image that differs
    assert looked(fake, host).differences == ("no memlock", "a remark")


def test_ranks_with_another_priority_on_the_host_are_refused_before_the_first_launch(fake: Says, host: Says) -> None:
    """They inherit that of the launcher, which containers do not have."""
    for looks, found in ((fake.looks, "nice 0, other"), (host.looks, "nice 19, other")):
        for look in looks.values():
            object.__setattr__(look, "contents", msgspec.structs.replace(look.contents, priority=found))
    with pytest.raises(PlanError, match="nice 19"):
        looked(fake, host)
    assert looked(fake).differences == ("no memlock",)


def test_clusters_too_refuse_an_image_with_other_code() -> None:
    """Kubernetes and Slurm, before the first launch: it might not be able to read the plan."""
    other, same = (msgspec.json.encode(held("openmpi", **fields)).decode() for fields in ({"sources": "0" * 64}, {}))
    with pytest.raises(ImageMissing, match="sources"):
        contents_in(["a line", other], "image openmpi", "openmpi", {}, PLAN)
    assert contents_in([same], "image openmpi", "openmpi", {}, PLAN) == held("openmpi")


@pytest.mark.parametrize(
    ("backends", "nccl"),
    [(("mpi",), False), (("mpi", "nccl"), True), (("torch-nccl",), True), (("torch-gloo",), False)],
)
def test_a_stack_knows_whether_something_goes_over_nccl(backends: tuple[str, ...], nccl: bool) -> None:
    plan = msgspec.structs.replace(PLAN, backends=backends)
    assert stack_of(plan, "mpich", image("mpich")).nccl is nccl


def lacking(*names: str, **fields: Any) -> Look:
    return image("mpich", missing={name: f"no {name}" for name in names}, **fields)


EVERYTHING = ("mpi", "mpi-cuda", "mpi-staged", "nccl", "torch-gloo", "torch-nccl")

#: Looks at an image or environment, and a plan that cannot use it. Only an image without CUDA is to be built again.
UNUSABLE: list[tuple[Look, dict[str, Any]]] = [
    (lacking("mpi-cuda", "mpi-staged", "nccl", "torch-nccl"), {"backends": ("mpi", "torch-nccl", "nccl")}),
    (lacking(*EVERYTHING), {"backends": ("mpi",)}),
    (lacking("mpi"), {"backends": ("mpi",)}),
    (lacking("nccl"), {"backends": ("nccl",)}),
    (lacking("nccl", cuda="12"), {"backends": ("nccl",)}),
    (beside("mpich", missing={"nccl": "no nccl"}), {"backends": ("nccl",)}),
    (lacking("mpi", "nccl"), {"backends": ("mpi", "nccl"), "unusable": "skip"}),
]


def test_what_a_plan_cannot_use_is_refused(golden: Golden) -> None:
    """One that may skip needs one of its backends."""
    for backend in ("mpi", "nccl"):
        refuse_missing(
            msgspec.structs.replace(PLAN, backends=("mpi", "nccl"), unusable="skip"), "mpich", lacking(backend)
        )
    attempts: list[Callable[[], object]] = [
        *(partial(refuse_missing, msgspec.structs.replace(PLAN, **keys), "mpich", look) for look, keys in UNUSABLE),
        partial(stack_of, PLAN, "mpich", Look(held(""), "r", "image mpich")),
    ]
    golden("stacks-refused.txt", refusals(attempts))


# What an environment says it holds, asked from inside -----------------------------------------------------------------

TORCH = Library(name="torch", version="2")


@dataclass
class Backend:
    """One that is there, or why it is not."""

    why: str | None
    packages: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()

    def missing(self) -> str | None:
        return self.why

    def libraries(self) -> tuple[Library, ...]:
        return (TORCH,)


def torch_is(monkeypatch: pytest.MonkeyPatch, spec: object) -> None:
    usual = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name == "torch" else usual(name))


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No MPI, no torch, no NCCL, no compiled loop; two backends."""
    there = {"mpi": Backend("no MPI"), "torch-gloo": Backend(None)}

    def lacks(error: CollbenchError) -> Any:
        raise error

    monkeypatch.setattr(backends, "names", lambda: tuple(there))
    monkeypatch.setattr(backends, "get", there.__getitem__)
    monkeypatch.setattr(probe, "load_mpi", lambda: lacks(CollbenchError("no MPI")))
    monkeypatch.setattr(probe, "load", lambda *names: lacks(BackendUnavailable("not installed")))
    monkeypatch.setattr(probe, "native_loop", lambda: None)
    monkeypatch.setattr(probe, "packages", lambda: {"numpy": "2", "cupy-cuda12x": "14"})
    torch_is(monkeypatch, None)


@pytest.fixture
def with_mpi(bare: None, monkeypatch: pytest.MonkeyPatch) -> None:
    mpi = SimpleNamespace(Get_library_version=lambda: "Open MPI v5")
    monkeypatch.setattr(probe, "load_mpi", lambda: mpi)
    monkeypatch.setattr(probe, "vendor", lambda found: "openmpi")
    monkeypatch.setattr(probe, "version_line", lambda found: "Open MPI 5.0.11")
    monkeypatch.setattr(probe, "library_path", lambda: "/no/libmpi.so")
    monkeypatch.setattr(cuda_aware, "configure_line", lambda text: f"--prefix of {text}")
    monkeypatch.setattr(cuda_aware, "built", lambda text: True)
    monkeypatch.setattr(cuda_aware, "claimed", lambda path: path != "/no/libmpi.so")


@pytest.fixture
def with_torch(bare: None, monkeypatch: pytest.MonkeyPatch) -> None:
    torch_is(monkeypatch, object())
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(version=SimpleNamespace(cuda="13.0")))


@pytest.mark.usefixtures("bare")
def test_where_there_is_nothing() -> None:
    assert environment_contents() == Contents(
        collbench=collbench.__version__, python=sys.version.split()[0], vendor="", libraries=(), native=False,
        packages={"numpy": "2", "cupy-cuda12x": "14"}, missing={"mpi": "no MPI"}, cuda="12", build=None, schema=SCHEMA,
        sources=sources(), priority=priority(), backends=("mpi", "torch-gloo"),
    )  # fmt: skip


#: What is asked for, where there are an MPI and torch, and what is found.
BOTH_THERE: list[tuple[str, str, str, Library, Build | None]] = [
    ("", "openmpi", "12", Library(name="Open MPI", version="5.0.11", path="/no/libmpi.so"), None),
    ("build", "openmpi", "12", Library(name="Open MPI", version="5.0.11", path="/no/libmpi.so"),
     Build(configure="--prefix of Open MPI v5", cuda_built=True, cuda_claimed=False)),
    ("torch", "torch", "13.0", TORCH, None), ("torch build", "torch", "13.0", TORCH, None),
]  # fmt: skip


@pytest.mark.usefixtures("with_mpi", "with_torch")
@pytest.mark.parametrize(("asked_for", "vendor", "cuda", "library", "build"), BOTH_THERE)
def test_torch_counts_where_it_is_asked_for(
    asked_for: str, vendor: str, cuda: str, library: Library, build: Build | None
) -> None:
    there = environment_contents(build="build" in asked_for, torch="torch" in asked_for)
    assert (there.vendor, there.cuda, there.libraries, there.build) == (vendor, cuda, (library,), build)


@pytest.mark.usefixtures("with_torch")
def test_torch_is_what_there_is_without_an_mpi() -> None:
    assert environment_contents().vendor == "torch"


@pytest.mark.usefixtures("with_mpi")
def test_nccl_and_the_native_loop_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "load", lambda *names: SimpleNamespace(handle=names, path="/no/libnccl.so"))
    monkeypatch.setattr(probe, "nccl_version", lambda handle: (2, 29, 3))
    monkeypatch.setattr(probe, "native_loop", lambda: object())
    there = environment_contents()
    mpi, nccl = there.libraries
    assert (mpi.name, nccl) == ("Open MPI", Library(name="NCCL", version="2.29.3", path="/no/libnccl.so"))
    assert there.native


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(("names", "cuda"), [((), None), (("numpy",), None), (("cupy-cuda13x",), "13")])
def test_the_cuda_of_cupy(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], cuda: str | None) -> None:
    monkeypatch.setattr(probe, "packages", lambda: dict.fromkeys(names, "1"))
    assert environment_contents().cuda == cuda


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"schema": SCHEMA + 1}, (f"(schema {SCHEMA + 1})", f"{collbench.__version__} (schema {SCHEMA})")),
        ({"schema": 0}, ("(schema unknown)", f"{collbench.__version__} (schema {SCHEMA})")),
        ({"collbench": "0.0.1"}, (f"0.0.1 (schema {SCHEMA})", f"{collbench.__version__} (schema {SCHEMA})")),
        ({"sources": ""}, ("unknown", sources()[:12])), ({"sources": "0" * 64}, ("0" * 12, sources()[:12])),
    ],
)  # fmt: skip
def test_another_collbench_is_told(fields: dict[str, Any], words: tuple[str, str]) -> None:
    here = environment_contents()
    assert here.another is None
    another = str(msgspec.structs.replace(here, **fields).another)
    assert all(word in another for word in words), another


@pytest.mark.usefixtures("with_mpi", "with_torch")
@pytest.mark.filterwarnings("ignore:.*found in sys.modules")
@pytest.mark.parametrize(
    ("flags", "vendor", "build"),
    [((), "openmpi", False), (("--build",), "openmpi", True), (("--build", "--torch"), "torch", False)],
)
def test_it_answers_as_json_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], vendor: str,
    build: bool,
) -> None:  # fmt: skip
    """As the program that it is: what it takes from elsewhere is made up there too."""
    for name in ("load_mpi", "vendor", "version_line", "library_path"):
        monkeypatch.setattr(loading, name, getattr(probe, name))
    monkeypatch.setattr(gpu_device, "load", vars(probe)["load"])
    monkeypatch.setattr(sys, "argv", ["probe", *flags])
    runpy.run_module("collbench.launch.probe", run_name="__main__")
    (line,) = capsys.readouterr().out.splitlines()
    answer = json.loads(line)
    assert (answer["collbench"], answer["packages"]) == (collbench.__version__, packages())
    assert (answer["vendor"], answer["build"] is not None) == (vendor, build)


# The code that measures -----------------------------------------------------------------------------------------------


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
    project = Path(__file__).parents[2] / "pyproject.toml"
    contracts = tomllib.loads(project.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (contract,) = (each for each in contracts if each["name"] == "Measuring knows no analysis")
    measuring = {name.removeprefix("collbench.") for name in contract["source_modules"]} - {"launch", "yardsticks"}
    assert {name for name in MEASURING if (PACKAGE / name).is_dir()} == measuring
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
