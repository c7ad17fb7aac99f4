"""The page of gpu_peer.py: collbench over nccl-tests, and what of a difference is the wait."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_installation import describe_gpus
from gpu_rounds import Rounds, failures_text, shown
from machine import describe
from results import table, verdict

TARGET = 1.02
#: The operations as collbench names them, and the program of nccl-tests.
OPERATIONS = {"allreduce": "all_reduce_perf", "sendrecv": "sendrecv_perf"}
IN_PLACE = " in place"
#: Sizes in bytes, and how many launches are enough for a verdict.
FEW = 3
ENOUGH = {8: 5, 1 << 20: 5, 1 << 30: FEW}
SMALLEST = 8
BURST, WARMUP, BURSTS = 20, 5, 20

HEAD = (
    "operation", "launches", "nccl-tests us", "native us", "native/nccl-tests", "rounds", "target", "",
    "torch-nccl us", "over nccl-tests in place",
)  # fmt: skip
WAITS = (
    "8 B", "C, synchronize us", "C, polling us", "synchronize/polling", "native/C synchronize", "nccl-tests/C polling",
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """What the page is about. `alike`: nccl-tests has a process for each GPU, as collbench has."""

    ranks: int
    alike: bool
    nccl: str
    seed: int
    registration: int = 0


def report(measured: Measured, outcome: Rounds) -> str:
    """The page."""
    rows = [row(measured, outcome, name, size) for name in OPERATIONS for size in ENOUGH]
    remarks = (ALONE if measured.ranks == 1 else "") + ("" if measured.alike else TWO_PROGRAMS)
    return f"""# collbench over nccl-tests

{describe()}; {describe_gpus()}; NCCL {measured.nccl}; {measured.ranks} rank(s), one GPU each. float32, {BURST}
operations back to back and one wait, {WARMUP} such bursts before, {BURSTS} timed in a launch. Medians of launch medians
(smallest .. largest), order from seed {measured.seed}. `rounds`: smallest and largest ratio of launches that were
neighbours in time. nccl-tests and native out of place, torch-nccl in place. `-R {measured.registration}`.
{remarks}
{table(HEAD, rows)}
nccl-tests waits by polling cudaStreamQuery, collbench in cudaStreamSynchronize, once in a burst. The same burst in
plain C with either wait tells how much of a difference at 8 B is the wait:

{table(WAITS, [waits_row(outcome, name) for name in OPERATIONS])}{failures_text(outcome)}"""


ALONE = """
With one rank nothing travels. All-reduce is a copy on the GPU, and in place not even that, so torch-nccl has no ratio;
sendrecv is a kernel of NCCL's.
"""
TWO_PROGRAMS = """
nccl-tests was built without MPI: one of its processes drives all GPUs, where collbench has a process for each. These
are two different programs, so there is no verdict.
"""


def row(measured: Measured, outcome: Rounds, operation: str, size: int) -> list[str]:
    """A line of the table."""
    tests, native = (outcome.seconds(kind, operation, size) for kind in ("nccl-tests", "native"))
    ratio = outcome.ratio(("native", operation), ("nccl-tests", operation), size)
    torch = ("torch-nccl", operation + IN_PLACE)
    over = outcome.ratio(torch, ("nccl-tests", operation + IN_PLACE), size) if measured.ranks > 1 else None
    if min(len(tests), len(native)) < ENOUGH[size] or ratio is None:
        word = "too few launches"
    else:
        word = verdict(ratio.value, TARGET) if measured.alike else "two programs"
    return [
        f"{operation} {size} B",
        str(min(len(tests), len(native))),
        shown(tests, 1e-6, 2),
        shown(native, 1e-6, 2),
        "-" if ratio is None else f"{ratio.value:.3f}",
        "-" if ratio is None else ratio.range,
        f"{TARGET:.2f}",
        word,
        shown(outcome.seconds(*torch, size), 1e-6, 2),
        "-" if over is None else f"{over.value:.3f}",
    ]


def waits_row(outcome: Rounds, operation: str) -> list[str]:
    """A line of the second table."""
    kinds = (("C", "C polling"), ("native", "C"), ("nccl-tests", "C polling"))
    ratios = [outcome.ratio((of, operation), (over, operation), SMALLEST) for of, over in kinds]
    return [
        operation,
        *(shown(outcome.seconds(kind, operation, SMALLEST), 1e-6, 3) for kind in ("C", "C polling")),
        *("-" if ratio is None else f"{ratio.value:.3f} ({ratio.range})" for ratio in ratios),
    ]
