"""NVIDIA's libraries in a process: found in memory maps, refused when there are two."""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.double import communicator, device, nccl
from tests.unit.nvidia_process import need_libraries, run

from collbench import collectives
from collbench.bindings.gpu import device as gpu_device
from collbench.bindings.gpu.device import DEVICE_TO_HOST, HOST_TO_DEVICE, SharedLibrary, load, loaded
from collbench.bindings.gpu.nccl import DATATYPE, OP
from collbench.bindings.spec import to_word
from collbench.collectives.row import C
from collbench.errors import BackendUnavailable

MAPS = """\
55d0c6a4c000-55d0c6a4d000 r--p 00000000 08:01 131 /usr/bin/python3.11
7f1a00000000-7f1a00021000 rw-p 00000000 00:00 0
7f1a10000000-7f1a10001000 r--p 00000000 08:01 200 /env/nvidia/nccl/lib/libnccl.so.2
7f1a10001000-7f1a10002000 r-xp 00001000 08:01 200 /env/nvidia/nccl/lib/libnccl.so.2
7f1a20000000-7f1a20001000 r-xp 00000000 08:01 201 /env/nvidia/lib/libcudart-9335f6a2.so.12.0.107
7f1a20000000-7f1a20001000 r-xp 00000000 08:01 201 /env/lib/libnccl_net.so
7f1a20000000-7f1a20001000 r-xp 00000000 08:01 201 /env/lib/libmynccl.so.2
7f1a30000000-7f1a30001000 r-xp 00000000 08:01 202 /usr/local/cuda/lib64/libcudart.so.12
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0 [stack]
"""


def test_libraries_of_a_name_once_each() -> None:
    """A wheel may carry a copy under a name of its own; other libraries may have the name within theirs."""
    assert loaded("nccl", MAPS) == ("/env/nvidia/nccl/lib/libnccl.so.2",)
    runtimes = ("/env/nvidia/lib/libcudart-9335f6a2.so.12.0.107", "/usr/local/cuda/lib64/libcudart.so.12")
    assert loaded("cudart", MAPS) == runtimes
    assert loaded("net", MAPS) == loaded("nccl", "") == ()
    ctypes.CDLL(None)
    assert any(path.startswith("/") for path in loaded("c"))


WAYS = ["_from_wheels", "_by_path_finder", "_by_linker"]
Put = Callable[..., list[str]]


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Put:
    """`put(*paths)`: what is loaded under every name; the ways in which libraries would be loaded, in turn."""

    def paths_of(*paths: str) -> list[str]:
        ways: list[str] = []
        for way in WAYS:
            monkeypatch.setattr(gpu_device, way, lambda name, soname, way=way: ways.append(way))
        monkeypatch.setattr(gpu_device, "loaded", lambda name: paths)
        return ways

    return paths_of


def test_two_libraries_of_one_name_are_refused(put: Put) -> None:
    """A package that is imported later may bring its own: each use looks again, and opens a file once."""
    libc = loaded("c")[0]
    put(libc)
    assert load("nccl", "libnccl.so.2") is load("nccl", "libnccl.so.2")
    for paths in ((libc, "/b/libnccl.so.2"), ("/a/libnccl.so.2", "/b/libnccl.so.2")):
        ways = put(*paths)
        with pytest.raises(BackendUnavailable, match=re.escape(f"({', '.join(paths)})")):
            load("nccl", "libnccl.so.2")
        assert ways == []


def test_no_library_is_refused_with_what_would_help(put: Put) -> None:
    """Another version alone is not taken, nor is one that the path finder brings; the linker is asked after it."""
    ways = put()
    with pytest.raises(BackendUnavailable, match=r"libnccl\.so\.2 .*nvidia-nccl-cu12.*nvidia-nccl-cu13"):
        load("nccl", "libnccl.so.2")
    assert ways == WAYS
    ways = put("/cuda/libcudart.so.13")
    with pytest.raises(BackendUnavailable, match=r"libcudart\.so\.12 .*/cuda/libcudart\.so\.13\)"):
        load("cudart", "libcudart.so.12", only=False)
    assert ways == WAYS


def test_of_several_the_first_of_the_version_that_is_needed(monkeypatch: pytest.MonkeyPatch, put: Put) -> None:
    """A toolkit's of another major version may be there too; an older driver refuses each of its calls."""
    needed = "/env/lib/libcudart-9335f6a2.so.12.0.107"
    ways = put("/cuda/libcudart.so.13", "/cuda/libcudart.so.120", needed, "/usr/libcudart.so.12")
    monkeypatch.setattr(gpu_device, "_opened", str)
    assert str(load("cudart", "libcudart.so.12", only=False)) == needed
    assert ways == []


def test_a_call_is_the_address_and_its_words() -> None:
    library = SharedLibrary("libc", ctypes.CDLL(None))
    native = library.native(C("abs", 5), str)
    assert native is not None and native.words == (ctypes.cast(library.handle.abs, ctypes.c_void_p).value, 5)
    assert native.explain is str
    assert (library.address("no_such_function"), library.native(C("no_such_function"), str)) == (None, None)
    array = np.zeros(3)
    assert [to_word(argument) for argument in (array, None, 7, -1, True)] == [array.ctypes.data, 0, 7, -1, 1]
    assert [to_word(SimpleNamespace(address=address)) for address in (0xD0, 0)] == [0xD0, 0]


# NVIDIA's real libraries where no GPU is: one of each, with every function that the native loop calls ----------------


@pytest.fixture(scope="module")
def libraries() -> None:
    need_libraries()


def with_libraries(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that needs them."""
    marked: Callable[..., None] = pytest.mark.cuda(pytest.mark.usefixtures("libraries")(test))
    return marked


@with_libraries
def test_one_libnccl_in_the_process_its_version_and_its_words_for_a_code() -> None:
    output = run(
        "print(loaded('nccl') == (nccl.path,), nccl.version >= (2, 19, 0), len(nccl.unique_id()))\n"
        "print(nccl.native(C('ncclGroupStart')).explain(5))"
    )
    assert output.split()[:3] == ["True", "True", "128"] and "invalid usage" in output


#: Functions that the native loop calls, and methods of CuPy's communicator: what says that one is missing.
CALLED = {
    "nccl.native(C('nccl' + name)) is None": (
        "AllReduce", "Reduce", "Broadcast", "AllGather", "ReduceScatter", "Send", "Recv", "GroupStart", "GroupEnd",
        "MemAlloc", "MemFree", "CommRegister", "CommDeregister"),
    "cudart.address('cuda' + name) is None": (
        "MemcpyAsync", "StreamSynchronize", "EventRecord", "EventElapsedTime", "GraphLaunch", "GetErrorString"),
    "not hasattr(NcclCommunicator, name)": (
        "comm", "allReduce", "reduce", "broadcast", "allGather", "reduceScatter", "send", "recv", "check_async_error",
        "abort", "destroy"),
}  # fmt: skip


@with_libraries
@pytest.mark.parametrize("missing", CALLED)
def test_every_function_is_there(missing: str) -> None:
    body = (
        "from cupy.cuda.nccl import NcclCommunicator, groupStart, groupEnd\n" if "NcclCommunicator" in missing else ""
    )
    assert run(f"{body}print([name for name in {CALLED[missing]!r} if {missing}])").strip() == "[]"


@with_libraries
def test_the_log_goes_where_we_read_it_and_can_be_switched() -> None:
    """Without a GPU a communicator fails: the warning is found, again after the library has read its settings anew."""
    body = """
def fails():
    try:
        nccl.communicator(1, nccl.unique_id(), 0, "default")
    except RuntimeError as error:
        print("failed", log.last_warning())
from collbench.bindings.gpu.nccl import reread_settings
print(log.observe(lambda: reread_settings(nccl.call), fails).notes)
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
    assert len(lines) == 3 and lines.pop(1) == "()"
    for line in lines:
        assert line.startswith("failed ") and "driver" in line


@with_libraries
def test_settings_of_a_file_are_seen_from_the_version_on_that_tells_them(tmp_path: Path) -> None:
    """One that NCCL publishes, and one that it does not; the variables of the log are no settings of the user."""
    file = tmp_path / "nccl.conf"
    file.write_text("NCCL_SET_THREAD_NAME=1\nNCCL_ALGO=Ring\nNCCL_PROTO=LL\n", encoding="utf-8")
    body = """
import json
from collbench.bindings.gpu.nccl import library_settings
print(json.dumps((nccl.version, library_settings(nccl.call))))
"""
    before = f"import os\nos.environ |= {{'NCCL_CONF_FILE': {str(file)!r}, 'NCCL_PROTO': 'Simple'}}\n"
    version, settings = json.loads(run(body, before))
    seen = dict(setting.split("=", 1) for setting in settings)
    assert not {"NCCL_PROTO", "NCCL_CONF_FILE", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"} & seen.keys()
    if version < [2, 30, 7]:
        assert seen == {}
    else:
        assert (seen["NCCL_ALGO"], seen["NCCL_SET_THREAD_NAME"]) == ("Ring", "TRUE")


@with_libraries
def test_wheels_are_found_where_cudas_path_finder_does_not_look() -> None:
    """It looks in the interpreter's own folders only: not in those that a .pth file or PYTHONPATH adds."""
    hidden = """
import site
site.getsitepackages = site.getusersitepackages = lambda: []
"""
    output = run("from cupy.cuda import nccl as cupys\nprint(nccl.path, cudart.path, cupys.get_version() > 0)", hidden)
    nccl, cudart, cupys = output.split()
    assert nccl.endswith("/nvidia/nccl/lib/libnccl.so.2")
    assert cudart.endswith("/nvidia/cuda_runtime/lib/libcudart.so.12")
    assert cupys == "True"


# Their calls: refused, each in the library's own words, and nothing left open ----------------------------------------


#: Rows of nccl prepared on a communicator that is none, as rank 0 of two.
ROWS = """
import json, time
from collbench import collectives
from collbench.backends.nccl import NcclArguments
from collbench.bindings.spec import make_call
from collbench.collectives.row import CollectiveCase
from collbench.timing.loop import Signals
from collbench.timing.loop import AlignmentSetting, run_native, run_python

align = AlignmentSetting("none", Signals(int, int, np.zeros(1, np.int64), announces=True))
device = SimpleNamespace(stream=0, capability=(9, 0), allocate=lambda size: SimpleNamespace(address=4096))

def refused(function, arguments):
    native = nccl.native(C(function, *arguments))
    if code := native():
        raise RuntimeError(native.explain(code))

methods = {"all_reduce": "AllReduce", "reduce": "Reduce", "broadcast": "Broadcast", "all_gather": "AllGather",
           "reduce_scatter": "ReduceScatter", "send": "Send", "recv": "Recv"}
comm = SimpleNamespace(address=0)
for method, name in methods.items():
    setattr(comm, method, lambda *words, name=name: refused("nccl" + name, (*words[:-1], 0, words[-1])))

def tried(name, driver):
    row = collectives.get(name)
    case = CollectiveCase(collective=name, backend="nccl", driver="native", thread_level="single", size=64,
                dtype="float32", op="sum" if row.reduces else None, root=0 if row.rooted else None, ranks=2)
    arguments = NcclArguments(nccl, comm, device, case, row, 16, 0)
    call = make_call(row.dialects["nccl"](arguments), nccl.native, (arguments,))
    try:
        run_native(call, align, 1) if driver == "native" else run_python(call, align, 1, time.monotonic_ns)
    except Exception as error:
        return str(error)
"""


@with_libraries
@pytest.mark.parametrize("driver", ["native", "python"])
def test_every_call_is_refused_in_nccls_words_and_no_group_stays_open(driver: str) -> None:
    """Without a communicator NCCL looks at nothing else. Its code for an end without a group is another one."""
    rows = map(collectives.get, collectives.names())
    names = [row.name for row in rows if "nccl" in row.dialects and not row.has_server]
    body = f"print(json.dumps({{name: (tried(name, {driver!r}), nccl.call('ncclGroupEnd')) for name in {names}}}))"
    answers = json.loads(run(ROWS + body).splitlines()[-1])
    assert len(answers) >= 8
    for name, (message, group_end) in answers.items():
        assert "invalid argument" in message and "comm argument is NULL" in message, (name, message)
        assert driver == "python" or "returned an error " in message, (name, message)
        assert group_end == 5, f"{name} left a group open"


@with_libraries
def test_the_runtime_says_that_there_is_no_driver() -> None:
    """The five calls of the loop arrive in libcudart: 35 without a driver, 100 without a device."""
    body = """
calls = (C("cudaMemcpyAsync", 0, 0, 8, 1, 0), C("cudaStreamSynchronize", 0), C("cudaEventRecord", 0, 0),
         C("cudaEventElapsedTime", np.zeros(1), 0, 0), C("cudaGraphLaunch", 0, 0))
print(*(cudart.native(call, str)() for call in calls))
"""
    codes = set(map(int, run(body).split()))
    assert codes and 0 not in codes


def header(module: str, name: str) -> str:
    """The text of a header that a wheel of NVIDIA's carries."""
    import nvidia

    (path,) = (header for where in nvidia.__path__ for header in Path(where).glob(f"{module}/include/{name}"))
    return str(path.read_text())


def constants(text: str, pattern: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(rf"\b({pattern})\s*=\s*(\d+)", text)}


@with_libraries
def test_numbers_of_nccl_h() -> None:
    numbers = constants(header("nccl", "nccl.h"), r"nccl\w+")
    names = {name: f"nccl{name.replace('fp8_', 'float8').capitalize()}" for name in DATATYPE}
    assert {name: numbers[c] for name, c in names.items()} == DATATYPE
    assert {op: numbers[f"nccl{op.capitalize()}"] for op in OP} == OP
    assert numbers["ncclInvalidArgument"] == communicator.INVALID_ARGUMENT
    assert numbers["ncclUnhandledCudaError"] == communicator.UNHANDLED_CUDA_ERROR
    assert numbers["ncclInvalidUsage"] == nccl.INVALID_USAGE


@with_libraries
def test_numbers_of_the_cuda_runtime() -> None:
    numbers = constants(header("cuda_runtime", "driver_types.h"), r"cuda\w+")
    assert (numbers["cudaMemcpyHostToDevice"], numbers["cudaMemcpyDeviceToHost"]) == (HOST_TO_DEVICE, DEVICE_TO_HOST)
    assert numbers["cudaErrorInvalidValue"] == device.INVALID
    assert numbers["cudaErrorStreamCaptureUnsupported"] == device.NOT_IN_CAPTURE
    assert numbers["cudaErrorStreamCaptureInvalidated"] == device.CAPTURE_INVALID


@with_libraries
def test_the_double_takes_as_many_words_as_nccl_does() -> None:
    text = header("nccl", "nccl.h")
    for name, words in communicator.CALLS.items():
        (declared,) = set(re.findall(rf"ncclResult_t\s+nccl{name}\(([^)]*)\)", text))
        assert len(declared.split(",")) == words, name
