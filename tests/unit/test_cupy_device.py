"""The CuPy adapter against a made-up CuPy: why there is no GPU, which ones there are, and memory that does not fit."""

from __future__ import annotations

import importlib.machinery
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from collbench.bindings.gpu import cupy_device
from collbench.collectives.row import C
from collbench.errors import Unsupported, to_install
from collbench.machine import nvml
from collbench.machine.nvml import GpuFacts
from collbench.timing.call import Native


class MadeError(RuntimeError):
    """CUDARuntimeError."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cuda error {status}")
        self.status = status


class MadeRuntime:
    """As much of cupy.cuda.runtime as the adapter asks for."""

    CUDARuntimeError = MadeError
    streamCaptureModeThreadLocal = 1  # noqa: N815 - CuPy's name

    def __init__(self) -> None:
        self.driver, self.made_for, self.buses = 13000, 12090, ["0000:65:00.0", "0000:AF:00.0"]
        self.no_device = False
        self.current = -1
        self.calls: list[tuple[Any, ...]] = []
        self.refuses_graphs = 0
        self.raw_uuid = b"cut"

    def driverGetVersion(self) -> int:  # noqa: N802
        return self.driver

    def runtimeGetVersion(self) -> int:  # noqa: N802
        return self.made_for

    def getDeviceCount(self) -> int:  # noqa: N802
        if self.no_device:
            raise MadeError(100)
        return len(self.buses)

    def deviceGetPCIBusId(self, number: int) -> str:  # noqa: N802
        return self.buses[number]

    def setDevice(self, number: int) -> None:  # noqa: N802
        self.current = number

    def getDeviceProperties(self, number: int) -> dict[str, Any]:  # noqa: N802
        return {"name": b"Made", "totalGlobalMem": 1 << 30, "uuid": self.raw_uuid}

    def memGetInfo(self) -> tuple[int, int]:  # noqa: N802
        return 1 << 20, 1 << 30

    def streamBeginCapture(self, *arguments: int) -> None:  # noqa: N802
        self.calls.append(("begin", *arguments))

    def streamEndCapture(self, *arguments: int) -> int:  # noqa: N802
        self.calls.append(("end", *arguments))
        return 77

    def graphInstantiate(self, graph: int) -> int:  # noqa: N802
        if self.refuses_graphs:
            raise MadeError(self.refuses_graphs)
        return graph + 1

    def graphLaunch(self, *arguments: int) -> None:  # noqa: N802
        self.calls.append(("launch", *arguments))

    def graphExecDestroy(self, graph: int) -> None:  # noqa: N802
        self.calls.append(("destroy", graph))

    def graphDestroy(self, graph: int) -> None:  # noqa: N802
        self.calls.append(("destroy", graph))


class Full:
    """An allocation that fails."""

    def __init__(self, size: int) -> None:
        raise MadeError(2)


class MadeStream:
    ptr = 0x5EA

    def __init__(self, non_blocking: bool) -> None:
        assert non_blocking, "a stream that waits for the default stream hides missing completions"


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> MadeRuntime:
    made = MadeRuntime()
    module = ModuleType("cupy")
    module.__spec__ = importlib.machinery.ModuleSpec("cupy", None)
    cuda = SimpleNamespace(runtime=made, Stream=MadeStream, Memory=Full, PinnedMemory=Full, PinnedMemoryPointer=None)
    module.cuda = cuda  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", module)
    gpus = tuple(GpuFacts(index=n, uuid=f"GPU-{n}", name="Made", bus_id=f"0000{bus}", memory=1, node=n,
                          capability="9.0", mig=False) for n,
                 bus in enumerate(("0000:65:00.0", "0000:af:00.0")))  # fmt: skip
    monkeypatch.setattr(nvml, "gpus", lambda: (gpus, ""))
    monkeypatch.setattr(nvml, "driver", lambda: ("580.1", "13.0"))
    library = SimpleNamespace(native=lambda call, explain: Native((1, *call.arguments)))
    monkeypatch.setattr(cupy_device, "load", lambda *given, only: library)
    cupy_device.visible.cache_clear()
    return made


def test_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert to_install("cuda12") in str(cupy_device.missing())


@pytest.mark.parametrize(("state", "names"), [
    ({}, None), ({"driver": 12020}, None), ({"driver": 0}, ("NVIDIA driver", "--gpus")),
    ({"driver": 12020, "made_for": 13000}, ("CUDA 12.2", "13.0", "pip install cupy-cuda12x")),
    ({"buses": []}, ("CUDA_VISIBLE_DEVICES",)), ({"no_device": True}, ("(cuda error 100)",)),
])  # fmt: skip
def test_the_driver_has_to_know_cupys_major_version_and_a_device(runtime: MadeRuntime, state: dict[str, Any],
                                                                 names: tuple[str, ...] | None) -> None:  # fmt: skip
    vars(runtime).update(state)
    reason = cupy_device.missing()
    assert (reason is None) == (names is None) and all(name in str(reason) for name in names or ())


def test_gpus_have_nvmls_names_in_cudas_order(runtime: MadeRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without NVML CUDA tells the UUID."""
    runtime.buses = ["0000:AF:00.0", "0000:65:00.0", "0000:01:00.0"]
    assert cupy_device.visible() == ("GPU-1", "GPU-0", "0000:01:00.0")
    cupy_device.visible.cache_clear()
    monkeypatch.setattr(nvml, "gpus", lambda: ((), "no NVML"))
    runtime.raw_uuid, runtime.buses = bytes(range(16)), ["0000:65:00.0"]
    assert cupy_device.visible() == (f"GPU-{MIG}",)


MIG = "00010203-0405-0607-0809-0a0b0c0d0e0f"


@pytest.fixture
def split(monkeypatch: pytest.MonkeyPatch, runtime: MadeRuntime) -> MadeRuntime:
    """The GPU at the first address is split, and this process sees one of its MIG devices."""
    (first, *_), _ = nvml.gpus()
    monkeypatch.setattr(nvml, "gpus", lambda: ((replace(first, mig=True),), ""))
    monkeypatch.setattr(nvml, "spelled", lambda uuid: f"MIG-{uuid}")
    runtime.buses = ["0000:65:00.0"]
    return runtime


def test_a_mig_device_is_not_the_gpu_that_it_is_part_of(split: MadeRuntime) -> None:
    """Two ranks with a MIG device each of one GPU do not share it."""
    split.raw_uuid = bytes(range(16))
    assert cupy_device.visible() == (f"MIG-{MIG}",)
    assert cupy_device.CupyDevice(f"MIG-{MIG}").facts.node == 0


@pytest.mark.parametrize(("asked", "found"), [(f"MIG-{MIG}", f"MIG-{MIG}"), (f"MIG-{MIG},MIG-b", "0000:65:00.0"),
                                              ("0", "0000:65:00.0")])  # fmt: skip
def test_a_mig_device_whose_uuid_is_cut_short_has_the_name_that_was_asked_for(
    split: MadeRuntime, monkeypatch: pytest.MonkeyPatch, asked: str, found: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", asked)
    assert cupy_device.visible() == (found,)


def test_the_device_that_was_asked_for_is_made_current(runtime: MadeRuntime) -> None:
    """Memory that does not fit says how much."""
    device = cupy_device.CupyDevice("GPU-1")
    assert runtime.current == 1
    assert (device.facts.uuid, device.facts.bus, device.facts.node) == ("GPU-1", "0000:AF:00.0", 1)
    assert (device.facts.memory, device.facts.driver) == (1 << 30, "580.1")
    with pytest.raises(MemoryError, match=r"GPU-1: 2\.00 GiB .* 1\.00 MiB of 1\.00 GiB "):
        device.allocate(2 << 30)
    with pytest.raises(MemoryError, match=r"2\.00 GiB .*page-locked"):
        device.pinned(2 << 30)


def test_a_graph_holds_what_was_issued(runtime: MadeRuntime) -> None:
    device = cupy_device.CupyDevice("GPU-0")
    stage = device.capture(lambda: runtime.calls.append(("issue",)), 3)
    assert runtime.calls == [("begin", 0x5EA, 1), *[("issue",)] * 3, ("end", 0x5EA)]
    stage.python()
    assert runtime.calls[-1] == ("launch", 78, 0x5EA)
    assert stage.native == (device.native(C("cudaGraphLaunch", 78, 0x5EA)),)


@pytest.mark.parametrize(("code", "kind", "named"), [
    (900, Unsupported, r"\(cuda error 900\)"), (2, MemoryError, r"CUDA graph of 3 .*cuda error 2"),
    (0, Unsupported, r"CUDA graph \(inside\)"),
])  # fmt: skip
def test_what_cannot_be_captured_is_a_skip_but_not_what_does_not_fit(
    runtime: MadeRuntime, code: int, kind: type[Exception], named: str
) -> None:
    """A failure inside a capture ends it."""
    runtime.refuses_graphs = code

    def issue() -> None:
        if not code:
            raise RuntimeError("inside")

    with pytest.raises(kind, match=named):
        cupy_device.CupyDevice("GPU-0").capture(issue, 3)
    assert ("end", 0x5EA) in runtime.calls
