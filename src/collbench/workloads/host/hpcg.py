"""hpcg: High Performance Conjugate Gradients, by an xhpcg that is there, and its summary."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.schema.case import Case
from collbench.units import counted
from collbench.workloads.program import Measure, Program, parameter
from collbench.workloads.software import Software

#: Tests whose results say that the solution is right: spectrum, symmetry, iterations, reproducibility.
TESTS = 4

_RATING = "Final Summary::HPCG result is VALID with a GFLOP/s rating of"
_INVALID = "Final Summary::HPCG result is"
_RESIDUAL = "Reproducibility Information::Scaled residual mean"


class Summary(dict[str, str]):
    """What an xhpcg wrote, by key. ValueError: a key is missing."""

    def __init__(self, output: str) -> None:
        lines = (line.rpartition("=") for line in output.splitlines())
        super().__init__((key.strip(), value.strip()) for key, _, value in lines if key)

    def __missing__(self, key: str) -> str:
        raise ValueError(f"no {key!r} in the summary")


def wrong(case: Case, output: str) -> int:
    """How many tests it did not pass, and whether its result is invalid or of another size; it always exits with 0."""
    summary = Summary(output)
    results = [value for key, value in summary.items() if key.endswith("::Result")]
    if len(results) != TESTS:
        raise ValueError(f"{counted(len(results), 'test')} in the summary, not {TESTS}")
    if _INVALID not in summary:
        float(summary[_RATING])
    other = summary["Local Domain Dimensions::nx"] != str(case["n"])
    return sum(result != "PASSED" for result in results) + int(_INVALID in summary) + int(other)


def notes(output: str) -> Sequence[str]:
    """Which HPCG, and whether it was optimised for any machine."""
    summary = Summary(output)
    processes, threads = (int(summary[f"Machine Summary::{key}"])
                          for key in ("Distributed Processes", "Threads per processes"))  # fmt: skip
    kind = "reference" if any(key.startswith("Final Summary::Reference version") for key in summary) else "optimised"
    ran = f"{counted(processes, 'process', 'processes')} of {counted(threads, 'thread')}"
    return (f"HPCG {summary['version']}, {kind} version, {ran}",)


WAYS = (
    "put one into PATH, in the image or on the host; or put its source into containers/site/hpcg.tar.gz and build the "
    "image tools with --build-arg HPCG_SHA256=; or with --build-arg HPCG_URL= as well, to download it"
)


def argv(case: Case, times: int) -> Sequence[str]:
    """The summary is in a file, whose name has the version and the time in it."""
    sizes = " ".join(f"--{side}={case['n']}" for side in ("nx", "ny", "nz"))
    run = f"xhpcg {sizes} --rt={case['seconds']} >&2"
    return ("sh", "-c", f"rm -f HPCG-Benchmark* && {run} && cat HPCG-Benchmark*.txt")


WORKLOAD = Program(
    name="hpcg", suite="cpu", title="HPCG",
    summary="conjugate gradients with a multigrid preconditioner on a sparse system",
    measures=(Measure("rating", lambda case: 1e9, "flop"),),  # a sample is the time of 1e9 flop, preparations included
    argv=argv, parse=lambda output: {"rating": [1.0 / float(Summary(output)[_RATING])]}, verify=wrong, notes=notes,
    elapsed=lambda case, output: float(Summary(output)["Benchmark Time Summary::Total"]),  # of the part that is rated
    figures=lambda case, output: {"residual": float(Summary(output)[_RESIDUAL])},
    memory=lambda case: 720 * case["n"] ** 3,  # measured, from 16 to 192 a side
    refuses=lambda case: f"n={case['n']}: three coarser grids need a multiple of 8" if case["n"] % 8 else None,
    seconds=lambda case: float(case["seconds"]), scratch=True, repeated=True,
    software=(Software("xhpcg", version=(), pattern=r"HPCG-Benchmark_(\d+(?:\.\d+)+)", ways=WAYS),),
    axes=(
        parameter("n", 64, "equations along each side of a cube", least=16, most=4096),
        parameter("seconds", 60, "time of the part that is rated", least=1, most=86_400),
    ),
)  # fmt: skip
