"""The CuPy adapter against a made-up CuPy: why there is no GPU, which ones there are, and memory that does not fit."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from collbench.bindings.gpu import cupy_device
from collbench.collectives.row import C
from collbench.errors import Unsupported, to_install
from collbench.machine import nvml
from collbench.machine.nvml import GpuFacts
from collbench.timing.loop import Native


class MadeError(RuntimeError):
    """CUDARuntimeError."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cuda error {status}")
        self.status = status


def refused(status: int, answer: Any = None) -> Any:
    if status:
        raise MadeError(status)
    return answer


def made_runtime() -> Any:
    """As much of cupy.cuda.runtime as the adapter asks for, what it answers, and what was done with graphs."""
    made = SimpleNamespace(driver=13000, made_for=12090, buses=["0000:65:00.0", "0000:AF:00.0"], devices_refused=0,
                           graphs_refused=0, raw_uuid=b"cut", current=-1, calls=[])  # fmt: skip

    def call(name: str, answer: Any = None) -> Callable[..., Any]:
        return lambda *arguments: made.calls.append((name, *arguments)) or answer

    vars(made).update(
        CUDARuntimeError=MadeError, streamCaptureModeThreadLocal=1, memGetInfo=lambda: (1 << 20, 1 << 30),
        driverGetVersion=lambda: made.driver, runtimeGetVersion=lambda: made.made_for,
        getDeviceCount=lambda: refused(made.devices_refused, len(made.buses)),
        deviceGetPCIBusId=lambda number: made.buses[number], setDevice=lambda number: vars(made).update(current=number),
        getDeviceProperties=lambda number: {"name": b"Made", "totalGlobalMem": 1 << 30, "uuid": made.raw_uuid,
                                             "major": 9, "minor": 0},
        streamBeginCapture=call("begin"), streamEndCapture=call("end", 77), graphLaunch=call("launch"),
        graphInstantiate=lambda graph: refused(made.graphs_refused, graph + 1), graphExecDestroy=call("destroy"),
        graphDestroy=call("destroy"),
    )  # fmt: skip
    return made


def made_stream(non_blocking: bool) -> Any:
    assert non_blocking, "a stream that waits for the default stream hides missing completions"
    return SimpleNamespace(ptr=0x5EA)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Any:
    made, module = made_runtime(), ModuleType("cupy")
    module.__spec__ = importlib.machinery.ModuleSpec("cupy", None)
    full = lambda size: refused(2)  # noqa: E731 - an allocation that fails
    cuda = SimpleNamespace(runtime=made, Stream=made_stream, Memory=full, PinnedMemory=full, PinnedMemoryPointer=None)
    module.cuda = cuda  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", module)
    gpus = tuple(GpuFacts(n, f"GPU-{n}", "Made", f"0000{bus}", memory=1, node=n, capability="9.0", mig=False) for n,
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
    ({"buses": []}, ("CUDA_VISIBLE_DEVICES",)), ({"devices_refused": 100}, ("(cuda error 100)",)),
])  # fmt: skip
def test_the_driver_has_to_know_cupys_major_version_and_a_device(runtime: Any, state: dict[str, Any],
                                                                 names: tuple[str, ...] | None) -> None:  # fmt: skip
    vars(runtime).update(state)
    reason = cupy_device.missing()
    assert (reason is None) == (names is None) and all(name in str(reason) for name in names or ())


def test_gpus_have_nvmls_names_in_cudas_order(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without NVML CUDA tells the UUID."""
    runtime.buses = ["0000:AF:00.0", "0000:65:00.0", "0000:01:00.0"]
    assert cupy_device.visible() == ("GPU-1", "GPU-0", "0000:01:00.0")
    cupy_device.visible.cache_clear()
    monkeypatch.setattr(nvml, "gpus", lambda: ((), "no NVML"))
    runtime.raw_uuid, runtime.buses = bytes(range(16)), ["0000:65:00.0"]
    assert cupy_device.visible() == (f"GPU-{MIG}",)


MIG = "00010203-0405-0607-0809-0a0b0c0d0e0f"


@pytest.fixture
def split(monkeypatch: pytest.MonkeyPatch, runtime: Any) -> Any:
    """The GPU at the first address is split, and this process sees one of its MIG devices."""
    (first, *_), _ = nvml.gpus()
    monkeypatch.setattr(nvml, "gpus", lambda: ((replace(first, mig=True),), ""))
    monkeypatch.setattr(nvml, "spelled", lambda uuid: f"MIG-{uuid}")
    runtime.buses = ["0000:65:00.0"]
    return runtime


def test_a_mig_device_is_not_the_gpu_that_it_is_part_of(split: Any) -> None:
    """Two ranks with a MIG device each of one GPU do not share it."""
    split.raw_uuid = bytes(range(16))
    assert cupy_device.visible() == (f"MIG-{MIG}",)
    assert cupy_device.CupyDevice(f"MIG-{MIG}").facts.node == 0


@pytest.mark.parametrize(("asked", "found"), [(f"MIG-{MIG}", f"MIG-{MIG}"), (f"MIG-{MIG},MIG-b", "0000:65:00.0"),
                                              ("0", "0000:65:00.0")])  # fmt: skip
def test_a_mig_device_whose_uuid_is_cut_short_has_the_name_that_was_asked_for(
    split: Any, monkeypatch: pytest.MonkeyPatch, asked: str, found: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", asked)
    assert cupy_device.visible() == (found,)


def test_the_device_that_was_asked_for_is_made_current(runtime: Any) -> None:
    """Memory that does not fit says how much."""
    device = cupy_device.CupyDevice("GPU-1")
    assert runtime.current == 1
    assert (device.facts.uuid, device.facts.bus, device.facts.node) == ("GPU-1", "0000:AF:00.0", 1)
    assert (device.facts.memory, device.facts.driver) == (1 << 30, "580.1")
    with pytest.raises(MemoryError, match=r"GPU-1: 2\.00 GiB .* 1\.00 MiB of 1\.00 GiB "):
        device.allocate(2 << 30)
    with pytest.raises(MemoryError, match=r"2\.00 GiB .*page-locked"):
        device.pinned(2 << 30)


def test_a_graph_holds_what_was_issued(runtime: Any) -> None:
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
def test_what_cannot_be_captured_is_a_skip_but_not_what_does_not_fit(runtime: Any, code: int, kind: type[Exception],
                                                                     named: str) -> None:  # fmt: skip
    """A failure inside a capture ends it."""
    runtime.graphs_refused = code
    issue = Mock(side_effect=None if code else RuntimeError("inside"))
    with pytest.raises(kind, match=named):
        cupy_device.CupyDevice("GPU-0").capture(issue, 3)
    assert ("end", 0x5EA) in runtime.calls
