"""Every outcome of the checks of GPUs, with a pynvml that is made up: gpus, peers, nccl."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml as real
import pytest
from tests.unit.doctor.machines import Outcomes, answering, hanging, having, idle, only, printed
from tests.unit.made_nvml import TWO, MadeGpu, MadeNvml, linked

from collbench.bindings.gpu.device import package_folders
from collbench.bindings.gpu.nccl import SONAME
from collbench.doctor import Check, Finding, Machine, ProgramOutput, execute, gpus
from collbench.doctor.gpus import NcclInstallation, judge_nccl
from collbench.machine import nvml
from collbench.machine.launcher import Launcher


def of_two_nodes(folder: Path) -> Machine:
    """Two nodes of two cores, of which this process may use all; CUDA starts."""
    return having(idle(folder), {
        "sys/devices/system/node/node0/cpulist": "0-1",
        "sys/devices/system/node/node1/cpulist": "2-3",
        "sys/bus/pci/devices/0000:65:00.0/numa_node": "0",
        "sys/bus/pci/devices/0000:c1:00.0/numa_node": "1",
        **on_cores("0-3"),
    }, environ={}, execute=answering("0\n"))  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return of_two_nodes(tmp_path)


@contextmanager
def installed(module: MadeNvml | None) -> Iterator[None]:
    """This in the place of pynvml."""

    def forget() -> None:
        nvml._open.cache_clear()
        nvml._handle.cache_clear()

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pynvml", module)
        forget()
        yield
    forget()


def seeing(
    module: MadeNvml | None, files: Mapping[str, str] | None = None, check: Check = gpus.gpus, **fields: Any
) -> Callable[[Machine], Finding]:
    """What a check finds where NVML is this."""

    def find(machine: Machine) -> Finding:
        with installed(module):
            return check(having(machine, files, **fields))

    return find


def on_cores(cores: str) -> dict[str, str]:
    return {"proc/self/status": f"Name:\tpython\nPPid:\t0\nCpus_allowed_list:\t{cores}\n"}


def pci(address: str, vendor: str, kind: str) -> dict[str, str]:
    folder = f"sys/bus/pci/devices/{address}"
    return {f"{folder}/vendor": vendor, f"{folder}/class": kind}


NO_DRIVER = MadeNvml(start=real.NVML_ERROR_DRIVER_NOT_LOADED)
NOT_FOUND = MadeNvml(start=real.NVML_ERROR_LIBRARY_NOT_FOUND)
MISMATCH = MadeNvml(start=real.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
UNANSWERED = MadeNvml(start=real.NVML_ERROR_UNKNOWN)
CARD, DEVICE = pci("0000:65:00.0", "0x10de", "0x030200"), {"dev/nvidiactl": ""}
OTHERS = pci("0000:01:00.0", "0x8086", "0x030000") | pci("0000:02:00.0", "0x10de", "0x040300")  # the latter: sound

UNUSABLE: Outcomes = {
    "no GPU": ("ok", seeing(NO_DRIVER, OTHERS)),
    "card without a driver": ("fail", seeing(NO_DRIVER, CARD)),
    "driver without its library": ("fail", seeing(NOT_FOUND, DEVICE)),
    "driver of another version": ("fail", seeing(MISMATCH, DEVICE)),
    "driver that does not answer": ("fail", seeing(UNANSWERED, DEVICE)),
    "no pynvml, no devices": ("ok", seeing(None)),
    "no pynvml": ("unknown", seeing(None, {"dev/nvidia0": ""})),
    "container without GPUs": ("warn", seeing(NO_DRIVER, CARD, container="docker")),
    "container with void GPUs": (
        "warn", seeing(NO_DRIVER, CARD, container="docker", environ={"NVIDIA_VISIBLE_DEVICES": "void"})),
    "container without the driver's libraries": ("fail", seeing(NOT_FOUND, DEVICE, container="docker")),
    "container with graphics only": ("fail", seeing(
        NOT_FOUND, DEVICE, container="docker", environ={"NVIDIA_DRIVER_CAPABILITIES": "graphics"})),
    "container that lost its GPUs": ("fail", seeing(UNANSWERED, DEVICE, container="docker")),
}  # fmt: skip


def far(visible: str) -> Callable[[Machine], Finding]:
    return seeing(MadeNvml(), on_cores("0-1"), environ={"CUDA_VISIBLE_DEVICES": visible})


def started(launcher: str | None = None) -> Callable[[Machine], Finding]:
    """Rank 0, bound to core 0, of a launcher that may use these cores."""
    files = on_cores("0")
    if launcher is not None:
        files = {"proc/self/status": "Name:\tpython\nPPid:\t11\nCpus_allowed_list:\t0\n",
                 "proc/11/status": f"Name:\tprterun\nPPid:\t1\nCpus_allowed_list:\t{launcher}\n"}  # fmt: skip
    return seeing(MadeNvml(), files, launcher=Launcher("openmpi", 0, 2))


SECOND_NODE = "sys/bus/pci/devices/0000:c1:00.0/numa_node"
SPLIT = (TWO[0], replace(TWO[1], mig=(1, 1)))
THROTTLED = (replace(TWO[0], reasons=0x01), replace(TWO[1], reasons=0x44))

DEVICES: Outcomes = {
    "GPUs in order": ("ok", seeing(MadeNvml())),
    "GPUs that are alike": ("ok", seeing(MadeNvml(), {SECOND_NODE: "0"})),
    "cores on another node": ("warn", seeing(MadeNvml(), on_cores("0-1"))),
    "cores on another node in a container": ("warn", seeing(MadeNvml(), on_cores("0-1"), container="docker")),
    **{f"near GPU visible by {name}": ("ok", far(name)) for name in ("0", "GPU-a")},
    **{f"far GPU visible by {name}": ("warn", far(name)) for name in ("GPU", "1", "GPU-b,0")},
    "node unknown": ("ok", seeing(MadeNvml(), on_cores("0-1") | {SECOND_NODE: "-1"})),
    "ranks of a launcher out of sight": ("ok", started()),
    "ranks of a launcher on both nodes": ("ok", started("0-3")),
    "ranks of a launcher on one node": ("warn", started("0-1")),
    "MIG": ("warn", seeing(MadeNvml(SPLIT))),
    "throttled": ("warn", seeing(MadeNvml(THROTTLED))),
    **{
        f"CUDA says {answer!r}": (severity, seeing(MadeNvml(), execute=answering(answer)))
        for severity, answer in (
            ("fail", "100"), ("fail", "noise\n802"), ("fail", "803"), ("fail", "804"), ("fail", "999"),
            ("fail", '"libcuda.so.1: cannot open"'), ("unknown", "Segmentation fault"), ("unknown", ""),
        )
    },
    "CUDA hangs": ("unknown", seeing(MadeNvml(), execute=hanging)),
    "container without libcuda": ("fail", seeing(
        MadeNvml(), container="docker", environ={"NVIDIA_DRIVER_CAPABILITIES": "utility"},
        execute=answering('"no such file"'))),
}  # fmt: skip

FOUR = tuple(nvml.GpuFacts(place, f"GPU-{place}", "", "") for place in range(4))
PAIRS = [(i, j) for i in range(4) for j in range(i + 1, 4)]


def connected(module: MadeNvml) -> Callable[[Machine], Finding]:
    return seeing(module, check=gpus.peers)


def one_way(machine: Machine) -> Finding:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvml, "peer_access", lambda first, second: first < second)
        return connected(MadeNvml())(machine)


PEERS: Outcomes = {
    "one GPU": ("ok", connected(MadeNvml(TWO[:1]))),
    "one GPU beside one split by MIG": ("ok", connected(MadeNvml(SPLIT))),
    "no GPUs": ("ok", connected(NO_DRIVER)),
    "GPUs that reach each other": ("ok", connected(MadeNvml(linked(4)))),
    "a row for each GPU": ("ok", connected(MadeNvml((*linked(4), MadeGpu("GPU-c", "00000000:D1:00.0"))))),
    "no peer access": ("warn", connected(MadeNvml(status={0: 0, 1: 5}))),
    "some peer access": ("warn", lambda m: gpus.judge_peers(
        FOUR, dict.fromkeys(PAIRS, "PIX"), {pair: pair == (2, 3) for pair in PAIRS})),
    "peer access unknown": ("unknown", connected(MadeNvml(status={}))),
    "peer access one way": ("warn", one_way),
}  # fmt: skip

WHEEL = NcclInstallation("nvidia-nccl wheel", "/env/nvidia/nccl/lib/libnccl.so.2", "2.27.5")
SYSTEM = NcclInstallation("dynamic linker", "/usr/lib/libnccl.so.2.19.3", "2.19.3")


def of_nccl(*libraries: NcclInstallation, wheels: str = "", cuda: str | None = "12.8") -> Callable[[Machine], Finding]:
    """`wheels` are those of this CUDA; without one there is no GPU."""
    return lambda m: judge_nccl(libraries, frozenset(wheels.split()), cuda, gpu=cuda is not None)


CU12, CU13 = "nvidia-nccl-cu12", "nvidia-nccl-cu13"

NCCL: Outcomes = {
    "no NCCL, no GPU": ("ok", of_nccl(cuda=None)),
    **{f"no NCCL, CUDA {cuda}": ("warn", of_nccl(cuda=cuda)) for cuda in ("12.8", "13.0")},
    "one NCCL": ("ok", of_nccl(WHEEL, wheels=CU12)),
    "two NCCLs": ("warn", of_nccl(WHEEL, SYSTEM, wheels=CU12)),
    "two wheels, CUDA 12.8": ("warn fail", of_nccl(WHEEL, wheels=f"{CU12} {CU13}")),
    "two wheels, CUDA 13.1": ("warn", of_nccl(WHEEL, wheels=f"{CU12} {CU13}", cuda="13.1")),
    "two wheels, CUDA unknown": ("warn", lambda m: judge_nccl((WHEEL,), frozenset((CU12, CU13)), None, gpu=True)),
    **{
        f"{name}, CUDA {cuda}": (severity, of_nccl(WHEEL, wheels=name, cuda=cuda))
        for severity, name, cuda in (
            ("fail", "cupy-cuda13x", "12.8"), ("fail", CU13, "12.8"), ("ok", "cupy-cuda12x", "12.8"),
            ("ok", "cupy-cuda13x", None), ("ok", CU13, None),
        )
    },
    "NCCL that cannot be loaded": ("warn", of_nccl(replace(WHEEL, version=None), wheels=CU12)),
}  # fmt: skip


def test_outcomes(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    golden("doctor-gpus.txt", printed({**UNUSABLE, **DEVICES, **PEERS, **NCCL}, tmp_path, of_two_nodes))


def test_cuda_is_tried_in_a_child(machine: Machine) -> None:
    """Whatever it says here, it is an answer."""
    finding = seeing(MadeNvml(), execute=execute)(machine)
    assert "unknown" not in {problem.severity for problem in finding.problems}


@pytest.mark.parametrize(("code", "spelt"), [(22705, "2.27.5"), (21903, "2.19.3"), (2804, "2.8.4"), (20908, "2.9.8")])
def test_versions_of_nccl(code: int, spelt: str) -> None:
    assert gpus.nccl_version(code) == spelt


def test_libraries_of_packages_and_of_the_linker(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch and the linker find the same file, which is named once; nothing is loaded in this process."""
    having(machine, {"torch/lib/libnccl.so.2": "", "nccl/lib/libnccl.so.2": ""})
    folders = {"torch": [machine.path("torch")], "nvidia.nccl": [machine.path("nccl")]}
    monkeypatch.setattr(gpus, "package_folders", folders.get)
    bundled, broken = (str(machine.path(f"{name}/lib/libnccl.so.2")) for name in ("torch", "nccl"))
    answers = {bundled: [bundled, 22705], SONAME: [bundled, 22705]}

    def load(argv: tuple[str, ...]) -> ProgramOutput:
        answer = answers.get(argv[-1])
        return ProgramOutput(0, json.dumps(answer)) if answer else ProgramOutput(1, "OSError: no ELF")

    assert gpus.nccl_libraries(having(machine, execute=load)) == (
        NcclInstallation("torch", bundled, "2.27.5"),
        NcclInstallation("nvidia-nccl wheel", broken, None),
    )


def test_a_library_is_loaded_in_a_child(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "package_folders", lambda package: [tmp_path] if package == "torch" else [])
    having(machine, {"lib/libnccl.so.2": "no library"})
    first = gpus.nccl_libraries(having(machine, execute=execute))[0]
    assert first == NcclInstallation("torch", str(machine.path("lib/libnccl.so.2")), None)


def test_packages_that_are_not_there_have_no_folder() -> None:
    assert package_folders("nvidia_of_nobody.nccl") == ()
    assert package_folders("nobody_has_this") == ()
    assert package_folders("collbench.doctor") == (Path(gpus.__file__).parent,)


def test_nccl_looks_for_itself(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "nccl_libraries", lambda machine: (WHEEL,))
    monkeypatch.setattr(gpus, "nccl_wheels", lambda: frozenset({"cupy-cuda13x"}))
    assert "12.8" in only(seeing(MadeNvml(), check=gpus.nccl)(machine), "fail").cause
