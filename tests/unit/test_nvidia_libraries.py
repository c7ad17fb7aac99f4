"""NVIDIA's real libraries where no GPU is: found, one of each, with every function that the native loop calls."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.mpi.jobs import skip_or_fail
from tests.processes import LIMIT

pytestmark = pytest.mark.cuda

#: In a process of its own: libraries that are loaded here would be found by other tests.
HEAD = """
import ctypes, os, pathlib
from types import SimpleNamespace
import numpy as np
from collbench.backends.parts.gpu.nccl_log import NcclLog
from collbench.backends.parts.gpu.shared_library import load, loaded
from collbench.collectives.row import C
log = NcclLog()
log.begin()
from collbench.backends.parts.gpu.nccl_library import cupy_nccl
nccl = cupy_nccl()
cudart = load("cudart", "libcudart.so.12", only=False)
"""


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    try:
        import cupy  # noqa: F401
        import nvidia.nccl  # noqa: F401
    except ImportError:
        skip_or_fail("cuda", "CuPy and NCCL are not installed in this environment (extra cuda12)")


def run(body: str) -> str:
    done = subprocess.run(
        (sys.executable, "-c", HEAD + body), capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


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
             "check_async_error", "abort")  # fmt: skip
    body = "from cupy.cuda.nccl import NcclCommunicator, groupStart, groupEnd\n"
    assert run(body + f"print([name for name in {names!r} if not hasattr(NcclCommunicator, name)])").strip() == "[]"


def test_the_log_goes_where_we_read_it_and_can_be_switched() -> None:
    """Without a GPU a communicator fails: the warning is found, and the library reads its settings again."""
    body = """
log.observe(lambda: nccl.call("ncclResetDebugInit") is not None, lambda: None)
try:
    nccl.communicator(1, nccl.unique_id(), 0)
except RuntimeError as error:
    print("failed", log.last_warning())
files = pathlib.Path(os.environ["NCCL_DEBUG_FILE"])
print(files.name, files.exists())
log.close()
print(files.parent.exists())
"""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        pass
    else:
        pytest.skip("there is a driver here, so a communicator of one rank does not fail")
    failed, switched, gone = run(body).strip().splitlines()
    assert failed.startswith("failed ")
    assert "driver" in failed
    assert switched == "3.log True"
    assert gone == "False"
