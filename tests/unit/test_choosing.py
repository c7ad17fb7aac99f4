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
from click.testing import CliRunner
from tests.unit.test_slurm import PLAN, site_file

from collbench import backends, workloads
from collbench.cli import cli
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
@pytest.mark.parametrize("unusable", ["refuse", "skip"])
def test_simulated_and_real_times_do_not_mix_even_where_the_real_ones_cannot_be_had(unusable: str) -> None:
    with pytest.raises(RequestError, match=r"\bfake\b.*\bsimulated\b"):
        chosen_backends(plan("mpi", "fake", unusable=unusable))


@pytest.mark.usefixtures("nothing_installed")
def test_what_is_missing_is_refused_or_skipped_with_the_reason() -> None:
    with pytest.raises(BackendUnavailable, match=MISSING):
        chosen_backends(plan("mpi", "nccl"))
    with pytest.raises(BackendUnavailable, match=MISSING):
        chosen_backends(plan("mpi", "nccl", unusable="skip"))  # nothing would be left


@pytest.mark.usefixtures("nothing_installed")
def test_a_backend_is_chosen_once() -> None:
    chosen, absent = chosen_backends(plan("fake", "fake"))
    assert ([backend.name for backend in chosen], absent) == (["fake"], {})


@pytest.mark.usefixtures("nothing_installed")
def test_what_is_usable_is_measured_without_what_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(backends.get("mpi")), "missing", lambda self: None)
    chosen, absent = chosen_backends(plan("mpi", "nccl", unusable="skip"))
    assert ([backend.name for backend in chosen], absent) == (["mpi"], {"nccl": MISSING})


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize(
    ("kind", "cpu", "gpu"),
    [("none", "mpi", "nccl"), ("openmpi", "mpi", "nccl"), ("torchrun", "torch-gloo", "torch-nccl")],
)
def test_the_default_is_what_the_launcher_starts(
    monkeypatch: pytest.MonkeyPatch, kind: launcher.LauncherKind, cpu: str, gpu: str
) -> None:
    monkeypatch.setattr(launcher, "detect", lambda: launcher.Launcher(kind))
    assert (default_backend(), default_backend("gpu")) == (cpu, gpu)
    (chosen,), _ = chosen_backends(plan("fake"))
    assert chosen.name == "fake", "what is asked for is no default"


def stood(measured: Sequence[int], backends: Sequence[Sequence[int]]) -> list[Any]:
    """Of backends whose cases have these sizes, of which some are measured and the others executed briefly."""
    cases = [[SimpleNamespace(identities=(size,)) for size in sizes] for sizes in backends]
    experiment: Any = SimpleNamespace(
        executed=lambda number: tuple(cases[number]), executed_last=len(cases) - 1,
        chosen=SimpleNamespace(measures=lambda identities: identities[0] in measured),
    )  # fmt: skip
    return [size for number in range(len(cases)) for size in reports_in_turns(experiment, number).values()]


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize(
    ("measured", "backends", "expected"),
    [
        ((8, 16), [[8, 16]], [8, 16, None]),
        ((16,), [[8, 16]], [16, None]),
        ((8,), [[8, 16, 32]], [8, None]),  # those after it are executed, once it has said that it is over
        ((8, 32), [[8, 16, 32, 64]], [8, 32, None]),
        ((8, 64), [[8, 16], [32, 64]], [8, 64, None]),
        ((8,), [[8], [16]], [8, None]),
    ],
)
def test_a_world_stands_before_each_case_that_it_measures_and_once_at_its_end(
    measured: Sequence[int], backends: Sequence[Sequence[int]], expected: list[int | None]
) -> None:
    assert stood(measured, backends) == expected


# A file in the packages of backends and workloads that cannot be loaded is listed so, and stops nothing else

Put = Callable[..., None]

REASON = "cannot be loaded: ModuleNotFoundError: No module named 'nosuchmodule'."


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


def test_it_is_listed_with_the_reason(put: Put) -> None:
    put("import nosuchmodule")
    listed = CliRunner().invoke(cli, ["list"], catch_exceptions=False).stdout
    assert re.search(rf"^  no  faulty\n +backend 'faulty': collbench.backends.faulty {REASON}$", listed, re.MULTILINE)
    assert re.search(
        rf"^  no  faulty\n +benchmark 'faulty': collbench.workloads.host.faulty {REASON}$", listed, re.MULTILINE
    )
    assert "in-process ranks with simulated times" in listed


def test_who_asks_for_it_gets_the_reason(put: Put) -> None:
    put("import nosuchmodule")
    with pytest.raises(BackendUnavailable) as caught:
        backends.get("faulty")
    assert str(caught.value) == f"backend 'faulty': collbench.backends.faulty {REASON}"
    with pytest.raises(RequestError) as refused:
        workloads.get("faulty")
    assert str(refused.value) == f"benchmark 'faulty': collbench.workloads.host.faulty {REASON}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "cannot be loaded: AttributeError: "),
        ("raise RuntimeError('no licence')", "cannot be loaded: RuntimeError: no licence."),
        ("BACKEND = 1", ":BACKEND is not a Backend of that name: it lacks name, summary, "),
    ],
)
def test_a_file_without_a_backend(put: Put, text: str, reason: str) -> None:
    put(text)
    assert reason in str(backends.missing("faulty"))


def test_it_stops_nothing_else(put: Put, tmp_path: Path) -> None:
    put("import nosuchmodule")
    flags = ["--backend", "fake", "-e", "8", "-n", "2", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(cli, ["bcast", *flags], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "faulty" not in [name for members in workloads.suites().values() for name in members]
    assert "sysbench_cpu" in CliRunner().invoke(cli, ["suite"], catch_exceptions=False).stdout


# What `plan` and `launch` say of a plan that can be measured, and may not answer what its author asks


def lines(folder: Path, options: tuple[str, ...] = ("--exclusive",), **plan: Any) -> tuple[str, ...]:
    path = site_file(folder, options=list(options))
    return before_measuring(expand(msgspec.structs.replace(PLAN, site=path, **plan)))


def test_gates_may_differ_between_one_host_and_several(tmp_path: Path) -> None:
    (line,) = lines(tmp_path, hosts=(1, 2), how="blocks")
    assert line.startswith('gate: "auto" may be another on one host') and 'gate = "barrier"' in line
    assert lines(tmp_path, hosts=(1, 2), gate="barrier", how="blocks") == () == lines(tmp_path, hosts=(2,))


@pytest.mark.parametrize("options", [(), ("--partition=gpu",)])
def test_nodes_that_may_be_shared_are_named(tmp_path: Path, options: tuple[str, ...]) -> None:
    (line,) = lines(tmp_path, options)
    assert "no --exclusive among options" in line and "other jobs may run beside the ranks" in line


def test_nodes_of_ones_own_are_not(tmp_path: Path) -> None:
    assert lines(tmp_path, ("--partition=gpu", "--exclusive")) == ()
