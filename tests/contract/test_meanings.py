"""Every meaning equals the same operation written out on lists, for any ranks, root, reduction and input."""

from __future__ import annotations

import random

import numpy as np
import pytest

from collbench import collectives
from collbench.collectives.row import fold
from collbench.schema.axes import OPS, Op
from tests.contract.oracle import ORACLE


def test_there_is_an_oracle_for_every_collective() -> None:
    assert set(ORACLE) == set(collectives.names())


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("name", sorted(ORACLE))
def test_meaning_is_the_oracle(name: str, ranks: int, op: Op) -> None:
    row = collectives.get(name)
    draw = random.Random(f"{name} {ranks} {op}")  # noqa: S311
    for root in range(ranks):
        inputs: list[list[list[float]]] = [
            [[draw.randint(1, 3) for _ in range(7)] for _ in range(row.blocks(rank, ranks, root).send)]
            for rank in range(ranks)
        ]
        arrays = [np.array(mine, np.int64).reshape(len(mine), 7) for mine in inputs]
        if ranks < row.min_ranks:
            continue
        result = [row.meaning(rank, arrays, root, fold(op)) for rank in range(ranks)]
        expected = ORACLE[name](inputs, root, op)
        assert [None if mine is None else mine.tolist() for mine in result] == expected
