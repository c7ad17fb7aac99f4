"""Every outcome of the checks of GPUs: gpus, peers, nccl; with a pynvml that is made up."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pynvml as real
import pytest
from tests.unit.made_nvml import TWO, MadeGpu, MadeNvml, linked

from collbench.bindings.gpu.nccl_library import SONAME
from collbench.bindings.gpu.shared_library import package_folders
from collbench.doctor import gpus, nccl, peers
from collbench.doctor.nccl import NcclInstallation
from collbench.doctor.parts.finding import Finding, Problem
from collbench.doctor.parts.machine import Machine, Output, execute
from collbench.machine import nvml
from collbench.machine.launcher import Launcher

Install = Callable[[MadeNvml], MadeNvml]


def answering(text: str) -> Callable[[tuple[str, ...]], Output]:
    return lambda argv: Output(0, text)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Two nodes of two cores, of which this process may use all; CUDA starts."""
    made = Machine(tmp_path, {}, Launcher("none"), 1000, None, answering("0\n"))
    write(made, "sys/devices/system/cpu/online", "0-3")
    write(made, "sys/devices/system/node/node0/cpulist", "0-1")
    write(made, "sys/devices/system/node/node1/cpulist", "2-3")
    write(made, "sys/bus/pci/devices/0000:65:00.0/numa_node", "0")
    write(made, "sys/bus/pci/devices/0000:c1:00.0/numa_node", "1")
    write(made, "proc/self/status", "Name:\tpython\nPPid:\t0\nCpus_allowed_list:\t0-3\n")
    return made


def write(machine: Machine, name: str, text: str) -> None:
    path = machine.path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def on_cores(machine: Machine, cores: str) -> Machine:
    write(machine, "proc/self/status", f"Name:\tpython\nPPid:\t0\nCpus_allowed_list:\t{cores}\n")
    return machine


def card(machine: Machine) -> None:
    write(machine, "sys/bus/pci/devices/0000:65:00.0/vendor", "0x10de")
    write(machine, "sys/bus/pci/devices/0000:65:00.0/class", "0x030200")


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    def forget() -> None:
        nvml._open.cache_clear()
        nvml._handle.cache_clear()

    def put(made: MadeNvml) -> MadeNvml:
        monkeypatch.setitem(sys.modules, "pynvml", made)
        forget()
        return made

    yield put
    forget()


@pytest.fixture
def without_driver(install: Install) -> MadeNvml:
    return install(MadeNvml(start=real.NVML_ERROR_DRIVER_NOT_LOADED))


def only(finding: Finding, severity: str) -> Problem:
    """The one problem, which must say cause, effect and fix."""
    assert [problem.severity for problem in finding.problems] == [severity]
    problem = finding.problems[0]
    assert problem.cause and problem.effect and problem.fix
    return problem


# gpus: none shown -----------------------------------------------------------------------------------------------------


def test_no_gpu(machine: Machine, without_driver: MadeNvml) -> None:
    write(machine, "sys/bus/pci/devices/0000:01:00.0/vendor", "0x8086")
    write(machine, "sys/bus/pci/devices/0000:01:00.0/class", "0x030000")
    write(machine, "sys/bus/pci/devices/0000:02:00.0/vendor", "0x10de")
    write(machine, "sys/bus/pci/devices/0000:02:00.0/class", "0x040300")  # its sound
    finding = gpus.run(machine)
    assert finding == Finding(
        "no NVIDIA GPU: backends mpi-staged, mpi-cuda, nccl and torch-nccl are not usable here"
    )  # fmt: skip


def test_a_card_without_a_driver(machine: Machine, without_driver: MadeNvml) -> None:
    card(machine)
    problem = only(gpus.run(machine), "fail")
    assert problem.cause == "NVIDIA devices: 1 on the PCI bus, none in /dev, but NVML: Driver Not Loaded"
    assert problem.fix.startswith("sudo modprobe nvidia")


@pytest.mark.parametrize(
    ("code", "fix"),
    [
        (real.NVML_ERROR_LIBRARY_NOT_FOUND, "ubuntu-drivers"),
        (real.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "sudo reboot"),
        (real.NVML_ERROR_UNKNOWN, "dmesg"),
    ],
)
def test_a_driver_that_does_not_answer(machine: Machine, install: Install, code: int, fix: str) -> None:
    install(MadeNvml(start=code))
    write(machine, "dev/nvidiactl", "")
    assert fix in only(gpus.run(machine), "fail").fix


def test_devices_without_the_python_library(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    nvml._open.cache_clear()
    assert gpus.run(machine).status == "ok"
    write(machine, "dev/nvidia0", "")
    assert only(gpus.run(machine), "unknown").fix == "pip install nvidia-ml-py"
    nvml._open.cache_clear()


@pytest.mark.parametrize("environ", [{}, {"NVIDIA_VISIBLE_DEVICES": "void"}])
def test_a_container_that_was_given_no_gpu(
    machine: Machine, without_driver: MadeNvml, environ: dict[str, str]
) -> None:  # fmt: skip
    card(machine)
    problem = only(gpus.run(replace(machine, container="docker", environ=environ)), "warn")
    assert ("NVIDIA_VISIBLE_DEVICES=void" in problem.cause) == bool(environ)
    assert problem.fix.startswith("docker run --gpus all ...")
    assert "nvidia-container-toolkit" in problem.fix


@pytest.mark.parametrize(("asked", "told"), [({}, "not set"), ({"NVIDIA_DRIVER_CAPABILITIES": "graphics"}, "graphics")])
def test_a_container_without_the_drivers_libraries(
    machine: Machine, install: Install, asked: dict[str, str], told: str
) -> None:
    install(MadeNvml(start=real.NVML_ERROR_LIBRARY_NOT_FOUND))
    write(machine, "dev/nvidiactl", "")
    problem = only(gpus.run(replace(machine, container="docker", environ=asked)), "fail")
    assert f"NVIDIA_DRIVER_CAPABILITIES is {told}" in problem.cause
    assert problem.fix == "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ..."


def test_a_container_that_lost_its_gpus(machine: Machine, install: Install) -> None:
    install(MadeNvml(start=real.NVML_ERROR_UNKNOWN))
    write(machine, "dev/nvidiactl", "")
    assert "a new container" in only(gpus.run(replace(machine, container="docker")), "fail").fix


# gpus: shown ----------------------------------------------------------------------------------------------------------


def test_gpus_in_order(machine: Machine, install: Install) -> None:
    install(MadeNvml())
    assert gpus.run(machine) == Finding(
        "driver 570.86.15 (CUDA up to 12.8); GPU 0: NVIDIA H200, 139.00 GiB, node 0; "
        "GPU 1: NVIDIA H200, 139.00 GiB, node 1; cores 0-3 on node 0-1"
    )


def test_gpus_that_are_alike_are_named_once(machine: Machine, install: Install) -> None:
    install(MadeNvml())
    write(machine, "sys/bus/pci/devices/0000:c1:00.0/numa_node", "0")
    assert "; GPUs 0-1: NVIDIA H200, 139.00 GiB, node 0; " in gpus.run(machine).seen


def test_cores_on_another_node(machine: Machine, install: Install) -> None:
    install(MadeNvml())
    problem = only(gpus.run(on_cores(machine, "0-1")), "warn")
    assert problem.cause == "GPU 1 hangs on memory node 1, and all cores that may be used are on node 0"
    assert "lose bandwidth" in problem.effect
    assert problem.fix.startswith("numactl --cpunodebind=1 --membind=1 collbench ...")
    boxed = only(gpus.run(replace(machine, container="docker")), "warn")
    assert boxed.fix == "docker run --cpuset-cpus=2-3 --cpuset-mems=1 ..."


@pytest.mark.parametrize(
    ("visible", "status"), [("0", "ok"), ("GPU-a", "ok"), ("GPU", "warn"), ("1", "warn"), ("GPU-b,0", "warn")]
)
def test_only_gpus_that_cuda_sees_must_be_near(
    machine: Machine, install: Install, visible: str, status: str
) -> None:  # fmt: skip
    install(MadeNvml())
    far = on_cores(replace(machine, environ={"CUDA_VISIBLE_DEVICES": visible}), "0-1")
    assert gpus.run(far).status == status


def test_a_node_that_nobody_tells_is_not_far(machine: Machine, install: Install) -> None:
    install(MadeNvml())
    write(machine, "sys/bus/pci/devices/0000:c1:00.0/numa_node", "-1")
    finding = gpus.run(on_cores(machine, "0-1"))
    assert finding.status == "ok"
    assert "node unknown" in finding.seen


def test_ranks_are_looked_at_together(machine: Machine, install: Install) -> None:
    """Rank 0 is bound to node 0; the others may well be on node 1."""
    install(MadeNvml())
    started = on_cores(replace(machine, launcher=Launcher("openmpi", 0, 2)), "0")
    assert gpus.run(started).status == "ok"
    write(machine, "proc/self/status", "Name:\tpython\nPPid:\t11\nCpus_allowed_list:\t0\n")
    write(machine, "proc/11/status", "Name:\tprterun\nPPid:\t1\nCpus_allowed_list:\t0-3\n")
    assert gpus.run(started).status == "ok"
    write(machine, "proc/11/status", "Name:\tprterun\nPPid:\t1\nCpus_allowed_list:\t0-1\n")
    fix = only(gpus.run(started), "warn").fix
    assert fix == "numactl --cpunodebind=0-1 mpirun --map-by numa --bind-to numa ..."


def test_mig(machine: Machine, install: Install) -> None:
    install(MadeNvml((TWO[0], replace(TWO[1], mig=(1, 1)))))
    finding = gpus.run(machine)
    problem = only(finding, "warn")
    assert problem.cause == "MIG is on for GPU 1"
    assert "peer-to-peer" in problem.effect
    assert problem.fix.startswith("sudo nvidia-smi -i 1 -mig 0")
    assert "node 1, MIG on" in finding.seen


def test_slowed_down(machine: Machine, install: Install) -> None:
    install(MadeNvml((replace(TWO[0], reasons=0x01), replace(TWO[1], reasons=0x44))))
    problem = only(gpus.run(machine), "warn")
    assert problem.cause == "GPU 1 is slowed down now: power cap, thermal (hardware)"
    assert problem.fix.startswith("nvidia-smi -i 1 -q -d PERFORMANCE")


@pytest.mark.parametrize(
    ("answer", "cause", "fix"),
    [
        ("100", "no device is visible to CUDA", "unset CUDA_VISIBLE_DEVICES"),
        ("noise\n802", "fabric manager", "sudo systemctl start nvidia-fabricmanager"),
        ("803", "not that of the loaded driver", "unset LD_LIBRARY_PATH"),
        ("999", "cuInit ends with 999", "dmesg"),
        ('"libcuda.so.1: cannot open"', "libcuda.so.1: cannot open", "sudo ldconfig"),
    ],
)
def test_cuda_does_not_start(machine: Machine, install: Install, answer: str, cause: str, fix: str) -> None:
    install(MadeNvml())
    problem = only(gpus.run(replace(machine, execute=answering(answer))), "fail")
    assert cause in problem.cause
    assert fix in problem.fix


def test_a_container_without_libcuda(machine: Machine, install: Install) -> None:
    install(MadeNvml())
    environ = {"NVIDIA_DRIVER_CAPABILITIES": "utility"}
    boxed = replace(machine, container="docker", environ=environ, execute=answering('"no such file"'))
    problem = only(gpus.run(boxed), "fail")
    assert "NVIDIA_DRIVER_CAPABILITIES is utility: libcuda comes with compute" in problem.cause
    assert "-e NVIDIA_DRIVER_CAPABILITIES=compute,utility" in problem.fix


def test_cuda_that_does_not_answer(machine: Machine, install: Install) -> None:
    def hang(argv: tuple[str, ...]) -> Output:
        raise TimeoutError("no answer within 10 s")

    install(MadeNvml())
    assert "no answer within 10 s" in only(gpus.run(replace(machine, execute=hang)), "unknown").cause
    only(gpus.run(replace(machine, execute=answering("Segmentation fault"))), "unknown")
    only(gpus.run(replace(machine, execute=answering(""))), "unknown")


def test_cuda_is_tried_in_a_child(machine: Machine, install: Install) -> None:
    """Whatever it says here, it is an answer."""
    install(MadeNvml())
    assert "unknown" not in {problem.severity for problem in gpus.run(replace(machine, execute=execute)).problems}


# peers ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", [TWO[:1], (TWO[0], replace(TWO[1], mig=(1, 1)))])
def test_fewer_than_two_gpus(machine: Machine, install: Install, there: tuple[MadeGpu, ...]) -> None:
    install(MadeNvml(there))
    assert peers.run(machine) == Finding("fewer than two GPUs")


def test_no_gpus_have_no_peers(machine: Machine, without_driver: MadeNvml) -> None:
    assert peers.run(machine) == Finding("fewer than two GPUs")


def test_gpus_that_reach_each_other(machine: Machine, install: Install) -> None:
    install(MadeNvml(linked(4)))
    assert peers.run(machine) == Finding("2 GPUs, each pair NV4; peer access between all")


def test_a_row_for_each_gpu(machine: Machine, install: Install) -> None:
    install(MadeNvml((*linked(4), MadeGpu("GPU-c", "00000000:D1:00.0"))))
    seen = "GPU 0: - NV4 SYS; GPU 1: NV4 - SYS; GPU 2: SYS SYS -; peer access between all"
    assert peers.run(machine) == Finding(seen)


def test_no_peer_access(machine: Machine, install: Install) -> None:
    install(MadeNvml(status={0: 0, 1: 5}))
    finding = peers.run(machine)
    assert finding.seen == "2 GPUs, each pair SYS; peer access between none"
    problem = only(finding, "warn")
    assert problem.cause == "no peer access between GPUs 0-1"
    assert "host memory" in problem.effect
    assert problem.fix.startswith("nvidia-smi topo -p2p r")


def test_some_peer_access() -> None:
    there = tuple(nvml.GpuFacts(place, f"GPU-{place}", "", "") for place in range(4))
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    finding = peers.judge(there, dict.fromkeys(pairs, "PIX"), {pair: pair == (2, 3) for pair in pairs})
    assert finding.seen.endswith("peer access between 1 of 6 pairs")
    problem = only(finding, "warn")
    assert problem.cause == "no peer access between GPUs 0-1, 0-2, 0-3, 1-2 and 1 more"
    assert problem.fix.startswith("export CUDA_VISIBLE_DEVICES=GPU-2,GPU-3 ")


def test_peer_access_that_is_not_told(machine: Machine, install: Install) -> None:
    install(MadeNvml(status={}))
    assert "does not tell" in only(peers.run(machine), "unknown").cause


def test_peer_access_one_way_is_none(machine: Machine, monkeypatch: pytest.MonkeyPatch, install: Install) -> None:
    install(MadeNvml())
    monkeypatch.setattr(nvml, "peer_access", lambda first, second: first < second)
    only(peers.run(machine), "warn")


# nccl -----------------------------------------------------------------------------------------------------------------

WHEEL = NcclInstallation("nvidia-nccl wheel", "/env/nvidia/nccl/lib/libnccl.so.2", "2.27.5")
SYSTEM = NcclInstallation("dynamic linker", "/usr/lib/libnccl.so.2.19.3", "2.19.3")
NCCL_12 = frozenset({"nvidia-nccl-cu12"})


def test_no_nccl_without_a_gpu() -> None:
    assert nccl.judge((), frozenset(), None, gpu=False) == Finding("not installed")


@pytest.mark.parametrize(("cuda", "wheel"), [("12.8", "nvidia-nccl-cu12"), ("13.0", "nvidia-nccl-cu13")])
def test_no_nccl_beside_a_gpu(cuda: str, wheel: str) -> None:
    assert only(nccl.judge((), frozenset(), cuda, gpu=True), "warn").fix == f"pip install {wheel}"


def test_one_nccl() -> None:
    finding = nccl.judge((WHEEL,), NCCL_12, "12.8", gpu=True)
    assert finding == Finding("2.27.5 (nvidia-nccl wheel: /env/nvidia/nccl/lib/libnccl.so.2); nvidia-nccl-cu12")


def test_two_nccls() -> None:
    problem = only(nccl.judge((WHEEL, SYSTEM), NCCL_12, "12.8", gpu=True), "warn")
    assert WHEEL.path in problem.cause and SYSTEM.path in problem.cause
    assert "two backends could measure different libraries" in problem.effect
    assert problem.fix == "export LD_LIBRARY_PATH=/env/nvidia/nccl/lib:$LD_LIBRARY_PATH"


@pytest.mark.parametrize(("cuda", "kept"), [("12.8", "cu12"), ("13.1", "cu13"), (None, "cu12")])
def test_two_wheels_in_one_folder(cuda: str | None, kept: str) -> None:
    both = NCCL_12 | {"nvidia-nccl-cu13"}
    problem = next(one for one in nccl.judge((WHEEL,), both, cuda, gpu=True).problems if one.severity == "warn")
    assert problem.fix == f"pip uninstall -y nvidia-nccl-cu12 nvidia-nccl-cu13 && pip install nvidia-nccl-{kept}"


@pytest.mark.parametrize(
    ("name", "instead"), [("cupy-cuda13x", "cupy-cuda12x"), ("nvidia-nccl-cu13", "nvidia-nccl-cu12")]
)
def test_a_driver_that_is_too_old(name: str, instead: str) -> None:
    problem = only(nccl.judge((WHEEL,), frozenset({name}), "12.8", gpu=True), "fail")
    assert "the driver is too old" in problem.cause
    assert problem.fix.startswith(f"pip uninstall -y {name} && pip install {instead}")
    assert nccl.judge((WHEEL,), frozenset({instead}), "12.8", gpu=True).status == "ok"
    assert nccl.judge((WHEEL,), frozenset({name}), None, gpu=False).status == "ok"


def test_an_nccl_that_cannot_be_loaded() -> None:
    problem = only(nccl.judge((replace(WHEEL, version=None),), NCCL_12, "12.8", gpu=True), "warn")
    assert "cannot be loaded" in problem.cause
    assert WHEEL.path in problem.fix


@pytest.mark.parametrize(("code", "spelt"), [(22705, "2.27.5"), (21903, "2.19.3"), (2804, "2.8.4"), (20908, "2.9.8")])
def test_versions_of_nccl(code: int, spelt: str) -> None:
    assert nccl.spell(code) == spelt


def test_libraries_of_packages_and_of_the_linker(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch and the linker find the same file, which is named once; nothing is loaded in this process."""
    write(machine, "torch/lib/libnccl.so.2", "")
    write(machine, "nccl/lib/libnccl.so.2", "")
    folders = {"torch": [machine.path("torch")], "nvidia.nccl": [machine.path("nccl")]}
    monkeypatch.setattr(nccl, "package_folders", folders.get)
    bundled = str(machine.path("torch/lib/libnccl.so.2"))
    broken = str(machine.path("nccl/lib/libnccl.so.2"))
    answers = {bundled: [bundled, 22705], SONAME: [bundled, 22705]}

    def load(argv: tuple[str, ...]) -> Output:
        return Output(0, json.dumps(answers[argv[-1]])) if argv[-1] in answers else Output(1, "OSError: no ELF")

    assert nccl.libraries(replace(machine, execute=load)) == (
        NcclInstallation("torch", bundled, "2.27.5"),
        NcclInstallation("nvidia-nccl wheel", broken, None),
    )


def test_a_library_is_loaded_in_a_child(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "package_folders", lambda package: [tmp_path] if package == "torch" else [])
    write(machine, "lib/libnccl.so.2", "no library")
    first = nccl.libraries(replace(machine, execute=execute))[0]
    assert first == NcclInstallation("torch", str(machine.path("lib/libnccl.so.2")), None)


def test_packages_that_are_not_there_have_no_folder() -> None:
    assert package_folders("nvidia_of_nobody.nccl") == ()
    assert package_folders("nobody_has_this") == ()
    assert package_folders("collbench.doctor") == (Path(nccl.__file__).parent,)


def test_nccl_looks_for_itself(machine: Machine, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(MadeNvml())
    monkeypatch.setattr(nccl, "libraries", lambda machine: (WHEEL,))
    monkeypatch.setattr(nccl, "installed", lambda: frozenset({"cupy-cuda13x"}))
    assert "up to 12.8" in only(nccl.run(machine), "fail").cause
