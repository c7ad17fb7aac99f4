"""Every outcome of the check gpus, with a pynvml that is made up."""

from __future__ import annotations

import sys
from dataclasses import replace

import pynvml as real
import pytest
from tests.unit.doctor.gpus.cards import Install, answering, card, on_cores
from tests.unit.doctor.machines import only, write
from tests.unit.made_nvml import TWO, MadeNvml

from collbench.doctor import gpus
from collbench.doctor.frame import Finding, Machine, ProgramOutput, execute
from collbench.machine import nvml
from collbench.machine.launcher import Launcher


def test_no_gpu(machine: Machine, without_driver: MadeNvml) -> None:
    write(machine, "sys/bus/pci/devices/0000:01:00.0/vendor", "0x8086")
    write(machine, "sys/bus/pci/devices/0000:01:00.0/class", "0x030000")
    write(machine, "sys/bus/pci/devices/0000:02:00.0/vendor", "0x10de")
    write(machine, "sys/bus/pci/devices/0000:02:00.0/class", "0x040300")  # its sound
    finding = gpus.gpus(machine)
    assert finding == Finding(
        "no NVIDIA GPU: backends mpi-staged, mpi-cuda, nccl and torch-nccl are not usable here"
    )  # fmt: skip


def test_a_card_without_a_driver(machine: Machine, without_driver: MadeNvml) -> None:
    card(machine)
    problem = only(gpus.gpus(machine), "fail")
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
    assert fix in only(gpus.gpus(machine), "fail").fix


def test_devices_without_the_python_library(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    nvml._open.cache_clear()
    assert gpus.gpus(machine).status == "ok"
    write(machine, "dev/nvidia0", "")
    assert only(gpus.gpus(machine), "unknown").fix == "pip install nvidia-ml-py"
    nvml._open.cache_clear()


@pytest.mark.parametrize("environ", [{}, {"NVIDIA_VISIBLE_DEVICES": "void"}])
def test_a_container_that_was_given_no_gpu(
    machine: Machine, without_driver: MadeNvml, environ: dict[str, str]
) -> None:  # fmt: skip
    card(machine)
    problem = only(gpus.gpus(replace(machine, container="docker", environ=environ)), "warn")
    assert ("NVIDIA_VISIBLE_DEVICES=void" in problem.cause) == bool(environ)
    assert problem.fix.startswith("docker run --gpus all ...")
    assert "nvidia-container-toolkit" in problem.fix


@pytest.mark.parametrize(("asked", "told"), [({}, "not set"), ({"NVIDIA_DRIVER_CAPABILITIES": "graphics"}, "graphics")])
def test_a_container_without_the_drivers_libraries(
    machine: Machine, install: Install, asked: dict[str, str], told: str
) -> None:
    install(MadeNvml(start=real.NVML_ERROR_LIBRARY_NOT_FOUND))
    write(machine, "dev/nvidiactl", "")
    problem = only(gpus.gpus(replace(machine, container="docker", environ=asked)), "fail")
    assert f"NVIDIA_DRIVER_CAPABILITIES is {told}" in problem.cause
    assert problem.fix == "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ..."


def test_a_container_that_lost_its_gpus(machine: Machine, install: Install) -> None:
    install(MadeNvml(start=real.NVML_ERROR_UNKNOWN))
    write(machine, "dev/nvidiactl", "")
    assert "a new container" in only(gpus.gpus(replace(machine, container="docker")), "fail").fix


def test_gpus_in_order(machine: Machine, install: Install) -> None:
    install(MadeNvml())
    assert gpus.gpus(machine) == Finding(
        "driver 570.86.15 (CUDA up to 12.8); GPU 0: NVIDIA H200, 139.00 GiB, node 0; "
        "GPU 1: NVIDIA H200, 139.00 GiB, node 1; cores 0-3 on node 0-1"
    )


def test_gpus_that_are_alike_are_named_once(machine: Machine, install: Install) -> None:
    install(MadeNvml())
    write(machine, "sys/bus/pci/devices/0000:c1:00.0/numa_node", "0")
    assert "; GPUs 0-1: NVIDIA H200, 139.00 GiB, node 0; " in gpus.gpus(machine).seen


def test_cores_on_another_node(machine: Machine, install: Install) -> None:
    install(MadeNvml())
    problem = only(gpus.gpus(on_cores(machine, "0-1")), "warn")
    assert problem.cause == "GPU 1 is on memory node 1, and all cores that may be used are on node 0"
    assert "less bandwidth" in problem.effect
    assert problem.fix.startswith("numactl --cpunodebind=1 --membind=1 collbench ...")
    boxed = only(gpus.gpus(replace(machine, container="docker")), "warn")
    assert boxed.fix == "docker run --cpuset-cpus=2-3 --cpuset-mems=1 ..."


@pytest.mark.parametrize(
    ("visible", "status"), [("0", "ok"), ("GPU-a", "ok"), ("GPU", "warn"), ("1", "warn"), ("GPU-b,0", "warn")]
)
def test_only_gpus_that_cuda_sees_must_be_near(
    machine: Machine, install: Install, visible: str, status: str
) -> None:  # fmt: skip
    install(MadeNvml())
    far = on_cores(replace(machine, environ={"CUDA_VISIBLE_DEVICES": visible}), "0-1")
    assert gpus.gpus(far).status == status


def test_a_node_that_nobody_tells_is_not_far(machine: Machine, install: Install) -> None:
    install(MadeNvml())
    write(machine, "sys/bus/pci/devices/0000:c1:00.0/numa_node", "-1")
    finding = gpus.gpus(on_cores(machine, "0-1"))
    assert finding.status == "ok"
    assert "node unknown" in finding.seen


def test_ranks_are_looked_at_together(machine: Machine, install: Install) -> None:
    """Rank 0 is bound to node 0; the others may well be on node 1."""
    install(MadeNvml())
    started = on_cores(replace(machine, launcher=Launcher("openmpi", 0, 2)), "0")
    assert gpus.gpus(started).status == "ok"
    write(machine, "proc/self/status", "Name:\tpython\nPPid:\t11\nCpus_allowed_list:\t0\n")
    write(machine, "proc/11/status", "Name:\tprterun\nPPid:\t1\nCpus_allowed_list:\t0-3\n")
    assert gpus.gpus(started).status == "ok"
    write(machine, "proc/11/status", "Name:\tprterun\nPPid:\t1\nCpus_allowed_list:\t0-1\n")
    fix = only(gpus.gpus(started), "warn").fix
    assert fix == "numactl --cpunodebind=0-1 mpirun --map-by numa --bind-to numa ..."


def test_mig(machine: Machine, install: Install) -> None:
    install(MadeNvml((TWO[0], replace(TWO[1], mig=(1, 1)))))
    finding = gpus.gpus(machine)
    problem = only(finding, "warn")
    assert problem.cause == "MIG is on for GPU 1"
    assert "peer-to-peer" in problem.effect
    assert problem.fix.startswith("sudo nvidia-smi -i 1 -mig 0")
    assert "node 1, MIG on" in finding.seen


def test_slowed_down(machine: Machine, install: Install) -> None:
    install(MadeNvml((replace(TWO[0], reasons=0x01), replace(TWO[1], reasons=0x44))))
    problem = only(gpus.gpus(machine), "warn")
    assert problem.cause == "GPU 1 is throttled now: power cap, thermal (hardware)"
    assert problem.fix.startswith("nvidia-smi -i 1 -q -d PERFORMANCE")


@pytest.mark.parametrize(
    ("answer", "cause", "fix"),
    [
        ("100", "no device is visible to CUDA", "unset CUDA_VISIBLE_DEVICES"),
        ("noise\n802", "fabric manager", "sudo systemctl start nvidia-fabricmanager"),
        ("803", "not that of the loaded driver", "unset LD_LIBRARY_PATH"),
        ("999", "cuInit returns 999", "dmesg"),
        ('"libcuda.so.1: cannot open"', "libcuda.so.1: cannot open", "sudo ldconfig"),
    ],
)
def test_cuda_does_not_start(machine: Machine, install: Install, answer: str, cause: str, fix: str) -> None:
    install(MadeNvml())
    problem = only(gpus.gpus(replace(machine, execute=answering(answer))), "fail")
    assert cause in problem.cause
    assert fix in problem.fix


def test_a_container_without_libcuda(machine: Machine, install: Install) -> None:
    install(MadeNvml())
    environ = {"NVIDIA_DRIVER_CAPABILITIES": "utility"}
    boxed = replace(machine, container="docker", environ=environ, execute=answering('"no such file"'))
    problem = only(gpus.gpus(boxed), "fail")
    assert "NVIDIA_DRIVER_CAPABILITIES is utility: libcuda needs compute" in problem.cause
    assert "-e NVIDIA_DRIVER_CAPABILITIES=compute,utility" in problem.fix


def test_cuda_that_does_not_answer(machine: Machine, install: Install) -> None:
    def hang(argv: tuple[str, ...]) -> ProgramOutput:
        raise TimeoutError("no answer within 10 s")

    install(MadeNvml())
    assert "no answer within 10 s" in only(gpus.gpus(replace(machine, execute=hang)), "unknown").cause
    only(gpus.gpus(replace(machine, execute=answering("Segmentation fault"))), "unknown")
    only(gpus.gpus(replace(machine, execute=answering(""))), "unknown")


def test_cuda_is_tried_in_a_child(machine: Machine, install: Install) -> None:
    """Whatever it says here, it is an answer."""
    install(MadeNvml())
    assert "unknown" not in {problem.severity for problem in gpus.gpus(replace(machine, execute=execute)).problems}
