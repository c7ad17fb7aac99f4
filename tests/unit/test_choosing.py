"""Which backends are measured, on a machine that has none but the fake one; where a world in turns waits."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from collbench import backends
from collbench.errors import BackendUnavailable, RequestError
from collbench.machine import launcher
from collbench.run.experiment import chosen_backends, default_backend, reports_in_turns
from collbench.schema.plan import Plan

MISSING = "no library here"


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in backends.names():
        if name != "fake":
            monkeypatch.setattr(type(backends.get(name)), "missing", lambda self: MISSING)


def plan(*names: str, **fields: str) -> Plan:
    return Plan(collectives=("bcast",), backends=names, **fields)


@pytest.mark.parametrize("unusable", ["refuse", "skip"])
def test_simulated_and_real_times_do_not_mix_even_where_the_real_ones_cannot_be_had(unusable: str) -> None:
    with pytest.raises(RequestError, match=r"\bfake\b.*\bsimulated\b"):
        chosen_backends(plan("mpi", "fake", unusable=unusable))


def test_what_is_missing_is_refused_or_skipped_with_the_reason() -> None:
    with pytest.raises(BackendUnavailable, match=MISSING):
        chosen_backends(plan("mpi", "nccl"))
    with pytest.raises(BackendUnavailable, match=MISSING):
        chosen_backends(plan("mpi", "nccl", unusable="skip"))  # nothing would be left


def test_a_backend_is_chosen_once() -> None:
    chosen, absent = chosen_backends(plan("fake", "fake"))
    assert ([backend.name for backend in chosen], absent) == (["fake"], {})


def test_what_is_usable_is_measured_without_what_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(backends.get("mpi")), "missing", lambda self: None)
    chosen, absent = chosen_backends(plan("mpi", "nccl", unusable="skip"))
    assert ([backend.name for backend in chosen], absent) == (["mpi"], {"nccl": MISSING})


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
