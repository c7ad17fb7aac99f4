"""What is read through NVML, from a pynvml that is made up: what it tells, what it refuses, and that nothing raises."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pynvml as real
import pytest
from tests.unit.made_nvml import GIB, SWITCH, TWO, MadeGpu, MadeNvml, linked

from collbench.machine import nvml
from collbench.machine.facts import topology_here
from collbench.schema.record import Reading

Install = Callable[[MadeNvml], MadeNvml]


def forget() -> None:
    nvml._open.cache_clear()
    nvml._handle.cache_clear()


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    def put(made: MadeNvml) -> MadeNvml:
        monkeypatch.setitem(sys.modules, "pynvml", made)
        forget()
        return made

    yield put
    forget()


def asks_everything() -> tuple[object, ...]:
    return (nvml.gpus()[0], nvml.driver(), nvml.peers(["GPU-a", "GPU-b"]), nvml.peer_access("GPU-a", "GPU-b"),
            nvml.readings(["GPU-a"]))  # fmt: skip


NOTHING: tuple[object, ...] = ((), (None, None), {}, None, ())


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert asks_everything() == NOTHING
    gpus, reason = nvml.gpus()
    assert gpus == () and reason == topology_here().no_gpus and "nvidia-ml-py" in reason
    forget()


@pytest.mark.parametrize("code", [real.NVML_ERROR_DRIVER_NOT_LOADED, real.NVML_ERROR_LIBRARY_NOT_FOUND])
def test_without_a_driver(install: Install, code: int) -> None:
    """The reason is in the library's words."""
    made = install(MadeNvml(start=code))
    assert asks_everything() == NOTHING
    assert nvml.gpus() == ((), f"NVML: {real.NVMLError(code)}")
    assert made.started == 1


def test_a_driver_without_gpus_and_one_that_lost_one(install: Install) -> None:
    install(MadeNvml(gpus=()))
    gpus, reason = nvml.gpus()
    assert gpus == () and "NVML" in reason and "no GPU" in reason
    install(MadeNvml((TWO[0], replace(TWO[1], refuses=("nvmlDeviceGetUUID",)))))
    assert nvml.gpus() == ((), f"NVML: {real.NVMLError(real.NVML_ERROR_NOT_SUPPORTED)}")


def test_gpus_in_order_with_their_facts(install: Install, tmp_path: Path) -> None:
    for folder, node in (("0000:65:00.0", "1\n"), ("0000:c1:00.0", "-1\n")):
        (tmp_path / f"sys/bus/pci/devices/{folder}").mkdir(parents=True)
        (tmp_path / f"sys/bus/pci/devices/{folder}/numa_node").write_text(node)
    alone = real.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
    split = MadeGpu("GPU-c", "00010000:D1:00.0", mig=(1, 1), mode=alone)
    slices = tuple(replace(split, uuid=f"MIG-{number}", memory=number * GIB, part_of=split) for number in (1, 2))
    made = install(MadeNvml((*TWO, split), slices))
    assert nvml.gpus(tmp_path) == ((
        nvml.GpuFacts(0, "GPU-a", "NVIDIA H200", "00000000:65:00.0", 139 * GIB, 1, "9.0", False),
        nvml.GpuFacts(1, "GPU-b", "NVIDIA H200", "00000000:C1:00.0", 139 * GIB, None, "9.0", False),
        nvml.GpuFacts(2, "GPU-c", "NVIDIA H200", "00010000:D1:00.0", 139 * GIB, None, "9.0", True, True),
    ), "")  # fmt: skip
    places = [(gpu.uuid, gpu.node, gpu.memory, gpu.exclusive) for gpu in topology_here(tmp_path).gpus]
    assert places == [("GPU-a", 1, 139 * GIB, False), ("GPU-b", 0, 139 * GIB, False), ("MIG-1", 0, GIB, True),
                      ("MIG-2", 0, 2 * GIB, True)]  # fmt: skip
    assert made.started == 1
    install(MadeNvml((MadeGpu(refuses=("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetCudaComputeCapability"), mig=None),)))
    gpu = nvml.gpus(Path("/nowhere"))[0][0]
    assert (gpu.memory, gpu.capability, gpu.node, gpu.mig) == (None, None, None, False), "refused"


def test_what_leaves_a_gpu(install: Install) -> None:
    """NVLinks by the rate that NVML gives, PCIe 5.0 x16 by its transfers and line code."""
    install(MadeNvml((*linked(4),)))
    outlets = nvml.outlets("GPU-a")
    assert (outlets.nvlinks, outlets.nvlink_rate) == (4, 26562e6)
    assert outlets.pcie_rate == pytest.approx(63.0e9, rel=1e-3)
    install(MadeNvml((replace(TWO[0], refuses=("nvmlDeviceGetMaxPcieLinkWidth",)),)))
    assert nvml.outlets("GPU-a") == nvml.Outlets(0, None, None)


@pytest.mark.parametrize(("number", "spelt"), [(12080, "12.8"), (13000, "13.0"), (0, None)])
def test_the_driver(install: Install, number: int, spelt: str | None) -> None:
    install(MadeNvml(cuda=number))
    assert nvml.driver() == ("570.86.15", spelt)


#: GPUs, the nearest level above both, and their connection.
CONNECTIONS: list[tuple[tuple[MadeGpu, ...], int | None, str]] = [
    (linked(4), 50, "NV4"), (linked(18, SWITCH), 50, "NV18"),
    ((linked(4, SWITCH)[0], linked(2, SWITCH)[1]), 50, "NV2"), (linked(4, "00000000:99:00.0"), 50, "SYS"),
    (TWO, 10, "PIX"), (TWO, 20, "PXB"), (TWO, 30, "PHB"), (TWO, 40, "NODE"), (TWO, None, "unknown"),
]  # fmt: skip


@pytest.mark.parametrize(("gpus", "level", "connection"), CONNECTIONS)
def test_connections(install: Install, gpus: tuple[MadeGpu, ...], level: int | None, connection: str) -> None:
    install(MadeNvml(gpus, level=level))
    assert nvml.peers(("GPU-a", "GPU-b")) == {(0, 1): connection, (1, 0): connection}
    peers = nvml.peers(("GPU-a", "GPU-nobody", "GPU-b"))
    assert (peers[0, 1], peers[0, 2]) == ("unknown", connection)


@pytest.mark.parametrize(("status", "there"), [({0: 0, 1: 0}, True), ({0: 0, 1: 4}, False), ({0: 1, 1: 0}, False),
                                               ({0: 0, 1: 6}, None), ({0: 0}, None), ({1: 5}, False)])  # fmt: skip
def test_peer_access_is_reading_and_writing(install: Install, status: dict[int, int], there: bool | None) -> None:
    install(MadeNvml(status=status))
    assert nvml.peer_access("GPU-a", "GPU-b") is there
    assert nvml.peer_access("GPU-a", "GPU-nobody") is None


def test_a_reading(install: Install) -> None:
    made = install(MadeNvml())
    reading = Reading(uuid="GPU-b", sm_clock=1980, memory_clock=3201, power=123.456, temperature=41, throttled=())
    of_a = msgspec.structs.replace(reading, uuid="GPU-a")
    assert nvml.readings(("GPU-b", "GPU-nobody", "GPU-a")) == (reading, of_a)
    nvml.readings(("GPU-b",))
    assert made.started == 1
    assert msgspec.json.decode(msgspec.json.encode(reading), type=Reading) == reading


REFUSED = ("nvmlDeviceGetClockInfo", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature",
           "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")  # fmt: skip


@pytest.mark.parametrize("refuses", [REFUSED, *((question,) for question in REFUSED[1:3])])
def test_one_refusal_does_not_take_the_rest_of_a_reading(install: Install, refuses: tuple[str, ...]) -> None:
    install(MadeNvml((MadeGpu(refuses=refuses),)))
    (reading,) = nvml.readings(("GPU-a",))
    if refuses == REFUSED:
        assert reading == Reading(uuid="GPU-a")
    else:
        assert [reading.power, reading.temperature].count(None) == 1 and reading.sm_clock == 1980


SLOWDOWNS = {"SwPowerCap": "power cap", "HwSlowdown": "hardware slowdown", "SyncBoost": "sync boost",
             "SwThermalSlowdown": "thermal (software)", "HwThermalSlowdown": "thermal (hardware)",
             "HwPowerBrakeSlowdown": "power brake"}  # fmt: skip


def reasons(*names: str) -> int:
    return sum(int(getattr(real, f"nvmlClocksEventReason{name}")) for name in names)


@pytest.mark.parametrize(("names", "words"), [
    *(((name,), (word,)) for name, word in SLOWDOWNS.items()), (("DisplayClockSetting",), ()),
    (("GpuIdle", "ApplicationsClocksSetting"), ()),
    (("HwSlowdown", "HwThermalSlowdown"), ("hardware slowdown", "thermal (hardware)")),
])  # fmt: skip
@pytest.mark.parametrize("lacks", [(), ("nvmlDeviceGetCurrentClocksEventReasons",)])
def test_what_slows_a_gpu_down(install: Install, names: tuple[str, ...], words: tuple[str, ...],
                               lacks: tuple[str, ...]) -> None:  # fmt: skip
    """Also by the name that the question had before driver 535."""
    install(MadeNvml((MadeGpu(reasons=reasons(*names)),), lacks=lacks))
    assert nvml.readings(("GPU-a",))[0].throttled == words


def test_a_mig_device_is_read_as_the_gpu_that_it_is_part_of(install: Install) -> None:
    there = linked(4, SWITCH)
    part = MadeGpu("MIG-1", part_of=there[0], refuses=REFUSED)
    install(MadeNvml(there, parts=(part, replace(part, uuid="MIG-2")), level=None))
    assert nvml.readings(("MIG-1",)) == (msgspec.structs.replace(nvml.readings(("GPU-a",))[0], uuid="MIG-1"),)
    assert nvml.peers(("MIG-1", "MIG-2")) == {(0, 1): "PIX", (1, 0): "PIX"}, "of one GPU, without its NVLinks"
    install(MadeNvml(parts=(replace(part, part_of=None),)))
    assert nvml.readings(("MIG-1",)) == (Reading(uuid="MIG-1"),), "one that does not show its GPU"


def test_numbers_are_those_of_pynvml() -> None:
    """But P2P_CAPS_INDEX_READ, which pynvml has as a tuple of it."""
    assert (nvml._CLOCK_SM, nvml._CLOCK_MEMORY) == (real.NVML_CLOCK_SM, real.NVML_CLOCK_MEM)
    assert nvml._TEMPERATURE_GPU == real.NVML_TEMPERATURE_GPU
    assert ((nvml._P2P_READ,), nvml._P2P_WRITE) == (real.NVML_P2P_CAPS_INDEX_READ, real.NVML_P2P_CAPS_INDEX_WRITE)
    assert (nvml._P2P_OK, nvml._P2P_UNKNOWN) == (real.NVML_P2P_STATUS_OK, real.NVML_P2P_STATUS_UNKNOWN)
    assert real.NVML_NVLINK_DEVICE_TYPE_SWITCH == nvml._REMOTE_IS_SWITCH
    assert nvml._ANCESTORS == {real.NVML_TOPOLOGY_INTERNAL: "PIX", real.NVML_TOPOLOGY_SINGLE: "PIX",
                               real.NVML_TOPOLOGY_MULTIPLE: "PXB", real.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
                               real.NVML_TOPOLOGY_NODE: "NODE", real.NVML_TOPOLOGY_SYSTEM: "SYS"}  # fmt: skip
    assert {reasons(name): word for name, word in SLOWDOWNS.items()} == nvml._SLOWDOWNS


def test_a_uuid_is_spelled_as_what_it_names(install: Install) -> None:
    install(MadeNvml((MadeGpu("GPU-1"),), parts=(MadeGpu("MIG-2"),)))
    assert [nvml.spelled(uuid) for uuid in ("1", "2", "3")] == ["GPU-1", "MIG-2", "GPU-3"]
    install(MadeNvml(start=real.NVML_ERROR_LIBRARY_NOT_FOUND))
    assert nvml.spelled("2") == "GPU-2"
