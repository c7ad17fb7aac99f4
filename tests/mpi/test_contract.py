"""Every collective on real MPI and real gloo: each dtype, reduction, root, place and odd size gives what it means."""

from __future__ import annotations

from pathlib import Path

import pytest

from collbench import collectives
from tests.mpi.jobs import Command, Ended, finish

ALL = '["all"]'
FEW = '["int8", "uint64", "float32"]'
#: Every dtype at a size that is no power of two; a narrow, a wide and a real one at the others.
ODD, SIZES = '["4100"]', '["0", "8", "70000"]'


def plan(tmp_path: Path, dtypes: str, roots: list[int], sizes: str, places: str = "[false, true]") -> str:
    path = tmp_path / "contract.toml"
    path.write_text(
        f"""
        collectives = {list(collectives.names())}
        dtypes = {dtypes}
        ops = ["all"]
        roots = {roots}
        in_place = {places}
        sizes = {sizes}
        iters = 1
        warmup = 0
        align = "barrier"
        """
    )
    return str(path)


def reasons(ended: Ended) -> set[str]:
    """Reasons of what was not measured; every measured case must be right."""
    assert ended.code == 0, ended.err
    found = set()
    for record in ended.records:
        if record["status"] == "ok":
            assert record["check"]["wrong"] == 0
        else:
            assert record["status"] == "skipped", record
            found.add(record["reason"])
    return found


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("ranks", "dtypes", "sizes"),
    [(1, ALL, ODD), (1, FEW, SIZES), (2, ALL, ODD), (2, FEW, SIZES), (3, FEW, ODD), (5, FEW, ODD)],
)
def test_mpi(mpirun: Command, tmp_path: Path, ranks: int, dtypes: str, sizes: str) -> None:
    path = plan(tmp_path, dtypes, sorted({0, ranks - 1}), sizes, "[false]" if ranks == 3 else "[false, true]")
    ended = finish(mpirun(ranks, "run", path, "--style", "json"))
    expected = {f"{name} needs 2 ranks or more" for name in ("ps_bcast", "ps_gather")} if ranks == 1 else set()
    assert reasons(ended) == expected
    measured = {record["case"]["workload"] for record in ended.records if record["status"] == "ok"}
    assert len(measured) == len(collectives.names()) - (2 if ranks == 1 else 0)


@pytest.mark.torch
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_gloo_under_torchrun(torchrun: Command, tmp_path: Path, ranks: int) -> None:
    dtypes, sizes = (ALL, ODD) if ranks == 2 else ('["float32"]', '["8", "4100"]')
    path = plan(tmp_path, dtypes, sorted({0, ranks - 1}), sizes)
    ended = finish(torchrun(ranks, "run", path, "--style", "json"))
    found = reasons(ended)
    allowed = {"no in-place form", "ranks or more", "cannot send to its own rank", "no torch.distributed form"}
    assert all(any(part in reason for part in allowed) for reason in found), found
    assert {record["case"]["how"]["backend"] for record in ended.records} == {"torch-gloo"}
    measured = {record["case"]["workload"] for record in ended.records if record["status"] == "ok"}
    assert measured >= {"allreduce", "reduce", "bcast", "gather", "scatter", "allgather", "reduce_scatter", "alltoall"}


@pytest.mark.mpi
@pytest.mark.torch
def test_gloo_under_mpirun(mpirun: Command, torchrun: object, tmp_path: Path) -> None:
    ended = finish(mpirun(2, "allreduce", "--backend", "torch-gloo", "-e", "64", "-n", "5", "--style", "json"))
    assert not reasons(ended)
    assert all(record["driver"] == "python" and record["transport"] == "tcp" for record in ended.records)
