"""The nccl dialect of every row: its Python form and its C form do the same, with the same arguments, in one order.

The arguments are the real ones, over a library, a device and an MPI that only write down what is asked of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.unit.test_case import CASE
from tests.unit.traced import COMM, STREAM, WORLD, Call, Device, Trace

from collbench import collectives
from collbench.backends.nccl import NcclArguments, ServerArguments, WorkerArguments
from collbench.bindings.gpu.device import DeviceBlocks
from collbench.bindings.gpu.nccl import DATATYPE, OP, says_lost
from collbench.bindings.gpu.shared_library import to_word
from collbench.bindings.operations import as_parts
from collbench.collectives.case import CollectiveCase
from collbench.collectives.row import C, Collective, Prepared
from collbench.errors import LibraryError, Unsupported

ROWS = [name for name in collectives.names() if "nccl" in collectives.get(name).dialects]
COUNT, RANKS = 24, (2, 3, 5)

FLOAT, MAX = DATATYPE["float32"], OP["max"]
#: Parameters of nccl.h, mpi.h and cuda_runtime_api.h whose words are known, by their place among all.
KNOWN = {
    "ncclAllReduce": {2: COUNT, 3: FLOAT, 4: MAX, 5: COMM, 6: STREAM},
    "ncclReduce": {2: COUNT, 3: FLOAT, 4: MAX, 6: COMM, 7: STREAM},
    "ncclBroadcast": {2: COUNT, 3: FLOAT, 5: COMM, 6: STREAM},
    "ncclAllGather": {2: COUNT, 3: FLOAT, 4: COMM, 5: STREAM},
    "ncclReduceScatter": {2: COUNT, 3: FLOAT, 4: MAX, 5: COMM, 6: STREAM},
    "ncclSend": {1: COUNT, 2: FLOAT, 4: COMM, 5: STREAM},
    "ncclRecv": {1: COUNT, 2: FLOAT, 4: COMM, 5: STREAM},
    "ncclGroupStart": {}, "ncclGroupEnd": {},
    "MPI_Send": {5: WORLD}, "MPI_Recv": {5: WORLD},
    "cudaMemcpyAsync": {4: STREAM}, "cudaStreamSynchronize": {0: STREAM},
}  # fmt: skip
#: Where the root stands; among the workers of a server, the chief's 0.
ROOT = {"ncclReduce": 5, "ncclBroadcast": 4}
LENGTHS = {
    "ncclAllReduce": 7, "ncclReduce": 8, "ncclBroadcast": 7, "ncclAllGather": 6, "ncclReduceScatter": 7, "ncclSend": 6,
    "ncclRecv": 6, "ncclGroupStart": 0, "ncclGroupEnd": 0, "MPI_Send": 6, "MPI_Recv": 7, "cudaMemcpyAsync": 5,
    "cudaStreamSynchronize": 1,
}  # fmt: skip


def arguments_of(row: Collective, case: CollectiveCase, rank: int, trace: Trace) -> Any:
    device: Any = Device(trace)
    nccl, comm = trace.library(), trace.communicator()
    if not row.has_server:
        return NcclArguments(nccl, comm, device, case, row, COUNT, rank)
    if rank == case.root:
        return ServerArguments(trace.mpi(), case, row, COUNT, rank)
    return WorkerArguments(trace.mpi(), nccl, comm, device, case, row, COUNT, rank)


def cases(row: Collective) -> Iterator[tuple[CollectiveCase, int]]:
    """Every rank of worlds of some sizes, with every root, in place and not."""
    for ranks in RANKS:
        for root in range(ranks) if row.rooted else (None,):
            for in_place in (False, True) if row.has_in_place else (False,):
                for rank in range(ranks):
                    yield msgspec.structs.replace(
                        CASE, collective=row.name, backend="nccl", ranks=ranks, root=root, in_place=in_place,
                        op="max" if row.reduces else None, staging="pinned" if row.has_server else None,
                    ), rank  # fmt: skip


def words_of(call: C) -> Call:
    words = tuple(map(to_word, call.arguments))
    return call.function, words[:6] if call.function == "MPI_Recv" else words


def prepared(row: Collective, case: CollectiveCase, rank: int, trace: Trace) -> Prepared | None:
    """None where NCCL has no such form."""
    try:
        return row.dialects["nccl"](arguments_of(row, case, rank, trace))
    except Unsupported:
        if case.in_place and row.name in ("alltoall", "sendrecv"):
            return None
        raise


@pytest.mark.parametrize("name", ROWS)
def test_both_forms_do_the_same(name: str) -> None:
    row, compared = collectives.get(name), 0
    for case, rank in cases(row):
        trace = Trace()
        found = prepared(row, case, rank, trace)
        for part in () if found is None else found.all_parts:
            trace.calls.clear()
            part.python()
            assert part.c is not None
            assert [words_of(call) for call in part.c] == trace.calls, (case, rank, part.name)
            compared += len(trace.calls)
    assert compared > 0


@pytest.mark.parametrize("name", ROWS)
def test_c_calls_have_the_parameters_of_the_headers(name: str) -> None:
    row = collectives.get(name)
    for case, rank in cases(row):
        found = prepared(row, case, rank, Trace())
        for call in (call for part in (() if found is None else found.all_parts) for call in part.c or ()):
            words = tuple(map(to_word, call.arguments))
            assert len(words) == LENGTHS[call.function]
            assert all(words[place] == known for place, known in KNOWN[call.function].items()), call.function
            if call.function in ROOT:
                assert words[ROOT[call.function]] == (0 if row.has_server else case.root)


@pytest.mark.parametrize("name", ROWS)
def test_input_and_result_have_the_blocks_of_the_row(name: str) -> None:
    row = collectives.get(name)
    for case, rank in cases(row):
        found = prepared(row, case, rank, Trace())
        if found is None:
            continue
        blocks = row.blocks(rank, case.ranks, case.root or 0)
        assert (0 if found.input is None else found.input.shape[0]) == blocks.send
        assert sum(part.shape[0] for part in as_parts(found.output)) == blocks.recv
        assert found.in_place == case.in_place


@pytest.mark.parametrize("name", [name for name in ROWS if not collectives.get(name).has_server])
def test_in_place_is_memory_that_is_shared_and_out_of_place_is_not(name: str) -> None:
    """On the ranks that have both an input and a result."""
    row = collectives.get(name)
    for case, rank in cases(row):
        found = prepared(row, case, rank, Trace())
        if found is not None and found.input is not None and found.output is not None:
            assert overlap(found.input, found.output) == case.in_place, (case, rank)


def overlap(first: DeviceBlocks, second: DeviceBlocks) -> bool:
    return first.address < second.address + second.size and second.address < first.address + first.size


@pytest.mark.parametrize("name", ["ps_bcast", "ps_gather"])
def test_every_rank_names_the_same_parts(name: str) -> None:
    row = collectives.get(name)
    all_found = [prepared(row, case, rank, Trace()) for case, rank in cases(row)]
    named = {tuple(part.name for part in found.parts) for found in all_found if found is not None}
    assert named == {("server link", "gpus") if name == "ps_bcast" else ("gpus", "server link")}


@pytest.mark.parametrize("name", ["ps_bcast", "ps_gather"])
@pytest.mark.parametrize("ranks", RANKS)
def test_what_the_server_sends_the_chief_receives_and_nobody_else(name: str, ranks: int) -> None:
    row = collectives.get(name)
    for root in range(ranks):
        case = next(c for c, _ in cases(row) if (c.ranks, c.root) == (ranks, root))
        passed: dict[int, list[Call]] = {}
        for rank in range(ranks):
            found = prepared(row, case, rank, Trace())
            assert found is not None
            (link,) = (part for part in found.parts if part.name == "server link")
            passed[rank] = [words_of(call) for call in link.c or ()]
        chief = 1 if root == 0 else 0
        (mine,), (theirs,) = passed.pop(root), passed.pop(chief)
        assert {mine[0], theirs[0]} == {"MPI_Send", "MPI_Recv"}
        assert mine[0] == ("MPI_Send" if name == "ps_bcast" else "MPI_Recv")
        assert (mine[1][3], theirs[1][3]) == (chief, root)
        assert mine[1][1] == theirs[1][1] == (1 if name == "ps_bcast" else ranks - 1) * COUNT
        assert not any(passed.values())


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        (
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
            True,
        ),
        ("NCCL_ERROR_REMOTE_ERROR: remote process exited or there was a network error", True),
        ("the library returned error 6 (remote process exited or there was a network error)", True),
        ("ncclInternalError: Internal check failed.", False),
    ],
)
def test_nccls_words_for_a_lost_rank(text: str, lost: bool) -> None:
    assert says_lost(RuntimeError(text)) is says_lost(LibraryError(text)) is lost
    assert not says_lost(ValueError(text))
