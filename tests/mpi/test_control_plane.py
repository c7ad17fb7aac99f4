"""By what ranks agree, on real MPI and gloo: extremes and sums of whole numbers, and a rank that tells the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.mpi.jobs import Command, finish

PROGRAM = Path(__file__).with_name("control_plane.py")
LARGE = 2**62 + 1


@pytest.mark.mpi
@pytest.mark.parametrize("backend", ["mpi", pytest.param("torch-gloo", marks=pytest.mark.torch)])
def test_every_rank_finds_the_same(mpirun: Command, request: pytest.FixtureRequest, backend: str) -> None:
    if backend == "torch-gloo":
        request.getfixturevalue("torchrun")  # says where torch is missing
    ended = finish(mpirun(3, backend, program=(str(PROGRAM),)))
    assert ended.code == 0, ended.err
    assert json.loads(ended.out) == {
        "extremes": [[0, -2, LARGE - 2], [2, 0, LARGE]],
        "total": [3, 3 * (LARGE // 4), -3],
        "many": [49_999, 50_001, 3],
        "empty": [[], []],
        "told": ["of 0", "of 1", "of 2"],
    }
