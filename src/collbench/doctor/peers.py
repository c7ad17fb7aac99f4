"""Check `peers`: how the GPUs of this machine are connected, and whether each can access the memory of the others."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from collbench.doctor.parts.finding import Finding, Problem, found
from collbench.doctor.parts.processors import Machine
from collbench.machine import nvml
from collbench.machine.nvml import GpuFacts

Pair = tuple[int, int]

_SHOW = "nvidia-smi topo -p2p r names the reason for each pair"


def judge(gpus: tuple[GpuFacts, ...], links: Mapping[Pair, str], access: Mapping[Pair, bool | None]) -> Finding:
    """`links` has both orders of a pair, `access` one (true: in both directions); pairs are indices of `gpus`."""
    refused = [pair for pair, allowed in access.items() if allowed is False]
    unknown = [pair for pair, allowed in access.items() if allowed is None]
    state = f"peer access {_extent(len(refused) + len(unknown), len(access))}"
    return found(f"{_matrix(gpus, links)}; {state}", _refused(gpus, refused, access), _unknown(gpus, unknown))


def _matrix(gpus: tuple[GpuFacts, ...], links: Mapping[Pair, str]) -> str:
    """A row for each GPU, with a dash for itself; one word where all pairs are alike."""
    kinds = {*links.values()}
    if len(kinds) == 1:
        return f"{len(gpus)} GPUs, each pair {kinds.pop()}"
    places = range(len(gpus))
    rows = (" ".join("-" if i == j else links.get((i, j), nvml.UNKNOWN) for j in places) for i in places)
    return "; ".join(f"GPU {gpu.index}: {row}" for gpu, row in zip(gpus, rows, strict=True))


def _extent(lacking: int, pairs: int) -> str:
    if not lacking:
        return "between all"
    return "between none" if lacking == pairs else f"between {pairs - lacking} of {pairs} pairs"


def _names(gpus: tuple[GpuFacts, ...], pairs: list[Pair], most: int = 4) -> str:
    """The first pairs, as NVML numbers GPUs."""
    shown = ", ".join(f"{gpus[i].index}-{gpus[j].index}" for i, j in pairs[:most])
    return shown if len(pairs) <= most else f"{shown} and {len(pairs) - most} more"


def _refused(gpus: tuple[GpuFacts, ...], pairs: list[Pair], access: Mapping[Pair, bool | None]) -> Problem | None:
    if not pairs:
        return None
    connected = next((pair for pair, allowed in access.items() if allowed), None)
    fix = _SHOW
    if connected is not None:
        # By UUID, because CUDA may number GPUs differently than NVML.
        uuids = ",".join(gpus[index].uuid for index in connected)
        fix = f"export CUDA_VISIBLE_DEVICES={uuids} measures on two with peer access; {_SHOW}"
    cause = f"no peer access between GPUs {_names(gpus, pairs)}"
    effect = "NCCL and CUDA-aware MPI go through host memory between them: another path, several times slower"
    return Problem("warn", cause, effect, fix)


def _unknown(gpus: tuple[GpuFacts, ...], pairs: list[Pair]) -> Problem | None:
    if not pairs:
        return None
    cause = f"NVML does not report peer access between GPUs {_names(gpus, pairs)}"
    effect = "NCCL may go through host memory between them"
    return Problem("unknown", cause, effect, _SHOW)


def _both_ways(first: str, second: str) -> bool | None:
    directions = (nvml.peer_access(first, second), nvml.peer_access(second, first))
    if False in directions:
        return False
    return None if None in directions else True


def run(machine: Machine) -> Finding:
    """GPUs split by MIG are left out: between their instances there is no peer access."""
    gpus = tuple(gpu for gpu in nvml.gpus(machine.root)[0] if not gpu.mig)
    if len(gpus) < 2:
        return found("fewer than two GPUs")
    uuids = [gpu.uuid for gpu in gpus]
    access = {(i, j): _both_ways(uuids[i], uuids[j]) for i, j in combinations(range(len(gpus)), 2)}
    return judge(gpus, nvml.peers(uuids), access)
