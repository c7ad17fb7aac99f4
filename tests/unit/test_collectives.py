"""The rows by themselves: shapes, factors, counts, spellings. No backend."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from collbench import collectives
from collbench.collectives.row import Array, Collective, fold
from collbench.errors import RequestError

RANKS = (1, 2, 3, 5, 8)
ROWS = set(collectives.names())
#: Of each, the worlds that are large enough: with a server that is no worker, two ranks.
WORLDS = [(name, ranks) for name in sorted(ROWS) for ranks in RANKS if ranks >= collectives.get(name).min_ranks]
#: Dialects that a row does not have.
WITHOUT: dict[str, set[str]] = {"barrier": {"nccl"}}


@pytest.fixture(params=sorted(ROWS))
def row(request: pytest.FixtureRequest) -> Collective:
    return collectives.get(request.param)


def test_every_collective_is_named_as_its_file() -> None:
    assert len(ROWS) >= 12
    assert all(collectives.get(name).name == name for name in ROWS)


@pytest.mark.parametrize(("name", "ranks", "root"), [(*world, root) for world in WORLDS for root in range(world[1])])
def test_a_meaning_has_the_shapes_that_blocks_says(name: str, ranks: int, root: int) -> None:
    row = collectives.get(name)
    columns = 3
    blocks = [row.blocks(rank, ranks, root) for rank in range(ranks)]
    inputs: list[Array] = [np.arange(b.send * columns).reshape(b.send, columns) + 100 * r for r, b in enumerate(blocks)]
    for rank, expected in enumerate(blocks):
        result = row.meaning(rank, inputs, root, fold("sum"))
        assert (None if result is None else result.shape) == ((expected.recv, columns) if expected.recv else None)


@pytest.mark.parametrize(("name", "ranks"), WORLDS)
def test_a_meaning_leaves_its_inputs_alone(name: str, ranks: int) -> None:
    row = collectives.get(name)
    inputs = [np.full((row.blocks(rank, ranks, 0).send, 2), rank + 1) for rank in range(ranks)]
    before = [array.copy() for array in inputs]
    for rank in range(ranks):
        row.meaning(rank, inputs, 0, fold("prod"))
    assert all((now == then).all() for now, then in zip(inputs, before, strict=True))


@pytest.mark.parametrize("ranks", [*RANKS, 7, 64, 1000])
def test_bus_factors_are_those_of_the_closed_formulas(ranks: int) -> None:
    n = Fraction(ranks)
    once = (n - 1) / n
    expected = {
        "allreduce": 2 * once, "reduce": 1, "bcast": 1, "gather": once, "scatter": once, "allgather": once,
        "reduce_scatter": once, "alltoall": once, "barrier": 0, "sendrecv": 1, "ps_bcast": n - 1, "ps_gather": n - 1,
    }  # fmt: skip
    assert {name: collectives.get(name).bus_factor(ranks) for name in ROWS} == pytest.approx(
        {name: float(factor) for name, factor in expected.items()}, rel=1e-15
    )


def test_which_rows_reduce_have_a_root_and_share_out() -> None:
    def having(property_of_a_row: str) -> set[str]:
        return {name for name in ROWS if getattr(collectives.get(name), property_of_a_row)}

    assert having("reduces") == {"allreduce", "reduce", "reduce_scatter"}
    assert having("rooted") == {"reduce", "bcast", "gather", "scatter", "ps_bcast", "ps_gather"}
    assert having("split") == {"allgather", "gather", "scatter", "reduce_scatter", "alltoall"}
    assert ROWS - having("moves_data") == {"barrier"}
    assert ROWS - having("has_in_place") == {"barrier", "ps_bcast", "ps_gather"}
    assert having("has_server") == {"ps_bcast", "ps_gather"}


def test_the_dialects_of_every_row(row: Collective) -> None:
    served = {"torch served"} if row.has_server else set()
    assert set(row.dialects) == {"mpi", "nccl", "torch"} - WITHOUT.get(row.name, set()) | served
    assert row.title
    assert row.summary[0].islower()


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("allreduce", "allreduce"), ("all_reduce", "allreduce"), ("all-reduce", "allreduce"),
        ("AllReduce", "allreduce"), ("ALL_REDUCE", "allreduce"), ("all_to_all", "alltoall"),
        ("ReduceScatter", "reduce_scatter"), ("reduce-scatter-block", "reduce_scatter"), ("broadcast", "bcast"),
        ("psgather", "ps_gather"), ("ring", "sendrecv"), ("send_recv", "sendrecv"),
    ],
)  # fmt: skip
def test_spellings(spelling: str, name: str) -> None:
    assert collectives.find(spelling) == name
    assert collectives.get(spelling).name == name


def test_an_unknown_spelling_is_refused_with_the_nearest() -> None:
    assert collectives.find("allreduse") is None
    with pytest.raises(RequestError, match=r"^[^,]*'allreduse': .* allreduce\?"):
        collectives.get("allreduse")
    with pytest.raises(RequestError, match=r"'xyz': .*allgather, allreduce, .*sendrecv"):
        collectives.get("xyz")


@pytest.mark.parametrize("inner", ["row", "dialects", "__init__"])
def test_the_package_itself_is_no_collective(inner: str) -> None:
    assert collectives.find(inner) is None
