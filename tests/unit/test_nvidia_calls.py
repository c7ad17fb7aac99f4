"""Calls of NVIDIA's real libraries where no GPU is: refused, each in the library's own words, and nothing left open."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.double import communicator, device, nccl
from tests.unit.nvidia_process import need_libraries, run

from collbench import collectives
from collbench.bindings.gpu.device import DEVICE_TO_HOST, HOST_TO_DEVICE
from collbench.bindings.gpu.nccl import DATATYPE, OP

pytestmark = pytest.mark.cuda


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    need_libraries()


#: Rows of nccl prepared on a communicator that is none, as rank 0 of two.
ROWS = """
from collbench import collectives
from collbench.bindings.operations import AllOf, make_call
from collbench.backends.nccl import NcclArguments
from collbench.collectives.case import CollectiveCase

from collbench.timing.call import Stage
from collbench.timing.loop import GateSetting
from collbench.timing.call import Signals
from collbench.timing.loop import native_loop, run_native, run_python
import json, time

stream, gate = 0, GateSetting("none", Signals(int, int, np.zeros(1, np.int64), announces=True))
device = SimpleNamespace(stream=stream, allocate=lambda size: SimpleNamespace(address=4096))

def refused(function, arguments):
    found = nccl.native(C(function, *arguments))
    code = found()
    if code:
        raise RuntimeError(found.explain(code))

methods = {"all_reduce": "AllReduce", "reduce": "Reduce", "broadcast": "Broadcast", "all_gather": "AllGather",
           "reduce_scatter": "ReduceScatter", "send": "Send", "recv": "Recv"}
comm = SimpleNamespace(address=0)
for method, name in methods.items():
    setattr(comm, method, lambda *words, name=name: refused("nccl" + name, (*words[:-1], 0, words[-1])))

def prepared(name):
    row = collectives.get(name)
    case = CollectiveCase(collective=name, backend="nccl", driver="native", thread_level="single", size=64,
                dtype="float32", op="sum" if row.reduces else None, root=0 if row.rooted else None, ranks=2)
    arguments = NcclArguments(nccl, comm, device, case, row, 16, 0)
    return make_call(row.dialects["nccl"](arguments), nccl, (arguments,))

def tried(name, driver):
    try:
        if driver == "native":
            run_native(prepared(name), gate, 1)
        else:
            run_python(prepared(name), gate, 1, time.monotonic_ns)
    except Exception as error:
        return str(error)
"""


@pytest.mark.parametrize("driver", ["native", "python"])
def test_every_call_is_refused_in_nccls_words_and_no_group_stays_open(driver: str) -> None:
    """Without a communicator NCCL looks at nothing else. Its code for an end without a group is another one."""
    rows = map(collectives.get, collectives.names())
    names = [row.name for row in rows if "nccl" in row.dialects and not row.has_server]
    body = f"print(json.dumps({{name: (tried(name, {driver!r}), nccl.call('ncclGroupEnd')) for name in {names}}}))"
    found = json.loads(run(ROWS + body).splitlines()[-1])
    assert len(found) >= 8
    for name, (said, group_end) in found.items():
        assert "invalid argument" in said and "comm argument is NULL" in said, (name, said)
        assert driver == "python" or "returned an error " in said, (name, said)
        assert group_end == 5, f"{name} left a group open"


def test_the_runtime_says_that_there_is_no_driver() -> None:
    """The five calls of the loop arrive in libcudart: 35 without a driver, 100 without a device."""
    body = """
calls = (C("cudaMemcpyAsync", 0, 0, 8, 1, 0), C("cudaStreamSynchronize", 0), C("cudaEventRecord", 0, 0),
         C("cudaEventElapsedTime", np.zeros(1), 0, 0), C("cudaGraphLaunch", 0, 0))
for call in calls:
    native = cudart.native(call, str)
    print(native())
"""
    codes = set(map(int, run(body).split()))
    assert codes and 0 not in codes


def header(module: str, name: str) -> str:
    """The text of a header that a wheel of NVIDIA's carries."""
    import nvidia

    (found,) = (one for where in nvidia.__path__ for one in Path(where).glob(f"{module}/include/{name}"))
    return str(found.read_text())


def constants(text: str, pattern: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(rf"\b({pattern})\s*=\s*(\d+)", text)}


def test_numbers_of_nccl_h() -> None:
    found = constants(header("nccl", "nccl.h"), r"nccl\w+")
    names = {name: f"nccl{name.capitalize().replace('Ui', 'Uint').replace('Uintnt', 'Uint')}" for name in DATATYPE}
    assert {name: found[c] for name, c in names.items()} == DATATYPE
    assert {op: found[f"nccl{op.capitalize()}"] for op in OP} == OP
    assert found["ncclInvalidArgument"] == communicator.INVALID_ARGUMENT
    assert found["ncclUnhandledCudaError"] == communicator.UNHANDLED_CUDA_ERROR
    assert found["ncclInvalidUsage"] == nccl.INVALID_USAGE


def test_numbers_of_the_cuda_runtime() -> None:
    found = constants(header("cuda_runtime", "driver_types.h"), r"cuda\w+")
    assert (found["cudaMemcpyHostToDevice"], found["cudaMemcpyDeviceToHost"]) == (HOST_TO_DEVICE, DEVICE_TO_HOST)
    assert found["cudaErrorInvalidValue"] == device.INVALID
    assert found["cudaErrorStreamCaptureUnsupported"] == device.NOT_IN_CAPTURE
    assert found["cudaErrorStreamCaptureInvalidated"] == device.CAPTURE_INVALID


def test_the_double_takes_as_many_words_as_nccl_does() -> None:
    text = header("nccl", "nccl.h")
    for name, words in communicator.CALLS.items():
        (declared,) = set(re.findall(rf"ncclResult_t\s+nccl{name}\(([^)]*)\)", text))
        assert len(declared.split(",")) == words, name
