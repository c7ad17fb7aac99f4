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

from collbench.machine import nvml, topology
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
    assert gpus == () and reason == topology.here().no_gpus and "nvidia-ml-py" in reason
    forget()


@pytest.mark.parametrize("code", [real.NVML_ERROR_DRIVER_NOT_LOADED, real.NVML_ERROR_LIBRARY_NOT_FOUND])
def test_without_a_driver(install: Install, code: int) -> None:
    """The reason is in the library's words."""
    made = install(MadeNvml(start=code))
    assert asks_everything() == NOTHING
    assert nvml.gpus() == ((), f"NVML: {real.NVMLError(code)}")
    assert made.started == 1


def test_a_driver_without_gpus(install: Install) -> None:
    install(MadeNvml(gpus=()))
    gpus, reason = nvml.gpus()
    assert gpus == () and "NVML" in reason and "no GPU" in reason


def test_a_gpu_that_is_lost_is_a_reason(install: Install) -> None:
    install(MadeNvml((TWO[0], replace(TWO[1], refuses=("nvmlDeviceGetUUID",)))))
    assert nvml.gpus() == ((), "NVML: Not Supported")


def test_gpus_in_order_with_their_facts(install: Install, tmp_path: Path) -> None:
    for folder, node in (("0000:65:00.0", "1\n"), ("0000:c1:00.0", "-1\n")):
        (tmp_path / f"sys/bus/pci/devices/{folder}").mkdir(parents=True)
        (tmp_path / f"sys/bus/pci/devices/{folder}/numa_node").write_text(node)
    made = install(MadeNvml((*TWO, MadeGpu("GPU-c", "00010000:D1:00.0", mig=(1, 1)))))
    gpus, reason = nvml.gpus(tmp_path)
    assert reason == ""
    assert gpus[0] == nvml.GpuFacts(0, "GPU-a", "NVIDIA H200", "00000000:65:00.0", 139 * GIB, 1, "9.0", False)
    assert [(gpu.index, gpu.uuid, gpu.node, gpu.mig) for gpu in gpus[1:]] == [
        (1, "GPU-b", None, False),
        (2, "GPU-c", None, True),
    ]
    assert topology.here(tmp_path).gpus == tuple(
        topology.TopologyGpu(*facts) for facts in (("GPU-a", 1), ("GPU-b", 0), ("GPU-c", 0))
    )
    assert made.started == 1


def test_facts_that_are_refused_are_none(install: Install) -> None:
    questions = ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetCudaComputeCapability")
    install(MadeNvml((MadeGpu(refuses=questions, mig=None),)))
    gpu = nvml.gpus(Path("/nowhere"))[0][0]
    assert (gpu.memory, gpu.capability, gpu.node, gpu.mig) == (None, None, None, False)


@pytest.mark.parametrize(("number", "spelt"), [(12080, "12.8"), (13000, "13.0"), (0, None)])
def test_the_driver(install: Install, number: int, spelt: str | None) -> None:
    install(MadeNvml(cuda=number))
    assert nvml.driver() == ("570.86.15", spelt)


@pytest.mark.parametrize(
    ("gpus", "level", "connection"),
    [
        (linked(4), 50, "NV4"),
        (linked(18, SWITCH), 50, "NV18"),
        ((linked(4, SWITCH)[0], linked(2, SWITCH)[1]), 50, "NV2"),
        (linked(4, "00000000:99:00.0"), 50, "SYS"),
        (TWO, 10, "PIX"),
        (TWO, 20, "PXB"),
        (TWO, 30, "PHB"),
        (TWO, 40, "NODE"),
        (TWO, None, "unknown"),
    ],
)
def test_connections(install: Install, gpus: tuple[MadeGpu, ...], level: int | None, connection: str) -> None:
    install(MadeNvml(gpus, level=level))
    assert nvml.peers(("GPU-a", "GPU-b")) == {(0, 1): connection, (1, 0): connection}


def test_a_gpu_that_nvml_does_not_know_has_no_connection(install: Install) -> None:
    install(MadeNvml(linked(4)))
    assert nvml.peers(("GPU-a", "GPU-nobody", "GPU-b"))[0, 1] == "unknown"
    assert nvml.peers(("GPU-a", "GPU-nobody", "GPU-b"))[0, 2] == "NV4"


@pytest.mark.parametrize(
    ("status", "there"),
    [({0: 0, 1: 0}, True), ({0: 0, 1: 4}, False), ({0: 1, 1: 0}, False), ({0: 0, 1: 6}, None), ({0: 0}, None),
     ({1: 5}, False)],
)  # fmt: skip
def test_peer_access_is_reading_and_writing(install: Install, status: dict[int, int], there: bool | None) -> None:
    install(MadeNvml(status=status))
    assert nvml.peer_access("GPU-a", "GPU-b") is there
    assert nvml.peer_access("GPU-a", "GPU-nobody") is None


def test_a_reading(install: Install) -> None:
    made = install(MadeNvml())
    expected = Reading(
        uuid="GPU-b", sm_clock=1980, memory_clock=3201, power=123.456, temperature=41, throttled=()
    )  # fmt: skip
    assert nvml.readings(("GPU-b", "GPU-nobody", "GPU-a")) == (
        expected,
        msgspec.structs.replace(expected, uuid="GPU-a"),
    )
    nvml.readings(("GPU-b",))
    assert made.started == 1
    assert msgspec.json.decode(msgspec.json.encode(expected), type=Reading) == expected


REFUSED = (
    "nvmlDeviceGetClockInfo", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature",
    "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons",
)  # fmt: skip


def test_a_reading_of_what_is_refused(install: Install) -> None:
    install(MadeNvml((MadeGpu(refuses=REFUSED),)))
    assert nvml.readings(("GPU-a",)) == (Reading(uuid="GPU-a"),)


@pytest.mark.parametrize("question", REFUSED[1:3])
def test_one_refusal_does_not_take_the_rest(install: Install, question: str) -> None:
    install(MadeNvml((MadeGpu(refuses=(question,)),)))
    reading = nvml.readings(("GPU-a",))[0]
    assert [reading.power, reading.temperature].count(None) == 1
    assert reading.sm_clock == 1980


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        (real.nvmlClocksEventReasonGpuIdle | real.nvmlClocksEventReasonApplicationsClocksSetting, ()),
        (real.nvmlClocksEventReasonDisplayClockSetting, ()),
        (real.nvmlClocksEventReasonSwPowerCap, ("power cap",)),
        (real.nvmlClocksEventReasonHwSlowdown, ("hardware slowdown",)),
        (real.nvmlClocksEventReasonSyncBoost, ("sync boost",)),
        (real.nvmlClocksEventReasonSwThermalSlowdown, ("thermal (software)",)),
        (real.nvmlClocksEventReasonHwThermalSlowdown, ("thermal (hardware)",)),
        (real.nvmlClocksEventReasonHwPowerBrakeSlowdown, ("power brake",)),
        (0x48, ("hardware slowdown", "thermal (hardware)")),
    ],
)
@pytest.mark.parametrize("lacks", [(), ("nvmlDeviceGetCurrentClocksEventReasons",)])
def test_what_slows_a_gpu_down(install: Install, reasons: int, words: tuple[str, ...], lacks: tuple[str, ...]) -> None:
    """Also by the name that the question had before driver 535."""
    install(MadeNvml((MadeGpu(reasons=reasons),), lacks=lacks))
    assert nvml.readings(("GPU-a",))[0].throttled == words


def test_a_mig_device_is_read_as_the_gpu_that_it_is_part_of(install: Install) -> None:
    there = linked(4, SWITCH)
    part = MadeGpu("MIG-1", part_of=there[0], refuses=REFUSED)
    made = MadeNvml(there, parts=(part, replace(part, uuid="MIG-2")), level=None)
    install(made)
    assert nvml.readings(("MIG-1",)) == (msgspec.structs.replace(nvml.readings(("GPU-a",))[0], uuid="MIG-1"),)
    assert nvml.peers(("MIG-1", "MIG-2")) == {(0, 1): "unknown", (1, 0): "unknown"}


def test_a_mig_device_that_does_not_show_its_gpu(install: Install) -> None:
    install(MadeNvml(parts=(MadeGpu("MIG-1", refuses=REFUSED),)))
    assert nvml.readings(("MIG-1",)) == (Reading(uuid="MIG-1"),)


def test_numbers_are_those_of_pynvml() -> None:
    """But P2P_CAPS_INDEX_READ, which pynvml has as a tuple of it."""
    assert (nvml._CLOCK_SM, nvml._CLOCK_MEMORY) == (real.NVML_CLOCK_SM, real.NVML_CLOCK_MEM)
    assert nvml._TEMPERATURE_GPU == real.NVML_TEMPERATURE_GPU
    assert (nvml._P2P_READ,) == real.NVML_P2P_CAPS_INDEX_READ
    assert real.NVML_P2P_CAPS_INDEX_WRITE == nvml._P2P_WRITE
    assert (nvml._P2P_OK, nvml._P2P_UNKNOWN) == (real.NVML_P2P_STATUS_OK, real.NVML_P2P_STATUS_UNKNOWN)
    assert real.NVML_NVLINK_DEVICE_TYPE_SWITCH == nvml._REMOTE_IS_SWITCH
    assert nvml._ANCESTORS == {
        real.NVML_TOPOLOGY_INTERNAL: "PIX", real.NVML_TOPOLOGY_SINGLE: "PIX", real.NVML_TOPOLOGY_MULTIPLE: "PXB",
        real.NVML_TOPOLOGY_HOSTBRIDGE: "PHB", real.NVML_TOPOLOGY_NODE: "NODE", real.NVML_TOPOLOGY_SYSTEM: "SYS",
    }  # fmt: skip
    assert {
        real.nvmlClocksEventReasonSwPowerCap: "power cap",
        real.nvmlClocksEventReasonHwSlowdown: "hardware slowdown",
        real.nvmlClocksEventReasonSyncBoost: "sync boost",
        real.nvmlClocksEventReasonSwThermalSlowdown: "thermal (software)",
        real.nvmlClocksEventReasonHwThermalSlowdown: "thermal (hardware)",
        real.nvmlClocksEventReasonHwPowerBrakeSlowdown: "power brake",
    } == nvml._SLOWDOWNS


def test_a_uuid_is_spelled_as_what_it_names(install: Install) -> None:
    install(MadeNvml((MadeGpu("GPU-1"),), parts=(MadeGpu("MIG-2"),)))
    assert [nvml.spelled(uuid) for uuid in ("1", "2", "3")] == ["GPU-1", "MIG-2", "GPU-3"]
    install(MadeNvml(start=real.NVML_ERROR_LIBRARY_NOT_FOUND))
    assert nvml.spelled("2") == "GPU-2"
