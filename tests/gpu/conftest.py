"""Fixtures for tests on GPUs: what there is, or a skip with the reason (COLLBENCH_REQUIRE=gpu: a failure)."""

from __future__ import annotations

import subprocess

import pytest

from tests.gpu.jobs import Gpus, look, mpirun, why_no_torch
from tests.mpi.jobs import skip_or_fail


@pytest.fixture(scope="session")
def machine() -> Gpus | str:
    """Looked at once: the GPUs, or why there are none."""
    why, count = look()
    if why is not None:
        return f"no GPU can be used: {why}"
    program = mpirun()
    if program is None:
        return "there is no mpirun"
    done = subprocess.run((program, "--version"), capture_output=True, text=True, timeout=30, check=False)
    return Gpus(count, program, "Open MPI" in done.stdout)


@pytest.fixture
def gpus(machine: Gpus | str) -> Gpus:
    if isinstance(machine, str):
        skip_or_fail("gpu", machine)
        raise AssertionError
    return machine


@pytest.fixture(scope="session")
def torch_reason(machine: Gpus | str) -> str | None:
    return None if isinstance(machine, str) else why_no_torch()


@pytest.fixture
def backend(request: pytest.FixtureRequest, gpus: Gpus, torch_reason: str | None) -> str:
    """The backend that a test is parametrised with (indirectly); torch-nccl only where torch can be used."""
    name = str(request.param)
    if name == "torch-nccl" and torch_reason is not None:
        skip_or_fail("torch", torch_reason)
    return name
