"""Which GPU a program of suite `gpu` opens, and how it ends: with a result, a reason to skip, or one message."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import pytest

from collbench.bindings.gpu import cupy_device
from collbench.errors import BackendUnavailable, LibraryError, Unsupported
from collbench.schema import world
from collbench.workloads.gpu import device
from collbench.workloads.gpu.device import OpenGpu


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device is the word that names it."""
    monkeypatch.setattr(cupy_device, "missing", lambda: None)
    monkeypatch.setattr(cupy_device, "visible", lambda: ("GPU-0", "GPU-1"))
    monkeypatch.setattr(cupy_device, "CupyDevice", str)
    monkeypatch.setattr(device, "CupyCompute", lambda device: f"compute on {device}")
    monkeypatch.delenv(world.GPU, raising=False)


def test_the_first_gpu_or_the_one_that_was_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device.opened() == OpenGpu("GPU-0", "compute on GPU-0")  # type: ignore[arg-type]
    monkeypatch.setenv(world.GPU, "")
    assert str(device.opened().device) == "GPU-0"
    monkeypatch.setenv(world.GPU, "GPU-1")
    assert str(device.opened().device) == "GPU-1"
    monkeypatch.setenv(world.GPU, "GPU-7")
    with pytest.raises(BackendUnavailable, match="GPU GPU-7 was planned, and this process sees GPU-0, GPU-1"):
        device.opened()


def ended(
    capsys: pytest.CaptureFixture[str], run: Callable[[OpenGpu, argparse.Namespace], Any]
) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    code = device.printed(lambda: run(device.opened(), argparse.Namespace(side=7, times=3)))
    text = capsys.readouterr()
    return code, text.out, text.err


def test_a_program_prints_its_result(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ended(capsys, lambda gpu, flags: {"side": flags.side, "times": flags.times, "on": gpu.device})
    assert (code, json.loads(out)) == (0, {"side": 7, "times": 3, "on": "GPU-0"})


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BackendUnavailable("there is no cuBLAS"), 77),
        (Unsupported("it cannot be captured"), 77),
        (MemoryError("3 are free"), 1),
        (LibraryError("the library returned error 1"), 1),
    ],
)
def test_a_program_that_cannot_says_why_in_one_line(
    capsys: pytest.CaptureFixture[str], error: Exception, code: int
) -> None:
    def fails(*_: Any) -> None:
        raise error

    assert ended(capsys, fails) == (code, "", f"{error}\n")


def test_without_a_gpu_it_is_skipped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy_device, "missing", lambda: "no driver is loaded")
    assert ended(capsys, lambda *_: pytest.fail("it ran")) == (77, "", "no driver is loaded\n")
    assert device.printed(device.described) == 77
