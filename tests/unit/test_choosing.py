"""Which backends and cases are measured, where a world waits, and what a broken package stops."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.unit.conftest import Collbench
from tests.unit.test_slurm import PLAN, site_file

from collbench import backends, workloads
from collbench.cli.plan import before_measuring
from collbench.errors import BackendUnavailable, RequestError
from collbench.launch.expansion import expand
from collbench.machine import launcher
from collbench.run.experiment import chosen_backends, default_backend, reports_in_turns
from collbench.schema.plan import Plan
from collbench.workloads import host

MISSING = "no library here"


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in backends.names():
        if name != "fake":
            monkeypatch.setattr(type(backends.get(name)), "missing", lambda self: MISSING)


def plan(*names: str, **fields: str) -> Plan:
    return Plan(collectives=("bcast",), backends=names, **fields)


@pytest.mark.usefixtures("nothing_installed")
def test_which_backends_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once each; what is missing is refused or skipped with the reason, if anything is left."""
    for unusable in ("refuse", "skip"):  # simulated and real times, even where the real ones cannot be had
        with pytest.raises(RequestError, match=r"\bfake\b.*\bsimulated\b"):
            chosen_backends(plan("mpi", "fake", unusable=unusable))
        with pytest.raises(BackendUnavailable, match=MISSING):
            chosen_backends(plan("mpi", "nccl", unusable=unusable))
    chosen, absent = chosen_backends(plan("fake", "fake"))
    assert ([backend.name for backend in chosen], absent) == (["fake"], {})
    monkeypatch.setattr(type(backends.get("mpi")), "missing", lambda self: None)
    chosen, absent = chosen_backends(plan("mpi", "nccl", unusable="skip"))
    assert ([backend.name for backend in chosen], absent) == (["mpi"], {"nccl": MISSING})


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize(
    ("kind", "cpu", "gpu"),
    [("none", "mpi", "nccl"), ("openmpi", "mpi", "nccl"), ("torchrun", "torch-gloo", "torch-nccl")],
)
def test_the_default_backend(monkeypatch: pytest.MonkeyPatch, kind: launcher.LauncherKind, cpu: str, gpu: str) -> None:
    monkeypatch.setattr(launcher, "detect", lambda: launcher.Launcher(kind))
    assert (default_backend(), default_backend("gpu")) == (cpu, gpu)
    (chosen,), _ = chosen_backends(plan("fake"))
    assert chosen.name == "fake", "what is asked for is no default"


@pytest.mark.parametrize(
    ("measured", "sizes", "before"),
    [((8, 16), [[8, 16]], [8, 16, None]), ((16,), [[8, 16]], [16, None]),
     ((8,), [[8, 16, 32]], [8, None]),  # those after it are executed, once it has said that it is over
     ((8, 32), [[8, 16, 32, 64]], [8, 32, None]), ((8, 64), [[8, 16], [32, 64]], [8, 64, None]),
     ((8,), [[8], [16]], [8, None])],
)  # fmt: skip
def test_where_a_world_stands(
    measured: Sequence[int], sizes: Sequence[Sequence[int]], before: list[int | None]
) -> None:
    """Of backends whose cases have these sizes, of which some are measured and the others executed briefly."""
    cases = [tuple(SimpleNamespace(identities=(size,)) for size in of_backend) for of_backend in sizes]
    experiment: Any = SimpleNamespace(
        executed=lambda number: cases[number], executed_last=len(cases) - 1,
        chosen=SimpleNamespace(measures=lambda identities: identities[0] in measured),
    )  # fmt: skip
    stood: list[Any] = [at for number in range(len(cases)) for at in reports_in_turns(experiment, number).values()]
    assert stood == before


# A file in the packages of backends and workloads that cannot be loaded is listed so, and stops nothing else ----------

Put = Callable[[str], None]


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Put]:
    """Puts a file `faulty.py` into both packages, for this process."""

    def add(text: str) -> None:
        (tmp_path / "faulty.py").write_text(text, encoding="utf-8")
        for package, cached in ((backends, backends._own), (host, workloads._modules)):
            monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
            cached.cache_clear()
            monkeypatch.delitem(sys.modules, f"{package.__name__}.faulty", raising=False)

    yield add
    monkeypatch.undo()
    backends._own.cache_clear()
    workloads._modules.cache_clear()


def test_it_is_listed_with_the_reason_and_stops_nothing_else(put: Put, here: Collbench, tmp_path: Path) -> None:
    put("import nosuchmodule")
    listed = here("list").out
    reason = r".*\bModuleNotFoundError: .*nosuchmodule"
    for what, module in (("backend", "collbench.backends.faulty"), ("benchmark", "collbench.workloads.host.faulty")):
        assert re.search(rf"^  no  faulty\n +{what} 'faulty': {module} {reason}", listed, re.MULTILINE)
    with pytest.raises(BackendUnavailable, match=rf"^backend 'faulty': collbench\.backends\.faulty {reason}"):
        backends.get("faulty")
    with pytest.raises(RequestError, match=rf"^benchmark 'faulty': collbench\.workloads\.host\.faulty {reason}"):
        workloads.get("faulty")
    assert "fake" in listed and "sysbench_cpu" in here("suite").out
    assert here("bcast", "--backend", "fake", "-e", "8", "-n", "2", "--out", tmp_path / "run").code == 0
    assert "faulty" not in [name for members in workloads.suites().values() for name in members]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", " AttributeError: "), ("raise RuntimeError('no licence')", " RuntimeError: no licence."),
     ("BACKEND = 1", " lacks name, summary, ")],
)  # fmt: skip
def test_a_file_without_a_backend(put: Put, text: str, reason: str) -> None:
    put(text)
    assert reason in str(backends.missing("faulty"))


# What `plan` and `launch` say of a plan that can be measured, and may not answer what its author asks -----------------


@pytest.mark.parametrize(
    ("options", "fields", "named"),
    [(["--exclusive"], {"hosts": (1, 2), "how": "blocks"}, 'align = "barrier"'),  # it differs between one and several
     (["--exclusive"], {"hosts": (1, 2), "how": "blocks", "align": "barrier"}, None),
     (["--exclusive"], {"hosts": (2,)}, None), (["--partition=gpu", "--exclusive"], {}, None),
     ([], {}, "--exclusive"), (["--partition=gpu"], {}, "--exclusive")],  # nodes that may be shared
)  # fmt: skip
def test_said_before_measuring(tmp_path: Path, options: list[str], fields: dict[str, Any], named: str | None) -> None:
    site = site_file(tmp_path, options=options)
    lines = before_measuring(expand(msgspec.structs.replace(PLAN, site=site, **fields)))
    assert len(lines) == (named is not None) and all(str(named) in line for line in lines)
