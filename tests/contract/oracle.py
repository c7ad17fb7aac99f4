"""What each collective does, said a second time, in plain Python on lists: the meanings in the rows are held to it.

Inputs are a list per rank of blocks, each a list of numbers; results likewise, None where a rank receives nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

Blocks = list[list[float]]
Combine = Callable[[float, float], float]

COMBINE: dict[str, Combine] = {"sum": lambda a, b: a + b, "prod": lambda a, b: a * b, "min": min, "max": max}


def combined(columns: list[list[float]], op: str) -> list[float]:
    if op == "avg":
        return [average(values) for values in zip(*columns, strict=True)]
    return [reduce(COMBINE[op], values) for values in zip(*columns, strict=True)]


def average(values: tuple[float, ...]) -> float:
    """The sum over the number of ranks: rounded down in whole numbers, none of which is negative here."""
    total = reduce(COMBINE["sum"], values)
    return total // len(values) if isinstance(total, int) else total / len(values)


def allreduce(inputs: list[Blocks], root: int, op: str) -> list[Blocks | None]:
    return [[combined([mine[0] for mine in inputs], op)] for _ in inputs]


def reduce_to_root(inputs: list[Blocks], root: int, op: str) -> list[Blocks | None]:
    total = combined([mine[0] for mine in inputs], op)
    return [[total] if rank == root else None for rank in range(len(inputs))]


def bcast(inputs: list[Blocks], root: int, op: str) -> list[Blocks | None]:
    return [[inputs[root][0]] for _ in inputs]


def gather(inputs: list[Blocks], root: int, op: str) -> list[Blocks | None]:
    everything = [mine[0] for mine in inputs]
    return [everything if rank == root else None for rank in range(len(inputs))]


def scatter(inputs: list[Blocks], root: int, op: str) -> list[Blocks | None]:
    return [[inputs[root][rank]] for rank in range(len(inputs))]


def allgather(inputs: list[Blocks], root: int, op: str) -> list[Blocks | None]:
    return [[mine[0] for mine in inputs] for _ in inputs]


def reduce_scatter(inputs: list[Blocks], root: int, op: str) -> list[Blocks | None]:
    return [[combined([mine[rank] for mine in inputs], op)] for rank in range(len(inputs))]


def alltoall(inputs: list[Blocks], root: int, op: str) -> list[Blocks | None]:
    return [[mine[rank] for mine in inputs] for rank in range(len(inputs))]


def barrier(inputs: list[Blocks], root: int, op: str) -> list[Blocks | None]:
    return [None for _ in inputs]


def sendrecv(inputs: list[Blocks], root: int, op: str) -> list[Blocks | None]:
    return [[inputs[rank - 1][0]] for rank in range(len(inputs))]


def ps_bcast(inputs: list[Blocks], root: int, op: str) -> list[Blocks | None]:
    return [None if rank == root else [inputs[root][0]] for rank in range(len(inputs))]


def ps_gather(inputs: list[Blocks], root: int, op: str) -> list[Blocks | None]:
    workers = [mine[0] for rank, mine in enumerate(inputs) if rank != root]
    return [workers if rank == root else None for rank in range(len(inputs))]


ORACLE: dict[str, Callable[[list[Blocks], int, str], list[Blocks | None]]] = {
    "allreduce": allreduce,
    "reduce": reduce_to_root,
    "bcast": bcast,
    "gather": gather,
    "scatter": scatter,
    "allgather": allgather,
    "reduce_scatter": reduce_scatter,
    "alltoall": alltoall,
    "barrier": barrier,
    "sendrecv": sendrecv,
    "ps_bcast": ps_bcast,
    "ps_gather": ps_gather,
}
