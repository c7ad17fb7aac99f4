"""NVIDIA's real libraries where no GPU is: found, one of each, with every function that the native loop calls."""

from __future__ import annotations

import pytest
from tests.unit.nvidia_process import need_libraries, run

pytestmark = pytest.mark.cuda


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    need_libraries()


def test_one_libnccl_in_the_process_and_its_version() -> None:
    found = run("print(loaded('nccl') == (nccl.path,), nccl.version >= (2, 19, 0), len(nccl.unique_id()))")
    assert found.split() == ["True", "True", "128"]


def test_every_function_of_nccl_has_an_address() -> None:
    names = ("AllReduce", "Reduce", "Broadcast", "AllGather", "ReduceScatter", "Send", "Recv", "GroupStart", "GroupEnd",
             "MemAlloc", "MemFree", "CommRegister", "CommDeregister")  # fmt: skip
    found = run(f"print([name for name in {names!r} if nccl.native(C('nccl' + name)) is None])")
    assert found.strip() == "[]"


def test_every_function_of_the_cuda_runtime_has_an_address() -> None:
    names = ("MemcpyAsync", "StreamSynchronize", "EventRecord", "EventElapsedTime", "GraphLaunch", "GetErrorString")
    found = run(f"print([name for name in {names!r} if cudart.address('cuda' + name) is None])")
    assert found.strip() == "[]"


def test_an_error_code_in_the_librarys_words() -> None:
    assert "invalid usage" in run("print(nccl.native(C('ncclGroupStart')).explain(5))")


def test_cupys_communicator_has_the_calls_of_ours() -> None:
    names = ("comm", "allReduce", "reduce", "broadcast", "allGather", "reduceScatter", "send", "recv",
             "check_async_error", "abort", "destroy")  # fmt: skip
    body = "from cupy.cuda.nccl import NcclCommunicator, groupStart, groupEnd\n"
    assert run(body + f"print([name for name in {names!r} if not hasattr(NcclCommunicator, name)])").strip() == "[]"


def test_the_log_goes_where_we_read_it_and_can_be_switched() -> None:
    """Without a GPU a communicator fails: the warning is found, again after the library has read its settings anew."""
    body = """
def fails():
    try:
        nccl.communicator(1, nccl.unique_id(), 0)
    except RuntimeError as error:
        print("failed", log.last_warning())
log.observe(lambda: nccl.call("ncclResetDebugInit") is not None, fails)
log._warning = None
fails()
"""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        pass
    else:
        pytest.skip("there is a driver here, so a communicator of one rank does not fail")
    lines = run(body).strip().splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("failed ") and "driver" in line


def test_wheels_are_found_where_cudas_path_finder_does_not_look() -> None:
    """It looks in the interpreter's own folders only: not in those that a .pth file or PYTHONPATH adds."""
    hidden = """
import site
site.getsitepackages = site.getusersitepackages = lambda: []
"""
    found = run("from cupy.cuda import nccl as cupys\nprint(nccl.path, cudart.path, cupys.get_version() > 0)", hidden)
    nccl, cudart, cupys = found.split()
    assert nccl.endswith("/nvidia/nccl/lib/libnccl.so.2")
    assert cudart.endswith("/nvidia/cuda_runtime/lib/libcudart.so.12")
    assert cupys == "True"
