"""Every outcome of the check nccl."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.doctor.gpus.cards import Install
from tests.unit.doctor.machines import only, write
from tests.unit.made_nvml import MadeNvml

from collbench.bindings.gpu.nccl import SONAME
from collbench.bindings.gpu.shared_library import package_folders
from collbench.doctor import gpus
from collbench.doctor.frame import Finding, Machine, ProgramOutput, execute
from collbench.doctor.gpus import NcclInstallation

WHEEL = NcclInstallation("nvidia-nccl wheel", "/env/nvidia/nccl/lib/libnccl.so.2", "2.27.5")
SYSTEM = NcclInstallation("dynamic linker", "/usr/lib/libnccl.so.2.19.3", "2.19.3")
NCCL_12 = frozenset({"nvidia-nccl-cu12"})


def test_no_nccl_without_a_gpu() -> None:
    assert gpus.judge_nccl((), frozenset(), None, gpu=False) == Finding("not installed")


@pytest.mark.parametrize(("cuda", "wheel"), [("12.8", "nvidia-nccl-cu12"), ("13.0", "nvidia-nccl-cu13")])
def test_no_nccl_beside_a_gpu(cuda: str, wheel: str) -> None:
    assert only(gpus.judge_nccl((), frozenset(), cuda, gpu=True), "warn").fix == f"pip install {wheel}"


def test_one_nccl() -> None:
    finding = gpus.judge_nccl((WHEEL,), NCCL_12, "12.8", gpu=True)
    assert finding == Finding("2.27.5 (nvidia-nccl wheel: /env/nvidia/nccl/lib/libnccl.so.2); nvidia-nccl-cu12")


def test_two_nccls() -> None:
    problem = only(gpus.judge_nccl((WHEEL, SYSTEM), NCCL_12, "12.8", gpu=True), "warn")
    assert WHEEL.path in problem.cause and SYSTEM.path in problem.cause
    assert "two backends could measure different libraries" in problem.effect
    assert problem.fix == "export LD_LIBRARY_PATH=/env/nvidia/nccl/lib:$LD_LIBRARY_PATH"


@pytest.mark.parametrize(("cuda", "kept"), [("12.8", "cu12"), ("13.1", "cu13"), (None, "cu12")])
def test_two_wheels_in_one_folder(cuda: str | None, kept: str) -> None:
    both = NCCL_12 | {"nvidia-nccl-cu13"}
    problem = next(one for one in gpus.judge_nccl((WHEEL,), both, cuda, gpu=True).problems if one.severity == "warn")
    assert problem.fix == f"pip uninstall -y nvidia-nccl-cu12 nvidia-nccl-cu13 && pip install nvidia-nccl-{kept}"


@pytest.mark.parametrize(
    ("name", "instead"), [("cupy-cuda13x", "cupy-cuda12x"), ("nvidia-nccl-cu13", "nvidia-nccl-cu12")]
)
def test_a_driver_that_is_too_old(name: str, instead: str) -> None:
    problem = only(gpus.judge_nccl((WHEEL,), frozenset({name}), "12.8", gpu=True), "fail")
    assert "the driver is too old" in problem.cause
    assert problem.fix.startswith(f"pip uninstall -y {name} && pip install {instead}")
    assert gpus.judge_nccl((WHEEL,), frozenset({instead}), "12.8", gpu=True).status == "ok"
    assert gpus.judge_nccl((WHEEL,), frozenset({name}), None, gpu=False).status == "ok"


def test_an_nccl_that_cannot_be_loaded() -> None:
    problem = only(gpus.judge_nccl((replace(WHEEL, version=None),), NCCL_12, "12.8", gpu=True), "warn")
    assert "cannot be loaded" in problem.cause
    assert WHEEL.path in problem.fix


@pytest.mark.parametrize(("code", "spelt"), [(22705, "2.27.5"), (21903, "2.19.3"), (2804, "2.8.4"), (20908, "2.9.8")])
def test_versions_of_nccl(code: int, spelt: str) -> None:
    assert gpus.nccl_version(code) == spelt


def test_libraries_of_packages_and_of_the_linker(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch and the linker find the same file, which is named once; nothing is loaded in this process."""
    write(machine, "torch/lib/libnccl.so.2", "")
    write(machine, "nccl/lib/libnccl.so.2", "")
    folders = {"torch": [machine.path("torch")], "nvidia.nccl": [machine.path("nccl")]}
    monkeypatch.setattr(gpus, "package_folders", folders.get)
    bundled = str(machine.path("torch/lib/libnccl.so.2"))
    broken = str(machine.path("nccl/lib/libnccl.so.2"))
    answers = {bundled: [bundled, 22705], SONAME: [bundled, 22705]}

    def load(argv: tuple[str, ...]) -> ProgramOutput:
        return (
            ProgramOutput(0, json.dumps(answers[argv[-1]]))
            if argv[-1] in answers
            else ProgramOutput(1, "OSError: no ELF")
        )

    assert gpus.nccl_libraries(replace(machine, execute=load)) == (
        NcclInstallation("torch", bundled, "2.27.5"),
        NcclInstallation("nvidia-nccl wheel", broken, None),
    )


def test_a_library_is_loaded_in_a_child(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "package_folders", lambda package: [tmp_path] if package == "torch" else [])
    write(machine, "lib/libnccl.so.2", "no library")
    first = gpus.nccl_libraries(replace(machine, execute=execute))[0]
    assert first == NcclInstallation("torch", str(machine.path("lib/libnccl.so.2")), None)


def test_packages_that_are_not_there_have_no_folder() -> None:
    assert package_folders("nvidia_of_nobody.nccl") == ()
    assert package_folders("nobody_has_this") == ()
    assert package_folders("collbench.doctor") == (Path(gpus.__file__).parent,)


def test_nccl_looks_for_itself(machine: Machine, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(MadeNvml())
    monkeypatch.setattr(gpus, "nccl_libraries", lambda machine: (WHEEL,))
    monkeypatch.setattr(gpus, "nccl_wheels", lambda: frozenset({"cupy-cuda13x"}))
    assert "up to 12.8" in only(gpus.nccl(machine), "fail").cause
