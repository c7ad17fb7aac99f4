"""The made-up device (tests/double) forgives what a GPU forgives, and nothing else."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from tests.double import nccl
from tests.double.device import DoubleDevice
from tests.double.functions import Code

from collbench.bindings.gpu.device import DEVICE_TO_HOST, HOST_TO_DEVICE
from collbench.collectives.row import Array, C
from collbench.errors import Unsupported


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
