"""hpcg: High Performance Conjugate Gradients, by an xhpcg that is there: no package of a distribution has one."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.schema.case import Case
from collbench.workloads import _hpcg
from collbench.workloads.parameters import parameter
from collbench.workloads.program import Measure, Program
from collbench.workloads.software import Software

WAYS = (
    "put one into PATH, in the image or on the host; or put its source into containers/site/hpcg.tar.gz and build the "
    "image tools with --build-arg HPCG_SHA256=; or with --build-arg HPCG_URL= as well, to download it"
)

#: Bytes for each equation: measured, from 16 to 192 a side.
BYTES = 720


def argv(case: Case, times: int) -> Sequence[str]:
    """The summary is in a file, whose name has the version and the time in it."""
    sizes = " ".join(f"--{side}={case['n']}" for side in ("nx", "ny", "nz"))
    run = f"xhpcg {sizes} --rt={case['seconds']} >&2"
    return ("sh", "-c", f"rm -f HPCG-Benchmark* && {run} && cat HPCG-Benchmark*.txt")


def refuses(case: Case) -> str | None:
    return f"n={case['n']}: three coarser grids need a multiple of 8" if case["n"] % 8 else None


WORKLOAD = Program(
    name="hpcg",
    suite="cpu",
    title="HPCG",
    summary="conjugate gradients with a multigrid preconditioner on a sparse system",
    measures=(Measure("rating", lambda case: 1e9, "flop"),),
    argv=argv,
    parse=lambda output: {"rating": [1.0 / _hpcg.rating(output)]},
    verify=_hpcg.wrong,
    elapsed=_hpcg.elapsed,
    figures=_hpcg.figures,
    notes=_hpcg.notes,
    memory=lambda case: BYTES * case["n"] ** 3,
    refuses=refuses,
    seconds=lambda case: float(case["seconds"]),
    scratch=True,
    repeated=True,
    software=(Software("xhpcg", version=(), pattern=r"HPCG-Benchmark_(\d+(?:\.\d+)+)", ways=WAYS),),
    axes=(
        parameter("n", 64, "equations along each side of a cube", least=16, most=4096),
        parameter("seconds", 60, "time of the part that is rated", least=1, most=86_400),
    ),
)
