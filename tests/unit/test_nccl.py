"""The nccl dialect of every row: its Python form and its C form do the same, with the same arguments, in one order.

The arguments are the real ones, over a library, a device and an MPI that only write down what is asked of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.processes import LIMIT, wait_for
from tests.unit.nccl_header import Header, declared
from tests.unit.test_case import CASE
from tests.unit.traced import COMM, STREAM, WORLD, Call, Device, Trace

from collbench import collectives
from collbench.backends import nccl as nccl_backend
from collbench.backends.nccl import NcclArguments, NcclSession, ServerArguments, WorkerArguments
from collbench.bindings.gpu import nccl as nccl_binding
from collbench.bindings.gpu.device import DeviceBlocks
from collbench.bindings.gpu.nccl import (
    CTA_POLICY,
    DATATYPE,
    DIRECT,
    OP,
    Communicators,
    Config,
    config_for,
    refuse_cta_policy,
    says_lost,
)
from collbench.bindings.spec import as_parts, to_word
from collbench.collectives.row import C, Collective, CollectiveCase, Prepared
from collbench.errors import LibraryError, Unsupported
from collbench.timing.loop import Halt

ROWS = [name for name in collectives.names() if "nccl" in collectives.get(name).dialects]
COUNT, RANKS = 24, (2, 3, 5)
FLOAT, MAX = DATATYPE["float32"], OP["max"]
#: Parameters of nccl.h, mpi.h and cuda_runtime_api.h whose words are known, by their place among all.
KNOWN = {"ncclAllReduce": {2: COUNT, 3: FLOAT, 4: MAX, 5: COMM, 6: STREAM},
         "ncclReduce": {2: COUNT, 3: FLOAT, 4: MAX, 6: COMM, 7: STREAM},
         "ncclBroadcast": {2: COUNT, 3: FLOAT, 5: COMM, 6: STREAM},
         "ncclAllGather": {2: COUNT, 3: FLOAT, 4: COMM, 5: STREAM},
         "ncclReduceScatter": {2: COUNT, 3: FLOAT, 4: MAX, 5: COMM, 6: STREAM},
         "ncclAlltoAll": {2: COUNT, 3: FLOAT, 4: COMM, 5: STREAM},
         "ncclGather": {2: COUNT, 3: FLOAT, 5: COMM, 6: STREAM},
         "ncclScatter": {2: COUNT, 3: FLOAT, 5: COMM, 6: STREAM},
         "ncclSend": {1: COUNT, 2: FLOAT, 4: COMM, 5: STREAM}, "ncclRecv": {1: COUNT, 2: FLOAT, 4: COMM, 5: STREAM},
         "ncclGroupStart": {}, "ncclGroupEnd": {}, "MPI_Send": {5: WORLD}, "MPI_Recv": {5: WORLD},
         "cudaMemcpyAsync": {4: STREAM}, "cudaStreamSynchronize": {0: STREAM}}  # fmt: skip
#: Where the root stands; among the workers of a server, the chief's 0.
ROOT = {"ncclReduce": 5, "ncclBroadcast": 4, "ncclGather": 4, "ncclScatter": 4}
LENGTHS = {"ncclAllReduce": 7, "ncclReduce": 8, "ncclBroadcast": 7, "ncclAllGather": 6, "ncclReduceScatter": 7,
           "ncclAlltoAll": 6, "ncclGather": 7, "ncclScatter": 7, "ncclSend": 6, "ncclRecv": 6,
           "ncclGroupStart": 0, "ncclGroupEnd": 0, "MPI_Send": 6, "MPI_Recv": 7,
           "cudaMemcpyAsync": 5, "cudaStreamSynchronize": 1}  # fmt: skip


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
                    yield msgspec.structs.replace(CASE, collective=row.name, backend="nccl", ranks=ranks, root=root,
                                                  in_place=in_place, op="max" if row.reduces else None,
                                                  staging="pinned" if row.has_server else None), rank  # fmt: skip


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


def operations(row: Collective, direct: bool) -> Iterator[tuple[CollectiveCase, int, Prepared, Trace]]:
    for case, rank in cases(row):
        trace = Trace(direct)
        if (operation := prepared(row, case, rank, trace)) is not None:
            yield case, rank, operation, trace


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("name", ROWS)
def test_both_forms_do_the_same_with_the_parameters_of_the_headers(name: str, direct: bool) -> None:
    row, compared = collectives.get(name), 0
    for case, rank, operation, trace in operations(row, direct):
        for part in operation.all_parts:
            trace.calls.clear()
            part.python()
            assert part.c is not None
            assert [words_of(call) for call in part.c] == trace.calls, (case, rank, part.name)
            compared += len(trace.calls)
            for call in part.c:
                words = tuple(map(to_word, call.arguments))
                assert len(words) == LENGTHS[call.function]
                assert all(words[place] == known for place, known in KNOWN[call.function].items()), call.function
                if call.function in ROOT:
                    assert words[ROOT[call.function]] == (0 if row.has_server else case.root)
            if direct and name in DIRECT:
                assert {call.function for call in part.c} == {DIRECT[name]}
    assert compared > 0


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("name", ROWS)
def test_input_and_result_have_the_blocks_of_the_row_and_share_memory_in_place(name: str, direct: bool) -> None:
    """On the ranks that have both an input and a result."""
    row = collectives.get(name)
    for case, rank, operation, _ in operations(row, direct):
        blocks = row.blocks(rank, case.ranks, case.root or 0)
        assert (0 if operation.input is None else operation.input.shape[0]) == blocks.send
        assert sum(part.shape[0] for part in as_parts(operation.output)) == blocks.recv
        assert operation.in_place == case.in_place
        if not row.has_server and operation.input is not None and operation.output is not None:
            assert overlap(operation.input, operation.output) == case.in_place, (case, rank)


def overlap(first: DeviceBlocks, second: DeviceBlocks) -> bool:
    ends = [blocks.address + len(blocks) * blocks.block_size for blocks in (first, second)]
    return first.address < ends[1] and second.address < ends[0]


@pytest.mark.parametrize("name", ["ps_bcast", "ps_gather"])
@pytest.mark.parametrize("ranks", RANKS)
def test_what_the_server_sends_the_chief_receives_and_nobody_else(name: str, ranks: int) -> None:
    """Every rank names the same parts."""
    row = collectives.get(name)
    for root in range(ranks):
        passed: dict[int, list[Call]] = {}
        for case, rank, operation, _ in operations(row, False):
            parts = {part.name: part for part in operation.parts}
            assert list(parts) == (["server link", "gpus"] if name == "ps_bcast" else ["gpus", "server link"])
            if (case.ranks, case.root) == (ranks, root):
                passed[rank] = [words_of(call) for call in parts["server link"].c or ()]
        chief = 1 if root == 0 else 0
        (mine,), (theirs,) = passed.pop(root), passed.pop(chief)
        assert (mine[0], theirs[0]) == (("MPI_Send", "MPI_Recv") if name == "ps_bcast" else ("MPI_Recv", "MPI_Send"))
        assert (mine[1][3], theirs[1][3]) == (chief, root)
        assert mine[1][1] == theirs[1][1] == (1 if name == "ps_bcast" else ranks - 1) * COUNT
        assert not any(passed.values())


@pytest.mark.parametrize(("text", "lost"), [
    ("ncclRemoteError: A call failed", True), ("NCCL_ERROR_REMOTE_ERROR: network", True),
    ("error 6 (remote process exited)", True), ("ncclInternalError: Internal check failed.", False)
])  # fmt: skip
def test_nccls_words_for_a_lost_rank(text: str, lost: bool) -> None:
    assert says_lost(RuntimeError(text)) is says_lost(LibraryError(text)) is lost
    assert not says_lost(ValueError(text))


# A session: nothing is asked of communicators that are being aborted, and the environment does not move --------------


ALLREDUCE = msgspec.structs.replace(CASE, collective="allreduce", backend="nccl")


def session(comms: Any) -> Any:
    made: Any = NcclSession.__new__(NcclSession)
    made._halt, made._comms, made._in_use = Halt(), comms, None
    return made


def communicator(made: Any) -> object:
    return made._communicator(ALLREDUCE, collectives.get("allreduce"))


def performed_after_a_halt(made: Any, act: Callable[[Any], object], calls: list[Any]) -> bool:
    """Whether `act` adds nothing to `calls` until the halt is lifted, and one call then."""
    thread = threading.Thread(target=act, args=(made,), daemon=True)
    thread.start()
    wait_for(lambda: calls or made._halt.wait_for_caller(0.0))
    halted = list(calls)
    made._halt.flag[:] = bytes(4)
    thread.join(LIMIT)
    return (len(halted), len(calls)) == (0, 1)


@pytest.mark.parametrize(("act", "name"), [(communicator, "get"), (lambda made: made.close(), "close"),
                                           (lambda made: made.reset(), "drop")])  # fmt: skip
def test_who_is_halted_asks_nothing_of_communicators(act: Callable[[Any], object], name: str) -> None:
    """Another thread is freeing them; this one blocks until the process ends."""
    calls: list[str] = []
    made = session(SimpleNamespace(**{call: lambda *_,
                                      call=call: calls.append(call) for call in ("get", "close", "drop")}))  # fmt: skip
    made._halt.set()
    assert performed_after_a_halt(made, act, calls)
    assert calls == [name]


def test_who_is_halted_while_a_communicator_is_made_does_not_use_it() -> None:
    """Memory would be registered with it next."""
    made, communicators = session(None), list[object]()
    made._comms = SimpleNamespace(get=lambda *_: made._halt.set())
    assert performed_after_a_halt(made, lambda made: communicators.append(communicator(made)), communicators)
    assert communicators == [None]


def in_use(*names: str) -> tuple[Communicators, list[str]]:
    """These communicators; and those that are destroyed or aborted."""
    communicators, done = Communicators(), list[str]()
    for name in names:
        ends = {act: partial(done.append, f"{act} {name}") for act in ("destroy", "abort")}
        make: Any = partial(SimpleNamespace, **ends, async_error=lambda: "an error")
        communicators.get(name, make)
    return communicators, done


def test_communicators_are_destroyed_in_the_order_of_their_use_and_one_whose_call_failed_is_aborted() -> None:
    communicators, done = in_use("a", "b", "c")
    communicators.get("server", lambda: None)
    communicators.get("a", lambda: None)
    communicators.close()
    assert done == ["destroy b", "destroy c", "destroy a"]
    assert communicators.async_error() is None
    communicators, done = in_use("a", "b")
    for key in ("a", "a", "never made"):
        communicators.drop(key)
    assert done == ["abort a"]
    assert communicators.get("a", lambda: None) is None


MOVES = """
import ctypes
from collbench.bindings.gpu.nccl import reserve_settings, settings
block = ctypes.c_void_p.in_dll(ctypes.CDLL(None), "environ")
names, many = ctypes.cast(block, ctypes.POINTER(ctypes.c_void_p)), 0
while names[many]:
    many += 1
full = (ctypes.c_void_p * (many + 1))(*names[:many], None)  # as where a process begins: without room for a name
block.value = ctypes.addressof(full)
{first}
before = block.value
for names in ({{"NCCL_ALGO": "Ring"}}, {{"NCCL_PROTO": "LL128"}}, {{"NCCL_ALGO": "Tree", "NCCL_PROTO": "Simple"}}):
    with settings(names):
        print(block.value == before)
"""


@pytest.mark.parametrize(("first", "stays"), [("reserve_settings()", "True"), ("", "False")])
def test_settings_of_a_communicator_do_not_move_the_environment(first: str, stays: str) -> None:
    """The library's own threads read it, without a lock."""
    argv = (sys.executable, "-c", MOVES.format(first=first))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, check=True)
    assert set(done.stdout.split()) >= {stays}
    assert "False" not in done.stdout or not first


def test_settings_of_a_communicator_leave_what_nccl_has_from_a_file() -> None:
    """Which it puts into the environment of the C library, without Python."""
    c, seen = ctypes.CDLL(None), list[bytes]()
    c.getenv.restype = ctypes.c_char_p
    c.setenv(b"NCCL_MADE_UP", b"of a file", 0)
    try:
        with nccl_binding.settings({"NCCL_MADE_UP": "of a case", "NCCL_OTHER": ""}):
            seen.append(c.getenv(b"NCCL_MADE_UP"))
        seen.append(c.getenv(b"NCCL_MADE_UP"))
    finally:
        c.unsetenv(b"NCCL_MADE_UP")
    assert seen == [b"of a case", b"of a file"]
    assert not {"NCCL_MADE_UP", "NCCL_OTHER"} & os.environ.keys() and c.getenv(b"NCCL_OTHER") is None


# The headers of NCCL: of six versions as `nccl_header.py` printed them, and of the one that is installed --------------

HEADERS: dict[str, Header] = json.loads(Path(__file__).with_name("nccl-headers.json").read_text(encoding="utf-8"))
KINDS = {COUNT: "size_t", FLOAT: "ncclDataType_t", MAX: "ncclRedOp_t", COMM: "ncclComm_t", STREAM: "cudaStream_t"}


def test_the_installed_header_is_read_as_the_others_were() -> None:
    spec = importlib.util.find_spec("nvidia.nccl")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("no wheel of NCCL is installed")
    path = Path(next(iter(spec.submodule_search_locations))) / "include" / "nccl.h"
    version, header = declared(path.read_text(encoding="utf-8"))
    nearest = max(known for known in HEADERS if numbers(known) <= numbers(version))
    assert header["functions"] == HEADERS[nearest]["functions"]
    assert header["config"][: len(HEADERS[nearest]["config"])] == HEADERS[nearest]["config"]
    assert {name: header["values"].get(name) for name in HEADERS[nearest]["values"]} == HEADERS[nearest]["values"]


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@pytest.mark.parametrize("version", HEADERS)
def test_numbers_are_those_of_every_header(version: str) -> None:
    values = {name.lower(): value for name, value in HEADERS[version]["values"].items()}
    spelled = {name: f"nccl{name.replace('fp8_', 'float8')}" for name in DATATYPE}
    assert {name: values.get(spelled[name], DATATYPE[name]) for name in DATATYPE} == DATATYPE
    has_fp8 = numbers(version) >= nccl_binding.FP8_SINCE
    assert {name for name in DATATYPE if spelled[name] not in values} == (
        set() if has_fp8 else {"fp8_e4m3", "fp8_e5m2"}
    )
    assert {name: values[f"nccl{name}"] for name in OP} == OP
    assert values.get("nccl_win_coll_symmetric", 1) == nccl_backend.SYMMETRIC.value


@pytest.mark.parametrize(
    ("dtype", "op", "version", "capability", "refused"),
    [
        ("int16", "sum", (2, 30, 0), (9, 0), True), ("bfloat16", "avg", (2, 19, 3), (7, 0), False),
        ("fp8_e4m3", "sum", (2, 24, 0), (9, 0), False), ("fp8_e4m3", "sum", (2, 23, 4), (9, 0), True),
        ("fp8_e5m2", "max", (2, 30, 0), (8, 9), True), ("fp8_e5m2", None, (2, 30, 0), (8, 9), False),
        ("fp8_e5m2", "avg", (2, 30, 0), (10, 0), True),
    ],
)  # fmt: skip
def test_dtypes_that_a_library_or_a_gpu_does_not_reduce(
    dtype: str, op: str | None, version: tuple[int, ...], capability: tuple[int, int], refused: bool
) -> None:
    expected = pytest.raises(Unsupported) if refused else contextlib.nullcontext()
    with expected:
        nccl_binding.refuse_dtype(dtype, op, version, capability)


@pytest.mark.parametrize("version", HEADERS)
def test_functions_are_those_of_every_header(version: str) -> None:
    functions, newer = HEADERS[version]["functions"], numbers(version) >= (2, 28)
    assert {name: len(functions[name]) for name in LENGTHS if name in functions} == {
        name: length for name, length in LENGTHS.items()
        if name.startswith("nccl") and (newer or name not in DIRECT.values())
    }  # fmt: skip
    for name, types in functions.items():
        for place, word in KNOWN.get(name, {}).items():
            assert types[place] == KINDS[word], (name, place)
        if name in ROOT:
            assert types[ROOT[name]] == "int"


def test_a_configuration_leaves_all_but_the_policy_to_the_library() -> None:
    config = config_for("zero")
    assert (config.size, config.magic, config.version) == (ctypes.sizeof(config), 0xCAFEBEEF, 22700)
    assert (config.CTAPolicy, config.blocking, config.nvlsCTAs, config.netName) == (2, -(2**31), -(2**31), None)


SIZES = {"size_t": 8, "const char*": 8, "unsigned int": 4, "int": 4}  # of a C compiler for 64 bits; each is aligned so


def laid_out(config: list[str]) -> Iterator[tuple[str, int, int]]:
    """Name, offset and size of each field of a C structure."""
    end = 0
    for kind, _, name in (field.rpartition(" ") for field in config):
        offset = -(-end // SIZES[kind]) * SIZES[kind]
        end = offset + SIZES[kind]
        yield name, offset, SIZES[kind]


@pytest.mark.parametrize("version", HEADERS)
def test_a_configuration_begins_as_that_of_every_version_that_takes_one(version: str) -> None:
    """From 2.27 on: a library reads as much as its `size` says. Versions before have fewer fields."""
    ours = [(name, getattr(Config, name).offset, getattr(Config, name).size) for name, *_ in Config._fields_]
    theirs = [*laid_out(HEADERS[version]["config"])]
    assert theirs[: len(ours)] == (ours if numbers(version) >= (2, 27) else ours[: len(theirs)])
    assert (len(theirs) < len(ours)) == (numbers(version) < (2, 27))


@pytest.mark.parametrize("version", HEADERS)
def test_cta_policies_are_those_of_the_header(version: str) -> None:
    numbers, values = tuple(map(int, version.split("."))), HEADERS[version]["values"]
    for policy, number in CTA_POLICY.items():
        there = values.get(f"NCCL_CTA_POLICY_{policy.upper()}")
        assert there in (None, number)
        if policy != "default" and there is None:
            with pytest.raises(Unsupported, match=policy):
                refuse_cta_policy(policy, "native", numbers)
        else:
            refuse_cta_policy(policy, "native", numbers)
    with pytest.raises(Unsupported, match="native"):
        refuse_cta_policy("efficiency", "python", (2, 30, 7))


@pytest.mark.parametrize("version", HEADERS)
def test_registrations_exist_from_the_versions_on_that_refusals_name(version: str) -> None:
    functions = HEADERS[version]["functions"]
    assert functions["ncclMemAlloc"] == ["void**", "size_t"]
    assert functions["ncclCommRegister"] == ["const ncclComm_t", "void*", "size_t", "void**"]
    assert numbers(version) >= numbers(nccl_backend.REGISTERING["local"].since)
    since = numbers(nccl_backend.REGISTERING["symmetric"].since)
    assert ("ncclCommWindowRegister" in functions) == (numbers(version) >= since)
    if numbers(version) >= since:
        assert functions["ncclCommWindowRegister"] == ["ncclComm_t", "void*", "size_t", "ncclWindow_t*", "int"]
        assert functions["ncclCommWindowDeregister"] == ["ncclComm_t", "ncclWindow_t"]
