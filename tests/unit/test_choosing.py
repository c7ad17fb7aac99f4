"""Which backends are measured, and which may be missing, on a machine that has none but the fake one."""

from __future__ import annotations

import pytest

from collbench import backends
from collbench.errors import BackendUnavailable, RequestError
from collbench.machine import launcher
from collbench.run.experiment import chosen_backends, default_backend
from collbench.schema.plan import Plan


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in backends.names():
        if name != "fake":
            monkeypatch.setattr(type(backends.get(name)), "missing", lambda self: "nothing is installed")


def plan(*names: str, **fields: str) -> Plan:
    return Plan(collectives=("bcast",), backends=names, **fields)


@pytest.mark.parametrize("unusable", ["refuse", "skip"])
def test_simulated_and_real_times_do_not_mix_even_where_the_real_ones_cannot_be_had(unusable: str) -> None:
    with pytest.raises(RequestError, match="the times of fake are simulated"):
        chosen_backends(plan("mpi", "fake", unusable=unusable))


def test_what_is_missing_is_refused_or_skipped_with_the_reason() -> None:
    with pytest.raises(BackendUnavailable, match="nothing is installed"):
        chosen_backends(plan("mpi", "nccl"))
    with pytest.raises(BackendUnavailable, match="nothing is installed"):
        chosen_backends(plan("mpi", "nccl", unusable="skip"))  # nothing would be left


def test_a_backend_is_chosen_once() -> None:
    chosen, absent = chosen_backends(plan("fake", "fake"))
    assert ([backend.name for backend in chosen], absent) == (["fake"], {})


def test_what_is_usable_is_measured_without_what_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(backends.get("mpi")), "missing", lambda self: None)
    chosen, absent = chosen_backends(plan("mpi", "nccl", unusable="skip"))
    assert ([backend.name for backend in chosen], absent) == (["mpi"], {"nccl": "nothing is installed"})


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
