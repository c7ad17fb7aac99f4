"""The simulated GPU of the tests: misuse that CUDA or NCCL would not tolerate, and kernels compiled for the host."""

from __future__ import annotations

import ctypes
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.double import nccl
from tests.double.device import DoubleDevice
from tests.double.functions import Code
from tests.double.kernels import DoubleCompute
from tests.mpi.jobs import skip_or_fail

from collbench.bindings.gpu.cupy_device import Grid
from collbench.bindings.gpu.device import DEVICE_TO_HOST, HOST_TO_DEVICE
from collbench.collectives.row import Array, C
from collbench.errors import Unsupported
from collbench.workloads.gpu.transfers import DEVICE_TO_DEVICE


@pytest.fixture
def device() -> DoubleDevice:
    return DoubleDevice("GPU-0")


def address(array: Array) -> int:
    return int(array.ctypes.data)


def test_copies_happen_when_the_stream_is_waited_for(device: DoubleDevice) -> None:
    memory, there, back = device.allocate(4), np.arange(4, dtype=np.uint8), np.zeros(4, np.uint8)
    device.copy(memory.address, address(there), 4, HOST_TO_DEVICE)
    device.copy(address(back), memory.address, 4, DEVICE_TO_HOST)
    assert not back.any()
    device.synchronize()
    assert back.tolist() == [0, 1, 2, 3]


def test_no_bytes_have_no_address(device: DoubleDevice) -> None:
    memory = device.allocate(0)
    assert memory.address == 0
    device.copy(0, 0, 0, HOST_TO_DEVICE)
    device.read(0, np.zeros(0, np.uint8))
    device.synchronize()


@pytest.mark.parametrize("forbidden", ["synchronize", "allocate", "pinned", "read", "wait by C"])
def test_what_a_capture_refuses(device: DoubleDevice, forbidden: str) -> None:
    memory = device.allocate(4)
    wait = device.native(C("cudaStreamSynchronize", device.stream))
    assert wait is not None
    does: dict[str, Callable[[], object]] = {
        "synchronize": device.synchronize, "allocate": lambda: device.allocate(8), "pinned": lambda: device.pinned(8),
        "read": lambda: device.read(memory.address, np.zeros(4, np.uint8)), "wait by C": wait,
    }  # fmt: skip
    with pytest.raises(Unsupported, match="cannot be captured"):
        device.capture(does[forbidden], 1)
    device.synchronize()


def test_a_graph_does_its_work_each_time_it_is_launched(device: DoubleDevice) -> None:
    done: list[int] = []
    stage = device.capture(lambda: device.enqueue(lambda: done.append(1)), 3)
    device.synchronize()
    assert done == []
    for _ in range(2):
        stage.python()
    device.synchronize()
    assert done == [1] * 6


def test_page_locked_memory_is_held_by_whoever_sees_a_part_of_it(device: DoubleDevice) -> None:
    part = device.pinned(16).view(np.float32).reshape(2, 2)[1:]
    assert list(device.pages.values()) == [16]
    del part
    assert not device.pages


def test_an_open_group_launches_nothing_and_a_failed_one_neither() -> None:
    group = nccl.Group()
    with pytest.raises(Code, match=str(nccl.INVALID_USAGE)):
        group.end()
    group.start()
    group.start()
    group.end()
    group.error = Code(4)
    with pytest.raises(Code, match="4"):
        group.end()
    group.start()
    group.end()


CRASHES = {
    "work in the stream uses memory that was freed": """
memory, values = device.allocate(4), np.zeros(4, np.uint8)
device.copy(memory.address, values.ctypes.data, 4, 1)
del memory
device.synchronize()
""",
    "work in the stream uses page-locked memory that was freed": """
memory, pages = device.allocate(4), device.pinned(4)
device.copy(memory.address, pages.ctypes.data, 4, 1)
del pages
device.synchronize()
""",
    "beyond the end of device memory": "held = device.allocate(4); device.read(held.address, np.zeros(8, np.uint8))",
    "": "memory = device.allocate(4); ctypes.c_uint8.from_address(memory.address).value",
}


@pytest.mark.parametrize("said", CRASHES)
def test_what_ends_the_process(said: str) -> None:
    """The last by itself: the host may not touch device memory."""
    head = (
        "import ctypes\nimport numpy as np\nfrom tests.double.device import DoubleDevice\ndevice = DoubleDevice('a')\n"
    )
    done = subprocess.run(
        (sys.executable, "-c", head + CRASHES[said]), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGSEGV, done.stderr
    assert said in done.stderr


# Kernels on the made-up device ----------------------------------------------------------------------------------------

SOURCE = """
extern "C" __global__ void reversed(const int *in, int *out, int length) {
    __shared__ int kept[64];
    kept[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x] + FIRST + 0 * length;
}
extern "C" __global__ void unset(unsigned *out) {
    __shared__ unsigned kept[1];
    out[blockIdx.y] = kept[0];
    kept[0] = 0;
}
"""
ONE = Grid((1, 1), (1, 1))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("g++") is None:
        skip_or_fail("cuda", "there is no g++, which compiles CUDA kernels for the host")
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture
def compute(folder: Path) -> DoubleCompute:
    return DoubleCompute(DoubleDevice("GPU-0"), folder)


def read(device: DoubleDevice, address: int, length: int) -> Array:
    values = np.empty(length, np.uint32)
    device.read(address, values)
    return values


@pytest.mark.parametrize("native", [False, True])
def test_blocks_of_threads_with_barriers(compute: DoubleCompute, native: bool) -> None:
    """Of a launch in either form; nothing happens before the wait."""
    device = compute.device
    given, taken = device.allocate(4 * 12), device.allocate(4 * 12)
    device.write(given.address, np.arange(12, dtype=np.uint32))
    stage = compute.compile(SOURCE, {"FIRST": 100}).launch("reversed", Grid((3, 1), (4, 1)), given, taken, 12)
    assert stage.native is not None
    assert (stage.native[0]() if native else stage.python()) in (0, None)
    assert not read(device, taken.address, 12).any()
    device.synchronize()
    assert read(device, taken.address, 12).tolist() == [100 + n for n in (3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8)]


def test_shared_memory_has_no_value_before_it_is_written(compute: DoubleCompute) -> None:
    """Neither zero nor what the block before left there."""
    taken = compute.device.allocate(8)
    compute.compile(SOURCE, {"FIRST": 0}).launch("unset", Grid((1, 2), (1, 1)), taken).python()
    compute.device.synchronize()
    assert read(compute.device, taken.address, 2).all()


@pytest.mark.parametrize(
    ("grid", "code"),
    [
        (Grid((0, 1), (1, 1)), 1), (Grid((1, 65_536), (1, 1)), 1), (Grid((1, 1), (64, 17)), 1),
        (Grid((1, 1), (0, 1)), 1),
        (Grid((1, 65_535), (1, 1)), 0), (Grid((1, 1), (64, 16)), 0),
    ],
)  # fmt: skip
def test_shapes_that_no_gpu_takes(compute: DoubleCompute, grid: Grid, code: int) -> None:
    stage = compute.compile(SOURCE, {"FIRST": 0}).launch("unset", grid, compute.device.allocate(4 * 65_536))
    assert stage.native is not None
    assert stage.native[0]() == code


def test_what_is_no_function(compute: DoubleCompute) -> None:
    with pytest.raises(Code, match="error 400"):
        compute.launch(7, 1, 1, 1, 1, 1, 1, 0, compute.device.stream, 0, 0)
    with pytest.raises(AttributeError):
        compute.compile(SOURCE, {"FIRST": 0}).launch("absent", ONE)


def test_arguments_are_taken_when_a_kernel_is_launched(compute: DoubleCompute) -> None:
    """As cuLaunchKernel does: what they are read from may change before the kernel runs."""
    device = compute.device
    first, other = device.allocate(8), device.allocate(8)
    stage = compute.compile(SOURCE, {"FIRST": 0}).launch("unset", ONE, first)
    assert stage.native is not None
    stage.python()
    (pointer,) = (ctypes.c_uint64 * 1).from_address(stage.native[0].words[10])
    ctypes.c_uint64.from_address(pointer).value = other.address
    device.synchronize()
    assert read(device, first.address, 1)[0] and not read(device, other.address, 1)[0]


CRASH = """
from pathlib import Path
import sys
import numpy as np
from types import SimpleNamespace
from tests.double.device import DoubleDevice
from tests.double.kernels import DoubleCompute
from tests.unit.test_double import ONE, SOURCE
host = np.zeros(4, np.uint32)
compute = DoubleCompute(DoubleDevice("GPU-0"), Path(sys.argv[1]))
compute.compile(SOURCE, {"FIRST": 0}).launch("unset", ONE, SimpleNamespace(address=host.ctypes.data)).python()
compute.device.synchronize()
"""


def test_memory_of_the_host_is_not_the_devices(folder: Path) -> None:
    argv = (sys.executable, "-c", CRASH, str(folder))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGSEGV
    assert "unset " in done.stderr and " 0x" in done.stderr


def test_copies_within_the_device() -> None:
    device = DoubleDevice("GPU-0")
    here, there, host = device.allocate(4), device.allocate(4), np.zeros(4, np.uint8)
    device.write(here.address, np.arange(4, dtype=np.uint8))
    device.copy(there.address, here.address, 4, DEVICE_TO_DEVICE)
    device.synchronize()
    device.read(there.address, host)
    assert host.tolist() == [0, 1, 2, 3]
    for target, source in ((host.ctypes.data, here.address), (there.address, host.ctypes.data)):
        with pytest.raises(Code, match="error 1"):
            device.copy(target, source, 4, DEVICE_TO_DEVICE)
